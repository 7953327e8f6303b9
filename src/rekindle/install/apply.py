"""`rekindle install`: the recommended route, carried out. A failure leaves the environment as it was."""

from __future__ import annotations

import configparser
import io
import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from rekindle.audit.audit import installed_torch
from rekindle.core import console, files
from rekindle.core.command import Command, rekindle
from rekindle.core.errors import (
    ChecksFailed,
    FetchFailed,
    Locked,
    MissingTool,
    NoRoute,
    NotFound,
    StepFailed,
    Unverified,
)
from rekindle.core.findings import State
from rekindle.core.paths import cache_folder, sha256_of
from rekindle.extension.find import FoundWheel
from rekindle.install import conda, record
from rekindle.install.beside import Beside
from rekindle.install.installer import Installer, Request
from rekindle.install.record import Replaced
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.model.card import Capability
from rekindle.model.environment import Environment
from rekindle.model.requirement import canonical_name
from rekindle.model.torch_pin import TorchPin
from rekindle.stack.route import Route, RuntimeSetting
from rekindle.stack.rules import RouteKind
from rekindle.wheels.inspect import inspection
from rekindle.wheels.shelf import store


class InstallReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle install`. `state` is `installed`, `would-install`, `already` or `undone`."""

    schema: str = "rekindle.install/2"
    state: str
    environment: Environment
    route: RouteKind
    torch: str | None = None
    commands: tuple[Command, ...] = ()
    changes: tuple[Replaced, ...] = ()
    coverage: dict[str, Coverage] = {}
    """What was read off the files that arrived, for each capability asked for."""
    constraints: str | None = None
    beside: tuple[FoundWheel, ...] = ()
    """The wheels of extensions that go in with torch, and what was found in them."""
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return Unverified.exit_code if any(each.state is State.UNVERIFIED for each in self.beside) else 0


def request_of(route: Route) -> Request:
    """What pip is asked for: the wheel with its companions, and the NumPy it can take."""
    if route.route is RouteKind.SHELF:
        return Request(requirements=(str(route.location),), first=(route.numpy,) if route.numpy else ())
    words = route.requirements or _composed(route)
    return Request(
        requirements=words,
        first=(route.numpy,) if route.numpy else (),
        last=route.afterwards,
        index=route.index_words,
    )


def _composed(route: Route) -> tuple[str, ...]:
    """The pins of a route that was read from a plan, which names its parts one by one."""
    named = route.variant and not route.on_configured_index and route.route is not RouteKind.CPU_WHEEL
    local = f"+{route.variant}" if named else ""
    parts = {"torch": route.torch, "torchvision": route.torchvision, "torchaudio": route.torchaudio}
    return tuple(f"{name}=={version}{local}" for name, version in parts.items() if version)


def check(route: Route, environment: Environment, cards: Sequence[str] = (), plan: Path | None = None) -> None:
    """Can this route be carried out in this environment? An error that says what is in the way.

    `cards` are the words that named them, `plan` is what was asked for: the line that is proposed is for the same.
    """
    if route.route is RouteKind.NONE:
        hint = route.change.text if route.change else None
        if route.change is not None and route.change.what == "torch" and route.change.commands:
            words = ("install", environment.root, *cards, "--torch", route.change.torch or "")
            own = rekindle(*words, system=environment.os)
            hint = f"{hint}: `{own}`"
        raise NoRoute(route.summary, hint=hint)
    if route.python is not None and route.python != environment.version:
        whose = "the plan is for" if plan is not None else f"torch {route.version} needs"
        message = f"{whose} Python {route.python}; `{environment.root}` has {environment.version}"
        why = route.why[0] if route.why else ""
        made = Command("uv", "venv", "--python", route.python, "ENV")
        wanted = ("--plan", str(plan)) if plan is not None else (*cards, "--torch", route.torch or "")
        again = rekindle("install", "ENV", *wanted, system=environment.os)
        hint = f"{why}\nmake an environment with it: `{made}`, then `{again}`"
        raise MissingTool(message, hint=hint.strip())
    if route.route is RouteKind.INSTALLED and not is_there(route.version, environment):
        message = f"torch {route.version}, which was said to be installed, is not in `{environment.root}`"
        raise NotFound(message, hint="without `--plan` the best route is chosen")
    if route.route.by_pip or route.route is RouteKind.INSTALLED:
        return
    if route.route is RouteKind.CONDA_FORGE and environment.kind == "conda":
        return
    what = {
        RouteKind.CONDA_FORGE: f"this needs a conda environment, and `{environment.root}` is not one",
        RouteKind.SOURCE_BUILD: "no ready-made wheel serves; PyTorch has to be built first",
        RouteKind.COMMUNITY: f"the wheel by {route.builder} has to be downloaded by hand and installed with `--wheel`",
        RouteKind.WSL: "this has to be installed inside WSL 2",
        RouteKind.CONTAINER: "this runs in a container, which Docker starts",
    }[route.route]
    raise MissingTool(what, hint="\n  ".join((f"{route.summary}\nrun:", *route.commands)))


def is_there(version: str | None, environment: Environment) -> bool:
    """Whether the torch of this very environment is that one: the active Python's is another."""
    have = installed_torch(environment)
    return have is not None and have.version == version


def install(
    environment: Environment,
    route: Route,
    installer: Installer | None,
    capabilities: tuple[Capability, ...],
    *,
    beside: tuple[Beside, ...] = (),
    dry_run: bool = False,
) -> InstallReport:
    """Download, look inside, keep what will be replaced, install, look again, write the constraints."""
    if route.route is RouteKind.CONDA_FORGE:
        return _by_conda(environment, route, capabilities, dry_run=dry_run)
    request = Request() if route.route is RouteKind.INSTALLED else request_of(route)
    request = msgspec.structs.replace(request, beside=tuple(each.wheel.words for each in beside))
    if route.route is RouteKind.INSTALLED and not beside:
        return InstallReport(
            state="already", environment=environment, route=route.route, torch=route.version, notes=(route.summary,)
        )
    if installer is None:
        raise MissingTool("no installer was chosen", hint="`--installer pip` or `--installer uv`")
    commands = installer.commands(request)
    if dry_run:
        return InstallReport(
            state="would-install",
            environment=environment,
            route=route.route,
            torch=route.version,
            commands=commands,
            beside=tuple(each.wheel for each in beside),
        )
    store.unchanged(route.location)
    # One for the processor is not held against a card.
    asked = () if route.route is RouteKind.CPU_WHEEL else capabilities
    with _alone(environment):
        return _install(environment, route, installer, request, asked, beside)


def _pinned(arrived: list[Path], hashes: dict[str, str], installer: Installer, by: str = "plan") -> None:
    """What arrived is what the plan pins, byte for byte; an installer that shows no files cannot be believed. The wheel
    of a shelf was looked at where it lies."""
    if not hashes or (by == "shelf" and not arrived):
        return
    if not arrived:
        message = f"{installer.name} does not show the files it installs, so the plan's hashes cannot be checked"
        raise MissingTool(message, hint="install with `--installer pip`")
    pins = {_project(name): name for name in hashes}
    for wheel in arrived:
        pin = pins.get(_project(wheel.name))
        if pin is not None and (pin != wheel.name or sha256_of(wheel) != hashes[pin]):
            message = f"`{wheel.name}` is not the file that the {by} pins, `{pin}`; nothing was installed"
            raise FetchFailed(message, hint="it was replaced where it lies; write the plan again to accept it")
    free = [wheel.name for wheel in arrived if _project(wheel.name) not in pins]
    if free and by == "plan":
        console.say(f"not pinned by the plan, taken as the index has them: {', '.join(sorted(free))}")


def _project(file: str) -> str:
    return str(canonical_name(file.partition("-")[0]))


def undo(environment: Environment) -> InstallReport:
    """The environment as it was before the last install."""
    with _alone(environment):
        folder = record.latest(environment)
        kind = record.read(environment, folder).route
        changes = record.restore(environment, folder)
    if all(path.name == "lock" for path in environment.folder.iterdir()):
        shutil.rmtree(environment.folder, ignore_errors=True)
    return InstallReport(state="undone", environment=environment, route=kind, changes=changes)


def _install(
    environment: Environment,
    route: Route,
    installer: Installer,
    request: Request,
    capabilities: tuple[Capability, ...],
    beside: tuple[Beside, ...],
) -> InstallReport:
    site = environment.site
    # What has arrived is kept until it is installed: after Ctrl-C the same command goes on with it.
    wheels = cache_folder("downloads", request.key(environment))
    try:
        arrived = installer.download(request, wheels)
        _pinned(arrived, route.hashes, installer, "shelf" if route.route is RouteKind.SHELF else "plan")
        for wheel in arrived:
            if wheel.name.lower().startswith("torch-"):
                _serves(wheel, capabilities)
        coming = {canonical_name(name) for name in installer.changes(request, wheels)}
        before = record.installed(site)
        replaced = [before[name] for name in sorted(coming) if name in before]
        configuration = [constraints_file(environment), pip_configuration(environment)]
        configuration += hook_files(environment)
        folder = record.begin(environment, route.route, replaced, configuration)
        try:
            installer.install(request, wheels)
            after = record.installed(site)
            coverage = _serves(site / "torch", capabilities)
            wheels_beside = tuple(each.as_installed(arrived) for each in beside)
            pins = _pins(after)
            _kept(pins, route, beside)
            constraints = write_constraints(environment, pins, (route.numpy,) if route.numpy else ())
            name_in_pip(environment, constraints)
            if route.settings:
                write_hook(environment, route.settings)
            changes = _changes(before, after)
            record.finish(environment, folder, changes)
        except BaseException:
            record.restore(environment, folder)
            raise
    except (ChecksFailed, StepFailed):
        shutil.rmtree(wheels, ignore_errors=True)
        raise
    shutil.rmtree(wheels, ignore_errors=True)
    return InstallReport(
        state="installed",
        notes=tuple(f"set for every program in this environment: {setting.code}" for setting in route.settings),
        environment=environment,
        route=route.route,
        torch=pins.get("torch"),
        commands=installer.commands(request),
        changes=changes,
        coverage=coverage,
        constraints=str(constraints),
        beside=wheels_beside,
    )


def _by_conda(
    environment: Environment, route: Route, capabilities: tuple[Capability, ...], *, dry_run: bool
) -> InstallReport:
    """conda-forge's package, by conda, which is all-or-nothing by itself."""
    report = InstallReport(
        state="would-install",
        environment=environment,
        route=route.route,
        torch=route.torch,
        commands=(conda.command(environment, route),),
    )
    if dry_run:
        return report
    site = environment.site
    with _alone(environment):
        before = record.installed(site)
        number = conda.revision(environment)
        folder = record.begin(environment, route.route, [], [conda.pinned(environment)], number)
        try:
            conda.install(environment, route)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        changes = _changes(before, record.installed(site))
        record.finish(environment, folder, changes)
        try:
            coverage = _serves(site / "torch", capabilities)
        except ChecksFailed:
            record.restore(environment, folder)
            raise
        pins = conda.pin(environment, route)
    return msgspec.structs.replace(report, state="installed", changes=changes, coverage=coverage, constraints=str(pins))


def _serves(where: Path, capabilities: tuple[Capability, ...]) -> dict[str, Coverage]:
    """The coverage of what arrived, read off its files; an error if a card is not served."""
    found = inspection.inspect(where, cards=[capability.sm for capability in capabilities])
    coverage = {str(card.capability): card.coverage for card in found.cards}
    missing = [name for name, state in coverage.items() if state is not Coverage.SERVES]
    if missing:
        inside = ", ".join(found.targets) or "no GPU code at all"
        message = f"`{where.name}` does not serve {', '.join(missing)}: it holds {inside}"
        raise ChecksFailed(
            message, hint="the environment is as it was; `rekindle plan --why-not` says what else there is"
        )
    return coverage


def _changes(before: dict[str, record.Distribution], after: dict[str, record.Distribution]) -> tuple[Replaced, ...]:
    names = sorted({*before, *after})
    pairs = [(name, before.get(name), after.get(name)) for name in names]
    return tuple(
        Replaced(name=name, before=old.version if old else None, after=new.version if new else None)
        for name, old, new in pairs
        if (old.version if old else None) != (new.version if new else None)
    )


def _alone(environment: Environment) -> AbstractContextManager[None]:
    """Two writers in one environment are never allowed."""
    record.check_links(environment)
    message = f"another `rekindle install` is at work in `{environment.root}`"
    return files.locked(environment.folder / "lock", Locked(message, hint="wait until it has ended"))


def _kept(pins: dict[str, str], route: Route, beside: tuple[Beside, ...]) -> None:
    """An extension that asks for another torch must not bring it."""
    have = TorchPin.parse(pins.get("torch", "")).release
    if beside and have != route.torch:
        names = ", ".join(each.found.package for each in beside)
        message = f"{names} brought torch {have} instead of {route.version}"
        raise StepFailed(message, hint="the environment was restored; `rekindle install --installer pip` asks first")


def _pins(after: dict[str, record.Distribution]) -> dict[str, str]:
    names: tuple[str, ...] = ("torch", "torchvision", "torchaudio")
    return {name: after[name].version for name in names if name in after}


HOOK_NAME = "rekindle_settings"

_MODULE = '''"""Written by `rekindle install`, removed by its `--undo`. Runs once, right after torch is imported."""

import importlib.abc
import importlib.util
import sys


def apply():
    import torch

{lines}


class AfterTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            apply()

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, AfterTorch())
'''


def hook_files(environment: Environment) -> tuple[Path, Path]:
    """The `.pth` file and the module it imports."""
    return environment.site / f"{HOOK_NAME}.pth", environment.site / f"{HOOK_NAME}.py"


def write_hook(environment: Environment, settings: Sequence[RuntimeSetting]) -> Path:
    """Put the settings in place; what an earlier install put there is replaced."""
    pth, module = hook_files(environment)
    lines = "\n".join(f"    {setting.code}  # {setting.why}" for setting in settings)
    files.write_text(module, _MODULE.replace("{lines}", lines))
    files.write_text(pth, f"import {HOOK_NAME}\n")
    return pth


CONSTRAINTS = "rekindle-constraints.txt"


def constraints_file(environment: Environment) -> Path:
    return Path(environment.root) / CONSTRAINTS


def pip_configuration(environment: Environment) -> Path:
    """The configuration that pip reads for this environment only."""
    return Path(environment.root) / ("pip.ini" if os.name == "nt" else "pip.conf")


def write_constraints(environment: Environment, pins: dict[str, str], extra: tuple[str, ...] = ()) -> Path:
    path = constraints_file(environment)
    head = "# Keeps the PyTorch that runs on this card. Written by `rekindle install`, taken back by its `--undo`.\n"
    lines = [f"{name}=={version}" for name, version in sorted(pins.items())]
    files.write_text(path, head + "\n".join([*lines, *extra]) + "\n")
    return path


def name_in_pip(environment: Environment, constraints: Path) -> None:
    """Make the environment's pip read the constraints by itself."""
    path = pip_configuration(environment)
    settings = configparser.RawConfigParser()
    if path.is_file():
        settings.read_string(files.plain_text(path))
    if not settings.has_section("install"):
        settings.add_section("install")
    # pip splits the value at spaces, so a path that may have some is named as an address.
    address = constraints.absolute().as_uri()
    known = [word for word in settings.get("install", "constraint", fallback="").split() if word != address]
    settings.set("install", "constraint", " ".join([*known, address]))
    text = io.StringIO()
    settings.write(text)
    files.write_text(path, text.getvalue())
