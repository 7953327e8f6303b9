"""Reads a log of any size once, in bounded memory, and keeps the lines that may matter, with some around each.

A byte-level RE2 finds candidate lines at the speed of the disk; only those and their neighbours are decoded, cleaned
and looked at. Everything else is counted, so that a line number is the one of the user's file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from rekindle.core.regex import re2
from rekindle.diagnose.text import Decoder, bare, readable, unquoted
from rekindle.knowledge.logs.signatures import log_words

BEFORE = 30
AFTER = 12
# Past this many, the middle of the candidates is dropped: the first failures and the last are what counts.
KEPT = 2_000
# A log this small is kept whole: context costs nothing there.
SMALL = 2_000
BLOCK = 1 << 20
_BEGINNING = 4_096

_LATIN = re2.Options()
_LATIN.encoding = re2.Options.Encoding.LATIN1
_LATIN.max_mem = 64 << 20

# Words with which a tool says that something is wrong. `-Werror`, `-Wno-error=` and `lib/error.cpp` are no such words,
# hence what may stand before them. Codes of MSVC and Windows stand alone because the words around them are localised.
_WORDS = (
    rb"(?:^|[^-\w./\\=])(?i:error|fatal|fail(?:ed|ure|s|ing)?|err!|exception|traceback|unsupported|unsatisfied|undefined"
    rb"|unresolved|unable to|unknown|unrecognized|cannot|can't|can not|could not|couldn't|did not|do(?:es)? not"
    rb"|not (?:found|able|detected|set|supported|compatible|compiled|recogni|installed|available|locate|exist"
    rb"|a valid|defined|enough)"
    rb"|no (?:cmake_|such|module|match|kernel|space|cuda|gpu|member|instance|rule|supported)"
    rb"|missing|mismatch|incompatib|truncated|submodule|must be"
    rb"|killed|abort|segmentation|illegal|denied|corrupt|timed out"
    rb"|too (?:old|long|new|large|many)|out of (?:memory|heap|host)"
    rb"|requires?\b|required|only supports|access violation|conflict|catastrophic|assertion|nonexistent|non-existent"
    rb"|removed|invalid|ambiguous|bad |refused|reset by|unreachable|core dumped|deprecated|dubious|terminated"
    rb"|will ignore|is_available|no longer|broken|was not created"
    rb"|longer than|has no (?:attribute|member|wheels)|only has wheels|unsatisfiab|was built for"
    rb"|was compiled|wasn't buil[dt]|compiled using|is disabled|not all |(?:all|is|are) black|stuck"
    rb"|using (?:my |the )?cpu|cpu instead|restarting kernel|kernel (?:died|crashed))"
)
_CODES = (
    rb"\b(?:[CD][1-9]\d{3}|LNK[12]\d{3}|MSB\d{4}|STL\d{4}|CVT\d{4}|RC\d{4}|U1\d{3}|CS\d{4}|NETSDK\d{4}|NU\d{4})\b"
    rb"|WinError|Errno|0x[cC]0000|-NOTFOUND|-107374|32212[12]\d{4}|[Ff]aulting |\*\*\*|sm_\d\d|\bSIG[A-Z]{3}"
    rb"|exit (?:code|status)|non-zero|oom-kill"
    rb"|OMP:|OutOfMemory|NCCL WARN|Watchdog caught|\bnccl[A-Z]\w+(?:Error|Usage|Argument)\b"
    rb"|BUILD SUCCESS|Successfully|Build succeeded|have been written to|Finished (?:processing|generating)"
    rb"|(?:Error|Exception|Warning)\b(?::|$)|CU\w{2,6}_STATUS_[A-Z]|NVRM:|NVIDIA-SMI|nvlddmkm|vfio-pci|file_baton"
    rb"|\bOOM\b|memory in use|No MIG|__(?:cuda|glibc)\b|: Depends: |` was found on |\blspci\b|shows only"
    rb"|older than|not allowed|(?i:cpu version)|Applied providers: .{2}CPU"
)
# What compilers, shells and loaders say in other languages; a warning is none of it.
_FOREIGN = b"|".join(
    re.escape(said.strip().encode("utf-8"))
    for row in log_words()
    if row.means not in ("warning", "core dumped")
    for said in row.said
)
PREFILTER = re2.compile(b"(?m:" + _WORDS + b"|" + _CODES + b"|" + _FOREIGN + b")", _LATIN)
_KEY_LETTERS = re.compile(rb"[A-Za-z0-9+/=]{24,}")
_KEY_LINES = 200
# A compiler's warning is looked at only where it stands near a failure; a large build has a hundred thousand of them.
_WARNED = re2.compile(rb": warning(?: #| C\d|:)", _LATIN)


class LogLine(msgspec.Struct, frozen=True):
    """A line that was kept: its number in the file, what the user sees, what the tool printed, whether it was a hit."""

    number: int
    raw: str
    text: str
    hit: bool


class KeptLines(msgspec.Struct, frozen=True):
    """What remains of a log: the lines in order, how many there were, and how many candidates were dropped."""

    lines: tuple[LogLine, ...]
    total: int
    dropped: int = 0


def scan(blocks: Iterable[bytes]) -> KeptLines:
    scanner = LogScanner()
    for block in blocks:
        scanner.feed(block)
    return scanner.finish()


class LogScanner:
    """Takes the bytes as they come, so that a log that is still being written can be followed."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._rest = b""
        self._count = 0
        self._head: dict[int, bytes] = {}
        self._before: list[bytes] = []
        self._lines: dict[int, bytes] = {}
        self._hits: list[int] = []
        self._after_until = 0
        self._dropped = 0
        self._next = (0, 0)
        """The line behind the last that was kept for what stands before it, and where it begins in the block."""
        self._of_key = 0
        """So many lines more may be a private key's."""
        self._flood = b""
        """Of blocks that are full of candidates, past the most that are kept, the last one: the others are counted."""

    def feed(self, data: bytes, *, last: bool = False) -> None:
        data = self._rest + self._decoder.feed(data, last=last)
        end = len(data) if last else data.rfind(b"\n") + 1
        if not end:
            # A line without end: keep what can be looked at, let the rest go by.
            self._rest = data[-2 * BLOCK :]
            return
        self._rest = data[end:]
        block = self._without_keys(data[:end])
        lines = block[:_BEGINNING].split(b"\n") if self._dropped else []
        # Whether most lines of its beginning are candidates.
        if 2 * sum(PREFILTER.search(line) is not None for line in lines) > len(lines):
            self._pass(self._flood)
            self._flood = block
        else:
            self._take_flood()
            self._take(block)

    def _take_flood(self) -> None:
        block, self._flood = self._flood, b""
        self._take(block)

    def _pass(self, block: bytes) -> None:
        self._count += block.count(b"\n") + (bool(block) and not block.endswith(b"\n"))
        self._before = _last_lines(self._before, block)

    def _without_keys(self, block: bytes) -> bytes:
        """Without the letters of a private key: its lines are quoted one by one, and nobody would know them for it."""
        if not self._of_key and b"PRIVATE KEY" not in block:
            return block
        lines = block.split(b"\n")
        for place, line in enumerate(lines):
            if b"PRIVATE KEY" in line:
                self._of_key = _KEY_LINES if b"BEGIN" in line else 0
            elif self._of_key:
                self._of_key -= 1
                lines[place] = _KEY_LETTERS.sub(b"<secret>", line)
        return b"\n".join(lines)

    def finish(self) -> KeptLines:
        self.feed(b"", last=True)
        return self.kept()

    def kept(self) -> KeptLines:
        """What there is so far; more may be fed afterwards."""
        self._take_flood()
        # The last lines say how it ended, whatever words they use.
        first = self._count - len(self._before) + 1
        tail = {first + offset: line for offset, line in enumerate(self._before)}
        keep = set(self._lines) | set(self._head) | set(tail)
        hits = set(self._hits)
        lines = []
        for number in sorted(keep):
            raw = readable(self._lines.get(number, self._head.get(number, tail.get(number, b""))))
            lines += [LogLine(number, part, bare(part), number in hits) for part in unquoted(raw)]
        return KeptLines(tuple(lines), self._count, self._dropped)

    def _take(self, block: bytes) -> None:
        first = self._count + 1
        self._next = (0, 0)
        if first <= SMALL:
            for offset, line in enumerate(islice(_split(block), max(0, SMALL - self._count))):
                self._head[first + offset] = line
        position, number, size = 0, first, len(block)
        search = PREFILTER.search
        if self._after_until >= first:
            self._keep(first, block, 0, self._after_until - first + 1)
        while position < size:
            match = search(block, position)
            if match is None:
                break
            begins, ends = match.span()
            start = block.rfind(b"\n", 0, ends) + 1
            if start == ends > begins:
                start = block.rfind(b"\n", 0, ends - 1) + 1
            end = block.find(b"\n", ends)
            end = size if end < 0 else end
            number += block.count(b"\n", position, start)
            if b": warning" not in (line := block[start:end]) or not _WARNED.search(line):
                self._hit(number, block, start, end, first)
            number += 1
            position = end + 1
        self._pass(block)

    def _hit(self, number: int, block: bytes, start: int, end: int, first: int) -> None:
        self._hits.append(number)
        self._lines[number] = block[start:end]
        # What stands before, in this block or in the end of the last one.
        at, position = number - 1, start - 1
        while at > number - BEFORE and at >= first and at not in self._lines and position > 0:
            begin = block.rfind(b"\n", 0, position) + 1
            self._lines[at] = block[begin:position]
            at, position = at - 1, begin - 1
        if at < first and at > number - BEFORE:
            for back, line in enumerate(reversed(self._before)):
                if first - 1 - back <= number - BEFORE or first - 1 - back in self._lines or first - 1 - back < 1:
                    break
                self._lines[first - 1 - back] = line
        self._after_until = max(self._after_until, number + AFTER)
        self._keep(number + 1, block, end + 1, AFTER)
        if len(self._hits) > 2 * KEPT:
            self._thin()

    def _keep(self, number: int, block: bytes, position: int, count: int) -> None:
        """From this line on, `count` lines of the block; those that an earlier hit had kept are there."""
        last = number + count
        if self._next[0] > number:
            number, position = self._next
        while number < last and position < len(block):
            end = block.find(b"\n", position)
            end = len(block) if end < 0 else end
            self._lines.setdefault(number, block[position:end])
            number, position = number + 1, end + 1
        self._next = number, position

    def _thin(self) -> None:
        """Bounded memory: of too many candidates keep the first and the last."""
        out = self._hits[KEPT : -KEPT // 2]
        self._dropped += len(out)
        low, high = out[0], out[-1]
        self._hits = self._hits[:KEPT] + self._hits[-KEPT // 2 :]
        self._lines = {n: line for n, line in self._lines.items() if n < low or n > high}


def _split(block: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(block):
        end = block.find(b"\n", position)
        end = len(block) if end < 0 else end
        yield block[position:end]
        position = end + 1


def _last_lines(before: list[bytes], block: bytes) -> list[bytes]:
    tail = block[-64 * 1024 :].split(b"\n")
    if tail and not tail[-1]:
        tail.pop()
    return (before + tail)[-BEFORE:] if len(tail) < BEFORE else tail[-BEFORE:]


_NARROW, _WIDE = 40, 300
# Fewer full lines than this are chance.
_FULL = 2


def unwrapped(kept: KeptLines) -> KeptLines | None:
    """The same log with cut lines joined; None when it does not look cut. A joined line has its first part's number."""
    widths = Counter(len(line.raw) for line in kept.lines)
    width = max(widths, default=0)
    if not _NARROW <= width <= _WIDE or widths[width] < _FULL or kept.dropped:
        return None
    lines: list[LogLine] = []
    grown = False
    for line in kept.lines:
        if grown and lines and line.number > lines[-1].number:
            last = lines[-1]
            text = last.text + line.raw.rstrip()
            hit = last.hit or PREFILTER.search(text.encode("utf-8", "replace")) is not None
            lines[-1] = msgspec.structs.replace(last, raw=last.raw + line.raw, text=text, hit=hit)
        else:
            lines.append(line)
        grown = len(line.raw) == width
    return msgspec.structs.replace(kept, lines=tuple(lines))
