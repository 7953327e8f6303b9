"""Extensions that go in with a torch: ready-made wheels that fit it, by the judgement of `rekindle extension find`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.audit.cards import install_command
from rekindle.core.errors import ChecksFailed, NoRoute, UsageError
from rekindle.extension import question as asking
from rekindle.extension.find import FoundExtension, FoundWheel, find, name_of
from rekindle.extension.looking import LookedInto, look_into
from rekindle.model.environment import Environment
from rekindle.model.requirement import canonical_name
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Situation

INSTALLERS = ("pip", "uv")


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """An extension, with what was found for the torch that it goes in with."""

    found: FoundExtension
    environment: Environment
    situation: Situation

    @property
    def wheel(self) -> FoundWheel:
        return self.found.wheels[0]

    def as_installed(self, arrived: Sequence[Path]) -> FoundWheel:
        """Judged again by the file that arrived and the torch that is there now; an error if they do not fit."""
        files = {each.name: each for each in arrived}

        def look(place: str | Path, question: asking.ExtensionQuestion, pure: bool) -> LookedInto:
            return look_into(files.get(name_of(place), place), question, pure)

        again = find(asking.in_environment(self.found.package, self.environment, self.situation), look=look)
        if not again.wheels or again.wheels[0].what != self.wheel.what:
            message = f"{self.wheel.what} does not fit the torch that was installed"
            raise ChecksFailed("\n  ".join((message, *again.refused)), hint="the environment is as it was")
        return again.wheels[0]


def fitting(names: Sequence[str], route: Route, environment: Environment, situation: Situation) -> tuple[Beside, ...]:
    """The wheel of each for the torch of a route. An error where one has none: torch is not installed without it."""
    for name in names:
        if canonical_name(name) in INSTALLERS:
            raise UsageError(f"`--with` names an extension, and {name} is an installer", hint=f"`--installer {name}`")
    if not names:
        return ()
    if route.cuda is None or not (route.route.by_pip or route.route is RouteKind.INSTALLED):
        message = f"{', '.join(names)} cannot go in with this torch: {route.summary}"
        raise NoRoute(message, hint="ready-made extensions are for a torch with CUDA that pip installs")
    found = [_found(name, route, environment, situation) for name in names]
    return tuple(Beside(found=each, environment=environment, situation=situation) for each in found)


def _found(name: str, route: Route, environment: Environment, situation: Situation) -> FoundExtension:
    if route.route is RouteKind.INSTALLED:
        asked = asking.in_environment(name, environment, situation)
    else:
        asked = asking.beside(name, route, environment, situation)
    found = find(asked)
    if found.wheels and found.wheels[0].words:
        return found
    own = install_command(environment, asked.cards, situation.driven_by, "--torch", route.version)
    built = f"`{own}`, then `{found.command}` builds it ({found.build_cost})" if found.build_cost else None
    hints = [built, found.instead and f"instead: {found.instead}"]
    message = f"no ready-made wheel of {found.package} fits torch {route.version}; nothing was installed"
    doubts = (f"{each.what}: {each.why}" for each in found.wheels)
    raise NoRoute("\n  ".join((message, *doubts, *found.refused)), hint="\n".join(filter(None, hints)) or None)
