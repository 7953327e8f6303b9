"""A wheel with some files added, replaced or taken out: everything else keeps its compressed bytes.

Nothing is unpacked. RECORD is written last, from the hashes it already has where they can still be right, and from
the contents where they cannot. The original is not touched; the new wheel is written beside its place and renamed.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from rekindle import files
from rekindle.errors import BadInput, UsageError
from rekindle.formats import package
from rekindle.formats.access import open_file
from rekindle.formats.archive import Archive, Member
from rekindle.wheels.writer import Packed, Writer, pieces, spelled

# Signatures of a RECORD that no longer is. The wheel format lets them be absent.
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")
_GOOD_HASHES = ("sha256=", "sha384=", "sha512=")


class FromWheel(msgspec.Struct, frozen=True, kw_only=True):
    """A file taken out of another wheel, whose compressed bytes are copied as they are."""

    archive: Archive
    member: Member


# What a new member is made of: a file on disk, bytes, or a member of another wheel.
Contents = Path | bytes | FromWheel


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """`hashed` are unchanged members whose line in RECORD was missing or wrong, so that it had to be made anew."""

    path: Path
    size: int
    kept: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    hashed: tuple[str, ...]


def rewrite(
    archive: Archive, target: Path, *, add: Mapping[str, Contents] | None = None, remove: Collection[str] = ()
) -> Rewritten:
    """Write `archive` to `target` with the members in `add` added or replaced and those in `remove` left out."""
    add = add or {}
    info = info_folder(archive)
    record = f"{info}/RECORD"
    for name in add:
        _check_name(name)
    gone = {*remove, record, *(f"{info}/{name}" for name in _SIGNATURES)}
    kept = [member for name, member in archive.members.items() if name not in gone and name not in add]
    known = {entry.path: entry for entry in package.record(package.Wheel(archive)) or ()}
    lines: list[tuple[str, str, int]] = []
    hashed: list[str] = []
    with files.replacing(target) as stream:
        writer = Writer(stream)
        # Metadata goes to the end of the file, as the wheel format recommends: it can then be read first.
        for inside in (False, True):
            for member in kept:
                if member.name.startswith(f"{info}/") is not inside:
                    continue
                _copy(writer, archive, member, member.name)
                entry = known.get(member.name)
                if entry and entry.size == member.size and entry.digest.startswith(_GOOD_HASHES):
                    lines.append((member.name, entry.digest, member.size))
                else:
                    hashed.append(member.name)
                    lines.append((member.name, digest(archive, member), member.size))
            lines += [_put(writer, name, add[name]) for name in sorted(add) if name.startswith(f"{info}/") is inside]
        _finish(writer, record, lines)
        size = stream.tell()
    return Rewritten(
        path=target,
        size=size,
        kept=len(kept),
        added=tuple(sorted(add)),
        removed=tuple(sorted(set(remove) & set(archive.members))),
        hashed=tuple(hashed),
    )


def pack(root: Path, target: Path, names: Collection[str], *, info: str) -> Rewritten:
    """A wheel from the files of an unpacked one, RECORD made anew."""
    lines = []
    with files.replacing(target) as stream:
        writer = Writer(stream)
        for inside in (False, True):
            for name in sorted(names):
                _check_name(name)
                if name.startswith(f"{info}/") is inside and name.removeprefix(f"{info}/") not in (
                    "RECORD",
                    *_SIGNATURES,
                ):
                    lines.append(_put(writer, name, root / name))
        _finish(writer, f"{info}/RECORD", lines)
        size = stream.tell()
    return Rewritten(path=target, size=size, kept=0, added=tuple(sorted(names)), removed=(), hashed=())


def info_folder(archive: Archive) -> str:
    folder = package.dist_info(package.Wheel(archive))
    if folder is None or f"{folder}/METADATA" not in archive.members:
        message = f"`{archive.name}` is not a wheel: it has no `.dist-info` folder with METADATA"
        raise BadInput(message, hint="name a wheel; a folder is packed with `rekindle repair --pack`")
    return folder


def digest(archive: Archive, member: Member) -> str:
    """The hash of a member's contents, as RECORD spells it."""
    sha = hashlib.sha256()
    for data in archive.chunks(member):
        sha.update(data)
    return spelled(sha.digest())


def _put(writer: Writer, name: str, contents: Contents) -> tuple[str, str, int]:
    mode = 0o755 if ".so" in name else 0o644
    if isinstance(contents, FromWheel):
        member = contents.member
        _copy(writer, contents.archive, member, name)
        return name, digest(contents.archive, member), member.size
    if isinstance(contents, bytes):
        written = writer.add(name, [contents], size=len(contents), mode=mode)
    else:
        with open_file(contents) as stream:
            size = stream.seek(0, 2)
            stream.seek(0)
            written = writer.add(name, pieces(stream), size=size, mode=mode)
    assert written.digest is not None
    return name, written.digest, written.size


def _copy(writer: Writer, archive: Archive, member: Member, name: str) -> None:
    if member.flags & 1:
        message = f"`{member.name}` in `{archive.name}` is encrypted"
        raise BadInput(message, hint="wheels are not encrypted; download it again")
    kept = Packed(
        name=name,
        size=member.size,
        packed=member.packed,
        crc=member.crc,
        method=member.method,
        mode=member.mode or 0o100644,
    )
    writer.copy(kept, archive.raw(member))


def _finish(writer: Writer, record: str, lines: list[tuple[str, str, int]]) -> None:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerows((name, hashed, str(size)) for name, hashed, size in lines)
    table.writerow((record, "", ""))
    data = text.getvalue().encode("utf-8")
    writer.add(record, [data], size=len(data))
    writer.close()


def _check_name(name: str) -> None:
    parts = name.split("/")
    if name.startswith("/") or "\\" in name or ":" in name or any(part in ("", ".", "..") for part in parts):
        message = f"`{name}` is not a place inside a wheel"
        raise UsageError(message, hint="write it as `torch/lib/name.dll`, with forward slashes")
