"""What a package needs to load, and whether it is there: what its files link, delay, or load while running.

On Windows this follows torch's own loader: `import torch` adds a few folders and then loads every DLL of torch/lib, so
each of them is a root, and what only PATH or the CUDA folder would bring is a finding of its own. On Linux it follows
the dynamic linker: run paths, then what is loaded already, then the system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rekindle.formats.binary import Binary
from rekindle.wheels.closure.elf import elf_closure
from rekindle.wheels.closure.linkage import Closure
from rekindle.wheels.closure.pe import pe_closure


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
) -> Closure | None:
    """The closure of these files; None when there is neither a Windows nor a Linux library among them.

    `requires` are the package's requirements (they name who brings NVIDIA's libraries); `torch` is true for a torch
    package, whose DLLs in torch/lib are loaded eagerly.
    """
    if any(found.pe for found in binaries):
        return pe_closure(binaries, torch=torch, elsewhere=[(e.label, e.sure, e.libraries) for e in elsewhere])
    if any(found.elf for found in binaries):
        return elf_closure(binaries, requires=requires, torch=torch, elsewhere=[e.libraries for e in elsewhere])
    return None
