"""Rekindle as a library: the verbs that only answer, as functions that return the values their `--json` prints.

    from rekindle import plan, RekindleError

    answer = plan(gpus=["GTX 1080 Ti"], os="windows", python="3.11")
    print(answer.recommended.summary, *answer.recommended.commands, sep="\\n")

Importing touches nothing: no program is started and no table read before a function is called. What cannot be answered
raises a `RekindleError` with a message and a hint. The fields are those of the committed JSON schemas, and as stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rekindle.core.errors import RekindleError

if TYPE_CHECKING:
    from rekindle.audit.answer import Audit
    from rekindle.diagnose.answer import Diagnosis
    from rekindle.diagnose.source import Diagnoses
    from rekindle.doctor.report import DoctorReport
    from rekindle.stack.card import CardAnswer
    from rekindle.stack.verdict import Verdict
    from rekindle.wheels.inspect.inspection import Inspection

__all__ = ["RekindleError", "audit", "diagnose", "doctor", "gpu", "inspect", "needs", "plan"]


def plan(
    *,
    gpus: Sequence[str] = (),
    os: str | None = None,
    python: str | None = None,
    driver: str | None = None,
    torch: str | None = None,
    cuda: str | None = None,
    machine: Path | None = None,
) -> Verdict:
    """Which PyTorch for these GPUs, by which route. Without `gpus` and `machine`: for this computer."""
    from rekindle.stack.from_machine import asked
    from rekindle.stack.resolver import resolve
    from rekindle.stack.situation import Wish
    from rekindle.stack.typed import torch_of

    situation = asked(gpus=gpus, system=os, driver=driver, python=python, snapshot=machine)
    release, line = torch_of(torch, cuda)
    return resolve(situation, Wish(torch=release, cuda=line))


def gpu(name: str) -> CardAnswer:
    """What is true of a GPU, by name, PCI id or capability."""
    from rekindle.stack.card import describe

    return describe(name)


def inspect(where: str | Path, *, gpus: Sequence[str] = ()) -> Inspection:
    """Which GPUs a wheel, library, folder or address serves, and what it needs to load. Nothing is run."""
    from rekindle.wheels.inspect.inspection import inspect as look

    return look(where, cards=gpus)


def diagnose(where: str | Path, *, gpus: Sequence[str] = (), os: str | None = None) -> Diagnosis | Diagnoses:
    """What went wrong in a log, or in every log of a folder, and what to do."""
    from rekindle.diagnose import facts, source

    return source.diagnose(str(where), known=facts.told(gpus=tuple(gpus), system=os))


def doctor(machine: Path | None = None) -> DoctorReport:
    """What this computer (or the one recorded in `machine`) has, what is wrong, and what will work."""
    from rekindle.doctor import report
    from rekindle.machine import snapshot

    return report.report(snapshot.load(machine) if machine else snapshot.here())


def audit(environment: Path | None = None, *, gpus: Sequence[str] = ()) -> Audit:
    """Which compiled modules of an environment will fail on these GPUs, and why."""
    from rekindle.audit.cache import audit as look

    return look(environment, names=tuple(gpus), machine=None, driver=None, cache=None)


def needs(torch_arch_list: Sequence[str], capability: tuple[int, int], *, os: str | None = None) -> str | None:
    """For an application's start: None if this torch serves the card, else a sentence with the command to run.

    import torch, rekindle

    if message := rekindle.needs(torch.cuda.get_arch_list(), torch.cuda.get_device_capability()):
        print(message)
    """
    from rekindle.knowledge.gpu.capability import Capability, Runs, Target, runs

    card = Capability(*capability)
    if any(runs(Target.parse(each), card) is not Runs.NO for each in torch_arch_list):
        return None
    best = plan(gpus=[str(card)], os=os).recommended
    return "\n".join([f"this torch has no code for your GPU ({card.sm}): {best.summary}", *best.commands])
