"""GCC and clang on PATH, every version that lies side by side."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

from rekindle.machine.model import FoundCompiler
from rekindle.machine.run import CouldNotRead, Run
from rekindle.version import Version

_GCC = re.compile(r"g\+\+(?:-(\d{1,2}))?\Z")
_CLANG = re.compile(r"clang\+\+(?:-(\d{1,2}))?\Z")


def probe(run: Run) -> tuple[FoundCompiler, ...]:
    """The C++ compilers: nvcc and PyTorch need `g++`, and a `gcc` without it cannot build either."""
    if run.windows:
        return ()
    wanted: dict[str, tuple[str, bool]] = {}
    versions = [""] + [f"-{number}" for number in range(5, 24)]
    for kind, program in (("gcc", "g++"), ("clang", "clang++")):
        for version in versions:
            hit = next(iter(run.which(program + version)), None)
            if hit:
                wanted.setdefault(hit, (kind, not version))
    with ThreadPoolExecutor(max_workers=4) as pool:
        found = list(pool.map(lambda path: _ask(run, path, *wanted[path]), wanted))
    return tuple(_distinct(run, [compiler for compiler in found if compiler]))


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


def _distinct(run: Run, found: list[FoundCompiler]) -> list[FoundCompiler]:
    """`g++` is a link to `g++-12`: one compiler, and the plain name is kept because that is what a build starts."""
    kept: dict[str, FoundCompiler] = {}
    for compiler in sorted(found, key=lambda compiler: not compiler.default):
        kept.setdefault(run.real(compiler.path), compiler)
    return sorted(kept.values(), key=lambda compiler: (compiler.kind != "gcc", not compiler.default, compiler.version))
