"""What the verb does: find the environment, ask the resolver for exactly it, carry the answer out."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.core import console, paths
from rekindle.core.command import new_environment, rekindle
from rekindle.core.errors import ChecksFailed, NoRoute, NotFound, UsageError, lies_elsewhere
from rekindle.core.programs import reads_only
from rekindle.core.version import Version
from rekindle.install import apply
from rekindle.install.apply import InstallReport
from rekindle.install.beside import fitting
from rekindle.install.installer import installer_of
from rekindle.install.shelf_offers import Shelves, on_shelves, require_signed
from rekindle.knowledge.builds.programs import portable
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.machine import snapshot
from rekindle.machine.python.environment import beside, find
from rekindle.model.card import Capability
from rekindle.model.environment import Environment
from rekindle.stack import plan as lock
from rekindle.stack.from_machine import situation_of
from rekindle.stack.lab import own_plan
from rekindle.stack.offers import Offer, of_wheel
from rekindle.stack.prebuilt import coverage
from rekindle.stack.resolver import resolve
from rekindle.stack.route import Route, Verdict
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Situation, Wish, card_words, situation_from_options
from rekindle.stack.source_build import after_planning
from rekindle.wheels.inspect import inspection


class InstallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be installed: by a wish and what is here, from a `wheel`, or as a `plan` says."""

    wish: Wish = Wish()
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    shelves: Shelves = Shelves()
    wheel: Path | None = None
    plan: Path | None = None
    installer: str | None = None
    dry_run: bool = False


def install(where: Path | None, request: InstallRequest) -> InstallReport:
    """Resolve for this environment and install the recommended route."""
    file = own_plan(request.plan) if request.plan is not None and request.plan.is_dir() else request.plan
    plan = _plan(file) if file is not None else None
    environment = locate_environment(where)
    if plan is not None:
        situation, route = _planned(plan, environment)
        route = after_planning(route, msgspec.structs.replace(situation, here=False), str(file))
    else:
        situation = _situation(environment, request.gpus, request.driver)
        shelves, wheel = request.shelves, request.wheel
        own = on_shelves(shelves) if wheel is None else (wheel_offer(wheel, situation),)
        if wheel is not None and shelves.signed:
            # What was signed is what is installed: the file may be exchanged meanwhile.
            own = (msgspec.structs.replace(own[0], hashes={wheel.name: require_signed(wheel, shelves.trust)}),)
        # A wheel is what it is: whether an extension goes with it is asked of the file.
        wish = msgspec.structs.replace(request.wish, extensions=()) if wheel is not None else request.wish
        verdict = resolve(situation, wish, own)
        route = verdict.recommended if wheel is None else _route_of(wheel, own[0], verdict)
        situation = verdict.situation
        for note in verdict.notes:
            console.say(note)
        if route.driver_first is not None and route.change is not None:
            hint = "then run this again, or name the driver that will be there: `--driver 580`"
            raise NoRoute(f"first {route.change.text}", hint=hint)
    apply.check(route, environment, () if situation.here else card_words(situation.cards), request.plan)
    wanted = request.wish.extensions or (plan.wish.extensions if plan is not None else ())
    beside = fitting(wanted, route, environment, situation)
    for note in environment_notes(environment, situation.capabilities):
        console.say(note)
    installer = None if route.route is RouteKind.CONDA_FORGE else installer_of(environment, request.installer)
    return apply.install(environment, route, installer, situation.capabilities, beside=beside, dry_run=request.dry_run)


def _plan(file: Path) -> lock.Plan:
    plan = lock.read(file)
    lock.check_seal(plan)
    return plan


def undo(where: Path | None) -> InstallReport:
    with reads_only():  # it may be a stranger's: what its Python would say of itself is not asked
        environment = locate_environment(where)
    return apply.undo(environment)


def _situation(environment: Environment, gpus: Sequence[str], driver: str | None) -> Situation:
    """This computer and this environment; a card that is named stands in for the ones that are here."""
    if not gpus:
        situation = situation_of(snapshot.here(), driver=driver, python=environment.version)
        have = situation.installed
        installed = have if have is not None and apply.is_there(have.version, environment) else None
        return msgspec.structs.replace(situation, conda=environment.kind == "conda", installed=installed)
    own = paths.system()
    situation = situation_from_options(
        gpus, system=own, machine=paths.architecture(), driver=driver, python=environment.version
    )
    libc = platform.libc_ver()
    glibc = Version(libc[1]) if libc[0] == "glibc" and libc[1] else None
    return msgspec.structs.replace(situation, glibc=glibc, conda=environment.kind == "conda")


