"""A wheel with some files added, replaced or taken out: everything else keeps its compressed bytes.

Nothing is unpacked. RECORD is written last, from the hashes it already has where they can still be right, and from
the contents where they cannot. The original is not touched; the new wheel is written beside its place and renamed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version as PackageVersion

from rekindle.core import files
from rekindle.core.errors import BadInput, UsageError
from rekindle.formats import package
from rekindle.formats.access import File, open_file
from rekindle.formats.archive import Archive, Member
from rekindle.formats.zip_writer import Squeezed, Writer, pieces, spelled, squeeze

# Signatures of a RECORD that no longer is. The wheel format lets them be absent.
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")
_GOOD_HASHES = ("sha256=", "sha384=", "sha512=")
_LARGE = 1 << 20


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
    archive: Archive,
    target: Path,
    *,
    add: Mapping[str, Contents] | None = None,
    remove: Collection[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> Rewritten:
    """Write `archive` to `target` with the members in `add` added or replaced and those in `remove` left out.

    `renamed` maps folders at the top to their new names; `add` speaks in new ones.
    """
    add, renamed = add or {}, renamed or {}
    old = info_folder(archive)
    info = renamed.get(old, old)
    record = f"{info}/RECORD"
    for name in add:
        _check_name(name)
    gone = {*remove, f"{old}/RECORD", *(f"{old}/{name}" for name in _SIGNATURES)}
    kept = [member for name, member in archive.members.items() if name not in gone and name not in add]
    known = {entry.path: entry for entry in package.record(package.Wheel(archive)) or ()}
    lines: list[tuple[str, str, int]] = []
    hashed: list[str] = []
    with files.replacing(target) as stream:
        writer = Writer(stream)
        new = _squeezing(add, target.parent)
        # Metadata goes to the end of the file, as the wheel format recommends: it can then be read first.
        for inside in (False, True):
            for member in kept:
                if member.name.startswith(f"{old}/") is not inside:
                    continue
                name = _renamed(member.name, renamed)
                _copy(writer, archive, member, name)
                entry = known.get(member.name)
                if entry and entry.size == member.size and entry.digest.startswith(_GOOD_HASHES):
                    lines.append((name, entry.digest, member.size))
                else:
                    hashed.append(name)
                    digest = sha256(FromWheel(archive=archive, member=member)).digest()
                    lines.append((name, spelled(digest), member.size))
            fresh = [name for name in sorted(add) if name.startswith(f"{info}/") is inside]
            lines += [_put(writer, name, add[name], new) for name in fresh]
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


def _renamed(name: str, renamed: Mapping[str, str]) -> str:
    top, slash, rest = name.partition("/")
    return f"{renamed[top]}/{rest}" if slash and top in renamed else name


def pack(root: Path, target: Path, names: Collection[str], *, info: str) -> Rewritten:
    """A wheel from the files of an unpacked one, RECORD made anew."""
    signed = {f"{info}/{name}" for name in ("RECORD", *_SIGNATURES)}
    chosen = sorted(set(names) - signed, key=lambda name: (name.startswith(f"{info}/"), name))
    for name in chosen:
        _check_name(name)
    with files.replacing(target) as stream:
        writer = Writer(stream)
        lines = [_line(writer.add(_squeezed(name, root / name, target.parent))) for name in chosen]
        _finish(writer, f"{info}/RECORD", lines)
        size = stream.tell()
    return Rewritten(path=target, size=size, kept=0, added=tuple(chosen), removed=(), hashed=())


def info_folder(archive: Archive) -> str:
    folder = package.dist_info(package.Wheel(archive))
    if folder is None or f"{folder}/METADATA" not in archive.members:
        message = f"`{archive.name}` is not a wheel: it has no `.dist-info` folder with METADATA"
        raise BadInput(message, hint="name a wheel; a folder is packed with `rekindle repair --pack`")
    return folder


def under_version(archive: Archive, file: str, version: str) -> tuple[str, str, bytes, dict[str, str]]:
    """The same wheel under another version: its file name, where its METADATA lies then and what that says, and the
    folders that get another name."""
    old = info_folder(archive)
    number = PackageVersion(version)
    new = f"{old.removesuffix('.dist-info').rpartition('-')[0]}-{number}"
    head, gap, body = archive.read(f"{old}/METADATA").decode("utf-8").partition("\n\n")
    head = re.sub(r"(?m)^Version:.*$", f"Version: {version}", head, count=1)
    parts = file.split("-")
    renamed = {old: f"{new}.dist-info", old.replace(".dist-info", ".data"): f"{new}.data"}
    name = "-".join([parts[0], str(number), *parts[2:]])
    return name, f"{new}.dist-info/METADATA", (head + gap + body).encode("utf-8"), renamed


def chunks(contents: Contents) -> Iterator[bytes]:
    """New contents, piece by piece."""
    if isinstance(contents, bytes):
        yield contents
    elif isinstance(contents, FromWheel):
        yield from contents.archive.chunks(contents.member)
    else:
        with open_file(contents) as stream:
            yield from pieces(stream)


def unpacked(contents: Contents, name: str, scratch: Path) -> Path:
    """A copy on the disk of what is, or becomes, the member `name`."""
    copy = scratch / name.replace("/", "+")
    with copy.open("wb") as stream:
        stream.writelines(chunks(contents))
    return copy


def sha256(contents: Contents) -> Any:
    """The hash of contents."""
    sha = hashlib.sha256()
    for data in chunks(contents):
        sha.update(data)
    return sha


def _squeezing(add: Mapping[str, Contents], folder: Path) -> dict[str, Future[Squeezed]]:
    """The new files, compressed in the background while the old ones are copied."""
    pool = ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1))
    given = ((name, contents) for name, contents in sorted(add.items()) if not isinstance(contents, FromWheel))
    made = {name: pool.submit(_squeezed, name, contents, folder) for name, contents in given}
    pool.shutdown(wait=False)
    return made


def _squeezed(name: str, contents: Path | bytes, folder: Path) -> Squeezed:
    return squeeze(name, chunks(contents), mode=0o755 if ".so" in name else 0o644, folder=folder)


def _put(writer: Writer, name: str, contents: Contents, new: dict[str, Future[Squeezed]]) -> tuple[str, str, int]:
    if isinstance(contents, FromWheel):
        _copy(writer, contents.archive, contents.member, name)
        return name, spelled(sha256(contents).digest()), contents.member.size
    return _line(writer.add(new.pop(name).result()))


def _line(member: Member) -> tuple[str, str, int]:
    return member.name, member.digest or "", member.size


def _copy(writer: Writer, archive: Archive, member: Member, name: str) -> None:
    if member.flags & 1:
        message = f"`{member.name}` in `{archive.name}` is encrypted"
        raise BadInput(message, hint="wheels are not encrypted; download it again")
    kept = msgspec.structs.replace(member, name=name, mode=member.mode or 0o100644)
    source = archive.source
    if member.packed >= _LARGE and isinstance(source, File):
        begin = archive.data_offset(member)
        if writer.copy_range(kept, source.fileno(), begin):
            return
    writer.copy(kept, archive.raw(member))


def _finish(writer: Writer, record: str, lines: list[tuple[str, str, int]]) -> None:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerows((name, hashed, str(size)) for name, hashed, size in lines)
    table.writerow((record, "", ""))
    writer.add(squeeze(record, [text.getvalue().encode("utf-8")]))
    writer.close()


def _check_name(name: str) -> None:
    parts = name.split("/")
    if name.startswith("/") or "\\" in name or ":" in name or any(part in ("", ".", "..") for part in parts):
        message = f"`{name}` is not a place inside a wheel"
        raise UsageError(message, hint="write it as `torch/lib/name.dll`, with forward slashes")
