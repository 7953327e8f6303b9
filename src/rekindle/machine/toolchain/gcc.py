"""GCC and clang on PATH, every version that lies side by side; git, cmake, ninja and the like; and what computes on the
CPU: Intel oneAPI and MKL, installed system-wide or as Python packages, and OpenBLAS.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator

from msgspec import structs

from rekindle.compat.host_compiler import takes_compiler
from rekindle.compat.judgement import Fits
from rekindle.core.pattern import late
from rekindle.core.version import Version
from rekindle.machine.host import CouldNotRead, Run, each
from rekindle.machine.model import FoundCompiler, FoundIntel, FoundOpenblas, Program
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
        return FoundCompiler(kind=kind, path=path, version=parse_program_version(said.out), default=default)
    except CouldNotRead:
        return None


def taken_by(cuda: Version, compilers: Iterable[FoundCompiler]) -> list[FoundCompiler]:
    """The GCCs among them that this CUDA takes."""
    return [one for one in compilers if one.kind == "gcc" and isinstance(takes_compiler(cuda, one.host), Fits)]


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


WANTED = ("git", "cmake", "ninja", "ccache", "sccache", "conda")
# Slow to start and asked for nothing but their place.
_SILENT = ("conda", "ccache", "sccache")


def programs(run: Run) -> tuple[Program, ...]:
    found = each(lambda name: _ask_program(run, name), WANTED)
    return tuple(program for program in found if program)


def _ask_program(run: Run, name: str) -> Program | None:
    hits = run.which(name)
    if not hits:
        return None
    version: Version | None = None
    if name not in _SILENT:
        said = run.command(hits[0], "--version")
        with contextlib.suppress(CouldNotRead):
            version = parse_program_version(said.out)
    others = [hit for hit in hits[1:] if run.real(hit) != run.real(hits[0])]
    return Program(name=name, path=hits[0], version=version, others=tuple(others))


def parse_program_version(text: str) -> Version:
    """`git version 2.50.1.windows.1`, `cmake version 4.0.3`, `1.11.1.git.kitware.jobserver-1`."""
    match = re.search(r"(?<![\d.])(\d{1,4}(?:\.\d{1,4}){1,3})", text)
    if not match:
        raise CouldNotRead("this is not what a program's `--version` prints")
    return Version(match[1])


_RELEASE = late(r"\d{4}(\.\d{1,3}){0,3}")


def intel(run: Run) -> tuple[FoundIntel, ...]:
    found: list[FoundIntel] = []
    root = run.env("MKLROOT")
    if root and run.exists(root):
        name = re.split(r"[\\/]", root.rstrip("\\/"))[-1]
        version = Version(name) if _RELEASE.fullmatch(name) else None
        found.append(FoundIntel(root=root, version=version, found_by=("MKLROOT",)))
    for base in _bases(run):
        folder = run.join(base, "mkl")
        found += [
            FoundIntel(root=run.join(folder, name), version=Version(name), found_by=("oneAPI",))
            for name in run.names(folder, _RELEASE)
        ]
    if not run.windows and run.exists("/usr/include/mkl/mkl.h"):
        found.append(FoundIntel(root="/usr", found_by=("distro",)))
    found += [
        FoundIntel(root=root, version=Version.find(run.paths.basename(root)), found_by=(toolkits.PRIVATE,))
        for root in toolkits.private_roots(run, "mkl")
    ]
    return tuple(found)


def _bases(run: Run) -> list[str]:
    named = run.env("ONEAPI_ROOT")
    if run.windows:
        usual = run.join(run.env("ProgramFiles(x86)") or "C:\\Program Files (x86)", "Intel", "oneAPI")
    else:
        usual = "/opt/intel/oneapi"
    return list(dict.fromkeys([base.rstrip("\\/") for base in (named, usual) if base]))


_HEADER, _LIBRARY = "cblas.h", "libopenblas.so"
_SYSTEM = "system"


def openblas(run: Run) -> tuple[FoundOpenblas, ...]:
    """Those that can be compiled against, in the order in which PyTorch's FindOpenBLAS meets them.

    Only on Linux: for Windows nobody has one with an import library.
    """
    if run.windows:
        return ()
    found: dict[str, FoundOpenblas] = {}
    for root, how, own in _places(run):
        headers = [run.join(root, "include", each) for each in (*own, "", "openblas")]
        libraries = [run.join(root, each) for each in (*(f"lib/{name}" for name in own), "lib64", "lib")]
        if _in_any(run, headers, _HEADER) and _in_any(run, libraries, _LIBRARY):
            found.setdefault(root, FoundOpenblas(root=root, found_by=how, usual=how == _SYSTEM))
    return tuple(found.values())


def _places(run: Run) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """A folder, how it is known, and the folders below `include` and `lib` that a distribution has of its own."""
    yield "/usr", _SYSTEM, (f"{run.arch}-linux-gnu",)
    yield "/usr/local", _SYSTEM, ()
    yield "/opt/OpenBLAS", _SYSTEM, ()
    for name in ("OpenBLAS_HOME", "CONDA_PREFIX"):
        if named := run.env(name):
            yield named.rstrip("/"), name, ()
    for root in toolkits.private_roots(run, "openblas"):
        yield root, toolkits.PRIVATE, ()


def _in_any(run: Run, folders: list[str], name: str) -> bool:
    return any(run.exists(run.join(folder, name)) for folder in folders)
