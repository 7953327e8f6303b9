"""What a package needs to load, and whether it is there: what its files link, delay, or load while running.

On Windows this follows torch's own loader: `import torch` adds a few folders and then loads every DLL of torch/lib, so
each of them is a root, and what only PATH or the CUDA folder would bring is a finding of its own. On Linux it follows
the dynamic linker: run paths, then what is loaded already, then the system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rekindle.formats.binary import Binary
from rekindle.knowledge.cuda.libraries import owner_of
from rekindle.wheels.closure.elf import ElfWalk
from rekindle.wheels.closure.linkage import Closure
from rekindle.wheels.closure.pe import PeWalk
from rekindle.wheels.closure.torch_libraries import TorchLibraries, requirement_name


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """A folder outside the package in which the loader looks, and the libraries in it.

    `sure` folders belong to the environment; the others (PATH, the CUDA folder) are luck.
    """

    label: str
    sure: bool
    libraries: Mapping[str, Binary | None]


def closure(
    binaries: Sequence[Binary],
    *,
    requires: Sequence[str] = (),
    torch: bool = False,
    elsewhere: Sequence[Elsewhere] = (),
    against: TorchLibraries | None = None,
    python: str | None = None,
) -> Closure | None:
    """The closure of these files; None when there is neither a Windows nor a Linux library among them.

    `requires` are the package's requirements (they name who brings NVIDIA's libraries); `torch` is true for a torch
    package, whose DLLs in torch/lib are loaded eagerly. Of an extension, what torch brings is looked up in `against`.
    `python` (`cp311`) is the one that a package of the index must be there for.
    """
    extension = not torch and _is_extension(binaries, requires)
    if any(found.pe for found in binaries):
        places = [(e.label, e.sure, e.libraries) for e in elsewhere]
        windows = PeWalk(binaries, places, torch=torch, extension=extension, torch_here=against, python=python)
        return windows.result()
    if any(found.elf for found in binaries):
        libraries = [e.libraries for e in elsewhere]
        return ElfWalk(binaries, requires, libraries, torch=torch, extension=extension, torch_here=against).result()
    return None


def _is_extension(binaries: Sequence[Binary], requires: Sequence[str]) -> bool:
    """Does it require torch, or link one of its libraries?"""
    if any(requirement_name(line) == "torch" for line in requires):
        return True
    for found in binaries:
        system = "windows" if found.pe else "linux"
        names = found.pe.imports if found.pe else found.elf.needed if found.elf else ()
        if any((owner := owner_of(name, system)) and owner.owner == "torch" for name in names):
            return True
    return False
