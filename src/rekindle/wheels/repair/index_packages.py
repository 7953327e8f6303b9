"""Libraries out of packages of the index: which one fits a wheel best, and its download through pip."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.compat.judgement import Clash
from rekindle.compat.library_card import cudnn_serves
from rekindle.core import console, python
from rekindle.core.errors import FetchFailed
from rekindle.core.paths import cache_folder, sha256_of
from rekindle.core.run import call
from rekindle.core.version import Version
from rekindle.knowledge.cuda import library_packages
from rekindle.knowledge.cuda.libraries import Owner
from rekindle.knowledge.cuda.library_packages import DllProvider
from rekindle.knowledge.gpu.capability import Capability


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
        row for row in library_packages.providers(library, wanted.system, wanted.machine) if owner.allows(row.package)
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
    match = re.search(r"-cu(\d\d)$", package)
    return int(match[1]) if match else 13 if package.startswith("nvidia-") else None


def _cudnn_serves(row: DllProvider, cards: Sequence[Capability]) -> bool:
    version = Version.find(row.version)
    return version is not None and not any(isinstance(cudnn_serves(version, card), Clash) for card in cards)
