"""`rekindle shelf`: a folder of verified wheels that is at the same time a static package index.

Every wheel lies under `wheels/` with its metadata, its verify report and what the shelf knows of it; the index under
`simple/` is written anew from these after every change, under a lock, so that two who add at once both succeed.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout
from packaging.utils import canonicalize_name

from rekindle.core import codec, files
from rekindle.core.errors import BadInput, ChecksFailed, Locked, NotFound, RekindleError, UsageError
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.formats import package
from rekindle.knowledge.gpu import gpus
from rekindle.knowledge.gpu.capability import Capability, Coverage
from rekindle.knowledge.gpu.gpu_code import GpuCode, overall, served
from rekindle.model.wheel import WheelIdentity, identity_fields
from rekindle.stack.offers import Offer, of_wheel
from rekindle.wheels.inspect.inspection import inspect_with_code
from rekindle.wheels.repair.rewrite import info_folder
from rekindle.wheels.shelf import index
from rekindle.wheels.tags import wheel_tags
from rekindle.wheels.verify.verify import Verification, report_beside

_ENTRY = ".shelf.json"


class ShelvedWheel(WheelIdentity, frozen=True, kw_only=True):
    """A wheel on the shelf. `state` is that of its report; `checked_on` are the cards it has run on."""

    project: str
    version: str
    file: str
    sha256: str
    size: int
    metadata_sha256: str
    requires_python: str | None = None
    python: str | None = None
    platform: str | None = None
    state: State
    checked_on: tuple[str, ...] = ()
    code: tuple[GpuCode, ...] = ()


class Shelf(msgspec.Struct, frozen=True, kw_only=True):
    """What the subcommands of `shelf` print with `--json`."""

    schema: str = "rekindle.shelf/1"
    folder: Path
    wheels: tuple[ShelvedWheel, ...] = ()
    removed: tuple[str, ...] = ()


def entries(folder: Path) -> tuple[ShelvedWheel, ...]:
    """What is on the shelf, by project and newest version first. An empty or absent folder is an empty shelf."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"`{folder}` is a file, not a shelf", hint="`--shelf` takes a folder")
    found = [
        codec.from_json(files.read_bytes(path), ShelvedWheel, name=f"`{path}`")
        for path in sorted((folder / "wheels").glob(f"*.whl{_ENTRY}"))
    ]
    by_version = sorted(found, key=lambda one: (Version.find(one.version) or Version("0"), one.file), reverse=True)
    return tuple(sorted(by_version, key=lambda entry: canonicalize_name(entry.project)))


def add(folder: Path, wheels: Sequence[Path], *, report: Path | None = None) -> tuple[ShelvedWheel, ...]:
    """Copy wheels to the shelf, each with its report, which must be of this very file and must not have failed."""
    if report is not None and len(wheels) != 1:
        raise UsageError("`--report` goes with one wheel", hint="add the others by themselves")
    added = []
    for wheel in wheels:
        wheel_tags(wheel)
        verified = _report(wheel, report or report_beside(wheel))
        added.append(_put(folder, wheel, verified))
    with _locked(folder):
        index.write(folder, entries(folder))
    return tuple(added)


def find(folder: Path, cards: Sequence[str]) -> tuple[ShelvedWheel, ...]:
    """The wheels that serve every one of these cards whole."""
    wanted = gpus.capabilities_of(cards)
    return tuple(entry for entry in entries(folder) if all(serves(entry, card) for card in wanted))


def serves(entry: ShelvedWheel, card: Capability) -> bool:
    return bool(entry.code) and overall(served(code, card).coverage for code in entry.code) is Coverage.SERVES


def export(folder: Path, target: Path, chosen: Sequence[ShelvedWheel]) -> None:
    """A shelf of its own with these wheels: any web server, or a stick, can carry it."""
    if target.resolve() == folder.resolve():
        raise UsageError("the shelf cannot be exported onto itself", hint="name another folder with `-o`")
    for entry in chosen:
        for name in _names(entry.file):
            source = folder / "wheels" / name
            if source.exists():
                _copy(source, target / "wheels" / name)
    with _locked(target):
        index.write(target, entries(target))


