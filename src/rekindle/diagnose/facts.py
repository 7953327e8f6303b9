"""What a log says about the machine it was written on, and what the caller knows besides.

Look-alike messages are split by such facts ("only supports Ampere" on a newer card is another cause than on an older
one), and fixes are written for them. A fact nobody told is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from rekindle.compat import container
from rekindle.compat.host_compiler import toolsets_of
from rekindle.compat.judgement import Clash
from rekindle.core.regex import re2
from rekindle.core.version import Version, unreal
from rekindle.diagnose import cards
from rekindle.inputs.driver import read_driver
from rekindle.inputs.system import read_system
from rekindle.inputs.torch import read_any_torch
from rekindle.inputs.versions import read_cuda, read_python, read_toolset
from rekindle.knowledge.gpu.gpus import MatchedBy, capabilities_of, find_all, gpus
from rekindle.knowledge.gpu.jetson import only_chip
from rekindle.knowledge.logs.signatures import FactRow, aside_of, log_facts
from rekindle.knowledge.tables import cached
from rekindle.knowledge.torch import wheel_platforms
from rekindle.machine.model import Machine
from rekindle.model.card import Capability
from rekindle.model.cuda_line import LINE, CudaLine
from rekindle.stack import coverage
from rekindle.stack.from_machine import situation_of
from rekindle.stack.situation import Situation


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """`os` is `windows` or `linux`; versions are spelled as the log spells them."""

    os: str | None = None
    gpus: tuple[Capability, ...] = ()
    torch: str | None = None
    cuda: str | None = None
    python: str | None = None
    environment: str | None = None
    """The folder whose Python failed, as the paths of its packages name it; `~` for a home, whosever it is."""
    toolset: str | None = None
    studio: str | None = None
    """The folder of the Visual Studio that a path names."""
    studio_year: str | None = None
    bits: int | None = None
    developer_prompt: bool | None = None
    msvc: bool | None = None
    gpu_name: str | None = None
    driver: str | None = None
    jobs: int | None = None
    variant: str | None = None
    """The `cu128` of `2.8.0+cu128`."""
    index: str | None = None
    """The `cu128` of the index that pip looked into."""
    toolkit: str | None = None
    """The folder of the CUDA toolkit on a recorded machine."""
    cudnn: str | None = None
    package: str | None = None
    """What pip was building or installing when it failed."""
    wsl: bool | None = None
    distribution: str | None = None
    glibc: str | None = None
    """The C library of the system: which wheels load goes by it."""
    amd_card: str | None = None
    vendor: str | None = None
    """Whose card it is (`amd`, `intel`, `apple`), where one is named and none of NVIDIA is."""
    chip: str | None = None
    """The chips that the card's name stands for."""
    runtime_image: str | None = None
    """An image of PyTorch without a compiler, as far as its name goes before `-runtime`."""
    l4t: str | None = None
    """The major release of L4T that a Jetson runs."""
    windows_build: str | None = None
    torch_lacks_card: bool | None = None
    cudnn_lacks_card: bool | None = None
    gcc: str | None = None
    torchvision: str | None = None
    torchaudio: str | None = None
    memory_free: bool | None = None
    memory_beyond: bool | None = None
    """Much more memory was free than the allocation that failed asked for."""
    status: str | None = None
    """An exit status of Windows that tells what happened, as `0xC0000135`."""
    status_program: str | None = None
    program: str | None = None
    """A program with requirements of its own, as ComfyUI."""
    installs: tuple[str, ...] = ()
    """What the `pip install` lines of the text ask for."""
    unserved: str | None = None
    """One of them that has no code for the card."""
    cuda_package: str | None = None
    """A package with a CUDA in its name, as `cupy-cuda12x`."""
    least_card: Capability | None = None
    """The oldest card that what is used asks for, as the text says."""
    demands: tuple[str, ...] = ()
    """Packages that pip says want another torch: `xformers 0.0.16 1.13.1`."""
    hidden: str | None = None
    """What CUDA_VISIBLE_DEVICES is set to, where that shows no card."""
    without_gpus: str | None = None
    """The `docker` or `singularity` of the text, where every `run` of it leaves the cards out."""
    library_cuda: str | None = None
    """The major CUDA of a library that the program asks for, as the 11 of `cublas64_11.dll`."""
    told: tuple[str, ...] = ()
    """The facts that only the words of a person tell."""
    smi_cuda: str | None = None
    """The newest CUDA that the driver runs, as `nvidia-smi` shows it."""
    signs: tuple[str, ...] = ()
    """What holds, by the names of the data's flags: `docker`, `jetson`, `smi` (nvidia-smi works)."""
    situation: Situation | None = None
    """All of a recorded machine, for the resolver."""

    @property
    def counting(self) -> str:
        """By whose numbers the driver counts: inside WSL it is the Windows one."""
        return "windows" if self.wsl else self.os or "linux"


