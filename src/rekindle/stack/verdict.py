"""What `rekindle plan` answers."""

from __future__ import annotations

from enum import Enum

import msgspec

from rekindle.core.codec import JsonAnswer
from rekindle.core.version import Version
from rekindle.model.card import Capability
from rekindle.stack.route import Missing, NextStep, Route
from rekindle.stack.rules import Rejection, RouteKind
from rekindle.stack.situation import Situation, Wish


class Answer(str, Enum):
    """To `--why-not`: it cannot be, it can and something else is better, or it is what is recommended."""

    IMPOSSIBLE = "impossible"
    POSSIBLE = "possible"
    RECOMMENDED = "recommended"


class WhyNot(msgspec.Struct, frozen=True, kw_only=True):
    """`chain` is every rule behind the answer, the decisive one first."""

    question: str
    answer: Answer
    sentence: str
    chain: tuple[Rejection, ...]
    instead: str


class AnswerFor(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer would be if the card had this capability."""

    capability: Capability
    route: RouteKind
    torch: str | None
    cuda: Version | None
    summary: str


class OtherWay(msgspec.Struct, frozen=True, kw_only=True):
    """Another way, and in what it is the better one: `loses nothing, newest`."""

    wins: str
    route: Route


class Verdict(msgspec.Struct, JsonAnswer, frozen=True, kw_only=True):
    """The answer of `rekindle plan`. `recommended` has route `none` when nothing works."""

    schema: str = "rekindle.plan/1"
    situation: Situation
    wish: Wish
    recommended: Route
    alternatives: tuple[OtherWay, ...] = ()
    """At most two others, each better than the recommended route in something."""
    routes: tuple[Route, ...]
    rejections: tuple[Rejection, ...]
    missing: tuple[Missing, ...]
    candidates: tuple[AnswerFor, ...] = ()
    """For a name that stands for several chips: the answer for each."""
    notes: tuple[str, ...] = ()
    decisive: str | None = None
    """Why not the newest release: the one reason."""
    outlook: tuple[NextStep, ...] = ()
    """For a card that the newest official wheels have left behind: what comes after tonight's command."""
    why_not: WhyNot | None = None
