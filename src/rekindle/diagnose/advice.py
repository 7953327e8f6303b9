"""The resolver's answer for the known card and system: the command of a fix is the one `rekindle plan` prints."""

from __future__ import annotations

import msgspec

from rekindle.core.command import Command, rekindle
from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.diagnose.driver_facts import version_of
from rekindle.diagnose.evidence import in_one_machine
from rekindle.diagnose.facts import Facts
from rekindle.knowledge.gpu.gpus import spelled
from rekindle.stack.resolver import resolve
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Situation, Wish, situation_from_options

_BOTH = ("linux", "windows")


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to install for this card, `what` in short. Without commands there is nothing, and `text` says why."""

    text: str
    what: str
    commands: tuple[Command, ...]


def advise(facts: Facts, *, keep_torch: bool = False) -> Advice | None:
    """None where card or system is not known. `keep_torch`: the release that is installed, if it can be had."""
    if not facts.gpus:
        return None
    facts = in_one_machine(facts)
    if facts.os is None:
        return _for_both(facts, keep_torch)
    situation = facts.situation or _named(facts)
    if situation is None:
        return None
    kept = _route(situation, Wish(torch=facts.torch)) if keep_torch and facts.torch else None
    if kept is not None and kept.route.ready_made:
        return _of(kept, facts)
    route = _route(situation, Wish())
    if kept is None or kept.route is RouteKind.NONE:
        return _of(route, facts) if route else None
    if route is None or not route.route.ready_made:
        return _of(kept, facts)
    # Hours of compiling are nobody's first answer where another release only has to be installed.
    cards_named = tuple(word for name in _names(facts) for word in ("--gpu", name))
    again = rekindle("plan", *cards_named, "--torch", str(facts.torch), system=facts.os)
    keep = f"To keep {facts.torch} you would have to compile it: `{again}`."
    return Advice(text=f"{_said(route, facts)} {keep}", what=route.summary, commands=_commands(route, facts))


def _of(route: Route, facts: Facts) -> Advice:
    return Advice(text=_said(route, facts), what=route.summary, commands=_commands(route, facts))


def _commands(route: Route, facts: Facts) -> tuple[Command, ...]:
    """The command of the plan; where it has several, the verb that does them all comes first."""
    if len(route.commands) < 2 or not route.route.ready_made or route.route is RouteKind.COMMUNITY:
        return route.commands
    return (_install(facts, str(route.torch)), *route.commands)


def _install(facts: Facts, torch: str | None) -> Command:
    cards_named = tuple(word for name in _names(facts) for word in ("--gpu", name))
    return rekindle("install", *cards_named, *(("--torch", torch) if torch else ()), system=facts.os)


def _said(route: Route, facts: Facts) -> str:
    """What is left out is said: who uses it would miss it."""
    bare = route.route is RouteKind.OFFICIAL_WHEEL and not route.torchaudio and not route.afterwards
    left_out = " torchaudio is left out: none is known for it." if bare else ""
    lost = f" It loses: {'; '.join(route.loses)}." if route.loses else ""
    return f"{_sentence(route, facts)}{left_out}{lost}{_driver(route, facts)}"


def _driver(route: Route, facts: Facts) -> str:
    """What the route was chosen without: where nobody told the driver, the one that it needs is said."""
    if not route.driver or not route.route.ready_made or facts.driver or facts.l4t or facts.situation is not None:
        return ""
    return f" It needs the driver {route.driver} (`nvidia-smi` shows yours; `rekindle plan` there chooses by it)."


def _for_both(facts: Facts, keep_torch: bool) -> Advice | None:
    """One answer where Windows and Linux get the same, else both, said which is which."""
    linux, windows = (advise(msgspec.structs.replace(facts, os=system), keep_torch=keep_torch) for system in _BOTH)
    if linux is None or windows is None:
        return None
    if linux.commands == windows.commands:
        return linux
    what = f"on Linux {linux.what}; on Windows {windows.what}"
    commands = (_install(facts, None), *linux.commands, *windows.commands)
    return Advice(
        text=f"This installs what its system and driver take, where it is run: {what}.", what=what, commands=commands
    )


def _named(facts: Facts) -> Situation | None:
    try:
        found = situation_from_options(
            _names(facts),
            system="wsl" if facts.wsl else facts.os or "linux",
            driver=facts.driver if version_of(facts.driver) else None,
            python=facts.python,
        )
    except RekindleError:
        return None
    found = msgspec.structs.replace(found, glibc=Version(facts.glibc)) if facts.glibc else found
    return msgspec.structs.replace(found, jetpack=int(facts.l4t)) if facts.l4t else found


def _names(facts: Facts) -> list[str]:
    """The card by its name where that leaves nothing open, else by its capability."""
    numbers = sorted(set(facts.gpus))
    if facts.gpu_name and len(numbers) == 1:
        return [spelled(facts.gpu_name, (numbers[0],))]
    return [gpu.sm for gpu in numbers]


def _route(situation: Situation, wish: Wish) -> Route | None:
    try:
        return resolve(situation, wish).recommended
    except RekindleError:
        return None


def _sentence(route: Route, facts: Facts) -> str:
    situation = facts.situation or _named(facts)
    if route.known_from and situation is not None:
        cards_named = " and ".join(dict.fromkeys(card.name for card in situation.cards))
        return f"For {cards_named}: {route.summary} (evidence: {route.known_from})."
    text = route.summary[:1].upper() + route.summary[1:]
    return text if text.endswith(".") else text + "."
