"""`repair --only-for`: a wheel without the GPU code that the named cards cannot use.

In each container the entries that remain move together, byte for byte, its header says the smaller size, and zeros
follow: nothing else in the file moves, so no address in it changes. Zeros cost next to nothing in the wheel; on a disk
they cost what the code did, until the file is made sparse. What is not understood stays: code that is not registered,
kinds of code without a name here, containers that are not whole, and a container's smallest entry where none serves.

NVIDIA's own libraries stay as they are. Its terms (CUDA EULA 1.2, 2) forbid to "modify" any portion of the SDK.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rekindle.core import console, files
from rekindle.core.errors import UsageError
from rekindle.core.findings import Finding, passed, unverified, warned
from rekindle.formats import package
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.formats.binary import Binary
from rekindle.formats.fatbin import Container, GpuEntry
from rekindle.formats.gpu_payload import Content
from rekindle.knowledge.cuda.libraries import is_vendor_library
from rekindle.knowledge.gpu import gpus
from rekindle.knowledge.gpu.capability import Capability, Runs, runs
from rekindle.wheels.inspect import identity
from rekindle.wheels.inspect.identity import read_binaries
from rekindle.wheels.repair import rewrite
from rekindle.wheels.repair.repair import Added, Repair
from rekindle.wheels.tags import place_of, wheel_tags

_HEAD = 16
_SIZE = struct.Struct("<Q")
_ALIGNED = 8


class Cut(NamedTuple):
    """A container and the entries of it that stay."""

    container: Container
    kept: tuple[GpuEntry, ...]

    @property
    def saved(self) -> int:
        return self.container.size - _HEAD - sum(entry.size for entry in self.kept)


def cuts(binary: Binary, cards: Sequence[Capability]) -> list[Cut]:
    """The containers of a library from which something can go."""
    if is_vendor_library(binary.file):
        return []
    found = (Cut(each, _kept(each, cards)) for each in binary.containers if _understood(each))
    return [cut for cut in found if len(cut.kept) < len(cut.container.entries)]


def _understood(container: Container) -> bool:
    return (
        container.whole
        and (container.section or "").startswith(".nv_fatb")
        and all(entry.size % _ALIGNED == 0 for entry in container.entries)
        and sum(entry.size for entry in container.entries) == container.size - _HEAD
    )


def _kept(container: Container, cards: Sequence[Capability]) -> tuple[GpuEntry, ...]:
    usable = [entry for entry in container.entries if _usable(entry, cards)]
    if not any(entry.runnable for entry in usable):
        code = [entry for entry in container.entries if entry.runnable]
        usable += [min(code, key=lambda entry: entry.size)] if code else []
    return tuple(sorted(usable, key=lambda entry: entry.offset))


def _usable(entry: GpuEntry, cards: Sequence[Capability]) -> bool:
    if not entry.runnable or entry.content is Content.NOT_CODE:
        return True
    return any(runs(entry.target, card) is not Runs.NO for card in cards)


def apply(path: Path, many: Sequence[Cut]) -> None:
    """Take the entries out of a copy of the library."""
    with path.open("r+b") as stream:
        for container, kept in many:
            pieces = []
            for entry in kept:
                stream.seek(entry.offset)
                pieces.append(stream.read(entry.size))
            code = b"".join(pieces)
            stream.seek(container.offset + 8)
            stream.write(_SIZE.pack(len(code)))
            stream.write(code)
            stream.write(bytes(container.size - _HEAD - len(code)))


def prune(wheel: Path, folder: Path, *, cards: Sequence[str], dry_run: bool = False) -> Repair:
    """Write a copy of `wheel` for `cards` alone into `folder`, under a version that says so."""
    wheel_tags(wheel)
    wanted = gpus.capabilities_of(cards)
    with File(wheel) as source, files.scratch("prune") as scratch:
        archive = Archive(source)
        whole = package.Wheel(archive)
        binaries = read_binaries(whole)
        planned = {found.name: many for found in binaries if (many := cuts(found, wanted))}
        if not planned:
            hint = f"`rekindle inspect {wheel.name}` shows what is in it"
            raise UsageError(f"`{wheel.name}` has no GPU code that {', '.join(cards)} could do without", hint=hint)
        known = identity.identify(whole, binaries)
        version = _version(known.version or "0", wanted)
        name, member, metadata, renamed = rewrite.under_version(archive, wheel.name, version)
        target = place_of(name, folder, wheel)
        notes = tuple(_note(name, many) for name, many in planned.items())
        if dry_run:
            findings = tuple(_findings(planned, binaries, wanted, wheel.stat().st_size, None))
            return Repair(wheel=wheel.name, added=notes, kept=len(archive.members) - len(notes), findings=findings)
        contents: dict[str, rewrite.Contents] = {member: metadata, **_copies(archive, planned, scratch)}
        remove = (f"{rewrite.info_folder(archive)}/METADATA",)
        done = rewrite.rewrite(archive, target, add=contents, remove=remove, renamed=renamed)
    findings = tuple(_findings(planned, binaries, wanted, wheel.stat().st_size, done.size))
    return Repair(wheel=wheel.name, output=done.path, size=done.size, kept=done.kept, added=notes, findings=findings)


def _version(version: str, cards: Sequence[Capability]) -> str:
    public, _, local = version.partition("+")
    words = [*([local] if local else []), "only", *(card.sm.replace("_", "") for card in sorted(set(cards)))]
    return f"{public}+{'.'.join(words)}"


def _copies(archive: Archive, planned: dict[str, list[Cut]], scratch: Path) -> dict[str, Path]:
    made = {}
    for name, many in planned.items():
        made[name] = rewrite.unpacked(rewrite.FromWheel(archive=archive, member=archive.member(name)), name, scratch)
        apply(made[name], many)
    return made


def _note(name: str, many: Sequence[Cut]) -> Added:
    saved = console.size(sum(cut.saved for cut in many))
    size = sum(entry.size for cut in many for entry in cut.kept)
    return Added(member=name, size=size, origin=f"{saved} of GPU code for other cards taken out", replaced=True)


def _findings(
    planned: dict[str, list[Cut]],
    binaries: Sequence[Binary],
    cards: Sequence[Capability],
    before: int,
    after: int | None,
) -> Iterator[Finding]:
    saved = sum(cut.saved for many in planned.values() for cut in many)
    size = f"to download {console.size(after)} instead of {console.size(before)}; " if after is not None else ""
    yield passed(
        "repair.only-for",
        f"{size}on a disk {console.size(saved)} less once its files are sparse (Linux: `fallocate --dig-holes FILE`)",
    )
    vendors = [found.file for found in binaries if found.containers and is_vendor_library(found.file)]
    if vendors:
        text = f"{len(vendors)} libraries of NVIDIA stay as they are: its terms forbid to change them"
        yield passed("repair.only-for", text)
    own = [each for found in binaries if not is_vendor_library(found.file) for each in found.containers if each.code]
    strange = sum(not any(_usable(entry, cards) for entry in each.code) for each in own)
    if strange:
        text = f"{console.plural(strange, 'part')} for other cards alone kept a piece: `inspect` counts it, as PARTIAL"
        yield warned("repair.only-for", text)
    yield unverified("repair.only-for", "not run on a card: `rekindle verify` tries it on yours")
