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
from rekindle.diagnose import coverage, driver_facts
from rekindle.diagnose.driver_facts import version_of
from rekindle.diagnose.facts import Facts
from rekindle.knowledge.gpu.capability import NamedCard
from rekindle.knowledge.torch import companions, releases
from rekindle.model.cuda_line import CudaLine
from rekindle.model.driver import Driver


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
    return tuple(_pairs(facts))


def _pairs(facts: Facts) -> Iterator[Judged]:
    line = CudaLine.parse(facts.variant)
    number = version_of(facts.driver)
    driver = Driver(number, facts.counting) if number else None
    card = min(facts.gpus) if facts.gpus else None
    name = facts.gpu_name or (card.sm if card else "")
    cuda = version_of(facts.cuda)
    torch = f"torch {facts.torch}{f'+{facts.variant}' if facts.variant else ''}"
    # What only a person says counts where something goes wrong in the way that the pair makes it go wrong.
    trouble, signs = {*_TROUBLE} & {*facts.signs}, {*facts.signs}
    unused, unbuilt = "unused" in trouble, {"unbuilt", "cuda_build"} <= signs
    sure = bool(trouble) or not {"torch", "variant"} & {*facts.told}
    if facts.smi_cuda and line and not driver:
        number = version_of(driver_facts.known({"driver_cuda": f"{facts.smi_cuda.replace('.', '0')}0"}, facts).driver)
        driver = Driver(number, facts.counting) if number else None
    if driver and line:
        answer = driver_cuda.runs(driver, line.cuda)
        alone = "torch_works" not in signs and (sure or unused)
        yield _said("driver and CUDA of torch", answer, "driver_too_old", alone=alone)
    asked = driver_facts.cuda_in_name(facts.cuda_package)
    if driver and asked:
        answer = driver_cuda.runs(driver, asked)
        yield _said(f"driver and CUDA of {facts.cuda_package}", answer, "driver_too_old", alone=True)
    windows = [driver_card.window(each, facts.counting) for each in set(facts.gpus)]
    if "one_machine" in facts.signs and driver_card.common(windows).empty:
        clash = Clash(sentence="no driver has all of these cards", source="NVIDIA: supported-GPU lists of the drivers")
        yield _said("the cards and one driver", clash, "driver_not_loaded", alone=True)
    if "one_machine" in facts.signs and facts.counting == "linux":
        named = [NamedCard(name=name if each == card else each.sm, capability=each) for each in set(facts.gpus)]
        yield _said("the cards and their modules", driver_card.share_modules(named), "driver_not_loaded", alone=True)
    if card and facts.least_card and max(facts.gpus) < facts.least_card:
        text = f"{name} is a card of {max(facts.gpus)}, and what is used begins with {facts.least_card}"
        clash = Clash(sentence=text, source="the text itself")
        yield _said("card and what is asked of it", clash, "gpu_too_old_for_kernel", alone=True)
    for each in sorted(set(facts.gpus)):
        called = name if each == card else each.sm
        if driver:
            own = driver_card.window(each, driver.counting)
            label = "driver_too_old" if own.is_before(driver.version) else "driver_not_loaded"
            yield _said("driver and card", driver_card.drives(driver, called, own), label, alone=True)
        lacks = coverage.torch_lacks(facts.torch, facts.variant, facts.os, each) if facts.torch else None
        if lacks is None and facts.torch and not facts.variant and (sure if "torch" in facts.told else unused):
            # Who names no line has most often the ordinary one.
            usual = torch_cuda.package_line(facts.torch, "linux")
            lacks = coverage.torch_lacks(facts.torch, usual, "linux", each) or None
        if lacks is not None:
            clash = Clash(sentence=f"{torch} has no code for {called} ({each})", source="the wheels of PyTorch")
            yield _said(f"{torch} and card", clash if lacks else Fits(), "torch_lacks_gpu_arch", alone=sure)
    if facts.gpus and not facts.torch:
        answer = torch_cuda.any_code(None, None, max(facts.gpus))
        yield _said("card and PyTorch", answer, "torch_lacks_gpu_arch", alone=True)
        # Who says that it was dropped has the ordinary build of today; others a card that none of the last years has.
        recent = [each.newest for each in releases.torch_releases()[-5:]]
        usual = torch_cuda.package_line(recent[-1], "linux") if "dropped" in signs else None
        of_them = recent[-1:] if usual else recent
        lacking = all(coverage.torch_lacks(each, usual, "linux", max(facts.gpus)) for each in of_them)
        clash = Clash(sentence=f"the torch of today has no code for {name}", source="the wheels of PyTorch")
        if lacking and {"names_torch", "torch_program"} & signs:
            yield _said("card and torch of today", clash, "torch_lacks_gpu_arch", alone=bool(trouble))
    if facts.variant == "cpu" and (card or {"smi", "cluster"} & {*facts.signs}):
        clash = Clash(sentence=f"{torch} has no CUDA in it, and {name or 'the card'} needs one that has", source="PyPI")
        yield _said(f"{torch} and card", clash, "torch_cpu_only", alone=sure)
    plain = "plain_torch" in signs and not line and not facts.index
    if unused and plain and (facts.os == "windows" or "arm" in signs):
        text = "`pip install torch` without an index brings a torch for the processor on Windows, as on a Jetson"
        clash = Clash(sentence=text, source="PyPI")
        yield _said("the index and the card", clash, "torch_cpu_only", alone=not facts.vendor)
    if facts.unserved:
        name, _, version = facts.unserved.partition("==")
        answer = package.runs_on(name, Version.find(version), max(facts.gpus))
        alone = bool(trouble) or "asks" in signs or "installs" not in facts.told
        yield _said(f"{name} and card", answer, "gpu_too_old_for_kernel", alone=alone)
    if facts.torch and facts.python:
        answer = torch_python.takes(facts.torch, facts.python, facts.os or "linux")
        yield _said("torch and Python", answer, "python_no_wheel", alone="uninstalled" in signs)
    if card and cuda:
        answer = toolkit_card.compiles(cuda, card, name)
        alone = unbuilt or ("names_torch" not in signs and "cuda" not in facts.told)
        yield _said("toolkit and card", answer, "cuda_arch_unsupported_by_nvcc", alone=alone)
    if cuda and line:
        answer = extension_torch.same_cuda("what the toolkit compiles", cuda, line.cuda)
        yield _said("toolkit and CUDA of torch", answer, "cuda_torch_version_mismatch", alone=unbuilt)
    if cuda and facts.gcc:
        answer = host_compiler.takes_gcc(cuda, int(facts.gcc))
        yield _said("toolkit and GCC", answer, "gcc_too_new_for_cuda", alone=unbuilt)
    if cuda and facts.toolset:
        answer = host_compiler.takes_msvc(cuda, Version(facts.toolset))
        yield _said("toolkit and MSVC", answer, "msvc_too_new_for_cuda", alone=unbuilt)
    beside = {name: version for name, _, version in (each.partition("==") for each in facts.installs)}
    beside |= {name: version for name in companions.PROJECTS if (version := getattr(facts, name))}
    for project, version in beside.items() if facts.torch else ():
        if not version or project == "torch":
            continue
        answer = package.goes_with(project, version, str(facts.torch))
        sure = bool(trouble) or (project in companions.PROJECTS and not {project, "torch"} & {*facts.told})
        yield _said(f"torch and {project}", answer, "torch_family_mismatch", alone=sure)


def _said(pair: str, answer: Judgement, label: str, *, alone: bool = False) -> Judged:
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
        torch, toolkit = re.match(r"torch==([\d.]+\d)", word), re.fullmatch(r"cuda==(\d+\.\d+)", word)
        cuda = CudaLine.parse(re.split(r"[+/]", word)[-1])
        if torch and facts.python:
            answers.append(torch_python.takes(torch[1], facts.python, facts.os or "linux"))
        if cuda and driver:
            answers.append(driver_cuda.runs(Driver(driver, facts.counting), cuda.cuda))
        if toolkit and line:
            answers.append(extension_torch.same_cuda("what it compiles", Version(toolkit[1]), line.cuda))
    return any(holds(answer) is False for answer in answers)
