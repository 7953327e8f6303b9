"""Rekindle as a library: the verbs that only answer, as functions that return the values their `--json` prints.

    from rekindle import plan, RekindleError

    answer = plan(gpus=["GTX 1080 Ti"], os="windows", python="3.11")
    print(answer.recommended.summary, *answer.recommended.commands, sep="\\n")

Importing touches nothing: no program is started and no table read before a function is called. What cannot be answered
raises a `RekindleError` with a message and a hint. The fields are those of the committed JSON schemas, and as stable.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from rekindle.core.errors import RekindleError, UsageError

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Unpack

    from rekindle.audit.answer import Audit
    from rekindle.diagnose.answer import Diagnosis
    from rekindle.diagnose.source import Diagnoses
    from rekindle.doctor.report import DoctorReport
    from rekindle.review.review import Review
    from rekindle.stack.card import CardAnswer
    from rekindle.stack.route import Verdict
    from rekindle.stack.situation import Situation, Wish
    from rekindle.wheels.inspect.inspection import Inspection

    P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["RekindleError", "audit", "diagnose", "doctor", "gpu", "inspect", "needs", "plan", "review"]


Text = str | int | float
"""A version or a name: a number is read as it is written, so `3.10` is 3.1."""


class PlanWishes(TypedDict, total=False):
    """What `plan` can be asked for besides, under the names of the command line's options."""

    arch: str
    torchvision: str
    toolset: str
    profile: str
    needs: str | Sequence[str]
    extensions: str | Sequence[str]
    """`--with` of the command line."""
    prefer: str
    community: bool
    why_not: str


class LogFacts(TypedDict, total=False):
    """What `diagnose` can be told that a log does not say."""

    python: Text
    torch: Text
    cuda: Text
    driver: Text
    toolset: Text
    machine: str | Path


_OPTION = re.compile(r"`--(arch|cuda|driver|needs|os|prefer|profile|python|toolset|torch|torchvision)(?: ([^`]+))?`")


def _as_words(text: str) -> str:
    return _OPTION.sub(lambda found: f'`{found[1]}="{found[2]}"`' if found[2] else f"`{found[1]}`", text)


def _library(function: Callable[P, R]) -> Callable[P, R]:
    """An error that tells of the words of the function, not of the options of the command line."""

    @functools.wraps(function)
    def called(*args: P.args, **words: P.kwargs) -> R:
        try:
            return function(*args, **words)
        except RekindleError as error:
            error.reword(_as_words)
            raise

    return called


def _names(said: Text | Sequence[Text]) -> tuple[str, ...]:
    """One text is one name, not its letters."""
    return (str(said),) if isinstance(said, (str, int, float)) else tuple(map(str, said))


def _text(said: Text | None) -> str | None:
    from rekindle.knowledge.torch.releases import torch_releases

    if isinstance(said, float) and any(row.minor == f"{said}0" for row in torch_releases()):
        message = f"{said} may be PyTorch {said} or {said}0"
        raise UsageError(message, hint=f"PyTorch {said}0 as a number is {said}: write it in quotes, `{said}0`")
    return None if said is None else str(said)


def _path(said: str | Path | None) -> Path | None:
    return None if said is None else Path(said)


@_library
def plan(
    *,
    gpus: Text | Sequence[Text] = (),
    os: str | None = None,
    python: Text | None = None,
    driver: Text | None = None,
    torch: Text | None = None,
    cuda: Text | None = None,
    machine: str | Path | None = None,
    **wishes: Unpack[PlanWishes],
) -> Verdict:
    """Which PyTorch for these GPUs, by which route. Without `gpus` and `machine`: for this computer.

    Python 3.10 as a number is 3.1: write `python="3.10"`.
    """
    from rekindle.core.codec import from_builtins
    from rekindle.stack.from_machine import situation_here
    from rekindle.stack.situation import TypedWish

    for word in wishes.keys() - PlanWishes.__annotations__.keys():
        message = f"plan() got an unexpected keyword argument '{word}'"
        raise TypeError(message + (": a card is named with `gpus`" if word in ("gpu", "card") else ""))
    lists: dict[str, Any] = {"needs": wishes.get("needs", ()), "extensions": wishes.get("extensions", ())}
    asked = {**wishes, **{name: _names(given) for name, given in lists.items()}}
    typed = from_builtins({"torch": _text(torch), "cuda": _text(cuda), **asked}, TypedWish, name="the question")
    situation = situation_here(
        gpus=_names(gpus), system=os, machine=wishes.get("arch"), driver=_text(driver), python=_text(python),
        snapshot=_path(machine),
    )  # fmt: skip
    return _resolved(situation, typed.wish, wishes.get("why_not"))


