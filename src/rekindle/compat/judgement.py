"""What a judgement answers: it fits, it clashes, or something is not known."""

from __future__ import annotations

import msgspec

from rekindle.core.findings import State


class Fits(msgspec.Struct, frozen=True, kw_only=True):
    """`loses` is what works less well than it could, one sentence each."""

    loses: tuple[str, ...] = ()


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """A single change that would make the pair fit: another value of one of the two, from the tables."""

    what: str
    """`driver`, `cuda`, `card`, `toolkit`, `compiler`."""
    value: str
    text: str


class Clash(msgspec.Struct, frozen=True, kw_only=True):
    """`sentence` is said the same by whoever asks; `source` is how we know."""

    sentence: str
    source: str
    changes: tuple[Alternative, ...] = ()


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """What the tables lack."""

    missing: str


Judgement = Fits | Clash | Unknown


def holds(answer: Judgement) -> bool | None:
    """Yes or no; None where it is not known."""
    return None if isinstance(answer, Unknown) else isinstance(answer, Fits)


def judged(answer: Judgement, fits: str) -> tuple[State, str]:
    """A judgement as a state and what is said; `fits` is said where the two go together."""
    if isinstance(answer, Clash):
        return State.FAIL, answer.sentence
    return (State.UNVERIFIED, answer.missing) if isinstance(answer, Unknown) else (State.PASS, fits)
