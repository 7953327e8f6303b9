"""A Python environment: a venv, a conda environment, an embedded Python, or the system's own."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from rekindle.core import paths
from rekindle.core.command import Command, Word, pip
from rekindle.core.errors import NotFound
from rekindle.core.version import Version


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is `venv`, `conda`, `embedded` or `system`; `python` None when nothing in the folder tells its version.

    `site_packages` are the folders that packages are in, the first is where they are installed. `pip` is the version
    of the pip inside.
    """

    root: str
    os: str
    kind: str
    python: Version | None
    site_packages: tuple[str, ...]
    interpreter: str | None
    has_headers: bool
    pip: str | None = None

    @property
    def tag(self) -> str | None:
        """`cp311`, as in file names."""
        return f"cp{self.python.major}{self.python.minor}" if self.python else None

    @property
    def version(self) -> str | None:
        """`3.11`, as a person says it."""
        return f"{self.python.major}.{self.python.minor}" if self.python else None

    @property
    def here(self) -> bool:
        """Is it an environment of this kind of system, so that its libraries can be looked for here too?"""
        return (self.os == "windows") == (os.name == "nt")

    @property
    def program(self) -> str:
        """The interpreter, where one is needed: an error says so when there is none that runs here."""
        if self.interpreter is None or not self.here:
            what = "has no Python in it" if self.interpreter is None else f"is of {self.os.capitalize()}"
            raise NotFound(f"`{self.root}` {what}, so nothing can be run in it", hint="name another environment")
        return self.interpreter

    def pip_command(self, *words: Word) -> Command:
        """pip of this very environment, as it is typed: a bare `pip` is whichever comes first on PATH.

        An environment without a pip was made by uv, which serves it.
        """
        if self.pip is None and self.interpreter is not None and self.kind == "venv":
            return Command("uv", "pip", words[0], "--python", self.interpreter, *words[1:], system=self.os)
        return pip(*words, python=self.interpreter or "python", system=self.os)

    @property
    def site(self) -> Path:
        return Path(self.site_packages[0])

    @property
    def folder(self) -> Path:
        """Where Rekindle keeps what it needs to undo: inside the environment, on its own file system."""
        return paths.state_folder(Path(self.root))
