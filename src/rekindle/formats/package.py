"""A distribution wherever it lies: a wheel on disk or on the web, an unpacked one, an installed one, a bare folder.

All look the same from outside: files by their relative path, `METADATA`, `WHEEL` and `RECORD` if there are any.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Collection, Mapping
from glob import escape
from pathlib import Path
from typing import Protocol

import msgspec

from rekindle.core import files
from rekindle.core.errors import BadInput, NotFound
from rekindle.formats import binary, unpacking
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.formats.binary import Binary
from rekindle.formats.remote import Remote

_MOST_FILES = 500_000
_MOST_FIELDS = 10_000
_LARGEST_HEADERS = 2 << 20


class Package(Protocol):
    """`kind` is `wheel`, `installed` or `folder`; `files` are the sizes of all files by relative path."""

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def files(self) -> Mapping[str, int]: ...

    def read(self, name: str, *, limit: int = 64 << 20) -> bytes: ...

    def binary(
        self, name: str, *, symbols: bool = False, texts: Collection[str] = (), units: bool = False
    ) -> Binary: ...

    def __enter__(self) -> Package: ...

    def __exit__(self, *ended: object) -> None: ...


class RecordLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of RECORD."""

    path: str
    digest: str
    size: int | None


class Wheel:
    """A wheel file, read in place: nothing is unpacked to disk."""

    kind = "wheel"

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.name = archive.name
        self.files: dict[str, int] = {name: member.size for name, member in archive.members.items()}

    def read(self, name: str, *, limit: int = 64 << 20) -> bytes:
        return self.archive.read(name, limit=limit)

    def binary(self, name: str, *, symbols: bool = False, texts: Collection[str] = (), units: bool = False) -> Binary:
        return binary.read(self.archive.open(name), symbols=symbols, texts=texts, units=units)

    def close(self) -> None:
        """Let go of the file: on Windows nobody else may replace it before."""
        if isinstance(self.archive.source, File):
            self.archive.source.close()

    def __enter__(self) -> Wheel:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


class Folder:
    """Files under a folder. `only` names the sub-folders to keep to."""

    def __init__(
        self, root: Path, *, kind: str = "folder", name: str | None = None, only: tuple[str, ...] = ()
    ) -> None:
        self.root = root
        self.kind = kind
        self.name = name or root.name
        self.files: dict[str, int] = dict(_listing(root, only))

    def read(self, name: str, *, limit: int = 64 << 20) -> bytes:
        with File(self.root / name, name) as file:
            if file.size > limit:
                message = f"`{name}` is {file.size} bytes, more than {limit}"
                raise BadInput(message, hint="this is not the kind of file expected there")
            return file.read(0, file.size)

    def binary(self, name: str, *, symbols: bool = False, texts: Collection[str] = (), units: bool = False) -> Binary:
        with File(self.root / name, name) as file:
            return binary.read(file, symbols=symbols, texts=texts, units=units)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *ended: object) -> None:
        """Nothing is kept open."""


def open_package(where: str | Path) -> Package:
    """A wheel by path or address, or a folder: site-packages/torch, an unpacked wheel, any place with libraries."""
    text = str(where)
    if text.startswith(("http://", "https://")):
        return Wheel(Archive(Remote(text), headers=False))
    path = Path(where)
    if path.is_dir():
        folder = _open_folder(path)
        if not folder.files:
            raise NotFound(f"there is no file in `{path}`", hint="name a wheel, a library, or the folder they lie in")
        return folder
    file = File(path)
    try:
        return Wheel(Archive(file))
    except BaseException:
        file.close()
        raise


def unpack(archive: Archive, folder: Path) -> None:
    """Every file of a wheel below `folder`, which must be new. Names that lead elsewhere are refused on opening."""
    unpacking.write(unpacking.of_zip(archive), folder)


