"""What is installed in an environment: distributions and compiled modules, read without importing anything.

Of a compiled file only headers are read, and what was read is kept (by path, size and time), so that the second look
at four gigabytes costs about as much as listing them.
"""

# ruff: noqa: PTH116, PTH118, PTH120 - plain strings: a Path object for each of 24,000 files takes longer than the rest
from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core import codec, files
from rekindle.core.errors import RekindleError
from rekindle.core.kept import keep, stamp_of
from rekindle.core.pattern import late
from rekindle.core.untrusted import PipVersion, ProjectName, leads_inside
from rekindle.formats import elf, pe
from rekindle.formats.access import File
from rekindle.formats.sections import gpu_code, numpy_abi
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.model.environment import Environment
from rekindle.model.requirement import canonical_name

_FORMAT = 11
_SUFFIXES = (".so", ".pyd", ".dll")
_VERSIONED = late(r"\.so\.\d[\w.]*\Z")
_MODULE_TAG = late(r"\.(?:cpython-(?P<linux>\d{2,3}t?)-[\w-]+\.so|cp(?P<windows>\d{2,3}t?)-win\w+\.pyd)\Z")


class InstalledDistribution(msgspec.Struct, frozen=True, kw_only=True):
    """`requires` are the lines of its metadata, without those of extras; `binaries` the compiled files it brought."""

    name: ProjectName
    version: PipVersion
    requires: tuple[str, ...] = ()
    binaries: tuple[str, ...] = ()
    stamp: int = 0

    @property
    def below(self) -> list[str]:
        """The names of what it requires."""
        return sorted({canonical_name(re.split(r"[\s<>=!~;\[(]", line, maxsplit=1)[0]) for line in self.requires})

    @property
    def folders(self) -> set[str]:
        return {path.rpartition("/")[0] for path in self.binaries}


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled file. `python` is the tag in its name (`311`, `abi3`), None when it is no Python module by name."""

    path: str
    size: int
    stamp: int
    format: str
    machine: str | None = None
    python: str | None = None
    needed: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    code: GpuCode | None = None
    numpy: str | None = None
    """`1` or `2`: the NumPy whose headers it was compiled with; None when it does not use NumPy's."""
    problem: str | None = None

    @property
    def file(self) -> str:
        return self.path.rpartition("/")[2]


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """`owner` says which distribution a module came with; `path_lines` are the lines of `.pth` files."""

    distributions: dict[str, InstalledDistribution]
    modules: tuple[Module, ...]
    owner: dict[str, str]
    path_lines: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0

    def distribution(self, name: str) -> InstalledDistribution | None:
        return self.distributions.get(canonical_name(name))


class _Folder(msgspec.Struct, frozen=True, array_like=True):
    """What a folder held when its own time was `stamp`: a file that comes or goes changes the folder's time."""

    stamp: int
    folders: tuple[str, ...]
    files: tuple[str, ...]
    count: int


class _KeptFiles(msgspec.Struct):
    """The cache file."""

    format: int = _FORMAT
    folders: dict[str, _Folder] = {}
    modules: dict[str, Module] = {}
    distributions: dict[str, InstalledDistribution] = {}