def present(**values: object) -> dict[str, str]:
    """What is known, as text; what is not is left out."""
    return {name: str(value) for name, value in values.items() if value}


class Entity(msgspec.Struct, frozen=True, kw_only=True):
    """A thing that the log names, with its line. Not `read`: it looks like one, and no table knows it."""

    kind: str
    value: str
    line: int
    read: bool = True


_LONGEST = 4_000
_MOST = 60
# The name of a file somewhere else is not what is installed, nor is what pip takes away.
_ADDRESS = re2.compile(r"https?://\S+\.whl\S*|(?:Found existing installation:|[Uu]ninstall(?:ing|ed)) .*")
# A release that is asked for, which is not yet the one that is there.
_WISHED = re2.compile(r"(?i)\b(?:install|requires?|required)\b|[=<>~]=")
_LEAST = re2.compile(r"^(?:\.\d+)?(?:\+|,? (?:or|and) (?:newer|higher|later|above|up|greater)\b)")
# A path of PyTorch's index looks like one of Linux.
_INDEX_PATH = "/whl/"


def facts_from_options(
    *,
    gpus: Sequence[str] = (),
    system: str | None = None,
    torch: str | None = None,
    cuda: str | None = None,
    toolset: str | None = None,
    python: str | None = None,
    driver: str | None = None,
) -> Facts:
    """What the caller knows, as the command line spells it."""
    place = read_system(system) if system is not None else None
    meant = read_any_torch(torch) if torch is not None else None
    counting = place.driver_system if place else "linux"
    return Facts(
        gpus=capabilities_of(gpus),
        gpu_name=_name(gpus),
        os=place.system if place else None,
        wsl=True if place and place.wsl else None,
        distribution=place.distribution if place else None,
        glibc=str(place.glibc) if place and place.glibc else None,
        torch=meant.release if meant else None,
        variant=meant.variant if meant else None,
        cuda=str(read_cuda(cuda)) if cuda is not None else None,
        toolset=str(read_toolset(toolset)) if toolset is not None else None,
        python=read_python(python).version if python is not None else None,
        driver=str(read_driver(driver, counting).driver) if driver is not None else None,
    )


def _name(gpus: Sequence[str]) -> str | None:
    """One card that was named, not numbered."""
    found = find_all(gpus)
    return found[0].name if len(found) == 1 and found[0].by is not MatchedBy.CAPABILITY else None


def of_machine(machine: Machine, said: Facts) -> Facts:
    """What a recorded machine tells; what was said on the command line wins."""
    toolkit = next((found for found in machine.toolkits if found.version), None)
    prompt = machine.prompt
    found = Facts(
        os=machine.os,
        distribution=machine.surroundings.distribution,
        gpus=machine.capabilities,
        cuda=str(toolkit.version.major_minor) if toolkit and toolkit.version else None,
        toolkit=toolkit.root if toolkit else None,
        torch=machine.torch.pin.release if machine.torch else None,
        toolset=str(prompt.toolset.major_minor) if prompt.toolset else None,
        msvc=bool(machine.toolsets) if machine.os == "windows" else None,
        developer_prompt=bool(prompt.toolset or prompt.cl) if machine.os == "windows" else None,
        driver=str(machine.driver.version) if machine.driver and machine.driver.version else None,
        variant=machine.torch.pin.variant if machine.torch else None,
        situation=situation_of(machine) if not said.gpus and said.os in (None, machine.os) else None,
    )
    return _over(found, said)


def gather(lines: Iterable[tuple[int, str]], known: Facts | None = None) -> tuple[Facts, tuple[Entity, ...]]:
    """The facts, and every thing that the lines name with its line. `known` wins over what the log says.

    Of two machines it is the one on which it fails, where that one is told; where no card is plainly said to be there,
    it is the only one that is named.
    """
    every = tuple(lines)
    here = tuple((number, cards.of_this_machine(text)) for number, text in every)
    found = _gather(here, known)
    whole = found if here == every or found[0].gpus or found[0].driver else _gather(every, known)
    found = whole if whole[0].gpus or whole[0].driver else found
    if found[0].gpus or len({card for _, text in here for card, _ in cards.in_line(text, title=True)}) != 1:
        return found
    return _gather(here, known, named=True)


