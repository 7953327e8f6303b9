"""The pairs that a log allows to be judged: what it names, held against the tables before any signature."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from rekindle.compat import (
    driver_card,
    driver_cuda,
    extension_torch,
    host_compiler,
    package,
    toolkit_card,
    torch_cuda,
    torch_python,
)
from rekindle.compat.judgement import Clash, Fits, Judgement, Unknown, holds
from rekindle.core.command import Command
from rekindle.core.version import Version
from rekindle.diagnose import driver_facts
from rekindle.diagnose.driver_facts import version_of
from rekindle.diagnose.facts import Facts
from rekindle.knowledge.torch import companions, releases
from rekindle.model.card import Capability, NamedCard
from rekindle.model.cuda_line import CudaLine, cuda_in
from rekindle.model.driver import Driver
from rekindle.model.host_compiler import gcc, msvc
from rekindle.model.platform import LINUX
from rekindle.model.torch_pin import CPU
from rekindle.stack import coverage


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """Two things that the log names, whether they go together, and the cause that it would be if they do not.

    `alone`: the clash stops a program whatever else the log says.
    """

    pair: str
    verdict: str
    text: str
    label: str
    alone: bool = False


# What goes wrong, as people tell it: the card is not used, something is not installed, not built, or fails otherwise.
_TROUBLE = ("unused", "uninstalled", "unbuilt", "broken")


def judged(facts: Facts) -> tuple[Judged, ...]:
    signs, told = {*facts.signs}, {*facts.told}
    # What only a person says counts where something goes wrong in the way that the pair makes it go wrong.
    trouble, unbuilt = bool({*_TROUBLE} & signs), "cuda_build" in signs and bool({"unbuilt", "unused"} & signs)
    unbuilt = unbuilt or {"nvcc_ran", "uninstalled"} <= signs
    sure = trouble or not {"torch", "variant"} & told
    return (*_of_driver(facts, sure), *_of_card(facts, sure, trouble), *_of_torch(facts, trouble, unbuilt))


def _of_driver(facts: Facts, sure: bool) -> Iterator[Judged]:
    line = CudaLine.parse(facts.variant)
    least = {"driver_cuda": f"{facts.smi_cuda.replace('.', '0')}0"} if facts.smi_cuda and line else {}
    number = version_of(driver_facts.known(least, facts).driver)
    driver = Driver(number, facts.counting) if number else None
    if driver and line:
        answer = driver_cuda.runs(driver, line.cuda)
        alone = "torch_works" not in facts.signs and sure
        yield _said("driver and CUDA of torch", answer, "driver_too_old", alone=alone)
    broken, image = bool({*_TROUBLE} & {*facts.signs}), "docker" in facts.signs and version_of(facts.cuda)
    asked = cuda_in(facts.cuda_package or "")
    for what, wanted, alone in (("the image", image, broken), (facts.cuda_package, asked, True)):
        if driver and wanted:
            answer = driver_cuda.runs(driver, wanted)
            yield _said(f"driver and CUDA of {what}", answer, "driver_too_old", alone=alone)
    windows = [driver_card.window(each, facts.counting) for each in set(facts.gpus)]
    if "one_machine" in facts.signs and driver_card.common(windows).empty:
        clash = Clash(sentence="no driver has all of these cards", source="NVIDIA: supported-GPU lists of the drivers")
        yield _said("the cards and one driver", clash, "driver_not_loaded")
    if "one_machine" in facts.signs and facts.counting == "linux":
        named = [NamedCard(name=_called(each, facts), capability=each) for each in set(facts.gpus)]
        yield _said("the cards and their modules", driver_card.share_modules(named), "driver_not_loaded")
    for each in sorted(set(facts.gpus)):
        if driver is None:
            break
        own = driver_card.window(each, driver.counting)
        label = "driver_too_old" if own.is_before(driver.version) else "driver_not_loaded"
        yield _said("driver and card", driver_card.drives(driver, _called(each, facts), own), label)


def _of_card(facts: Facts, sure: bool, trouble: bool) -> Iterator[Judged]:
    card = max(facts.gpus, default=None)
    line = f"+{facts.variant}" if facts.variant else ""
    torch, signs = f"torch {facts.torch}{line}" if facts.torch else "this torch", {*facts.signs}
    name = _called(min(facts.gpus), facts) if card else "the card"
    if card and facts.least_card and card < facts.least_card:
        text = f"{name} is a card of {card}, and what is used begins with {facts.least_card}"
        yield _said(
            "card and what is asked of it", Clash(sentence=text, source="the text itself"), "gpu_too_old_for_kernel"
        )
    for each in sorted(set(facts.gpus)):
        if facts.torch is None:
            break
        lacks = coverage.torch_lacks(facts.torch, facts.variant, facts.os, each)
        unsaid = not facts.variant and not facts.cuda
        if lacks is None and unsaid and (sure if "torch" in facts.told else "unused" in signs):
            # Who names no CUDA has most often the ordinary line.
            usual = torch_cuda.package_line(facts.torch, LINUX)
            lacks = coverage.torch_lacks(facts.torch, usual, "linux", each) or None
        if lacks is not None:
            clash = Clash(
                sentence=f"{torch} has no code for {_called(each, facts)} ({each})", source="the wheels of PyTorch"
            )
            yield _said(f"{torch} and card", clash if lacks else Fits(), "torch_lacks_gpu_arch", alone=sure)
    if card and not facts.torch:
        yield _said("card and PyTorch", torch_cuda.any_code(None, None, card), "torch_lacks_gpu_arch")
        # Who says that it was dropped has the ordinary build of today; others a card that none of the last years has.
        recent = [each.newest for each in releases.torch_releases()[-5:]]
        usual = torch_cuda.package_line(recent[-1], LINUX) if "dropped" in signs else None
        lacking = all(coverage.torch_lacks(each, usual, "linux", card) for each in (recent[-1:] if usual else recent))
        if lacking and {"names_torch", "torch_program"} & signs:
            clash = Clash(sentence=f"the torch of today has no code for {name}", source="the wheels of PyTorch")
            yield _said("card and torch of today", clash, "torch_lacks_gpu_arch", alone=trouble)
    rocm = "rocm_build" in signs and not facts.vendor
    if (rocm or facts.variant == CPU) and (card or {"smi", "cluster", "nvidia"} & signs):
        what = "this torch is AMD's ROCm, which" if rocm else torch
        clash = Clash(sentence=f"{what} has no CUDA in it, and {name} needs one that has", source="PyPI")
        yield _said("torch and card", clash, "torch_cpu_only", alone=sure or rocm)
    plain = {"unused", "plain_torch"} <= signs and not facts.variant and not facts.index and not facts.vendor
    if plain and (facts.os == "windows" or {"arm", "portable"} & signs):
        text = "`pip install torch` without an index brings a torch for the processor on Windows, as on a Jetson"
        yield _said("the index and the card", Clash(sentence=text, source="PyPI"), "torch_cpu_only")
    if card and facts.unserved:
        asked, _, version = facts.unserved.partition("==")
        answer = package.runs_on(asked, Version.find(version), card)
        alone = trouble or "asks" in signs or "installs" not in facts.told
        yield _said(f"{asked} and card", answer, "gpu_too_old_for_kernel", alone=alone)


def _of_torch(facts: Facts, trouble: bool, unbuilt: bool) -> Iterator[Judged]:
    """Torch with its Python, with the toolkit and its compilers, and with what stands beside it."""
    line, cuda, card = CudaLine.parse(facts.variant), version_of(facts.cuda), min(facts.gpus, default=None)
    if facts.torch and facts.python:
        answer = torch_python.takes(facts.torch, facts.python, facts.os or "linux")
        yield _said("torch and Python", answer, "python_no_wheel", alone="uninstalled" in facts.signs)
    if card and cuda:
        answer = toolkit_card.compiles(cuda, card, _called(card, facts))
        alone = unbuilt or ("names_torch" not in facts.signs and "cuda" not in facts.told)
        yield _said("toolkit and card", answer, "cuda_arch_unsupported_by_nvcc", alone=alone)
    built = line.cuda if line else max(torch_cuda.cudas_of(facts.torch), default=None)
    if cuda and built and (line or cuda.major > built.major):
        answer = extension_torch.same_cuda("what the toolkit compiles", cuda, built)
        alone = unbuilt or "compiled_with" in facts.signs
        yield _said("toolkit and CUDA of torch", answer, "cuda_torch_version_mismatch", alone=alone)
    if cuda and facts.gcc:
        answer = host_compiler.takes_compiler(cuda, gcc(int(facts.gcc)))
        yield _said("toolkit and GCC", answer, "gcc_too_new_for_cuda", alone=unbuilt)
    if facts.gcc and facts.os != "windows":
        answer = host_compiler.builds_torch(facts.torch, int(facts.gcc))
        yield _said("GCC and torch", answer, "cxx_standard_too_low", alone={"names_torch", "unbuilt"} <= {*facts.signs})
    if cuda and facts.toolset:
        answer = host_compiler.takes_compiler(cuda, msvc(Version(facts.toolset)))
        yield _said("toolkit and MSVC", answer, "msvc_too_new_for_cuda", alone=unbuilt)
    beside = {name: version for name, _, version in (each.partition("==") for each in facts.installs)}
    beside |= {name: getattr(facts, name) or "" for name in companions.PROJECTS} | {"torch": ""}
    for project, version in beside.items():
        if version and facts.torch:
            alone = trouble or (project in companions.PROJECTS and not {project, "torch"} & {*facts.told})
            answer = package.goes_with(project, version, facts.torch)
            yield _said(f"torch and {project}", answer, "torch_family_mismatch", alone=alone)


def _called(card: Capability, facts: Facts) -> str:
    """The card's name, which is that of the oldest; another by its number."""
    return facts.gpu_name if facts.gpu_name and card == min(facts.gpus) else card.sm


