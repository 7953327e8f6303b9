"""Reads the versions that a CMake file asks for, as CMake itself reads them.

`cmake_minimum_required(VERSION 2.8)` may be written in any letter case, over several lines, with comments between its
arguments; the same words inside a string, a bracket argument, a comment or another command's arguments mean nothing.
Only the bytes of the version itself are ever replaced, so everything else of the file survives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from rekindle.core.version import Version

_NAMES = (b"cmake_minimum_required", b"cmake_policy")
# A comment (in brackets, or to the end of the line), and what an argument is: in brackets, in quotes, or plain.
_TOKEN = re.compile(
    rb"#\[(?P<level>=*)\[.*?(?:\](?P=level)\]|\Z)|#[^\n]*"
    rb"|\[(?P<own>=*)\[(?P<bracket>.*?)(?:\](?P=own)\]|\Z)"
    rb'|"(?P<quoted>[^"\\]*(?:\\.[^"\\]*)*)"?'
    rb'|(?P<open>\()|(?P<close>\))|(?P<plain>(?:[^\s()#"\\]|\\.)+)',
    re.DOTALL,
)
_CALL = re.compile(rb"[ \t]*\(")
_RUNNING = re.compile(rb"(?:\$\{CMAKE_(?:MAJOR_|MINOR_|PATCH_)?VERSION\}\.?)+\Z")
_RANGE = re.compile(rb"(\d+(?:\.\d+){1,3})(?:\.\.\.(\d+(?:\.\d+){1,3}))?\Z")


class CMakeRequirement(msgspec.Struct, frozen=True, kw_only=True):
    """One `VERSION` that a file asks for. `version` is None where it cannot be read, e.g. when it is a variable.

    In `<min>...<max>` CMake takes the policies of `<max>`, so that is the version which counts. `running` marks
    `${CMAKE_VERSION}` and its parts: whatever CMake it is that reads the file, never too old for itself.
    """

    command: str
    line: int
    text: str
    version: Version | None
    running: bool
    start: int
    end: int


def mentions(data: bytes) -> bool:
    """Whether the file can hold a requirement at all: quick, and never wrong about a no."""
    return any(name in data for name in _NAMES) or any(name in data.lower() for name in _NAMES)


def requirements(data: bytes) -> list[CMakeRequirement]:
    """Every version that the file asks for, in order."""
    found: dict[int, CMakeRequirement] = {}
    call, command, expecting = 0, "", False
    for depth, start, end in _words(data):
        if not depth:
            call, command, expecting = start, _command(data, start, end), False
        elif expecting:
            # Where a call says it twice, the last one counts.
            found[call], expecting = _requirement(data, command, start, end), False
        else:
            expecting = bool(command) and data[start:end] == b"VERSION"
    return list(found.values())


def raised(data: bytes, floor: Version) -> bytes:
    """The same file with every version below `floor` raised to it, and nothing else changed."""
    parts: list[bytes] = []
    done = 0
    for found in requirements(data):
        if found.version is not None and found.version < floor:
            parts += [data[done : found.start], str(floor).encode("ascii")]
            done = found.end
    return b"".join([*parts, data[done:]])


def _words(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Plain words outside of any call, and all arguments of calls: the depth of parentheses, and the span of its text
    without quotes or brackets around it. Reading ends with the last call that could matter."""
    lower = data.lower()
    last = max(lower.rfind(name) + len(name) for name in _NAMES)
    depth = position = 0
    while (depth or position <= last) and (token := _TOKEN.search(data, position)):
        position, kind = token.end(), token.lastgroup
        if kind == "bracket" and not depth:
            position = token.start() + 1  # a bracket opens an argument only inside a command
        elif kind in ("open", "close"):
            depth = max(0, depth + (1 if kind == "open" else -1))
        elif kind == "plain" or (depth and kind in ("bracket", "quoted")):
            yield depth, *token.span(kind)


def _command(data: bytes, start: int, end: int) -> str:
    """The command that is called there, if it is one of ours. It is the first thing on its line, apart from spaces and
    a byte-order mark; else CMake stops anyway."""
    name = data[start:end].removeprefix(b"\xef\xbb\xbf").lower()
    before = data[data.rfind(b"\n", 0, start) + 1 : start]
    called = name in _NAMES and not before.strip() and _CALL.match(data, end)
    return name.decode("ascii") if called else ""


def _requirement(data: bytes, command: str, start: int, end: int) -> CMakeRequirement:
    text = data[start:end]
    numbers = _RANGE.match(text)
    group = 2 if numbers and numbers.group(2) else 1
    return CMakeRequirement(
        command=command,
        line=data.count(b"\n", 0, start) + 1,
        text=text.decode("utf-8", "replace"),
        version=Version(numbers.group(group).decode("ascii")) if numbers else None,
        running=_RUNNING.match(text) is not None,
        start=start + numbers.start(group) if numbers else start,
        end=start + numbers.end(group) if numbers else end,
    )
