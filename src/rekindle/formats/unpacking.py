"""The members of a package, one after the other, without writing any: .deb, .whl, .zip, .conda, .tar.* alike.

Every name and every link is checked before it is handed out, and what comes out is counted against what went in: a
package that leaves its folder, holds a device or unpacks to fifty times its size is refused. Nothing in a package is
run.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import posixpath
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import msgspec

from rekindle.core import paths, untrusted
from rekindle.core.errors import BadInput
from rekindle.formats import static, tar
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.formats.budget import Unpacking
from rekindle.formats.compression import zstd_error, zstd_opened

_CHUNK = 1 << 20
_BROKEN = (*tar.DAMAGE, lzma.LZMAError, OSError, zstd_error())
_EXECUTABLE = 0o100
_OPENERS: dict[str, Callable[[Any], Any]] = {
    ".tar.xz": lzma.open,
    ".tar.gz": gzip.open,
    ".tgz": gzip.open,
    ".tar.bz2": bz2.open,
    ".tar.zst": zstd_opened,
    ".tar": lambda stream: stream,
}
ENDINGS = (".deb", ".whl", ".zip", ".conda", *_OPENERS)


class ArchiveEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file, or a symbolic link where `link` is set. `data` must be read before the next entry is asked for."""

    name: str
    size: int = 0
    executable: bool = False
    link: str | None = None
    data: Iterable[bytes] = ()


def entries(path: Path, budget: Unpacking | None = None) -> Iterator[ArchiveEntry]:
    """What the package at `path` holds, folders left out."""
    kind = _kind(path.name, ENDINGS)
    budget = budget or Unpacking(path.name, path.stat().st_size)
    yield from _checked(_members(path, kind, budget), budget)


def of_stream(stream: Any, name: str, budget: Unpacking) -> Iterator[ArchiveEntry]:
    """What a tar of that name holds, read once from its beginning to its end."""
    return _checked(_tar(stream, _kind(name, _OPENERS), name, budget), budget)


def _kind(name: str, known: Iterable[str]) -> str:
    kind = next((ending for ending in known if name.endswith(ending)), None)
    if kind is None:
        message = f"`{name}` is not a kind of package that can be unpacked"
        raise BadInput(message, hint=f"known are {', '.join(known)}")
    return kind


def of_tar(data: bytes, name: str) -> Iterator[ArchiveEntry]:
    """What a plain tar holds that lies in memory."""
    budget = Unpacking(name, len(data))
    return _checked(_tar(io.BytesIO(data), ".tar", name, budget), budget)


def of_zip(archive: Archive) -> Iterator[ArchiveEntry]:
    """Of a zip that is open: all that is said of its members was checked then."""
    for member in archive.members.values():
        runs, data = bool(member.mode & _EXECUTABLE), archive.chunks(member)
        yield ArchiveEntry(name=member.name, size=member.size, executable=runs, data=data)


def write(members: Iterable[ArchiveEntry], into: Path) -> list[Path]:
    """As files and links below `into`, a new folder. Nothing is written through a link, and FileExistsError says what
    has one name twice. Where links lead is for the caller to see."""
    into.mkdir(parents=True)
    folders = {into}
    written = []
    for entry in members:
        if paths.system() == "windows" and (why := untrusted.impossible_on_windows(entry.name)):
            raise BadInput(f"cannot unpack it: {why}", hint="rename the file, and have the archive made again")
        *above, name = entry.name.split("/")
        folder = into
        for part in above:
            folder = folder / part
            if folder not in folders:
                folder.mkdir()
                folders.add(folder)
        written.append(folder / name)
        if entry.link is not None:
            written[-1].symlink_to(entry.link)
            continue
        with written[-1].open("xb") as stream:
            stream.writelines(entry.data)
        written[-1].chmod(0o755 if entry.executable else 0o644)
    return written


def _checked(members: Iterator[ArchiveEntry], budget: Unpacking) -> Iterator[ArchiveEntry]:
    try:
        for entry in members:
            budget.folders(entry.name)
            yield msgspec.structs.replace(entry, data=_whole(budget.name, entry.data))
    except _BROKEN as error:
        raise _broken(budget.name, error) from error


def _members(path: Path, kind: str, budget: Unpacking) -> Iterator[ArchiveEntry]:
    if kind == ".deb":
        yield from _deb(path, budget)
    elif kind == ".conda":
        yield from _conda(path, budget)
    elif kind in (".whl", ".zip"):
        with File(path) as source:
            yield from of_zip(Archive(source))
    else:
        with path.open("rb") as stream:
            yield from _tar(stream, kind, path.name, budget)