def _planned(plan: lock.Plan, environment: Environment) -> tuple[Situation, Route]:
    own = paths.system()
    if (plan.system, plan.machine) != (own, paths.architecture()):
        message = f"the plan is for {plan.system} on {plan.machine}; this is {own} on {paths.architecture()}"
        raise UsageError(message, hint="`rekindle plan --from PLAN` says what else differs here")
    situation = Situation(
        system=plan.system, arch=plan.machine, cards=plan.cards, python=environment.version, here=True
    )
    if plan.route is RouteKind.SHELF:
        message = f"the plan's wheel, `{plan.wheel}`, lies on a shelf"
        raise UsageError(message, hint="`rekindle install --shelf DIR` takes it from there")
    # Commands of a file that others wrote are not shown as our advice.
    by_pip = plan.route is RouteKind.OFFICIAL_WHEEL
    route = Route(
        **{**plan.facts(), "commands": () if by_pip else lock.again(plan).commands},
        on_configured_index=plan.index_url is None,
        hashes={wheel.name: wheel.sha256 for wheel in plan.wheels},
        summary=f"the plan's torch {plan.torch}",
    )
    return situation, route


def wheel_offer(wheel: Path, situation: Situation) -> Offer:
    """A wheel file as an offer for this machine. An error if it is of another one, or does not serve every card."""
    known, code, *_ = inspection.inspect_with_code(wheel)
    offer = of_wheel(known, code, location=str(wheel.absolute()), source="read off the wheel")
    if (offer.system, offer.machine) != (situation.system, situation.arch):
        message = (
            f"`{wheel.name}` is for {offer.system} on {offer.machine}; this is {situation.system} on {situation.arch}"
        )
        raise ChecksFailed(message, hint="`rekindle plan` says which build fits this machine")
    for capability in situation.capabilities:
        state = coverage(offer, capability)
        if state is not Coverage.SERVES:
            message = f"`{wheel.name}` does not serve {capability}: `rekindle inspect` calls it {state.value}"
            shown = rekindle("inspect", str(wheel), "--gpu", capability.sm)
            raise ChecksFailed(message, hint=f"`{shown}` shows what is missing")
    return offer


def _route_of(wheel: Path, offer: Offer, verdict: Verdict) -> Route:
    """The route of the wheel that was named, and never another one in its place."""
    for route in verdict.routes:
        if route.route is RouteKind.SHELF and route.location == offer.location:
            return route
    about = [each for each in verdict.rejections if each.candidate.is_any or each.candidate.name == offer.label]
    against = [each.sentence for each in about]
    reasons = "; ".join(dict.fromkeys(against)) or "it is not what `--torch` or `--cuda` asks for"
    raise NoRoute(f"`{wheel.name}` cannot be used here: {reasons}", hint="without `--wheel` the best route is chosen")


def _no_environment(where: str) -> str:
    """A name of a package, or a path of another system, is not made into a folder."""
    named = re.fullmatch(r"(?i)(?:py)?torch(?:==(.+))?", where)
    if named:
        told = ("--torch", named[1]) if named[1] else ()
        return f"PyTorch is what it installs: `{rekindle('install', *told)}`, in the environment that is active"
    return lies_elsewhere(where) or f"make one with `{new_environment(where)}`"


def locate_environment(where: Path | None) -> Environment:
    """The environment that packages go into. An error if it cannot run here, or if other programs live on it."""
    if where is not None and not where.exists():
        raise NotFound(f"there is no Python environment at `{where}`", hint=_no_environment(str(where)))
    environment = find(where)
    if where is None and (near := beside()) is not None:
        message = f"the Python of this folder (`{Path(near.root).relative_to(Path.cwd())}`) is not the active one"
        other = "" if environment.kind == "system" else f", `{rekindle('install', environment.root)}` for the other"
        raise UsageError(message, hint=f"name the one you mean: `{rekindle('install', '.')}` for it{other}")
    if environment.kind == "system":
        if where is None:
            message = "no environment is active, and none was named"
            raise UsageError(message, hint="activate one, or name it: `rekindle install ENV`")
        message = f"`{where}` is the system's Python, and other programs depend on its packages"
        raise UsageError(
            message, hint=f"make an environment first: `{new_environment('ENV')}`, then `rekindle install ENV`"
        )
    if environment.python is None:
        raise NotFound(f"`{environment.root}` does not say which Python it has", hint="name its python instead")
    environment.program  # noqa: B018 - an error if nothing can be run there
    return environment


def environment_notes(environment: Environment, capabilities: tuple[Capability, ...]) -> list[str]:
    """What the owner of this environment has to know before it is changed."""
    root = Path(environment.root)
    found = [f"is for the Python in `{environment.program}`"]
    if any((folder / "uv.lock").is_file() for folder in (root, root.parent)):
        found.append(
            "this environment belongs to a uv project: the next `uv sync` would undo the install. "
            "`rekindle plan --as uv` prints the tables for its pyproject.toml"
        )
    if environment.kind == "embedded" and (root.parent / "ComfyUI").is_dir():
        found.append("a ComfyUI portable folder: its update scripts keep what the constraints name")
        own = portable("comfyui", "windows", capabilities) if capabilities else None
        if own is not None:
            found.append(f"ComfyUI's own download `{own.link.rpartition('/')[2]}` is for this card, too")
    return found
