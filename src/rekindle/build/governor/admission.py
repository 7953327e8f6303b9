"""Who may start now. A pure function of who waits, who runs, and how much memory there is.

First come, first served, as far as memory goes: one that does not fit is passed by those that do, but never so that
what has passed it keeps it out once the others have ended. If nothing runs, the first one starts whatever it needs.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Compiling(msgspec.Struct, kw_only=True):
    """One compile at the gate, or past it."""

    number: int
    need: int
    """Bytes that it is expected to take."""
    arrived: float = 0.0
    began: float = 0.0
    alone: bool = False
    """It was killed for memory: it runs when nothing else does."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    start: tuple[int, ...]
    """By number."""
    short: tuple[int, ...]
    """Those for which a place is free, but not the memory."""


def choose(
    waiting: Sequence[Compiling], running: Sequence[Compiling], *, jobs: int, room: int, capacity: int
) -> Choice:
    """`room` is what is free beyond what the running ones will still take; `capacity` what there is without them."""
    alone = next((each for each in waiting if each.alone), None)
    if any(each.alone for each in running) or (alone and running):
        return Choice(start=(), short=tuple(each.number for each in waiting))
    if alone:
        return Choice(start=(alone.number,), short=tuple(each.number for each in waiting if each is not alone))
    start: list[Compiling] = []
    short: list[Compiling] = []
    for each in waiting:
        if len(running) + len(start) >= jobs:
            break
        fits = each.need <= room
        if short:
            first = short[0]
            passed = sum(other.need for other in running if other.began >= first.arrived)
            passed += sum(other.need for other in start)
            fits = fits and passed + each.need + first.need <= capacity
        if fits or not (running or start):
            start.append(each)
            room -= each.need
        else:
            short.append(each)
    return Choice(start=tuple(each.number for each in start), short=tuple(each.number for each in short))
