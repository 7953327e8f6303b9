"""CUDA code that is compiled besides torch (nvcc, CMake, `CMAKE_ARGS` of pip): does it run on the card?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import msgspec

from rekindle.compat import driver_cuda
from rekindle.compat.judgement import Clash, Fits, Judgement, Unknown
from rekindle.compat.toolkit_card import compiles
from rekindle.core.version import Version
from rekindle.knowledge.builds import extension_builds
from rekindle.knowledge.builds.script_rules import CudaDefault, script_rules
from rekindle.knowledge.cuda.toolkits import toolkits
from rekindle.model.card import Capability, Target
from rekindle.review.builds import kept
from rekindle.review.document import LISTS
from rekindle.review.environment import environments_of
from rekindle.review.readers.recorder import defines
from rekindle.review.remark import Raised, raised
from rekindle.review.rules.architecture import (
    NAME,
    any_cuda,
    cannot_compile,
    card_toolkit,
    known_toolkit,
    read_list,
    run,
)
from rekindle.review.subject import Known, Subject
from rekindle.review.trace import Invocation, Word

_ON = re.compile(r"(?i)on|1|true|yes\Z")
_LISTS = ("CMAKE_CUDA_ARCHITECTURES", "CUDA_ARCH_BIN", "CUDA_ARCHITECTURES")
_SWITCH = re.compile(r"(?:(?:WITH|USE|ENABLE|BUILD)_(?:CUDA|CUBLAS)|\w+_(?:CUDA|CUBLAS))\Z")
_NUMBER = re.compile(r"(\d{2,3})([af]?)(-real|-virtual)?\Z")


class CudaCode(msgspec.Struct, frozen=True, kw_only=True):
    """One compile. `targets` None: not said. `whole`: for the card that is there, or for all the toolkit knows."""

    item: Invocation
    name: str
    line: int
    targets: tuple[Target, ...] | None = None
    whole: bool = False
    listed: str = ""
    """The list of CMake as the script gives it."""
    toolkits: tuple[Known, ...] = ()

    @property
    def shown(self) -> str:
        return ", ".join(str(each) for each in self.targets or ())


@kept
def compiled(subject: Subject) -> list[CudaCode]:
    """What the script compiles with CUDA and is not torch's, in order."""
    torchs = {step.item.order for step in subject.builds if step.what == "torch"}
    items = [item for item in subject.trace.invocations if item.reached and item.order not in torchs]
    return [code for item in items if (code := _compile(subject, item)) is not None]


def check(subject: Subject) -> Iterator[Raised]:
    told: set[tuple[str, str]] = set()
    lists = {each.line for each in subject.settings(NAME)}  # judged as lists
    for code in compiled(subject):
        cuda = next(iter(code.toolkits), None)
        rows = [row for each in code.toolkits if (row := known_toolkit(each)) is not None]
        for target in code.targets or () if cuda is not None and rows else ():
            if not any(row.has_target(target.capability) for row in rows):
                key = (str(cuda.version) if cuda else "", str(target.capability))
                if cuda is not None and key not in told:
                    told.add(key)
                    said = cannot_compile(cuda.version, target.capability)
                    yield raised("toolkit-cannot-target", code.line, sentence=said, also="", source=rows[0].source)
        for card in subject.gpus:
            if code.targets and not run(code.targets, card) and code.line not in lists:
                right = _longer(subject.document.line(code.line), code.listed, card)
                yield raised(
                    "architecture-not-the-card", code.line, archs=code.shown, card=card, sm=card.sm, lost="",
                    corrected=right, certain=False,
                )  # fmt: skip
            answer = serves(subject, code, card)
            if isinstance(answer, Clash) and not code.targets:
                yield raised("code-not-for-the-card", code.line, sentence=answer.sentence, source=answer.source)
        if subject.gpus and not code.toolkits and code.targets:
            yield raised("code-toolkit-not-named", code.line, archs=code.shown, range=_range(code.targets))
        yield from _driver(subject, code)
    if subject.gpus and subject.document.dialect not in LISTS:
        yield from without_cuda(subject)
    if not compiled(subject) and not subject.builds and not environments_of(subject).final:
        # Nobody knows what it compiles. A ready-made torch would bring its own CUDA.
        bare = any(re.search(r"-(?:runtime|base)\b", each.name) for each in subject.trace.images)  # without nvcc
        last = any_cuda(subject) if not bare else None
        yield from card_toolkit(subject, [last] if last is not None else [], set())


