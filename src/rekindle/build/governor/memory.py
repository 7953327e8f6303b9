"""How much memory a build may still take now, how much each compile will want, and who may start.

The tightest of all bounds counts: the machine's, and on Linux that of every control group from our own upwards, of
either version. File pages that the kernel can drop are counted as free. On Windows it is what can still be committed.

First come, first served, as far as memory goes: one that does not fit is passed by those that do, but never so that
what has passed it keeps it out once the others have ended. If nothing runs, the first one starts whatever it needs.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from rekindle.build.progress import outputs
from rekindle.machine.host import CouldNotRead
from rekindle.machine.system import windows as windows_calls
from rekindle.machine.system.memory import NO_LIMIT, control_groups, parse_meminfo, upwards

_STAT = re.compile(r"^(\w+) (\d{1,20})$", re.MULTILINE)
Read = Callable[[str], str | None]
SHARE = "REKINDLE_BUILD_MEMORY"
"""The variable by which a fleet tells a build how many bytes are its part."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    available: int | None
    """Bytes that can be taken now. None: nobody could say."""
    total: int | None
    """The most that this build can ever have."""
    killed: int | None = None
    """How many of our group the kernel has killed for memory, ever. None: not counted."""


class Watch:
    """Looks again each time it is asked."""

    def __init__(self, read: Read | None = None, *, windows: bool = sys.platform == "win32") -> None:
        self._read = read or _read
        self._windows = windows
        self._groups = [] if windows else groups(self._read)
        self._share = Share.told(os.environ.get(SHARE))

    def sample(self) -> Sample:
        if self._windows:
            found = [of_windows(windows_calls.memory())]
        else:
            found = [_machine(self._read("/proc/meminfo") or ""), *(group.look(self._read) for group in self._groups)]
        found += [self._share.look()] if self._share else []
        bounds = [each for each in found if each is not None]
        return Sample(
            available=max(0, min(free for free, _ in bounds)) if bounds else None,
            total=min(total for _, total in bounds) if bounds else None,
            killed=None if self._windows else self._killed(),
        )

    def _killed(self) -> int | None:
        for group in self._groups:
            count = _stat(self._read(f"{group.folder}/{group.events}") or "").get("oom_kill")
            if count is not None:
                return count
        return _stat(self._read("/proc/vmstat") or "").get("oom_kill")


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """This build's part of a machine that others build on, too: what its own processes hold counts against it."""

    limit: int

    @classmethod
    def told(cls, text: str | None) -> Share | None:
        number = _number(text)
        return cls(limit=number) if number else None

    def look(self) -> tuple[int, int]:
        import psutil

        held = 0
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    held += process.memory_info().rss
        return self.limit - held, self.limit


class MemoryGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One control group with an account of memory."""

    folder: str
    limit: str
    usage: str
    events: str
    prefix: str
    """Before the names in its `memory.stat` that count the groups below too."""

    def look(self, read: Read) -> tuple[int, int] | None:
        """What is free below its limit, and the limit; None when it has none."""
        limit, usage = _number(read(f"{self.folder}/{self.limit}")), _number(read(f"{self.folder}/{self.usage}"))
        if limit is None or usage is None or limit >= NO_LIMIT:
            return None
        stat = _stat(read(f"{self.folder}/memory.stat") or "")
        # Half of what was read more than once is left to the compilers: it is the headers that they share.
        droppable = stat.get(f"{self.prefix}inactive_file", 0) + stat.get(f"{self.prefix}active_file", 0) // 2
        return limit - max(0, usage - droppable), limit


def groups(read: Read) -> list[MemoryGroup]:
    """The control groups of this process that have an account of memory, our own first."""
    paths = control_groups(read)
    own = next((path for names, path in paths.items() if "memory" in names.split(",")), None)
    if own is not None:
        kind = {"limit": "memory.limit_in_bytes", "usage": "memory.usage_in_bytes", "events": "memory.oom_control"}
        made = [MemoryGroup(folder=f"/sys/fs/cgroup/memory{part}", prefix="total_", **kind) for part in upwards(own)]
    else:
        kind = {"limit": "memory.max", "usage": "memory.current", "events": "memory.events"}
        made = [MemoryGroup(folder=f"/sys/fs/cgroup{part}", prefix="", **kind) for part in upwards(paths.get("", "/"))]
    return [group for group in made if read(f"{group.folder}/{group.usage}") is not None]


def of_windows(said: dict[str, int] | None) -> tuple[int, int] | None:
    """What can be committed, and no more than is free in RAM: a build that pages does not get on."""
    if not said:
        return None
    return min(said["available"], said["commit_free"]), min(said["total"], said["commit_total"])


def _machine(text: str) -> tuple[int, int] | None:
    try:
        found = parse_meminfo(text)
    except CouldNotRead:
        return None
    return (found["MemAvailable"], found["MemTotal"]) if "MemAvailable" in found else None


def _stat(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in _STAT.findall(text)}


def _number(text: str | None) -> int | None:
    word = (text or "").strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) < 25 else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return None


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