def prune(folder: Path, *, keep: int, dry_run: bool = False) -> tuple[str, ...]:
    """Remove all but the newest `keep` versions of each kind (project, Python, platform, CUDA), and what is broken."""
    if keep < 1:
        raise UsageError("`--keep` must be at least 1", hint="delete the folder to be rid of the whole shelf")
    with _locked(folder):
        gone = []
        kinds: dict[tuple[str | None, ...], int] = {}
        for entry in entries(folder):
            kind = (entry.project, entry.python, entry.platform, str(entry.cuda))
            whole = (folder / "wheels" / entry.file).is_file()
            kinds[kind] = kinds.get(kind, 0) + whole
            if not whole or kinds[kind] > keep:
                gone.append(entry.file)
        if not dry_run:
            # The index first: what it no longer names may go, and nobody is sent to a file that is not there.
            left = [entry for entry in entries(folder) if entry.file not in gone]
            index.write(folder, left)
            for file in gone:
                for name in _names(file):
                    (folder / "wheels" / name).unlink(missing_ok=True)
    return tuple(gone)


class ShelfOffers(msgspec.Struct, frozen=True, kw_only=True):
    """The torch wheels of a shelf as the resolver takes them, and for each that it cannot judge the reason."""

    offers: tuple[Offer, ...] = ()
    set_aside: dict[str, str] = {}


def offers(folder: Path) -> ShelfOffers:
    found: list[Offer] = []
    aside: dict[str, str] = {}
    for entry in entries(folder):
        if not entry.is_torch or entry.cuda is None:
            continue
        path = folder / "wheels" / entry.file
        # Entries of version 0.1 have no tags; the file name always does.
        wheel = entry if entry.tags else msgspec.structs.replace(entry, tags=tuple(map(str, wheel_tags(path))))
        source = f"{entry.file} on the shelf, verified: {entry.state.value}"
        try:
            found.append(of_wheel(wheel, entry.code, location=str(path), source=source))
        except RekindleError as error:
            aside[entry.file] = str(error)
    return ShelfOffers(offers=tuple(found), set_aside=aside)


def _report(wheel: Path, path: Path) -> Verification:
    if not wheel.is_file():
        raise NotFound(f"there is no wheel `{wheel}`", hint="check the path; quote it if it has spaces")
    if not path.is_file():
        message = f"`{wheel.name}` has no verify report beside it"
        raise NotFound(message, hint=f"run `rekindle verify {wheel}` first")
    verified = codec.from_json(files.read_bytes(path), Verification, name=f"`{path}`")
    if verified.state is State.FAIL:
        failed = ", ".join(check.id for check in verified.checks if check.state is State.FAIL)
        raise ChecksFailed(f"`{wheel.name}` failed its verification: {failed}", hint="repair it, then verify it again")
    return verified


def _put(folder: Path, wheel: Path, verified: Verification) -> ShelvedWheel:
    with package.open_package(wheel) as found:
        assert isinstance(found, package.Wheel)
        info = info_folder(found.archive)
        metadata = found.read(f"{info}/METADATA")
        fields = package.headers(found, "METADATA")
    known, code = inspect_with_code(wheel)
    place = folder / "wheels" / wheel.name
    digest = _copy(wheel, place, wanted=verified.sha256)
    entry = ShelvedWheel(
        file=wheel.name,
        sha256=digest,
        size=wheel.stat().st_size,
        metadata_sha256=hashlib.sha256(metadata).hexdigest(),
        requires_python=next(iter(fields.get("Requires-Python", [])), None),
        **{**identity_fields(known), "project": known.project or "?", "version": known.version or "0"},
        python=verified.python,
        platform=known.platform,
        state=verified.state,
        checked_on=tuple(f"{card.name} ({card.capability})" for card in verified.cards),
        code=code,
    )
    files.write_bytes(folder / "wheels" / f"{wheel.name}.metadata", metadata)
    files.write_text(report_beside(place), codec.to_json(verified) + "\n")
    # Written last: what has no entry is not on the shelf.
    files.write_text(folder / "wheels" / f"{wheel.name}{_ENTRY}", codec.to_json(entry) + "\n")
    return entry


def _copy(source: Path, target: Path, *, wanted: str | None = None) -> str:
    """Copy and hash in one go. A hash other than `wanted` leaves nothing behind."""
    sha = hashlib.sha256()
    with source.open("rb") as stream, files.replacing(target) as out:
        while data := stream.read(1 << 20):
            sha.update(data)
            out.write(data)
        if wanted is not None and sha.hexdigest() != wanted:
            message = f"the report is not of this file: `{source.name}` has another hash"
            raise BadInput(message, hint=f"run `rekindle verify {source}` again")
    return sha.hexdigest()


def _names(file: str) -> tuple[str, ...]:
    return (f"{file}{_ENTRY}", f"{file}.metadata", f"{file}.verify.json", file)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=120):
            yield
    except Timeout as error:
        message = f"another run has held the shelf `{folder}` for two minutes"
        raise Locked(message, hint="wait for it to end; if none runs, delete the file `.lock` in it") from error
