"""Every way Rekindle ends other than well: one class, one exit code, one hint each.

A message says what failed; the hint says what to do next. `main` prints both and ends with the class's code, so a
script can tell a typing mistake from a missing file from a card that nothing serves. The reference page
`docs/reference/exit-codes.md` is generated from this module.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import ClassVar

import msgspec


class RekindleError(Exception):
    """Something went wrong that Rekindle can explain."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | Callable[[], str] | None = None) -> None:
        """A hint that takes long to find is a function: who goes on without the answer does not pay for it."""
        super().__init__(message)
        self.message = message
        self._hint = hint

    @property
    def hint(self) -> str | None:
        return self._hint() if callable(self._hint) else self._hint

    def reword(self, change: Callable[[str], str]) -> None:
        """Say it as it is said where it is shown; what takes long is not found for that."""
        self.message, before = change(self.message), self._hint
        self.args = (self.message,)
        self._hint = (lambda: change(before())) if callable(before) else before and change(before)


class UsageError(RekindleError):
    """The command line does not make sense: an unknown option, an unreadable value, two that exclude each other."""

    exit_code = 2


class UnknownName(RekindleError):
    """A GPU, release, toolkit, option or check of that name is not in the tables."""

    exit_code = 3


class BadInput(RekindleError):
    """A file was found but is not what it should be: broken, truncated, hostile, or of another kind."""

    exit_code = 4


class NoRoute(RekindleError):
    """No PyTorch can be had for this wish; the reasons are printed."""

    exit_code = 5


class MissingTool(RekindleError):
    """A program or library that this step needs is not on this machine."""

    exit_code = 6


class FetchFailed(RekindleError):
    """Something could not be downloaded, after retries, or arrived with the wrong hash."""

    exit_code = 7


class NothingThere(FetchFailed):
    """The server has no such page (404)."""


class ChecksFailed(RekindleError):
    """At least one check is FAIL."""

    exit_code = 8


class Unverified(RekindleError):
    """Nothing failed, but something could not be checked. Never shown as a pass."""

    exit_code = 9


class StepFailed(RekindleError):
    """A program that Rekindle started (a compiler, CMake, pip, git) ended with an error."""

    exit_code = 10


class PatchMismatch(RekindleError):
    """A patch did not find the text it edits, or found it more often than it says."""

    exit_code = 11


class Locked(RekindleError):
    """Another run holds the folder; two writers are never allowed."""

    exit_code = 12


class NotWritable(RekindleError):
    """The disk is full, read-only, or the place is not ours to write."""

    exit_code = 13


class NotFound(RekindleError):
    """A file, folder, environment or address that was named does not exist."""

    exit_code = 14

    @classmethod
    def path(cls, path: object, what: str = "file", *, hint: str | None = None) -> NotFound:
        """The one way to say that a file or folder which somebody named is not there."""
        named = str(path)[:200]
        usual = hint or "check the path; quote it if it has spaces"
        return cls(f"no such {what}: `{named}`", hint=lies_elsewhere(named) or usual)


def lies_elsewhere(named: str) -> str | None:
    """What to do with what is no file here: a path of Windows where this is none, an image of a registry."""
    if os.name != "nt" and re.match(r"[A-Za-z]:[\\/]|\\\\", named):
        return "it is a path of Windows: run this there, or copy what it names here"
    image = named.replace("\\", "/")
    if re.fullmatch(r"[\w.-]+(?:/[\w.-]+)+:[\w.-]+", image):
        return f"it is an image: with `FROM {image}` in a Dockerfile, `rekindle review Dockerfile --gpu NAME` judges it"
    return None


class Interrupted(RekindleError):
    """Stopped by Ctrl-C. Nothing is lost; rerun the command to resume."""

    exit_code = 130


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean ...? ` where one of the known words is near, else nothing. Dashes before an option do not count."""
    import difflib

    plain = {each.lstrip("-"): each for each in known}
    near = difflib.get_close_matches(word.lstrip("-"), plain, n=1, cutoff=0.65)
    return f"did you mean `{plain[near[0]]}`? " if near else ""


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a verb prints on stdout with `--json` when it ends with an error instead of an answer."""

    schema: str = "rekindle.error/1"
    code: int
    message: str
    hint: str | None = None


def kinds() -> list[type[RekindleError]]:
    """All error classes, by exit code: what the documentation and the tests list."""
    return sorted([RekindleError, *RekindleError.__subclasses__()], key=lambda kind: kind.exit_code)
