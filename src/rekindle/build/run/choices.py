"""What a command line adds to the request of a build."""

from __future__ import annotations

import msgspec


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line adds to the request."""

    overrides: dict[str, str] = {}
    allow_unknown: bool = False
    until: str | None = None
    start: str | None = None
    clean: bool = False
    jobs: int | None = None
    """A fixed number of compiles at a time, for a Ninja that takes no job tokens."""
    ceiling: int | None = None
    """The most at a time where the governor decides; None: one per core."""
    work: str | None = None
    bundle: str | None = None
    """The folder of `rekindle plan --bundle`, instead of a package index."""
    gpu: bool = False
    launcher: str | None = None
    cache_place: dict[str, str] = {}
    auto_fix: bool = False
    """Fixes that need no decision are made without asking."""
    force: bool = False
    """Go on although a check of the machine failed."""
    again: str = "rekindle build"
    """The command that goes on with this build."""