def _gather(
    lines: Iterable[tuple[int, str]], known: Facts | None, *, named: bool = False
) -> tuple[Facts, tuple[Entity, ...]]:
    found: dict[str, Any] = {}
    said: dict[str, Any] = {}
    seen: dict[Capability, str | None] = {}
    entities: dict[tuple[str, str], Entity] = {}
    systems = {"windows": 0, "linux": 0}
    wished: set[str] = set()
    title = True

    def note(kind: str, value: str, line: int, *, read: bool = True) -> None:
        entities.setdefault((kind, value), Entity(kind=kind, value=value, line=line, read=read))

    for number, text in lines:
        of_windows = False
        for row, pattern, spoken in _in(text):
            name = row.name
            if spoken:
                value = _spoken(row, pattern, text)
                said = value | said if name != "installs" else said | {name: (*said.get(name, ()), *value.values())}
                if row.listed and value:
                    note(name, "+".join(str(each) for each in value.values()), number)
            elif name in systems:
                # A line of Windows may name a `.so` besides.
                of_windows = of_windows or name == "windows"
                systems[name] += name == "windows" or not (of_windows or _INDEX_PATH in text)
            elif name == "card":
                there = cards.in_line(text, title=title)
                for card, spelled in there:
                    seen[card] = seen.get(card) or spelled
                    note("card", f"{spelled} ({card})" if spelled else card.sm, number)
                for word in cards.unread(text) if not there else ():
                    note("card", word, number, read=False)
            elif name == "without_gpus":
                words = pattern.search(text).group(1).split()
                lacking = isinstance(container.gets_cards(words), Clash) and found.get(name, words[0])
                found[name] = lacking or ""
            elif name == "installs":
                asked = ("==".join(filter(None, match.groups())) for match in pattern.finditer(text))
                words = (each.rstrip(".,:)") for every in asked for each in every.split() if each[:1].isalpha())
                found[name] = (*found.get(name, ()), *words)[:_MOST]
            elif name == "demands":
                demand = " ".join(pattern.search(text).groups())
                found[name] = (*found.get(name, ()), *([] if unreal(demand) else [demand]))[:_MOST]
            else:
                told = _real(row, pattern.search(text if name != "torch" else _ADDRESS.sub(" ", text)))
                if name in wished and told and not _WISHED.search(text):
                    found = {each: value for each, value in found.items() if each not in wished}
                    wished.clear()
                if name not in found:
                    found |= told
                    wished.update(told if name == "torch" and _WISHED.search(text) else ())
                if row.listed and told:
                    note(name, "+".join(str(each) for each in told.values()), number)
        title = named or (title and not text.strip())
    by_words = tuple(sorted(said.keys() - found.keys()))
    found = said | found | {"installs": (*found.get("installs", ()), *said.get("installs", ()))}
    systems["linux"] += "jetson" in found
    if any(systems.values()):
        # Whoever names both and WSL runs it there.
        found["os"] = "windows" if systems["windows"] >= systems["linux"] + 2 * ("wsl" in found) else "linux"
    signs = frozenset(name for name in found if name not in Facts.__struct_fields__) - {"wanted", "free", "capacity"}
    if {"jetson", "torch_works"} <= signs:
        signs |= {"nvidia_torch"}
    # Where a card of NVIDIA is in the story, it is that one that the log is about.
    ours = seen or found.get("driver") or signs & {"nvidia", "smi", "jetson"}
    vendor = next((named for sign, named in _VENDORS.items() if sign in signs and not ours), None)
    sizes = {name: _mebibytes(found[name]) for name in ("wanted", "free", "capacity") if name in found}
    facts = Facts(
        gpus=tuple(seen),
        gpu_name=seen[min(seen)] if seen else None,
        signs=tuple(sorted(signs)),
        vendor=vendor,
        told=by_words,
        # 26 MiB were refused with 21 GiB free: the memory is not what was missing.
        memory_free=sizes["free"] > max(1024, 4 * sizes["wanted"]) if {"free", "wanted"} <= sizes.keys() else None,
        memory_beyond=sizes["wanted"] > sizes["capacity"] if {"wanted", "capacity"} <= sizes.keys() else None,
        **{name: value for name, value in found.items() if name in Facts.__struct_fields__},
    )
    return _covered(facts if known is None else _over(facts, known)), tuple(entities.values())


# The system's, an image's, and what pip makes for a build and removes.
_NOBODYS = re2.compile(
    r"(?i)^/(?:usr(?:/local)?|opt/(?:conda|venv|python[^/]*))$|^/(?:tmp|root|workspace|app|kaggle|content)\b"
    r"|pip-|[/\\]te?mp[/\\]"
)
_HOME = re2.compile(r"(?i)^(?:/home/[^/]+|[a-z]:\\Users\\[^\\]+)")
_VENDORS = {"amd": "amd", "intel": "intel", "mac": "apple"}
_UNITS = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}


def _mebibytes(text: str) -> float:
    number, unit = text.split()
    return float(number.rstrip(".")) * _UNITS[unit[0]]


