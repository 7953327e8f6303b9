"""The warnings of a build that a person should see: what the toolkit, CMake and the linker say of the build as a whole.

What a compiler says of somebody's C++ is only counted: there are thousands, and they are PyTorch's to mend.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

_LIMIT = 64 * 1024 * 1024
"""Bytes that are read of one log."""
_MOST = 30
_LONGEST = 300
_OF_THE_BUILD = re.compile(
    r"(?P<tool>nvcc|ptxas|nvlink|cudafe\+\+|fatbinary)(?: fatal| info)?\s*:?\s*[Ww]arning\s*:?\s*(?P<text>.+)"
    r"|(?P<cmake>CMake (?:Deprecation |Author )?Warning)(?P<at>.*):\s*(?P<said>[^:]*)$"
    r"|(?P<linker>(?:/\S*/)?(?:ld|ld\.gold|ld\.lld|lld|mold|collect2|link|LINK)(?:\.exe)?)\s*: warning:?\s*(?P<what>.+)"
)
_OF_A_FILE = re.compile(
    r"\bwarning\b.*?(?:\[(?P<flag>-W[\w+=-]+)\]|(?P<code>[CD]\d{4})|#(?P<number>\d+-D))", re.IGNORECASE
)


class BuildWarning(msgspec.Struct, frozen=True, kw_only=True):
    tool: str
    text: str
    count: int = 1


class BuildWarnings(msgspec.Struct, frozen=True, kw_only=True):
    """`files`: how often compilers warned about source files, by their flag."""

    found: tuple[BuildWarning, ...] = ()
    files: dict[str, int] = {}


def read(logs: Iterable[Path]) -> BuildWarnings:
    """Of the logs of a build, the commonest first."""
    found: Counter[tuple[str, str]] = Counter()
    flags: Counter[str] = Counter()
    for log in logs:
        pending = ""
        for line in _lines(log):
            if pending and line.strip():
                # CMake says where in one line and what in the next.
                found[pending, line.strip()[:_LONGEST]] += 1
                pending = ""
            match = _OF_THE_BUILD.search(line) if "arning" in line else None
            if match and match["cmake"]:
                said = match["said"].strip()
                pending = "" if said else match["cmake"]
                if said:
                    found[match["cmake"], said[:_LONGEST]] += 1
            elif match:
                tool = match["tool"] or match["linker"].rpartition("/")[2]
                found[tool, (match["text"] or match["what"] or "").strip()[:_LONGEST]] += 1
            elif "arning" in line and (file := _OF_A_FILE.search(line)):
                flags[file["flag"] or file["code"] or f"#{file['number']}"] += 1
    return BuildWarnings(
        found=tuple(
            BuildWarning(tool=tool, text=text, count=count) for (tool, text), count in found.most_common(_MOST)
        ),
        files=dict(flags.most_common(_MOST)),
    )


def _lines(log: Path) -> Iterator[str]:
    with log.open("rb") as stream:
        for line in stream.read(_LIMIT).split(b"\n"):
            yield line.decode("utf-8", "replace")