def _whole(name: str, data: Iterable[bytes]) -> Iterator[bytes]:
    """What breaks while a member is read is the package's fault as well."""
    try:
        yield from data
    except _BROKEN as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> BadInput:
    return BadInput(f"`{name}` is not a whole package: {error}", hint="download it again")


def _conda(path: Path, budget: Unpacking) -> Iterator[ArchiveEntry]:
    """A zip of two: `pkg-….tar.zst` holds the files; `info-….tar.zst` tells of them and is left out."""
    with File(path) as source:
        archive = Archive(source)
        inner = [name for name in archive.members if name.startswith("pkg-") and name.endswith(".tar.zst")]
        if len(inner) != 1:
            raise ValueError("it has no single pkg-….tar.zst")
        stream = _Pieces(archive.chunks(archive.member(inner[0])))
        yield from _tar(stream, ".tar.zst", path.name, budget)


def _deb(path: Path, budget: Unpacking) -> Iterator[ArchiveEntry]:
    """An `ar` archive of three: what the package is, its scripts (never run), and `data.tar.*`, which is it."""
    with File(path) as source, path.open("rb") as stream:
        data = next((part for part in static.parts(source) if part.name.startswith("data.tar")), None)
        if data is None:
            raise ValueError("it has no data.tar")
        stream.seek(data.offset)
        yield from _tar(_Window(stream, data.size), "." + data.name.partition(".")[2], path.name, budget)


def _tar(stream: IO[bytes] | _Window | _Pieces, kind: str, name: str, budget: Unpacking) -> Iterator[ArchiveEntry]:
    with tar.streamed(_opened(stream, kind), budget.packed) as archive:
        for member in archive:
            budget.member(member.size if member.isreg() else 0)
            plain = _plain(member.name)
            if member.isdir() or not plain:
                continue
            if wrong := untrusted.problem(plain):
                _hostile(name, wrong)
            if member.issym():
                yield ArchiveEntry(name=plain, link=kept_inside(plain, member.linkname))
            elif member.islnk():
                # A second name of a file before it: as a link it is the same file.
                target = _plain(member.linkname)
                if wrong := untrusted.problem(target):
                    _hostile(name, wrong)
                link = posixpath.relpath(target, posixpath.dirname(plain) or ".")
                yield ArchiveEntry(name=plain, link=link)
            elif member.isreg() and not member.issparse():
                source = archive.extractfile(member)
                assert source is not None
                runs, data = bool(member.mode & _EXECUTABLE), _chunks(source, member.size)
                yield ArchiveEntry(name=plain, size=member.size, executable=runs, data=data)
            else:
                _hostile(name, f"`{untrusted.printable(plain)}`, which is neither a file nor a link")


def _plain(name: str) -> str:
    while name.startswith("./"):
        name = name[2:]
    return "" if name in ("", ".") else name.rstrip("/")


def kept_inside(name: str, link: str) -> str:
    """A link as it is written, if it stays in the package. `/etc/x` counts from the package's own root."""
    if link.startswith("/"):
        link = posixpath.relpath(link.lstrip("/") or ".", posixpath.dirname(name) or ".")
    meant = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
    if not link or meant.startswith("..") or "\\" in link or "\0" in link:
        _hostile(name, f"a link that leaves its folder, `{untrusted.printable(link)}`")
    return link


def _chunks(source: IO[bytes], size: int) -> Iterator[bytes]:
    while data := source.read(_CHUNK):
        size -= len(data)
        yield data
    if size:
        raise EOFError("it ends in the middle of a file")


def _opened(stream: IO[bytes] | _Window | _Pieces, kind: str) -> IO[bytes]:
    if kind not in _OPENERS:
        raise ValueError(f"{kind} is not a known compression")
    # A window or pieces can do all of a file that these readers ask of one: `read`.
    return cast("IO[bytes]", _OPENERS[kind](stream))


class _Window:
    """The next `size` bytes of a stream."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream, self._left = stream, size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._stream.read(wanted)
        if wanted and not data:
            raise EOFError("it ends early")
        self._left -= len(data)
        return data


class _Pieces:
    """A stream over pieces of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._rest) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._rest += piece
        data, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return data


def _hostile(package: str, what: str) -> NoReturn:
    raise BadInput(f"`{package}` has {what}", hint="do not use this file; nothing of it was installed")