def without_cuda(subject: Subject) -> Iterator[Raised]:
    """A program that has CUDA only where its build is told so, installed without a word of it."""
    for found in subject.installs:
        wanted = next((each for each in found.wanted if _known_name(each.name) and each.wheel is None), None)
        given = subject.visible("CMAKE_ARGS", found.item)
        told = re.search(
            r"-D(?:GGML|LLAMA|WHISPER|SD)_|cmake\.define", f"{given.text if given else ''} {found.item.text}"
        )
        if wanted is None or told or (given and not given.known) or found.verb != "install" or found.item.conditional:
            continue
        if found.tool != "conda" and environments_of(subject).has_no_index(found):
            yield raised("program-without-cuda", wanted.line, name=wanted.name)


def _longer(line: str, listed: str, card: Capability) -> str | None:
    """The line with the card in its list; a shell would end the command at a semicolon without quotes."""
    quoted = re.search(rf"(['\"]){re.escape(listed)}\1", line)
    if not listed or "." in listed or listed not in line or not (quoted or f"={listed}" in line):
        return None
    more = f"{listed};{card.sm.removeprefix('sm_')}"
    return line.replace(listed, more, 1) if quoted else line.replace(f"={listed}", f'="{more}"', 1)


def serves(subject: Subject, code: CudaCode, card: Capability) -> Judgement:
    """Whether the code runs on a card: the list that the script gives, else what the program takes by itself."""
    if code.targets and not code.toolkits and not _able(code.targets):
        return Unknown(missing=f"which CUDA toolkit compiles for {code.shown}: none since {toolkits()[0].version} does")
    if code.targets:
        return Fits() if run(code.targets, card) else Clash(sentence=f"code for {code.shown}", source=_CODE)
    cudas = [each.version for each in code.toolkits]
    if code.whole and not cudas:
        return Unknown(missing=f"which CUDA toolkit compiles {code.name}")
    if code.whole:
        return compiles(cudas[0], card, f"a GPU of capability {card}")
    rows = [row for row in script_rules().cuda_default if code.name in row.programs]
    rows = [row for row in rows if not cudas or row.holds(cudas[0])]
    answers = [_default(row, card) for row in rows]
    if not answers or not all(isinstance(each, type(answers[0])) for each in answers):
        lacks = "which CUDA toolkit compiles" if answers else "which architectures the script compiles"
        return Unknown(missing=f"{lacks} {code.name}{'' if answers else ' for'}")
    return answers[0]


def settled(subject: Subject) -> Iterator[str]:
    """One sentence for each compile whose code runs on all the cards."""
    for code in compiled(subject):
        if all(isinstance(serves(subject, code, card), Fits) for card in subject.gpus):
            yield f"{code.name}: its code{f' for {code.shown}' if code.shown else ''} runs on the card"


def code_for(subject: Subject) -> tuple[str, ...]:
    """What the first compile is for, as far as the script says."""
    return tuple(str(each) for each in next((code.targets for code in compiled(subject) if code.targets), ()))


def open_questions(subject: Subject) -> Iterator[str]:
    for code in compiled(subject):
        answers = (serves(subject, code, card) for card in subject.gpus)
        missing = next((each.missing for each in answers if isinstance(each, Unknown)), None)
        if missing is not None:
            yield f"line {code.line}: {missing}"


_CODE = "CUDA programming guide, binary and PTX compatibility"


def _default(row: CudaDefault, card: Capability) -> Judgement:
    if run(row.targets, card):
        return Fits()
    shown = ", ".join(str(target) for target in row.targets)
    words = f"{row.programs[0]} compiles for {shown} where the script names nothing, and a GPU of capability {card}"
    return Clash(sentence=f"{words} ({card.sm}) runs none of that", source=row.source)


