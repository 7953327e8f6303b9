"""Where a missing library comes from: a folder that was named, the system it was linked on, or an index package.

A library that merely lies on PATH is never taken: it is named, and a person decides with `--from`.
"""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from rekindle.compat.judgement import Clash
from rekindle.compat.library_card import cudnn_serves
from rekindle.core import console, python, untrusted
from rekindle.core.errors import BadInput, FetchFailed
from rekindle.core.paths import cache_folder, sha256_of
from rekindle.core.run import call
from rekindle.core.version import Version
from rekindle.formats import binary, package
from rekindle.formats.access import File
from rekindle.formats.archive import Archive, Member
from rekindle.formats.binary import Binary
from rekindle.knowledge.cuda import library_packages
from rekindle.knowledge.cuda.libraries import Owner, owner_of
from rekindle.knowledge.cuda.library_packages import DllProvider
from rekindle.model.card import Capability
from rekindle.model.cuda_line import cuda_in
from rekindle.model.platform import Platform
from rekindle.wheels.repair.rewrite import Contents, FromWheel

_DEPTH = 4


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """A library that was found. `binary` is None on a dry run, when it has not been fetched."""

    library: str
    origin: str
    size: int
    contents: Contents | None
    binary: Binary | None
    version: str | None = None
    licence: str | None = None
    package: str | None = None
    package_version: str | None = None
    licences: Mapping[str, Contents] = {}


class Providers:
    """Looks in the named folders first, then (Linux) where the linker looks, then in the package index."""

    def __init__(self, folders: Sequence[Path], *, index: bool, fetch: bool = True, linked_here: bool = False) -> None:
        self._files = {name: path for folder in folders for name, path in _listing(folder)}
        self._system = dict(_linker_files()) if linked_here else {}
        self._index = index
        self._fetch = fetch
        self._open: list[File] = []

    def find(self, library: str, wanted: WantedLibrary) -> Supply | None:
        """A library by its name, or by a pattern where what loads it knows only part of the name."""
        owner = owner_of(library, wanted.system)
        key = library.lower() if wanted.system == "windows" else library
        licence = owner.licence if owner else None
        for files in (self._files, self._system):
            name = max(fnmatch.filter(files, key), default=key) if "*" in key else key
            path = files.get(name)
            if path is not None and not (owner and owner.bundle == "no"):
                return _from_file(library if name == key else path.name, path, licence)
        if owner is None or owner.bundle != "yes" or not self._index:
            return None
        for row in choose(library, wanted, owner)[:3]:
            if not self._fetch:
                origin = f"{row.package} {row.version} of the package index"
                return Supply(
                    library=row.dll, origin=origin, size=row.size, contents=None, binary=None, licence=licence,
                    package=row.package, package_version=row.version,
                )  # fmt: skip
            wheel = download(row)
            if wheel is not None:
                return self._from_wheel(row, wheel, licence)
        return None

    def close(self) -> None:
        for file in self._open:
            file.close()

    def _from_wheel(self, row: DllProvider, wheel: Path, licence: str | None) -> Supply:
        file = File(wheel)
        self._open.append(file)
        archive = Archive(file)
        member = archive.member(row.path)
        if (member.size, f"{member.crc:08x}") != (row.size, row.crc32.lower()):
            message = f"`{row.path}` in `{wheel.name}` is not the file that was recorded (size or checksum differ)"
            raise FetchFailed(message, hint="the index may have been tampered with; delete the download and try again")
        found = package.Wheel(archive).binary(member.name)
        return Supply(
            library=row.dll,
            origin=f"{row.package} {row.version} of the package index",
            size=member.size,
            contents=FromWheel(archive=archive, member=member),
            binary=found,
            version=found.pe.file_version if found.pe else row.version,
            licence=licence,
            package=row.package,
            package_version=row.version,
            licences={name.rpartition("/")[2]: FromWheel(archive=archive, member=one) for name, one in _texts(archive)},
        )


def on_path(library: str) -> Path | None:
    """Where PATH would find it: to be named, never to be taken. A wheel may name `\\\\host`, which is not asked."""
    if untrusted.problem(library) or "/" in library:
        return None
    every = (Path(folder, library) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder)
    return next((path for path in every if path.is_file()), None)


def _from_file(library: str, path: Path, licence: str | None) -> Supply:
    real = path.resolve()
    with File(real, library) as file:
        found = binary.read(file, symbols=True)
    if found.problem:
        raise BadInput(found.problem, hint=f"replace `{path}`, or leave it out with `--exclude {library}`")
    return Supply(
        library=path.name if found.pe else library,
        origin=str(path),
        size=found.size,
        contents=real,
        binary=found,
        version=found.pe.file_version if found.pe else None,
        licence=licence,
    )


