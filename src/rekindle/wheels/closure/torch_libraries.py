"""The torch that an extension was built for, as far as linking goes: its libraries, symbols and CUDA packages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from rekindle.core.version import Version
from rekindle.formats.binary import Binary
from rekindle.knowledge.cuda.library_packages import providers

# Names that only torch's own libraries can offer: `_ZN3c10…`, `_ZNK2at6Tensor…`, `_ZN5torch…`, and its C interface.
_TORCH_NAMES = re.compile(r"_Z(?:T[ISV])?(?:N[KVRO]*|)(?:3c10|2at|5torch|6caffe2)(?![a-z])|aoti_torch_")


class TorchLibraries(msgspec.Struct, frozen=True, kw_only=True):
    """`libraries` are the files of torch/lib by name (lower case on Windows); `links` what they in turn link."""

    label: str
    version: str
    cuda: Version | None
    cxx_abi: str | None
    system: str
    machine: str | None
    libraries: Mapping[str, Binary]
    links: frozenset[str]
    offered: frozenset[str]
    requires: tuple[str, ...] = ()

    def brings(self, library: str) -> bool:
        """Does it bring this library of NVIDIA's, by itself, by what it links, or by a package that it requires?"""
        name = library.lower() if self.system == "windows" else library
        if name in self.libraries or name in self.links:
            return True
        # By line (`-cu12`), not by package: NVIDIA's packages require each other, cuSPARSE for one nvJitLink.
        lines = {name.rpartition("-")[2] for name in self.requires if name.startswith("nvidia-")}
        rows = providers(library, self.system, self.machine or "x86_64")
        return any(row.package.rpartition("-")[2] in lines for row in rows)


def torch_libraries(
    label: str, binaries: Sequence[Binary], *, version: str, cuda: Version | None, cxx_abi: str | None,
    requires: Sequence[str] = (),
) -> TorchLibraries:  # fmt: skip
    """From the compiled files of a torch package, read with their symbols."""
    inside = [found for found in binaries if found.name.lower().startswith("torch/lib/")]
    windows = any(found.pe for found in inside)
    names = {(found.file.lower() if windows else found.file): found for found in inside}
    links: set[str] = set()
    for found in inside:
        if found.elf:
            links.update(found.elf.needed)
        elif found.pe:
            links.update(name.lower() for name in (*found.pe.imports, *found.pe.delayed))
    offered = frozenset().union(*(found.symbols.defined for found in inside if found.symbols))
    return TorchLibraries(
        label=label,
        version=version,
        cuda=cuda,
        cxx_abi=cxx_abi,
        system="windows" if windows else "linux",
        machine=next((found.machine for found in inside if found.machine), None),
        libraries=names,
        links=frozenset(links),
        offered=offered,
        requires=tuple(requirement_name(line) for line in requires),
    )


def requirement_name(line: str) -> str:
    return re.split(r"[\s;<>=!~(\[]", line.strip(), maxsplit=1)[0].lower()


def is_torch_symbol(name: str) -> bool:
    return _TORCH_NAMES.match(name) is not None


def required(requires: Sequence[str], package: str) -> bool:
    return any(fnmatchcase(name, package) for name in requires)