def _said(pair: str, answer: Judgement, label: str, *, alone: bool = True) -> Judged:
    if isinstance(answer, Clash):
        return Judged(pair=pair, verdict="clash", text=answer.sentence, label=label, alone=alone)
    if isinstance(answer, Unknown):
        return Judged(pair=pair, verdict="unknown", text=answer.missing, label=label)
    return Judged(pair=pair, verdict="fits", text="; ".join(answer.loses) or "they go together", label=label)


def in_one_machine(facts: Facts) -> Facts:
    """Cards that no driver has together are in two machines, unless the text says otherwise: the newest counts."""
    named = [NamedCard(name=each.sm, capability=each) for each in set(facts.gpus)]
    together = facts.os == "windows" or isinstance(driver_card.share_modules(named), Fits)
    if together or {"one_machine", "smi"} & {*facts.signs}:
        return facts
    return msgspec.structs.replace(facts, gpus=(max(facts.gpus),), gpu_name=None)


def refused(command: Command, facts: Facts) -> bool:
    """Whether what it installs cannot serve the log's Python, driver or torch: no such step is proposed."""
    line, driver = CudaLine.parse(facts.variant), version_of(facts.driver)
    answers: list[Judgement] = []
    for word in map(str, command.words):
        torch, toolkit = re.match(r"torch==([\d.]+\d)", word), re.fullmatch(r"cuda==(\d{1,9}\.\d{1,9})", word)
        cuda = CudaLine.parse(re.split(r"[+/]", word)[-1])
        if torch and facts.python:
            answers.append(torch_python.takes(torch[1], facts.python, facts.os or "linux"))
        if cuda and driver:
            answers.append(driver_cuda.runs(Driver(driver, facts.counting), cuda.cuda))
        if toolkit and line:
            answers.append(extension_torch.same_cuda("what it compiles", Version(toolkit[1]), line.cuda))
        if toolkit and facts.gpus:
            answers.append(toolkit_card.compiles(Version(toolkit[1]), min(facts.gpus), facts.gpus[0].sm))
    return any(holds(answer) is False for answer in answers)


_HOSTS = re.compile(
    r"^sudo reboot|\bmodprobe\b|nvidia-smi -[a-z]+ \d|nvidia-driver|ubuntu-drivers|container-toolkit|fabricmanager|dkms"
)
_FOREIGN = {
    "cluster": "That is for the administrators: tell them which node it is, and leave it out meanwhile (`--exclude=`).",
    "hosted": "Only the host of a rented machine can: take another machine, with the newest driver that is offered.",
    "cloud_notebook": "Only the host can: take another runtime, or begin a new session.",
}


def foreign(command: Command, facts: Facts) -> str | None:
    """Who else must run it where the machine is not the reader's own: no such command is theirs to paste."""
    text, place = str(command), next((each for each in _FOREIGN if each in facts.signs), "")
    theirs = _HOSTS.search(text) or (place == "cluster" and text.startswith("sudo "))
    return _FOREIGN.get(place) if theirs else None
