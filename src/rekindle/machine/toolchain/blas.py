"""What computes on the CPU: Intel oneAPI and MKL, installed system-wide or as Python packages, and OpenBLAS."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.core.version import Version
from rekindle.machine.host import Run
from rekindle.machine.model import FoundIntel, FoundOpenblas
from rekindle.machine.toolchain import toolkits

_RELEASE = re.compile(r"\d{4}(\.\d{1,3}){0,3}")


def intel(run: Run) -> tuple[FoundIntel, ...]:
    found: list[FoundIntel] = []
    root = run.env("MKLROOT")
    if root and run.exists(root):
        found.append(FoundIntel(root=root, version=_version_of(root), found_by=("MKLROOT",)))
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


def _version_of(root: str) -> Version | None:
    name = re.split(r"[\\/]", root.rstrip("\\/"))[-1]
    return Version(name) if _RELEASE.fullmatch(name) else None


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
