"""A unified diff that `git apply` and `patch -p1` take, at a cost that follows the change and not the file."""

from __future__ import annotations

import difflib

_CONTEXT = 3


def unified(path: str, before: bytes, after: bytes) -> str:
    """The diff of one file, with `a/` and `b/` before its path; empty when nothing changed."""
    if before == after:
        return ""
    head = _line_start(before, _common(before, after), _CONTEXT)
    tail = _common(before[head:][::-1], after[head:][::-1])
    old_end, new_end = _line_end(before, len(before) - tail), _line_end(after, len(after) - tail)
    if before[old_end:] != after[new_end:]:
        old_end, new_end = len(before), len(after)
    skipped = before.count(b"\n", 0, head)
    lines = [f"--- a/{path}\n", f"+++ b/{path}\n"]
    for hunk in _hunks(_lines(before[head:old_end]), _lines(after[head:new_end]), skipped):
        lines += hunk
    return "".join(lines)


def _hunks(old: list[str], new: list[str], skipped: int) -> list[list[str]]:
    found = []
    for group in _aligned(old, new).get_grouped_opcodes(_CONTEXT):
        first, last = group[0], group[-1]
        old_span = _span(first[1] + skipped, last[2] - first[1])
        new_span = _span(first[3] + skipped, last[4] - first[3])
        hunk = [f"@@ -{old_span} +{new_span} @@\n"]
        for tag, a, b, c, d in group:
            if tag == "equal":
                hunk += [_line(" ", line) for line in old[a:b]]
            else:
                hunk += [_line("-", line) for line in old[a:b]] + [_line("+", line) for line in new[c:d]]
        found.append(hunk)
    return found


def _aligned(old: list[str], new: list[str]) -> difflib.SequenceMatcher[str]:
    """The two aligned so that the last lines they share stay context.

    `patch` takes a hunk with less context behind it than before it for one at the end of the file. Left to itself the
    matcher may pair the first of several equal lines and call the last ones added.
    """
    same = 0
    while same < min(_CONTEXT, len(old), len(new)) and old[-1 - same] == new[-1 - same]:
        same += 1
    found = difflib.SequenceMatcher(None, old[: len(old) - same], new[: len(new) - same], autojunk=False)
    codes = found.get_opcodes()
    if same:
        begun, put = len(old) - same, len(new) - same
        if codes and codes[-1][0] == "equal":
            _, begun, _, put, _ = codes.pop()
        codes.append(("equal", begun, len(old), put, len(new)))
    return found


def _span(start: int, length: int) -> str:
    return f"{start + 1 if length else start},{length}"


def _line(sign: str, text: str) -> str:
    return f"{sign}{text}" if text.endswith("\n") else f"{sign}{text}\n\\ No newline at end of file\n"


def _lines(data: bytes) -> list[str]:
    return [line.decode("utf-8", "surrogateescape") for line in _split(data)]


def _split(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _common(one: bytes, other: bytes) -> int:
    """How many bytes they begin with in common, by halving: comparing slices is fast, comparing bytes is not."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _line_start(data: bytes, at: int, lines_before: int) -> int:
    for _ in range(lines_before + 1):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + 1


def _line_end(data: bytes, at: int) -> int:
    for _ in range(_CONTEXT + 1):
        end = data.find(b"\n", at)
        if end < 0:
            return len(data)
        at = end + 1
    return at