def _resolved(situation: Situation, wish: Wish, other: str | None) -> Verdict:
    import msgspec

    from rekindle.stack.resolver import resolve

    verdict = resolve(situation, wish)
    if other is None:
        return verdict
    from rekindle.stack.why_not import why_not

    return msgspec.structs.replace(verdict, why_not=why_not(other, situation, wish, verdict))


@_library
def gpu(name: str) -> CardAnswer:
    """What is true of a GPU, by name, PCI id or capability."""
    from rekindle.stack.card import describe

    return describe(name)


@_library
def inspect(
    where: str | Path, *, gpus: Text | Sequence[Text] = (), require: str | Sequence[str] = (),
    against: str | Path | None = None,
) -> Inspection:  # fmt: skip
    """Which GPUs a wheel, library, folder or address serves, and what it needs to load. Nothing is run.

    With `require` (`sm_61`, `compute_90`) a finding says for each whether it is there.
    """
    import msgspec

    from rekindle.wheels.inspect.identity import read_torch
    from rekindle.wheels.inspect.inspection import inspect as look
    from rekindle.wheels.inspect.inspection import required_findings, targets_of

    wanted = targets_of(_names(require))
    found = look(where, cards=_names(gpus), against=read_torch(Path(against)) if against else None)
    return msgspec.structs.replace(found, findings=(*found.findings, *required_findings(found, wanted)))


@_library
def diagnose(
    where: str | Path | bytes, *, gpus: Text | Sequence[Text] = (), os: str | None = None, **known: Unpack[LogFacts]
) -> Diagnosis | Diagnoses:
    """What went wrong in a log, or in every log of a folder, and what to do; user names are left out.

    Bytes are the text of a log itself.
    """
    from rekindle.diagnose import facts, source

    machine = known.get("machine")
    told: dict[str, Any] = {**known}
    spelled = {name: _text(value) for name, value in told.items() if name != "machine"}
    said = facts.facts_from_options(gpus=_names(gpus), system=os, **spelled)
    if machine is not None:
        from rekindle.machine import snapshot

        said = facts.of_machine(snapshot.load(Path(machine)), said)
    if isinstance(where, bytes):
        from rekindle.diagnose.diagnosis import diagnose_text

        return source.shown(diagnose_text(where, known=said))
    return source.shown(source.diagnose(str(where), known=said))


@_library
def doctor(machine: str | Path | None = None, *, only: str | Sequence[str] = ()) -> DoctorReport:
    """What this computer (or the one recorded in `machine`) has, what is wrong, and what will work."""
    from rekindle.doctor import report
    from rekindle.machine import snapshot

    recorded = _path(machine)
    found = snapshot.load(recorded) if recorded else snapshot.here()
    return report.report(found, only=_names(only), recorded=recorded)


@_library
def audit(
    environment: str | Path | None = None,
    *,
    gpus: Text | Sequence[Text] = (),
    os: str | None = None,
    driver: Text | None = None,
    machine: str | Path | None = None,
) -> Audit:
    """Which compiled modules of an environment will fail on these GPUs, and why."""
    from rekindle.audit.cache import audit as look

    names, file = _names(gpus), _path(machine)
    return look(_path(environment), names=names, machine=file, system=os, driver=_text(driver), cache=None)


@_library
def review(
    scripts: str | Path | Sequence[str | Path],
    *,
    gpus: Text | Sequence[Text] = (),
    torch: Text | None = None,
    os: str | None = None,
    driver: Text | None = None,
    python: Text | None = None,
    machine: str | Path | None = None,
) -> Review:
    """What is wrong with build scripts, before they run for hours. Nothing is run."""
    from rekindle.review import review as room
    from rekindle.review.question import question_from_options

    asked = question_from_options(
        _names(gpus), torch=_text(torch), system=os, driver=_text(driver), python=_text(python), machine=_path(machine)
    )
    every = (scripts,) if isinstance(scripts, (str, Path)) else scripts
    return room.review(tuple(map(Path, every)), asked)


def needs(torch_arch_list: Sequence[str], capability: tuple[int, int], *, os: str | None = None) -> str | None:
    """For an application's start: None if this torch serves the card, else a sentence with the command to run.

    import torch, rekindle

    if message := rekindle.needs(torch.cuda.get_arch_list(), torch.cuda.get_device_capability()):
        print(message)
    """
    from rekindle.knowledge.gpu.capability import Runs, runs
    from rekindle.model.card import Capability, Target

    card = Capability(*capability)
    try:
        targets = [Target.parse(each) for each in torch_arch_list]
    except ValueError as error:
        message = f"that is not what `torch.cuda.get_arch_list()` returns: {error}"
        raise UsageError(message, hint='for example `["sm_50", "sm_61"]`') from error
    if any(runs(target, card) is not Runs.NO for target in targets):
        return None
    best = plan(gpus=[str(card)], os=os).recommended
    return "\n".join([f"this torch has no code for your GPU ({card.sm}): {best.summary}", *best.commands])
