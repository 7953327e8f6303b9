"""What the verb does: find the environment, ask the resolver for exactly it, carry the answer out."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.core import console, paths
from rekindle.core.errors import BadInput, ChecksFailed, UsageError
from rekindle.core.version import Version
from rekindle.install import apply
from rekindle.install.apply import InstallReport
from rekindle.install.environment import Environment, locate
from rekindle.install.installer import installer_of
from rekindle.install.shelf_offers import on_shelf
from rekindle.knowledge.gpu.capability import Target
from rekindle.knowledge.tables import Evidence
from rekindle.machine import snapshot
from rekindle.stack import plan as lock
from rekindle.stack.from_machine import situation_of
from rekindle.stack.offers import Offer, listed
from rekindle.stack.resolver import resolve
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Situation, Wish, named
from rekindle.wheels.inspect import inspection


def install(
    where: Path | None,
    wish: Wish,
    *,
    gpus: Sequence[str] = (),
    driver: str | None = None,
    shelf: Path | None = None,
    wheel: Path | None = None,
    plan: Path | None = None,
    tool: str | None = None,
    dry_run: bool = False,
) -> InstallReport:
    """Resolve for this environment and carry the recommended route out."""
    environment = locate(where)
    if plan is not None:
        situation, route = _planned(lock.read(plan), environment)
    else:
        situation = _situation(environment, gpus, driver)
        own = (_offer(wheel, situation),) if wheel is not None else on_shelf(shelf)
        verdict = resolve(situation, wish, own)
        route = verdict.recommended
        if wheel is not None:
            route = next((each for each in verdict.routes if each.route is RouteKind.SHELF), route)
        for note in verdict.notes:
            console.say(note)
    apply.check(route, environment)
    installer = None if route.route is RouteKind.CONDA_FORGE else installer_of(environment, tool)
    return apply.install(environment, route, installer, situation.capabilities, dry_run=dry_run)


def undo(where: Path | None) -> InstallReport:
    return apply.undo(locate(where))


def _situation(environment: Environment, gpus: Sequence[str], driver: str | None) -> Situation:
    """This computer and this environment; a card that is named stands in for the ones that are here."""
    if not gpus:
        situation = situation_of(snapshot.here(), driver=driver, python=environment.version)
        return msgspec.structs.replace(situation, conda=environment.kind == "conda")
    own = paths.system()
    situation = named(gpus, system=own, machine=paths.architecture(), driver=driver, python=environment.version)
    libc = platform.libc_ver()
    glibc = Version(libc[1]) if libc[0] == "glibc" and libc[1] else None
    return msgspec.structs.replace(situation, glibc=glibc, conda=environment.kind == "conda")


def _planned(plan: lock.Plan, environment: Environment) -> tuple[Situation, Route]:
    own = paths.system()
    if (plan.system, plan.machine) != (own, paths.architecture()):
        message = f"the plan is for {plan.system} on {plan.machine}; this is {own} on {paths.architecture()}"
        raise UsageError(message, hint="`rekindle plan --from PLAN` says what else differs here")
    situation = Situation(
        system=plan.system, machine=plan.machine, cards=plan.cards, python=environment.version, here=True
    )
    route = Route(
        route=plan.route,
        torch=plan.torch,
        variant=plan.variant,
        cuda=plan.cuda,
        cudnn=plan.cudnn,
        python=plan.python,
        index_url=plan.index_url,
        torchvision=plan.torchvision,
        torchaudio=plan.torchaudio,
        numpy=plan.numpy,
        commands=plan.commands,
        on_configured_index=plan.index_url is None,
        summary=f"the plan's torch {plan.torch}",
    )
    return situation, route


def _offer(wheel: Path, situation: Situation) -> Offer:
    """A wheel file as an offer: everything is read off it."""
    found = inspection.inspect(wheel)
    if found.torch is None and (found.project or "").lower() != "torch":
        message = f"`{wheel.name}` is not a wheel of torch"
        raise BadInput(message, hint="`--wheel` takes a torch wheel, from your shelf or built by you")
    if found.cuda is None or not found.targets:
        message = f"`{wheel.name}` holds no GPU code: it is a CPU build"
        raise ChecksFailed(message, hint="`rekindle inspect` shows what is inside a wheel")
    version = (found.torch or found.version or "").partition("+")[0]
    python = (found.python or "").removeprefix("cp")
    targets = tuple(Target.parse(name) for name in found.targets)
    return Offer(
        route=RouteKind.SHELF,
        torch=version,
        variant=(found.version or "").partition("+")[2] or None,
        cuda=found.cuda.major_minor,
        cudnn=Version(found.cudnn) if found.cudnn else None,
        system=situation.system,
        machine=situation.machine,
        pythons=(f"{python[0]}.{python[1:]}",) if python.isdigit() and len(python) > 1 else (),
        code=(listed(targets),),
        location=str(wheel.absolute()),
        source="read off the wheel",
        evidence=Evidence.BINARY,
    )
