"""Who may start now. A pure function of who waits, who runs, and how much memory there is.

First come, first served, as far as memory goes: one that does not fit is passed by those that do, but never so that
what has passed it keeps it out once the others have ended. If nothing runs, the first one starts whatever it needs.

How much memory a compile will want: what it took here before; else what a file of this name took in a build that
Rekindle knows of; else what its kind took in this build; else a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rekindle.build.progress import outputs

_MIB = 1024**2
_GUESS = {".cu": 1024 * _MIB, ".c": 96 * _MIB, ".s": 48 * _MIB, "": 320 * _MIB}
"""By the ending of the source. The largest files of PyTorch take much more, most take less: a guess too low is put
right by sending one back to wait, one too high would idle a core all through a first build."""
_HEADROOM = 1.08
_LEAST = 24 * _MIB
_ENOUGH = 8
_CACHE_HIT = 32 * _MIB
"""Below this a compiler cache has answered in the compiler's place, and nothing is learned."""


class Expectation:
    """`known` is bytes by object, from earlier builds here; `shipped` by `Output.key`, from builds elsewhere."""

    def __init__(
        self,
        known: Mapping[str, int] | None = None,
        *,
        shipped: Mapping[str, int] | None = None,
        cached: bool = False,
    ) -> None:
        self.measured: dict[str, int] = {}
        self._known = dict(known or {})
        self._shipped = shipped or {}
        self._cached = cached
        self._seen: dict[str, list[int]] = {}

    def of(self, name: str) -> int:
        known = self._known.get(name)
        if known is not None:
            return max(_LEAST, int(known * _HEADROOM))
        shipped = self._shipped.get(outputs.read(name).key)
        if shipped is not None:
            return max(_LEAST, int(shipped * _HEADROOM))
        kind = kind_of(name)
        seen = self._seen.get(kind, [])
        if len(seen) < _ENOUGH:
            return _GUESS.get(kind, _GUESS[""])
        # Three in four of its kind took no more than this.
        return max(_LEAST, int(sorted(seen)[len(seen) * 3 // 4] * _HEADROOM))

    def learn(self, name: str, peak: int, *, killed: bool = False) -> None:
        """`killed`: it wanted more than that."""
        if not peak or (self._cached and peak < _CACHE_HIT and not killed):
            return
        size = max(int(peak * 1.25), self._known.get(name, 0)) if killed else peak
        self._known[name] = self.measured[name] = size
        self._seen.setdefault(kind_of(name), []).append(size)


def kind_of(name: str) -> str:
    """The ending of the source that an object is named after: `a.cu.o`, `a.cpp.obj`. What is linked has a kind too."""
    stem, _, last = name.rpartition(".")
    if last not in ("o", "obj"):
        return "link"
    return "." + stem.rpartition(".")[2].lower() if "." in stem.rpartition("/")[2] else ""


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