def _able(targets: Sequence[Target]) -> list[Version]:
    """The toolkits that compile for all of a list; PTX for a card is compiled by those that know the card."""
    return [row.version for row in toolkits() if all(row.has_target(each.capability) for each in targets)]


def _range(targets: Sequence[Target]) -> str:
    rows = _able(targets)
    return f"CUDA {rows[0]} to {rows[-1]} compiles for all of it" if rows else "no toolkit compiles for all of it"


def _driver(subject: Subject, code: CudaCode) -> Iterator[Raised]:
    place = subject.asked.place
    if place is None or place.driven_by is None or not code.toolkits:
        return
    answer = driver_cuda.runs(place.driven_by, code.toolkits[0].version)
    if isinstance(answer, Clash):
        yield raised("code-not-for-the-card", code.line, sentence=answer.sentence, source=answer.source)


def _compile(subject: Subject, item: Invocation) -> CudaCode | None:
    if item.program == "nvcc" and not item.has("--version", "-V", "--help", "-h"):
        return _nvcc(subject, item)
    if item.program in ("cmake", "cmake3") and not item.has("--build", "--install", "-P", "-E"):
        return _cmake(subject, item, item.words)
    if (told := _by_its_own_list(subject, item)) is not None:
        return told
    found = subject.install(item)
    arguments = subject.visible("CMAKE_ARGS", item)
    if found is None or found.tool == "conda" or arguments is None or found.binary:
        return None
    own = [each for each in found.wanted if each.source is not None or _known_name(each.name)]
    if not own or found.verb not in ("install", "wheel", "add"):
        return None
    try:
        parts = shlex.split(arguments.text)
    except ValueError:
        parts = arguments.text.split()
    words = [Word(part, part, arguments.line, known=arguments.known) for part in parts]
    return _cmake(subject, item, words)


def _by_its_own_list(subject: Subject, item: Invocation) -> CudaCode | None:
    """An extension whose build reads a variable of its own: `TCNN_CUDA_ARCHITECTURES=86 pip install .`."""
    names = [step.name for step in subject.builds if step.item.order == item.order]
    for row in extension_builds.lists() if names else ():
        value = subject.visible(row.name, item)
        named = row.name not in _LISTS or row.project in names  # a name that others may have as well
        targets = _numbers(value.text) if value is not None and named and value.known else None
        if value is not None and targets:
            return CudaCode(
                item=item, name=row.project, line=value.line, targets=targets, listed=value.text,
                toolkits=tuple(subject.cudas_at(item)),
            )  # fmt: skip
    return None


def _known_name(name: str) -> bool:
    return any(name in row.programs for row in script_rules().cuda_default)


def _cmake(subject: Subject, item: Invocation, words: Sequence[Word]) -> CudaCode | None:
    given = {name: (value, word) for name, value, word in defines(words)}
    switches = [name for name, (value, _) in given.items() if _SWITCH.match(name) and _ON.match(value)]
    listed = next((name for name in _LISTS if name in given), None)
    if not switches and listed is None:
        return None
    rows = script_rules().cuda_default
    name = next((row.programs[0] for row in rows for each in switches if each in row.switches), "the project")
    base = CudaCode(item=item, name=name, line=item.line, toolkits=tuple(subject.cudas_at(item)))
    if listed is None:
        archs = subject.visible("CUDAARCHS", item)
        value, known, line = (archs.text, archs.known, archs.line) if archs else ("", True, item.line)
    else:
        value, known, line = given[listed][0], given[listed][1].known, given[listed][1].line
    if not value:
        return base
    blind = value in ("native", "Auto") and subject.document.dialect.unattended
    if value in ("native", "all", "all-major", "Auto", "Common", "All") and not blind:
        return msgspec.structs.replace(base, line=line, whole=True)
    targets = _numbers(value) if known else None
    if targets and "CUDA_ARCH_PTX" in given:  # OpenCV's list of PTX
        own = _numbers(given["CUDA_ARCH_PTX"][0].replace(".", "")) or ()
        targets += tuple(each for each in own if each.ptx)
    name = name if targets else f"{name} ({value[:40]})"
    return msgspec.structs.replace(base, line=line, targets=targets, name=name, listed=value)


