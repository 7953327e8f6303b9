"""What mends an environment: one set of commands that do not contradict each other, in the order to run them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from rekindle.audit.answer import AuditedModule, MendingStep
from rekindle.audit.cards import install_command, words
from rekindle.audit.contents import Contents, InstalledDistribution
from rekindle.compat.companion import release_for
from rekindle.core.command import Command, rekindle
from rekindle.core.findings import Finding, State
from rekindle.core.paths import architecture
from rekindle.knowledge.builds import extension_files, programs
from rekindle.knowledge.cuda.library_packages import providers
from rekindle.knowledge.torch import companions
from rekindle.model.card import NamedCard
from rekindle.model.driver import Driver
from rekindle.model.environment import Environment
from rekindle.model.platform import Platform
from rekindle.model.requirement import canonical_name, holds, place, requirement
from rekindle.model.torch_pin import TorchPin

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# A finding of these about a package is mended by another build of that package.
_ANOTHER_BUILD = (
    *("audit.cpu-torch", "audit.driver", "audit.companions", "audit.gpu-code", "audit.cuda-runtime"),
    *("audit.torch-symbols", "audit.python", "audit.changed", "audit.readable"),
)
_LAST_OF_1 = "1.26.4"
_WHEELS = "wheels"


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, with the package it is about and, where there is one, the libraries or the packages it names."""

    finding: Finding
    package: str | None = None
    about: tuple[str, ...] = ()


def bringing(library: str, machine: str, cuda_major: int | None) -> str | None:
    """The package of the index that has this library, of torch's own CUDA where there is one for each."""
    names = list(dict.fromkeys(row.package for row in providers(library, Platform("linux", machine)) if not row.yanked))
    line = f"-cu{cuda_major}"
    return next((each for each in names if each.endswith(line)), names[0] if names else None)


