"""GCC and clang on PATH, every version that lies side by side."""

from __future__ import annotations

import re

from msgspec import structs

from rekindle.core.version import Version
from rekindle.machine.host import CouldNotRead, Run, each
from rekindle.machine.model import FoundCompiler
from rekindle.machine.toolchain import toolkits


def probe(run: Run) -> tuple[FoundCompiler, ...]:
    """The C++ compilers: nvcc and PyTorch need `g++`, and a `gcc` without it cannot build either."""
    if run.windows:
        return ()
    wanted: dict[str, tuple[str, bool]] = {}
    seen: dict[str, str] = {}
    also: dict[str, list[str]] = {}
    beside = [f"-{number}" for number in range(5, 20)]
    for kind, program, versions in (("gcc", "g++", ["", *beside]), ("clang", "clang++", [""])):
        for version in versions:
            hit = next(iter(run.which(program + version)), None)
            if hit and run.real(hit) not in seen:
                # `g++` is a link to `g++-12`: one compiler, and the plain name is kept, as a build starts that one.
                seen[run.real(hit)] = hit
                wanted[hit] = (kind, not version)
            elif hit:
                also.setdefault(seen[run.real(hit)], []).append(hit)
    for root in toolkits.private_roots(run, "gcc"):
        program = run.join(root, "bin", "g++")
        if run.exists(program):
            wanted[run.join(root, "bin", run.paths.basename(run.real(program)))] = ("gcc", False)
    found = each(lambda path: _ask(run, path, *wanted[path]), wanted)
    good = [structs.replace(one, also=tuple(also.get(one.path, ()))) for one in found if one]
    return tuple(sorted(good, key=lambda one: (one.kind != "gcc", not one.default, one.version)))


def _ask(run: Run, path: str, kind: str, default: bool) -> FoundCompiler | None:
    said = run.command(path, "--version")
    if not said.ok:
        return None
    try:
        return FoundCompiler(kind=kind, path=path, version=parse_version(said.out), default=default)
    except CouldNotRead:
        return None


def parse_version(text: str) -> Version:
    """The last version on the first line of `g++ --version`, or the one after `clang version`."""
    first = text.splitlines()[0] if text.splitlines() else ""
    clang = re.search(r"clang version (\d{1,3}(?:\.\d{1,4}){1,2})", first)
    if clang:
        return Version(clang[1])
    numbers = re.findall(r"(?<![\w.-])(\d{1,3}\.\d{1,3}\.\d{1,3})(?![\w.])", first)
    if not numbers:
        raise CouldNotRead("this is not what a compiler's `--version` prints")
    return Version(numbers[-1])