def read(environment: Environment, *, cache: Path | None = None) -> Contents:
    """Everything compiled in the environment. `cache` is a file that keeps what was read for the next time."""
    kept = _load(cache)
    fresh = _KeptFiles(folders={}, modules={}, distributions={})
    modules: list[Module] = []
    distributions: dict[str, InstalledDistribution] = {}
    path_lines: list[str] = []
    met: set[str] = set()
    for top in environment.site_packages:
        for relative in _walk(top, kept, fresh):
            path = f"{top}{os.sep}{relative}" if os.sep == "/" else os.path.join(top, *relative.split("/"))
            if relative in met:
                continue
            met.add(relative)
            if is_module(relative):
                modules.append(_module(path, relative, kept, fresh))
            elif relative.endswith("/METADATA"):
                # pip does not take what cannot be called so for installed, and no command could name it.
                with contextlib.suppress(ValueError):
                    found = _distribution(os.path.dirname(path), kept, fresh)
                    distributions.setdefault(canonical_name(found.name), found)
            else:
                path_lines += _lines(Path(path))
    _store(cache, kept, fresh)
    owner = {path: name for name, found in distributions.items() for path in found.binaries}
    return Contents(
        distributions=distributions,
        modules=tuple(sorted(modules, key=lambda module: module.path)),
        owner=owner,
        path_lines=tuple(path_lines),
        files=sum(folder.count for folder in fresh.folders.values()),
        bytes=sum(module.size for module in modules),
    )


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The folders and the files that a reading depended on."""

    folders: tuple[str, ...]
    files: tuple[str, ...]


def seen(cache: Path | None) -> Seen:
    """What the last reading that was kept in `cache` looked at."""
    kept = _load(cache)
    lines = [
        os.path.join(folder, name)
        for folder, held in kept.folders.items()
        for name in held.files
        if name.endswith(".pth")
    ]
    metadata = [os.path.join(folder, "METADATA") for folder in kept.distributions]
    return Seen(folders=tuple(kept.folders), files=(*kept.modules, *metadata, *lines))


def is_module(name: str) -> bool:
    return name.endswith(_SUFFIXES) or (".so." in name and _VERSIONED.search(name) is not None)


def _walk(top: str, kept: _KeptFiles, fresh: _KeptFiles) -> Iterator[str]:
    """The files that matter below a folder, relative to it: compiled modules, METADATA, and `.pth` files at the top.

    A folder whose time has not changed is not listed again.
    """
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        folder = os.path.join(top, prefix) if prefix else top
        try:
            stamp = stamp_of(os.stat(folder))
            known = kept.folders.get(folder)
            if known is None or known.stamp != stamp:
                known = _list(folder, stamp, top=not prefix)
        except OSError:
            continue
        fresh.folders[folder] = known
        waiting += [f"{prefix}{name}/" for name in known.folders]
        yield from (prefix + name for name in known.files if prefix or name.endswith(".pth") or is_module(name))


def _list(folder: str, stamp: int, *, top: bool) -> _Folder:
    folders, files, count = [], [], 0
    dist_info = folder.rstrip("/\\").endswith(".dist-info")
    for entry in os.scandir(folder):
        # A link to a folder is followed from the top only: that is how a torch of one's own is put into an environment.
        if entry.is_dir(follow_symlinks=top):
            if entry.is_symlink() and leads_inside(Path(folder), Path(entry.path)):
                continue  # all of it would be read again, and what is around it
            if entry.name != "__pycache__":
                folders.append(entry.name)
        elif entry.is_file():
            count += 1
            if is_module(entry.name) or entry.name.endswith(".pth") or (dist_info and entry.name == "METADATA"):
                files.append(entry.name)
    return _Folder(stamp=stamp, folders=tuple(folders), files=tuple(files), count=count)


def _module(path: str, relative: str, kept: _KeptFiles, fresh: _KeptFiles) -> Module:
    status = os.stat(path)
    known = kept.modules.get(path)
    if known is None or (known.size, known.stamp) != (status.st_size, stamp_of(status)):
        facts: dict[str, Any] = {}
        try:
            with File(Path(path), hops=True) as source:
                facts = _facts(source)
        except RekindleError as error:
            facts = {"format": "unreadable", "problem": error.message}
        tag = _python_tag(relative)
        known = Module(path=relative, size=status.st_size, stamp=stamp_of(status), python=tag, **facts)
    fresh.modules[path] = known
    return known


def _facts(source: File) -> dict[str, Any]:
    head = source.read(0, 4)
    if head[:4] == elf.MAGIC:
        found = elf.read(source)
        search = (*found.rpath, *found.runpath)
        facts: dict[str, Any] = {"format": "elf", "machine": found.machine, "needed": found.needed, "search": search}
    elif head[:2] == pe.MAGIC:
        image = pe.read(source)
        facts = {"format": "pe", "machine": image.machine, "needed": tuple(image.imports)}
    else:
        module = source.name.endswith(".pyd") or _python_tag(source.name)
        return {"format": "other"} | ({"problem": "it is no library of Windows or Linux"} if module else {})
    code = gpu_code(source)
    # torch's own Python module is a stub: what uses NumPy is the library behind it.
    imported = _python_tag(source.name) or source.name.endswith(".pyd") or "torch_python" in source.name
    numpy = numpy_abi(source) if imported else None
    return {**facts, "code": code if code.containers else None, "numpy": numpy}


def _python_tag(name: str) -> str | None:
    if ".abi3." in name:
        return "abi3"
    match = _MODULE_TAG.search(name)
    return (match["linux"] or match["windows"]) if match else None


def _distribution(folder: str, kept: _KeptFiles, fresh: _KeptFiles) -> InstalledDistribution:
    stamp = stamp_of(os.stat(os.path.join(folder, "METADATA")))
    known = kept.distributions.get(folder)
    if known is None or known.stamp != stamp:
        known = _read_distribution(Path(folder), stamp)
    fresh.distributions[folder] = known
    return known


def _read_distribution(folder: Path, stamp: int) -> InstalledDistribution:
    name, _, version = folder.name.removesuffix(".dist-info").rpartition("-")
    requires = []
    for line in _lines(folder / "METADATA"):
        if not line:
            break
        key, _, value = line.partition(": ")
        if key == "Name":
            name = value.strip()
        elif key == "Version":
            version = value.strip()
        elif key == "Requires-Dist" and "extra ==" not in value:
            requires.append(value.strip())
    recorded = (line.rpartition(",")[0].rpartition(",")[0].strip('"') for line in _lines(folder / "RECORD"))
    binaries = tuple(path for path in recorded if is_module(path))
    return InstalledDistribution(
        name=ProjectName(name), version=PipVersion(version), requires=tuple(requires), binaries=binaries, stamp=stamp
    )


def _lines(path: Path) -> list[str]:
    try:
        return files.plain_text(path, errors="replace").splitlines()
    except OSError:
        return []


def _load(cache: Path | None) -> _KeptFiles:
    kept = codec.kept(cache, _KeptFiles)
    return kept if kept and kept.format == _FORMAT else _KeptFiles()


def _store(cache: Path | None, kept: _KeptFiles, fresh: _KeptFiles) -> None:
    if cache is not None and kept != fresh:
        keep(cache, fresh)