class Mending(msgspec.Struct, frozen=True, kw_only=True):
    """What there is and what is wrong with it. `torch` is the one that is there now."""

    found: Contents
    environment: Environment
    cards: tuple[NamedCard, ...]
    driver: Driver | None
    torch: str | None
    modules: tuple[AuditedModule, ...]
    wrong: tuple[Trouble, ...]

    def steps(self) -> tuple[MendingStep, ...]:
        """torch comes first, then what pip brings, then what is compiled against both."""
        reasons = self._reasons()
        replaced = "torch" in reasons
        with_torch = {"torch", *companions.PROJECTS} if replaced else {"torch"}
        if replaced:
            for name in self._compiled_for_torch() - with_torch:
                reasons.setdefault(name, ["torch changes"])
        steps = []
        if replaced:
            packages = tuple(name for name in reasons if name in with_torch)
            commands = (install_command(self.environment, self.cards, self.driver),)
            steps.append(self._step(packages, [each for name in packages for each in reasons[name]], commands))
        # What is built again is built for the NumPy and the libraries that are there then.
        steps += self._removals()
        steps += self._libraries({*reasons, *(with_torch if replaced else ())})
        steps += self._numpy({*reasons, *(with_torch if replaced else ())})
        rest = [name for name in _ordered(self.found, list(reasons)) if name not in with_torch]
        again = {name: self._pinned(name) for name in rest}
        steps += [self._step((name,), reasons[name], (self._pip(*again[name]),)) for name in rest if again[name]]
        steps += [self._step((name,), reasons[name], self._built(name)) for name in rest if not again[name]]
        return tuple(steps)

    def _reasons(self) -> dict[str, list[str]]:
        reasons: dict[str, dict[str, None]] = {}
        for each in self.wrong:
            name, what = each.package, each.finding
            counts = what.state in (State.FAIL, State.WARN) or what.id == "audit.readable"
            if name in self.found.distributions and counts and what.id in _ANOTHER_BUILD:
                if name.startswith("nvidia-") and what.id != "audit.readable":
                    continue  # it comes with the torch
                reasons.setdefault(name, {})[what.id.removeprefix("audit.")] = None
        return {name: list(each) for name, each in reasons.items()}

    def _compiled_for_torch(self) -> set[str]:
        """A new torch breaks them, unless they keep to its stable interface."""
        bound = (each for each in self.modules if each.uses_torch and not each.stable_abi and each.distribution)
        return {canonical_name(str(each.distribution)) for each in bound}

    def _pinned(self, name: str) -> tuple[str, ...]:
        """What pip installs instead; nothing where the same file would come again and does not help."""
        there = self.found.distributions[name]
        right = release_for(name, self.torch) if self.torch and name in companions.PROJECTS else None
        if right is not None:
            pin = _of_line(f"{name}=={right}", self.torch or "")
            return () if pin[0] == f"{name}=={there.version}" else ("--force-reinstall", "--no-deps", *pin)
        mine = [each for each in self.modules if each.distribution == there.name]
        if programs.known(name) or any(each.uses_torch or each.targets for each in mine):
            return ()
        return ("--force-reinstall", "--no-deps", f"{there.name}=={there.version}")

    def _built(self, name: str) -> tuple[Command, ...]:
        there, system = self.found.distributions[name], self.environment.os
        if row := programs.known(name):  # no extension of torch: another release of it is what helps
            return (rekindle("plan", "--for", row.id, *words(self.cards), system=system),)
        pin = f"{there.name}=={there.version.partition('+')[0]}"
        place = ("--env", self.environment.root, *words(self.cards))
        if any(row.is_for(Platform(system, architecture())) for row in extension_files.files(name)):
            return (rekindle("extension", "find", there.name, *place, system=system),)  # the line to run, or to build
        place = (*place, "-o", _WHEELS)
        made = ("--force-reinstall", "--no-deps", "--no-index", "--find-links", _WHEELS, pin)
        return rekindle("extension", "build", pin, *place, system=system), self._pip(*made)

    def _libraries(self, renewed: set[str]) -> list[MendingStep]:
        """Packages with libraries that something needs; what is renewed brings its own, or needs others."""
        missing = self._about("audit.missing", renewed)
        # What one of them asks for and is not here has its libraries, or brings who has them, in the right version.
        owners = filter(None, map(self.found.distributions.get, {each.package or "": each for each in missing}))
        every = [wanted for owner in owners for wanted in _requirements(owner, self.environment)]
        # Nobody is told to install from an address that METADATA names.
        named = {canonical_name(each.name): each for each in every if each.url is None}
        unmet = {name: each for name, each in named.items() if name not in self.found.distributions}
        names = dict.fromkeys(name for each in missing for name in each.about if name not in unmet)
        asked = (*(str(each).partition(";")[0].strip() for each in unmet.values()), *map(self._as_required, names))
        return [self._step((*unmet, *names), ["missing"], (self._pip(*asked),))] if asked else []

    def _about(self, id: str, renewed: set[str]) -> list[Trouble]:
        return [each for each in self.wrong if each.finding.id == id and each.package not in renewed]

    def _as_required(self, name: str) -> str:
        """In the version that somebody here asks for."""
        return f"{name}{next((str(pin.specifier) for pin in self._asked(name).values()), '')}"

    def _asked(self, name: str) -> dict[str, Requirement]:
        """By the name of a distribution: what it asks of this one."""
        asked = {each.name: _required(each, name, self.environment) for each in self.found.distributions.values()}
        return {by: wanted for by, wanted in asked.items() if wanted is not None}

    def _numpy(self, renewed: set[str]) -> list[MendingStep]:
        """NumPy 1 for what was compiled with it; pip finds releases of the others that can live with that."""
        if not self._about("audit.numpy", renewed):
            return []
        newer = sorted(by for by, pin in self._asked("numpy").items() if not pin.specifier.contains(_LAST_OF_1))
        return [self._step(("numpy", *newer), ["numpy"], (self._pip("numpy<2", *newer),))]

    def _removals(self) -> list[MendingStep]:
        """What nobody here requires goes; the files that it shared with another come back with that one."""
        gone = {name for each in self.wrong if each.finding.id == "audit.duplicates" for name in each.about}
        back = {
            other.name: f"{other.name}=={other.version}"
            for name in gone
            for other in self.found.distributions.values()
            if canonical_name(other.name) not in gone and other.folders & self.found.distributions[name].folders
        }
        if not gone:
            return []
        commands = [self.environment.pip_command("uninstall", "-y", *sorted(gone))]
        commands += [self._pip("--force-reinstall", "--no-deps", *sorted(back.values()))] if back else []
        return [self._step((*sorted(gone), *sorted(back)), ["duplicates"], tuple(commands))]

    def _pip(self, *what: str) -> Command:
        return self.environment.pip_command("install", *what)

    def _step(self, packages: Iterable[str], reasons: Iterable[str], commands: tuple[Command, ...]) -> MendingStep:
        names = [self.found.distributions[name].name if name in self.found.distributions else name for name in packages]
        return MendingStep(packages=tuple(names), reasons=tuple(dict.fromkeys(reasons)), commands=commands)


def _of_line(pin: str, torch: str) -> tuple[str, ...]:
    """Of the same CUDA line as the torch: the configured index may hold another one under the same version."""
    own = TorchPin.parse(torch)
    return (f"{pin}+{own.variant}", "--index-url", own.index) if own.index else (pin,)


def _requirements(by: InstalledDistribution, environment: Environment) -> Iterator[Requirement]:
    """What a distribution asks for in this environment."""
    python = {"python_version": environment.version or "3", "python_full_version": str(environment.python)}
    here = place(environment.os == "windows", **python)
    wanted = (requirement(line) for line in by.requires)
    return (each for each in wanted if each is not None and holds(each, here))


def _required(by: InstalledDistribution, name: str, environment: Environment) -> Requirement | None:
    """What it asks of another; None when it does not need it."""
    return next((each for each in _requirements(by, environment) if canonical_name(each.name) == name), None)


def required(found: Contents, name: str, environment: Environment) -> bool:
    return any(_required(each, name, environment) for each in found.distributions.values())


def _ordered(found: Contents, names: list[str]) -> list[str]:
    """Each after everything it requires; a circle is cut where it closes."""
    done: list[str] = []
    under_way: set[str] = set()

    def visit(name: str) -> None:
        if name in done or name in under_way:
            return
        under_way.add(name)
        distribution = found.distributions.get(name)
        for below in distribution.below if distribution else ():
            if below in found.distributions:
                visit(below)
        under_way.discard(name)
        done.append(name)

    # torch first whatever the metadata says: everything else here is compiled against it.
    for name in sorted(names, key=lambda name: (name != "torch", name)):
        visit(name)
    return [name for name in done if name in names]