def _numbers(value: str) -> tuple[Target, ...] | None:
    """`75;86-real;90-virtual`: plain numbers are machine code and PTX. OpenCV writes `8.6`, and means code alone."""
    found: list[Target] = []
    for part in re.split(r"[;,\s]+", value.strip()):
        dotted = bool(re.fullmatch(r"\d{1,2}\.\d", part))
        match = _NUMBER.match(part.replace(".", "") if dotted else part)
        if match is None:
            return None
        capability = Capability.parse(match[1])
        found += [Target(capability, suffix=match[2])] if match[3] != "-virtual" else []
        found += [Target(capability, ptx=True, suffix=match[2])] if match[3] != "-real" and not dotted else []
    return tuple(found)


def _nvcc(subject: Subject, item: Invocation) -> CudaCode:
    source = next((word.text for word in item.words[1:] if word.text.endswith(".cu")), "")
    name = re.split(r"[\\/]", source)[-1] if source and "*" not in source else "nvcc"
    base = CudaCode(item=item, name="nvcc", line=item.line, toolkits=tuple(subject.cudas_at(item)))
    options = _nvcc_options(item)
    texts = [word.text for words in options.values() for word in words]
    if not texts and item.has("-DTORCH_EXTENSION_NAME"):
        lists = [each for each in subject.settings(NAME) if each.value]
        said = read_list(lists[-1].value, builds_torch=False).targets if lists and lists[-1].known else ()
        line = lists[-1].line if lists else item.line
        return msgspec.structs.replace(base, name="the extension", line=line, targets=said or None)
    if not texts:
        return base
    if any(text in ("native", "all", "all-major") for text in texts):
        return msgspec.structs.replace(base, name=name, whole=True)
    targets: list[Target] = []
    for word in options["gencode"]:
        codes = re.findall(r"\b((?:sm|compute|lto)_\d{2,3}[af]?)\b", word.text.partition("code=")[2])
        targets += [Target.parse(code.replace("lto_", "sm_")) for code in codes]
    codes = [code for word in options["code"] for code in re.findall(r"\b(?:sm|compute)_\d{2,3}[af]?", word.text)]
    arch = next((word.text for word in reversed(options["arch"]) if re.fullmatch(_ARCH, word.text)), None)
    targets += [Target.parse(code) for code in codes]
    if arch is not None and not codes:
        own = Target.parse(arch)
        targets += [own] if own.ptx else [own, Target(own.capability, ptx=True, suffix=own.suffix)]
    line = next(word.line for words in options.values() for word in words)
    if any(not word.known for words in options.values() for word in words):
        return msgspec.structs.replace(base, line=line, name=f"{name} ({texts[0][:40]})")
    return msgspec.structs.replace(base, line=line, name=name, targets=tuple(targets) or None)


_ARCH = r"(?:sm|compute)_\d{2,3}[af]?"
_OPTION = re.compile(r"--?(arch|gpu-architecture|code|gpu-code|gencode|generate-code)(?:=(.*))?\Z", re.DOTALL)
_KIND = {"gpu-architecture": "arch", "gpu-code": "code", "generate-code": "gencode"}


def _nvcc_options(item: Invocation) -> dict[str, list[Word]]:
    """The values of the options that say what for; those that are not known are kept as they stand."""
    found: dict[str, list[Word]] = {"arch": [], "code": [], "gencode": []}
    for index, word in enumerate(item.words):
        match = _OPTION.match(word.text)
        if match is None:
            continue
        value = msgspec.structs.replace(word, text=match[2]) if match[2] is not None else None
        value = value or (item.words[index + 1] if index + 1 < len(item.words) else None)
        if value is not None:
            found[_KIND.get(match[1], match[1])].append(value)
    unknown = [
        word for word in item.words[1:] if not word.known and re.search(r"(?i)arch|gencode|sm\b|nvcc|flags", word.text)
    ]
    if not any(found.values()):
        found["arch"] += unknown
    return found