def _spoken(row: FactRow, pattern: re2._Regexp, text: str) -> dict[str, object]:
    """What a person says of what is here, not of what was before it or is asked for."""
    aside = re2.compile(aside_of(row))
    every = [each for each in pattern.finditer(text) if not _LEAST.search(text[each.end() :])]
    if len({each.group(0) for each in every}) > 2:  # a list of what there is
        return {}
    return _real(row, next((each for each in every if not aside.search(text[: each.start()])), None))


def _real(row: FactRow, match: Any) -> dict[str, object]:
    return {name: value for name, value in _read(row, match).items() if not unreal(value)}


def _read(row: FactRow, match: Any) -> dict[str, object]:
    name = row.name
    if match is None:
        return {}
    if row.flag:
        return {name: True}
    value = row.values.get(match.group(1).upper(), match.group(1)) if match.group(1) else ""
    if name == "python" and "." not in value:
        return {name: f"3.{value}"}
    if name == "environment":
        value += r"\python_embeded" if value.lower().endswith("_portable") else ""  # the folder around it was named
        return {name: _HOME.sub("~", value)} if not _NOBODYS.search(value) else {}
    if name == "hidden":
        return {name: value or "empty"} if isinstance(container.shows_cards(value), Clash) else {}
    if name == "distribution":
        system = wheel_platforms.find(value.lower())
        return {name: system[0].id} if system else {}
    if name == "installs":
        return {name: "==".join([value, *filter(None, match.groups()[1:])])}
    if name == "driver":
        return {name: str(read_driver(value).driver) if "." not in value else value}
    if name == "status":
        return {name: value.upper().replace("X", "x") if value[:2].lower() == "0x" else f"0x{int(value) % 2**32:08X}"}
    if name in _CONVERTED:
        return {name: _CONVERTED[name](value)}
    if name == "toolset" and not value.startswith("14."):
        # A Visual Studio has several: where its oldest is too new, all are.
        return {name: str(min(toolsets_of(value)))} if toolsets_of(value) else {}
    if name == "torch":
        local = next(filter(None, match.groups()[1:]), None)
        return {name: value} | ({"variant": _line(local)} if local else {})
    return {name: value}


def _line(text: str) -> str:
    """`cu118` and `cpu` as they are, `11.8` as the former."""
    said = Version.find(text)
    return CudaLine(said).name if said else text.lower()


_CONVERTED: dict[str, Callable[[str], object]] = {"bits": int, "least_card": Capability.parse, "variant": _line}


def _covered(facts: Facts) -> Facts:
    """What the tables say of the cards: of the torch for all of them, of the cuDNN for the oldest one."""
    # A Jetson is told by its system, where one chip alone runs it.
    boards = {each.capability for each in gpus() if each.chip == only_chip(facts.l4t)} if facts.l4t else ()
    facts = msgspec.structs.replace(facts, gpus=facts.gpus or tuple(boards))
    if not facts.gpus:
        return facts
    card = min(facts.gpus)
    lacks = None
    if facts.torch:
        every = {coverage.torch_lacks(facts.torch, facts.variant, facts.os, each) for each in facts.gpus}
        lacks = True if True in every else None if None in every else False
    cudnn = coverage.cudnn_lacks(facts.torch, facts.variant, facts.cudnn, card)
    chip = cards.chips(facts.gpu_name) if facts.gpu_name else None
    lacking = next((each for each in facts.installs if coverage.package_lacks(each, max(facts.gpus))), None)
    return msgspec.structs.replace(
        facts, torch_lacks_card=lacks, cudnn_lacks_card=cudnn, chip=chip, vendor=None, unserved=lacking
    )


def _over(facts: Facts, known: Facts) -> Facts:
    told = {name: value for name in Facts.__struct_fields__ if (value := getattr(known, name)) not in (None, ())}
    return msgspec.structs.replace(facts, **told)


def _in(text: str) -> list[tuple[FactRow, re2._Regexp, bool]]:
    """Which of the patterns are in a line: one pass for all of them."""
    patterns, entries = _patterns()
    return [entries[index] for index in sorted(patterns.Match(text[:_LONGEST]) or ())]


@cached
def _patterns() -> tuple[re2.Set, tuple[tuple[FactRow, re2._Regexp, bool], ...]]:
    """`True` with the words of a person."""
    rows = log_facts()
    named = [(row, each.replace("{LINE}", LINE), each in row.told) for row in rows for each in (*row.match, *row.told)]
    every = re2.Set.SearchSet(re2.Options())
    for _, pattern, _ in named:
        every.Add(pattern)
    every.Compile()
    return every, tuple((row, re2.compile(pattern), spoken) for row, pattern, spoken in named)
