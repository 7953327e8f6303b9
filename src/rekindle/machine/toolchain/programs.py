"""git, cmake, ninja and the like: which one wins on PATH, and what it says of itself."""

from __future__ import annotations

import contextlib
import re

from rekindle.core.version import Version
from rekindle.machine.host import CouldNotRead, Run, each
from rekindle.machine.model import Program

WANTED = ("git", "cmake", "ninja", "ccache", "sccache", "conda")
# Slow to start and asked for nothing but their place.
_SILENT = ("conda", "ccache", "sccache")


def probe(run: Run) -> tuple[Program, ...]:
    found = each(lambda name: _ask(run, name), WANTED)
    return tuple(program for program in found if program)


def _ask(run: Run, name: str) -> Program | None:
    hits = run.which(name)
    if not hits:
        return None
    version: Version | None = None
    if name not in _SILENT:
        said = run.command(hits[0], "--version")
        with contextlib.suppress(CouldNotRead):
            version = parse_version(said.out)
    others = [hit for hit in hits[1:] if run.real(hit) != run.real(hits[0])]
    return Program(name=name, path=hits[0], version=version, others=tuple(others))


def parse_version(text: str) -> Version:
    """`git version 2.50.1.windows.1`, `cmake version 4.0.3`, `1.11.1.git.kitware.jobserver-1`."""
    match = re.search(r"(?<![\d.])(\d{1,4}(?:\.\d{1,4}){1,3})", text)
    if not match:
        raise CouldNotRead("this is not what a program's `--version` prints")
    return Version(match[1])
