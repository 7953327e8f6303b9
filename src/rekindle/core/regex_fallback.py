"""RE2's interface, as far as Rekindle uses it, over Python's `re`.

The patterns are written for RE2. Where the two read a pattern differently it is rewritten: `\\x{201c}` becomes the
character, `\\z` the end of the text, `$` the end of the text and not the place before a last line break, and `\\d`,
`\\w`, `\\s` and `\\b` know ASCII alone. A flag for the whole pattern, which Python takes only at its beginning, becomes
one for the rest of its group.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, AnyStr

_HEX = re.compile(r"\\x\{([0-9A-Fa-f]+)\}")
_FLAGS = re.compile(r"\(\?([ims]+)\)")
_Regexp = re.Pattern
escape = re.escape


class PatternOptions:
    """RE2's settings. Python's engine has none of the first two: they are taken and not used."""

    class Encoding(Enum):
        UTF8 = 0
        LATIN1 = 1

    max_mem = 0
    log_errors = True
    encoding = Encoding.UTF8


Options = PatternOptions


def compile(pattern: AnyStr, options: PatternOptions | None = None) -> re.Pattern[AnyStr]:
    """The pattern as Python reads it."""
    if isinstance(pattern, bytes):
        return re.compile(translate(pattern.decode("latin-1")).encode("latin-1"))
    return re.compile(translate(pattern), re.ASCII)


class Set:
    """Many patterns, asked together. RE2 looks for all of them in one pass; here each is tried."""

    def __init__(self) -> None:
        self._patterns: list[re.Pattern[Any]] = []

    @classmethod
    def SearchSet(cls, options: PatternOptions | None = None) -> Set:
        return cls()

    def Add(self, pattern: str) -> int:
        self._patterns.append(compile(pattern))
        return len(self._patterns) - 1

    def Compile(self) -> None:
        """Nothing to do: each pattern is compiled as it comes."""

    def Match(self, text: str) -> list[int]:
        return [index for index, pattern in enumerate(self._patterns) if pattern.search(text)]


def translate(pattern: str) -> str:
    """An RE2 pattern in Python's spelling."""
    said = ""
    ends = [0]  # for the pattern and each open group: how many groups of flags must be closed with it
    multiline = [False]
    at = 0
    while at < len(pattern):
        flags = _FLAGS.match(pattern, at)
        piece, length = _piece(pattern, at)
        if flags:
            said += f"(?{flags[1]}:"
            length = flags.end() - at
            ends[-1] += 1
            multiline[-1] = multiline[-1] or "m" in flags[1]
        elif piece == "(":
            ends.append(0)
            group = re.match(r"\(\?[is]*m[is]*:", pattern[at:])
            multiline.append(multiline[-1] or group is not None)
            said += piece
        elif piece == ")":
            said += ")" * (ends.pop() + 1)
            multiline.pop()
        elif piece == "$":
            said += "$" if multiline[-1] else r"\Z"
        else:
            said += piece
        at += length
    return said + ")" * ends[0]


def _piece(pattern: str, at: int) -> tuple[str, int]:
    """The next thing of the pattern that stands for itself, in Python's spelling, and its length in RE2's."""
    if pattern[at] == "\\":
        number = _HEX.match(pattern, at)
        if number:
            return re.escape(chr(int(number[1], 16))), number.end() - at
        return (r"\Z" if pattern[at + 1] == "z" else pattern[at : at + 2]), 2
    if pattern[at] != "[":
        return pattern[at], 1
    end = at + 1
    end += pattern[end] == "^"
    end += pattern[end] == "]"
    while pattern[end] != "]":
        named = pattern.startswith("[:", end)
        end = pattern.index(":]", end) + 2 if named else end + (2 if pattern[end] == "\\" else 1)
    inside = _HEX.sub(lambda number: re.escape(chr(int(number[1], 16))), pattern[at : end + 1])
    return inside, end + 1 - at
