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
_IDENTIFIER = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_STOP = re.compile(rb'[\\#"()]|(?<![^\s()"])\[=*\[')
_QUOTE_STOP = re.compile(rb'["\\]')
_OPENING = re.compile(rb"\[(=*)\[")
_CALL = re.compile(rb"[ \t]*\(")
_UNQUOTED = re.compile(rb'(?:[^\s()#"\\]|\\.)+', re.DOTALL)
_SPACE = re.compile(rb"\s+")
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
    return [found for name, opening in _calls(data) if (found := _requirement(data, name, opening)) is not None]


def raised(data: bytes, floor: Version) -> bytes:
    """The same file with every version below `floor` raised to it, and nothing else changed."""
    parts: list[bytes] = []
    done = 0
    for found in requirements(data):
        if found.version is not None and found.version < floor:
            parts += [data[done : found.start], str(floor).encode("ascii")]
            done = found.end
    return b"".join([*parts, data[done:]])


def _calls(data: bytes) -> Iterator[tuple[str, int]]:
    """(command, offset of its opening parenthesis) for each call that CMake would see."""
    wanted = _candidates(data)
    depth = position = 0
    for start, name in wanted:
        while position <= start:
            stop = _STOP.search(data, position)
            if stop is None or stop.start() >= start:
                break
            position, depth = _past(data, stop, depth)
        if position > start:
            continue  # inside a string, a comment or a bracket argument
        call = _CALL.match(data, start + len(name))
        if depth == 0 and call and _begins_line(data, start):
            yield name.decode("ascii"), call.end() - 1


def _candidates(data: bytes) -> list[tuple[int, bytes]]:
    lower = data.lower()
    found = []
    for name in _NAMES:
        at = lower.find(name)
        while at >= 0:
            end = at + len(name)
            if (at == 0 or data[at - 1] not in _IDENTIFIER) and (end == len(data) or data[end] not in _IDENTIFIER):
                found.append((at, name))
            at = lower.find(name, end)
    return sorted(found)


def _past(data: bytes, stop: re.Match[bytes], depth: int) -> tuple[int, int]:
    """Where reading goes on after a stop, and the depth of parentheses there."""
    token = stop.group()
    if token == b"(":
        return stop.end(), depth + 1
    if token == b")":
        return stop.end(), max(0, depth - 1)
    if token == b"\\":
        return stop.end() + 1, depth
    if token == b"#":
        return _comment_end(data, stop.start()), depth
    if token == b'"':
        return _quote_end(data, stop.start()), depth
    # A bracket opens an argument only inside a command.
    return (_bracket_end(data, stop.start()) if depth else stop.end()), depth


def _comment_end(data: bytes, at: int) -> int:
    if _OPENING.match(data, at + 1):
        return _bracket_end(data, at + 1)
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _quote_end(data: bytes, at: int) -> int:
    position = at + 1
    while stop := _QUOTE_STOP.search(data, position):
        if stop.group() == b'"':
            return stop.end()
        position = stop.end() + 1
    return len(data)


def _bracket_end(data: bytes, at: int) -> int:
    opening = _OPENING.match(data, at)
    assert opening is not None
    closing = b"]" + opening.group(1) + b"]"
    end = data.find(closing, opening.end())
    return len(data) if end < 0 else end + len(closing)


def _begins_line(data: bytes, at: int) -> bool:
    """A command is the first thing on its line, apart from spaces and a byte-order mark; else CMake stops anyway."""
    before = data[data.rfind(b"\n", 0, at) + 1 : at]
    return not before.removeprefix(b"\xef\xbb\xbf").strip()


def _requirement(data: bytes, name: str, opening: int) -> CMakeRequirement | None:
    expecting = False
    last: tuple[int, int] | None = None
    for start, end in _arguments(data, opening + 1):
        if expecting:
            last, expecting = (start, end), False
        elif data[start:end] == b"VERSION":
            expecting = True
    if last is None:
        return None
    start, end = last
    text = data[start:end]
    numbers = _RANGE.match(text)
    group = 2 if numbers and numbers.group(2) else 1
    return CMakeRequirement(
        command=name,
        line=data.count(b"\n", 0, start) + 1,
        text=text.decode("utf-8", "replace"),
        version=Version(numbers.group(group).decode("ascii")) if numbers else None,
        running=_RUNNING.match(text) is not None,
        start=start + numbers.start(group) if numbers else start,
        end=start + numbers.end(group) if numbers else end,
    )


def _arguments(data: bytes, position: int) -> Iterator[tuple[int, int]]:
    """The arguments of a call as spans of their text, without quotes or brackets around it."""
    depth = 1
    while position < len(data):
        if space := _SPACE.match(data, position):
            position = space.end()
            continue
        byte = data[position : position + 1]
        if byte == b"(":
            depth += 1
            position += 1
        elif byte == b")":
            depth -= 1
            position += 1
            if depth == 0:
                return
        elif byte == b"#":
            position = _comment_end(data, position)
        elif byte == b'"':
            end = _quote_end(data, position)
            yield position + 1, end - 1
            position = end
        elif opening := _OPENING.match(data, position):
            end = _bracket_end(data, position)
            yield opening.end(), end - len(opening.group())
            position = end
        elif plain := _UNQUOTED.match(data, position):
            yield plain.span()
            position = plain.end()
        else:
            position += 1
