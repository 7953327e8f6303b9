"""What a stranger wrote and we use as a hash, as a file's name or as a path: types that are made only by checking.

Records, manifests, lists and messages decode into them (`core/codec.py`), so a check that was forgotten is a type error
where the file is opened. The rules for names are those for the members of an archive.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import ClassVar, TypeVar

from rekindle.core.errors import BadInput

T = TypeVar("T")

_RESERVED = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$"]
    + [f"{port}{number}" for port in ("com", "lpt") for number in "0123456789\u00b9\u00b2\u00b3"]
)
_FORBIDDEN = frozenset('<>:"|?*')
_LONGEST = 4096
_LONGEST_PART = 255
"""Bytes of a file's or folder's own name: what the file systems of Linux take, and no fewer than those of Windows."""


class _Checked(str):
    """A text that was looked at before it became one."""

    __slots__ = ()

    @classmethod
    def parse(cls: type[C], text: str) -> C:
        return cls(text)


C = TypeVar("C", bound=_Checked)


class _Spelled(_Checked):
    """A text of one shape."""

    __slots__ = ()
    SHAPE: ClassVar[str]
    WHAT: ClassVar[str]

    def __new__(cls: type[S], text: str) -> S:
        if not re.fullmatch(cls.SHAPE, text, re.ASCII):
            raise ValueError(f"`{printable(text)}` is not {cls.WHAT}")
        return super().__new__(cls, text)


S = TypeVar("S", bound=_Spelled)


class Sha256(_Spelled):
    """64 hexadecimal digits, in lower case."""

    __slots__ = ()
    SHAPE, WHAT = r"[0-9a-f]{64}", "a SHA-256"

    def __new__(cls, text: str) -> Sha256:
        return super().__new__(cls, text.lower())


class Commit(_Spelled):
    """The hash of a commit of git's, whole."""

    __slots__ = ()
    SHAPE, WHAT = r"[0-9a-f]{40}(?:[0-9a-f]{24})?", "a commit"


class PipVersion(_Spelled):
    """A version as pip writes it behind `==`, and nothing that pip would read otherwise."""

    __slots__ = ()
    SHAPE, WHAT = r"[0-9][0-9A-Za-z.!_-]{0,60}(?:\+[0-9A-Za-z._-]{1,100})?", "a version of a package"


class PythonVersion(_Spelled):
    """`3.11`, `3.11.2`, free-threaded `3.13t`."""

    __slots__ = ()
    SHAPE, WHAT = r"[0-9]\.[0-9]{1,2}(?:\.[0-9]{1,2})?t?", "a version of Python"


class LocalLabel(_Spelled):
    """What stands behind the `+` of a version, `cu126`."""

    __slots__ = ()
    SHAPE, WHAT = r"(?:[0-9A-Za-z]{1,40}(?:[._][0-9A-Za-z]{1,40}){0,20})?", "the label of a version"


class PipRequirement(_Spelled):
    """A package by its name, with the versions that will do: no option, path, address or marker."""

    __slots__ = ()
    _ONE = r"(?:===?|[<>!~]=|[<>])[ ]?[0-9A-Za-z.*+!_-]{1,162}"
    SHAPE, WHAT = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,100}}[ ]?(?:{_ONE}(?:,[ ]?{_ONE}){{0,8}})?", "a requirement"


class CondaPin(_Spelled):
    """A package of conda's, `pytorch=2.4.1=cuda*`: no option, file, address or other channel."""

    __slots__ = ()
    SHAPE, WHAT = r"[a-z0-9_][a-z0-9._-]{0,100}(?:[<>=!]{1,2}[0-9A-Za-z.*_]{1,60}){0,2}", "a package of conda's"


class PlainValue(_Spelled):
    """What an option of a build is set to, `ON` or `OpenBLAS`: no path, option or list, which could name a program."""

    __slots__ = ()
    SHAPE, WHAT = r"(?:[0-9A-Za-z][0-9A-Za-z_.+]{0,60})?", "a switch, a number or a name"


class ProjectName(_Spelled):
    """What a project is called, by the rules of the package index: it stands in file names and workflows."""

    __slots__ = ()
    SHAPE, WHAT = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?", "the name of a project"


class PlainFileName(_Checked):
    """A file's own name, which every system can have: no folder, no drive, no stream, no device, not hidden."""

    __slots__ = ()

    def __new__(cls, text: str) -> PlainFileName:
        why = problem(text) or impossible_on_windows(text)
        if why is None and ("/" in text or text.startswith(".")):
            why = f"a name with more in it than a file's own, `{printable(text)}`"
        if why is not None:
            raise ValueError(why)
        return super().__new__(cls, text)


class InsidePath(_Checked):
    """A path below some folder, with `/` between its parts."""

    __slots__ = ()

    def __new__(cls, text: str) -> InsidePath:
        why = refusal(text, windows=os.name == "nt")
        if why is None and text.endswith("/"):
            why = f"a folder, `{printable(text)}`"
        if why is not None:
            raise ValueError(why)
        return super().__new__(cls, text)

    @property
    def name(self) -> str:
        return self.rpartition("/")[2]

    def below(self, root: Path) -> Path:
        """The place of that name below `root`; an error where a link on the way leads out of it."""
        place = root.joinpath(*self.split("/"))
        if not leads_inside(place, root):
            message = f"`{self}` leads out of `{root}` through a link"
            raise BadInput(message, hint="replace the link by the folder itself, or name the folder that it leads to")
        return place


def checked(kind: Callable[[str], T], text: str, name: str) -> T:
    """A value of a file that is called `name`, or an error that says so."""
    try:
        return kind(text)
    except ValueError as error:
        raise BadInput(f"{name}: {error}", hint="do not use it; get it again") from error


def on_another_computer(path: str) -> bool:
    """`\\\\host\\share`, `\\??\\UNC\\host`: Windows logs on to it before anything is read, so a stranger's file may not
    name one."""
    return path.replace("\\", "/").startswith(("//", "/??/"))


def leads_inside(place: Path, root: Path) -> bool:
    """Whether a path ends below `root` once all links are followed."""
    try:
        end = place.resolve()
        # A circle of links is an error before Python 3.13; from then on its path is returned as if it were one.
        return end.is_relative_to(root.resolve()) and not any(each.is_symlink() for each in (end, *end.parents))
    except (OSError, RuntimeError):
        return False


def refusal(name: str, *, windows: bool) -> str | None:
    """Why a file of that name is not written on such a system; None if it may be."""
    return problem(name) or (impossible_on_windows(name) if windows else None)


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
    import unicodedata

    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _has_invisible(name: str) -> bool:
    """Control characters, and those that turn the direction of writing or have no width of their own."""
    # Nearly every name is plain ASCII, and a torch wheel has eleven thousand: one question for the whole name first.
    if name.isascii() and name.isprintable():
        return False
    import unicodedata

    return any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") for letter in name)
