"""What a package needs to load, and whether it is there: in it, or where the loader of this machine looks besides.

On Windows this follows torch's own loader: `import torch` adds a few folders (`torch/torch_loader.toml`) and then loads
every DLL of torch/lib, so each of them is a root, and what only PATH or the CUDA folder would bring is a finding of its
own. On Linux it follows the dynamic linker: run paths, then what is loaded already, then the system.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.formats import binary
from rekindle.formats.access import File
from rekindle.formats.binary import Binary
from rekindle.knowledge.cuda.libraries import Place, loader_places, owner_of
from rekindle.machine.python.environment import venv_config
from rekindle.wheels.closure.elf import ElfWalk, run_folders
from rekindle.wheels.closure.linkage import Closure
from rekindle.wheels.closure.pe import PeWalk
from rekindle.wheels.closure.walk import TorchLibraries, Walked, requirement_name


def windows_places(
    site_packages: Path,
    *,
    torch: str | None,
    cuda: Version | None,
    environ: Mapping[str, str] = os.environ,
    separator: str = os.pathsep,
) -> list[Elsewhere]:
    """The folders beyond torch/lib in which `import torch` looks, for the environment of these site-packages."""
    # <prefix>\Lib\site-packages
    prefix = site_packages.parent.parent
    program_files = environ.get("ProgramFiles", "C:\\Program Files")
    spelled = {
        "{prefix}": str(prefix),
        "{base}": str(venv_config(prefix).get("home") or prefix),
        "{userbase}": str(Path(environ.get("APPDATA", str(prefix))) / "Python"),
        "{NVTOOLSEXT_PATH}": environ.get("NVTOOLSEXT_PATH", f"{program_files}/NVIDIA Corporation/NvToolsExt"),
        "{SystemRoot}": environ.get("SystemRoot", "C:\\Windows"),
        "{CUDA_PATH_V}": _cuda_folder(cuda, environ, program_files),
    }
    found: list[Elsewhere] = []
    seen: set[Path] = set()
    inside = {path.name.lower() for path in (site_packages / "torch" / "lib").glob("*.dll")}
    for place in loader_places(torch):
        if place.id == "torch-lib" or (place.only_without and _has(place.only_without, found, inside)):
            continue
        if place.id == "cuda-path" and cuda is None:
            continue
        for folder in _folders(place, spelled, environ, separator):
            if folder in seen:
                continue
            seen.add(folder)
            libraries = _libraries(folder, (".dll",))
            if libraries:
                found.append(Elsewhere(label=place.label, sure=place.sure, libraries=libraries))
    return found


def linux_places(site_packages: Path, binaries: Sequence[Binary]) -> list[Elsewhere]:
    """The folders beside the package that its run paths name: `nvidia/cudnn/lib` and the like."""
    folders: dict[str, None] = {}
    for found in binaries:
        paths = (*found.elf.rpath, *found.elf.runpath) if found.elf else ()
        folders |= dict.fromkeys([*run_folders(found, paths), *(path for path in paths if path.startswith("/"))])
    places = []
    for name in folders:
        if not name.startswith("../../"):
            names = {path.name: None for path in (site_packages / name).glob("*.so*")}
            places.append(Elsewhere(label=name or ".", sure=True, libraries=names))
    return places


def beside(path: Path, found: Binary) -> list[Elsewhere]:
    """What a single file may find: on Windows the libraries of its own folder, on Linux those its run paths lead to."""
    if found.elf:
        return linux_places(path.parent, [found])
    if found.pe:
        return [Elsewhere(label="its own folder", sure=True, libraries=_libraries(path.parent, (".dll",)))]
    return []


class _Lazy(Mapping[str, "Binary | None"]):
    """The libraries of a folder by name, each read when it is asked for: PATH may hold thousands."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._names = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Binary | None:
        if name not in self._names:
            raise KeyError(name)
        try:
            with File(self._folder / name, str(self._folder / name)) as file:
                found = binary.read(file)
        except RekindleError:
            return None
        return found if found.pe else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _libraries(folder: Path, suffixes: tuple[str, ...]) -> Mapping[str, Binary | None]:
    try:
        names = [path.name for path in folder.iterdir() if path.name.lower().endswith(suffixes)]
    except OSError:
        return {}
    return _Lazy(folder, names)


def _folders(place: Place, spelled: Mapping[str, str], environ: Mapping[str, str], separator: str) -> list[Path]:
    if place.path == "{PATH}":
        return [Path(part.strip('"')) for part in environ.get("PATH", "").split(separator) if part.strip('"')]
    text = place.path
    for word, value in spelled.items():
        text = text.replace(word, value)
    return [Path(text)]


def _cuda_folder(cuda: Version | None, environ: Mapping[str, str], program_files: str) -> str:
    if cuda is None:
        return ""
    name = f"CUDA_PATH_V{cuda.major}_{cuda.minor}"
    return environ.get(name, f"{program_files}/NVIDIA GPU Computing Toolkit/CUDA/v{cuda.major}.{cuda.minor}")


def _has(pattern: str, found: Sequence[Elsewhere], inside: set[str]) -> bool:
    names = inside | {name.lower() for place in found for name in place.libraries}
    return any(fnmatchcase(name, pattern.lower()) for name in names)


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
    what = Walked(torch, not torch and _is_extension(binaries, requires), against)
    if any(found.pe for found in binaries):
        return PeWalk(what, binaries, [(e.label, e.sure, e.libraries) for e in elsewhere], python).result()
    if any(found.elf for found in binaries):
        return ElfWalk(what, binaries, requires, [e.libraries for e in elsewhere]).result()
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