def _texts(archive: Archive) -> Iterator[tuple[str, Member]]:
    """The licence texts of a wheel."""
    for name, member in archive.members.items():
        last = name.rpartition("/")[2].lower()
        if ".dist-info/" in name and last.startswith(("license", "licence", "copying", "notice", "third-party")):
            yield name, member


def _listing(folder: Path) -> Iterator[tuple[str, Path]]:
    """The libraries below a folder, nearest first: a toolkit's root will do as well as its bin."""
    if not folder.is_dir():
        from rekindle.core.errors import NotFound

        raise NotFound(f"there is no folder `{folder}`", hint="`--from` names a folder that holds libraries")
    found: dict[str, Path] = {}
    for here, below, names in os.walk(folder):
        if len(Path(here).relative_to(folder).parts) >= _DEPTH:
            below.clear()
        below.sort()
        for name in sorted(names):
            if binary.is_binary(name):
                found.setdefault(name.lower() if name.lower().endswith(".dll") else name, Path(here, name))
    yield from found.items()


def _linker_files() -> Iterator[tuple[str, Path]]:
    """What the dynamic linker of this machine knows, by name."""
    said = call(["ldconfig", "-p"], env={**os.environ, "PATH": os.environ.get("PATH", "") + ":/sbin:/usr/sbin"})
    found: dict[str, Path] = {}
    for line in said.out.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if arrow:
            found.setdefault(name.split(" ")[0], Path(path))
    yield from found.items()


class WantedLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the wheel that a library must fit: `versions` are those of packages already taken."""

    system: str
    python: str | None
    cuda: Version | None
    machine: str = "x86_64"
    cards: tuple[Capability, ...] = ()
    versions: dict[str, str] = {}


def choose(library: str, wanted: WantedLibrary, owner: Owner) -> list[DllProvider]:
    """The index packages that have it, best first: of the wheel's CUDA, with code for its cards, newest, not withdrawn.

    When another library was already taken from a package, the same version of that package comes first; then what
    belongs to the very toolkit that the wheel was built with, since cuSPARSE of one update may ask for nvJitLink of it.
    """
    rows = [
        row
        for row in library_packages.providers(library, Platform(wanted.system, wanted.machine))
        if owner.allows(row.package)
    ]
    if wanted.cuda is not None:
        major = wanted.cuda.major
        rows = [row for row in rows if _cuda_major(row.package) in (None, major)] or rows
    if wanted.cards and library.lower().removeprefix("lib").startswith("cudnn"):
        rows = [row for row in rows if _cudnn_serves(row, wanted.cards)]
    same = library_packages.of_toolkit(wanted.cuda) if wanted.cuda is not None else {}
    return sorted(
        rows,
        key=lambda row: (
            row.yanked,
            wanted.versions.get(row.package) != row.version,
            row.version not in same.get(row.package, ()),
            [-part for part in (Version.find(row.version) or Version("0")).parts],
            wanted.python is not None and f"-{wanted.python}-" not in row.wheel and "-py" not in row.wheel,
        ),
    )


def download(row: DllProvider) -> Path | None:
    """The wheel of a row, through pip, so that a mirror, proxy and hash settings hold. None: it is not there.

    Whatever mirror it came from, and however long it has been in the cache: it is the file whose hash is known.
    """
    wanted = library_packages.sha256_of_wheel(row.wheel)
    if wanted is None:
        console.say(f"`{row.wheel}` is not taken: its hash is not known")
        return None
    folder = cache_folder("providers")
    place = folder / row.wheel
    if place.is_file() and sha256_of(place) == wanted:
        return place
    place.unlink(missing_ok=True)
    # pip says nothing until it is done, and NVIDIA's packages take minutes.
    console.say(f"fetching {row.package} {row.version} ({row.wheel_size / 1e6:.0f} MB)")
    words = ["download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder), *python.for_wheel(row.wheel)]
    said = call(python.pip(sys.executable, *words, f"{row.package}=={row.version}"), timeout=1800.0)
    if not (said.ok and place.is_file()):
        return None
    if sha256_of(place) != wanted:
        place.unlink(missing_ok=True)
        message = f"`{row.wheel}` has a different SHA-256 than the package index states"
        raise FetchFailed(message, hint="the mirror may have been tampered with; use another one and rerun the command")
    return place


def _cuda_major(package: str) -> int | None:
    """The CUDA that a package of NVIDIA's belongs to: from 13 on they carry no number. None: not one of theirs."""
    named = cuda_in(package)
    return named.major if named else 13 if package.startswith("nvidia-") else None


def _cudnn_serves(row: DllProvider, cards: Sequence[Capability]) -> bool:
    version = Version.find(row.version)
    return version is not None and not any(isinstance(cudnn_serves(version, card), Clash) for card in cards)
