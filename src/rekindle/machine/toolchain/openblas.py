"""OpenBLAS with its headers: where CMake looks by itself, where a variable points, or a kit of Rekindle's own."""

from __future__ import annotations

from collections.abc import Iterator

from rekindle.machine.host import Run
from rekindle.machine.model import FoundOpenblas
from rekindle.machine.toolchain import toolkits

_HEADER, _LIBRARY = "cblas.h", "libopenblas.so"
_SYSTEM = "system"


def probe(run: Run) -> tuple[FoundOpenblas, ...]:
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