def dist_info(package: Package) -> str | None:
    """The package's `.dist-info` folder; torch's when there are several."""
    found = sorted({name.split("/", 1)[0] for name in package.files if name.split("/", 1)[0].endswith(".dist-info")})
    torchs = next((folder for folder in found if folder.lower().startswith("torch-")), None)
    return torchs or (found[0] if len(found) == 1 else None)


_ASKED = {
    each.lower(): each
    for each in ("Name", "Version", "Requires-Dist", "Requires-Python", "Tag", "Build", "Root-Is-Purelib")
}


def headers(package: Package, name: str) -> dict[str, list[str]]:
    """The fields of METADATA or WHEEL; empty if the file is not there."""
    folder = dist_info(package)
    path = f"{folder}/{name}"
    if folder is None or path not in package.files:
        return {}
    from email.parser import HeaderParser

    message = HeaderParser().parsestr(package.read(path, limit=_LARGEST_HEADERS).decode("utf-8", "replace"))
    fields: dict[str, list[str]] = {}
    if len(message) > _MOST_FIELDS:
        detail = f"{name} of `{package.name}` has more than {_MOST_FIELDS:,} fields"
        raise BadInput(detail, hint="do not use this file; download or build it again")
    for key, value in message.items():
        # pip asks for them in any case: `name: torch` before `Name: foo` is a wheel of torch.
        fields.setdefault(_ASKED.get(key.lower(), key), []).append(str(value))
    return fields


def record(package: Package) -> list[RecordLine] | None:
    """The lines of RECORD, or None where there is none."""
    folder = dist_info(package)
    path = f"{folder}/RECORD"
    if folder is None or path not in package.files:
        return None
    text = package.read(path).decode("utf-8", "replace")
    entries = []
    try:
        for row in csv.reader(io.StringIO(text)):
            if len(row) >= 3:
                size = int(row[2]) if row[2].isascii() and row[2].isdigit() and len(row[2]) < 16 else None
                entries.append(RecordLine(path=row[0], digest=row[1], size=size))
    except csv.Error as error:
        message = f"RECORD of `{package.name}` cannot be read: {error}"
        raise BadInput(message, hint="the wheel was not made by a proper tool; build it again") from error
    return entries


def _open_folder(path: Path) -> Folder:
    path = path.resolve()
    infos = sorted(path.parent.glob(f"{escape(path.name)}-*.dist-info"))
    if (path / "__init__.py").is_file() and infos:
        only = {f"{path.name}/", f"{infos[0].name}/", *_tops(infos[0] / "RECORD")}
        return Folder(path.parent, kind="installed", name=path.name, only=tuple(sorted(only)))
    installed = any(path.glob("*.dist-info/INSTALLER"))
    return Folder(path, kind="installed" if installed else "folder")


def _tops(record: Path) -> set[str]:
    """The folders beside it that the same distribution installed: torch comes with functorch and torchgen."""
    try:
        lines = files.plain_text(record, errors="replace").splitlines()
    except OSError:
        return set()
    tops = {line.split("/", 1)[0] for line in lines if "/" in line}
    places = ((top, record.parent.parent / top) for top in tops if top not in ("..", "__pycache__", ""))
    return {f"{top}/" for top, place in places if place.is_dir() and not files.is_link(place)}


def _listing(root: Path, only: tuple[str, ...]) -> list[tuple[str, int]]:
    if not root.is_dir():
        raise NotFound.path(root, "folder")
    found: list[tuple[str, int]] = []
    starts = [root / word.rstrip("/") for word in only] or [root]
    for start in starts:
        for entry in files.below(start):
            path = Path(entry.path)
            with contextlib.suppress(OSError):
                if not path.is_dir():
                    found.append((path.relative_to(root).as_posix(), path.stat().st_size))
            if len(found) > _MOST_FILES:
                message = f"`{root}` has more than {_MOST_FILES} files"
                raise BadInput(message, hint="name the package's own folder, such as site-packages/torch")
    return found
