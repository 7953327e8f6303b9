"""Names of files in an archive: which are refused everywhere, and which only some systems can have side by side."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable

_RESERVED = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$"]
    + [f"{port}{number}" for port in ("com", "lpt") for number in "0123456789\u00b9\u00b2\u00b3"]
)
_FORBIDDEN = frozenset('<>:"|?*')
_LONGEST = 4096
_LONGEST_PART = 255
"""Bytes of a file's or folder's own name: what the file systems of Linux take, and no fewer than those of Windows."""


def problem(name: str) -> str | None:
    """What is wrong with a member's name on every system; None for one that stays inside its folder."""
    if not name or len(name) > _LONGEST or "\\" in name or _has_invisible(name):
        return f"an unusable name, `{printable(name)}`"
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or name[1:2] == ":" or ".." in parts:
        return f"a name that leaves its folder, `{printable(name)}`"
    if len(name) > _LONGEST_PART // 4 and any(len(part.encode()) > _LONGEST_PART for part in parts):
        return f"a name too long for a file system, `{printable(name)}`"
    if "" in parts or "." in parts:
        return f"a name with an empty part, `{printable(name)}`"
    return None


def conflict(names: Collection[str]) -> tuple[str, str] | None:
    """A name that is a file and, as part of another name, a folder: only one of the two can be on a disk."""
    files = {name for name in names if not name.endswith("/")}
    for name in sorted(names):
        folder = name.removesuffix("/").rpartition("/")[0] if not name.endswith("/") else name.removesuffix("/")
        while folder:
            if folder in files:
                return folder, name
            folder = folder.rpartition("/")[0]
    return None


def twins(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs that are one file where letters of either case, or two spellings of one letter, are the same."""
    seen: dict[str, str] = {}
    found = []
    for name in names:
        first = seen.setdefault(_folded(name), name)
        if first != name:
            found.append((first, name))
    return found


def impossible_on_windows(name: str) -> str | None:
    """Why Windows cannot have a file of that name; None if it can."""
    for part in name.removesuffix("/").split("/"):
        if part.partition(".")[0].rstrip(" ").casefold() in _RESERVED:
            return f"`{printable(name)}` is the name of a device on Windows"
        if _FORBIDDEN & set(part):
            letter = next(letter for letter in part if letter in _FORBIDDEN)
            return f"`{printable(name)}` has a `{letter}` in it, which Windows does not allow"
        if part.endswith((".", " ")):
            return f"`{printable(name)}` ends with a dot or a space, which Windows drops"
    return None


def printable(name: str) -> str:
    """The name as it can be shown: short, and without letters that cannot be seen."""
    short = name[:100]
    return short if short.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in short)


def _folded(name: str) -> str:
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _has_invisible(name: str) -> bool:
    # Nearly every name is plain ASCII, and a torch wheel has eleven thousand: one question for the whole name first.
    return not (name.isascii() and name.isprintable()) and any(_invisible(letter) for letter in name)


def _invisible(letter: str) -> bool:
    """Control characters, and those that turn the direction of writing or have no width of their own."""
    return unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")
