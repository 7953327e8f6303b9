"""The source of a project of your own: its hash, and the one archive in which it travels to another machine."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import tarfile
from pathlib import Path

from rekindle.build.configure import request as build_request
from rekindle.build.configure import tree
from rekindle.core import paths, untrusted
from rekindle.core.errors import BadInput, NotFound, NotWritable
from rekindle.core.files import describe_error
from rekindle.fleet.job import FleetJob, JobKind
from rekindle.formats import tar
from rekindle.formats.budget import Unpacking

MOST = 256 * 1024 * 1024


def root_of(named: Path, job: FleetJob) -> Path:
    """The folder of a job's source: a CMake project is named by its build file."""
    if job.lock is None or job.lock.kind is not JobKind.CMAKE:
        return named
    return named.parent / (build_request.read(named).source or ".")


def digest(root: Path) -> str:
    """One hash over the names and bytes of every file; times, modes and owners do not count."""
    found = hashlib.sha256()
    for name in _names(root):
        found.update(f"{name}\0".encode())
        found.update(hashlib.sha256((root / name).read_bytes()).digest())
    return found.hexdigest()


def pack(root: Path) -> bytes:
    """The same bytes for the same files, on every machine."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in _names(root):
            data = (root / name).read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), 1_000_000_000
            member.mode = 0o755 if _runs(root / name) else 0o644
            archive.addfile(member, io.BytesIO(data))
            if stream.tell() > MOST:
                hint = "keep data and build folders out of the project's folder"
                raise BadInput(f"`{root}` has more than {MOST // 1024**2} MiB of files", hint=hint)
    return stream.getvalue()


def unpack(data: bytes, into: Path) -> None:
    """Only plain files with plain names below `into`; anything else is refused."""
    into.mkdir(parents=True, exist_ok=True)
    try:
        _count_folders(data)
        with tar.streamed(io.BytesIO(data), len(data)) as archive:
            for member in archive:
                _write(archive, member, into)
    except (*tar.DAMAGE, OverflowError) as error:
        raise BadInput(f"the source is not a whole archive: {error}", hint="send it again") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise BadInput(
            f"the source holds a file and a folder of one name: {describe_error(error)}", hint="rename one"
        ) from error
    except OSError as error:
        raise NotWritable(
            f"cannot unpack into `{into}`: {describe_error(error)}", hint="free some space there"
        ) from error


def _count_folders(data: bytes) -> None:
    """Before the first is made."""
    budget = Unpacking("the source", len(data))
    with tar.streamed(io.BytesIO(data), len(data)) as archive:
        for member in archive:
            budget.folders(member.name)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, into: Path) -> None:
    odd = untrusted.refusal(member.name, windows=paths.system() == "windows")
    if odd:
        raise BadInput(f"the source holds {odd}", hint="rename the file, and run the matrix again")
    # A sparse file is larger than what was sent.
    if not member.isreg() or member.issparse():
        shown = untrusted.printable(member.name)
        raise BadInput(f"the source holds `{shown}`, which is no plain file", hint="send it again")
    content = archive.extractfile(member)
    target = into.joinpath(*member.name.split("/"))
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():  # Windows would call it a missing permission.
        raise IsADirectoryError(errno.EISDIR, "is a folder", str(target))
    target.write_bytes(content.read() if content else b"")
    target.chmod(0o755 if member.mode & 0o100 else 0o644)
    # The build tells by their times that files have not changed: they are the same wherever it goes on.
    os.utime(target, (member.mtime, member.mtime))


def _names(root: Path) -> list[str]:
    if not root.is_dir():
        raise NotFound(f"there is no folder `{root}`", hint="a project's `source` is relative to the matrix")
    return sorted(name for name in tree.names(root) if (root / name).is_file() and not (root / name).is_symlink())


def _runs(path: Path) -> bool:
    return os.name != "nt" and bool(path.stat().st_mode & 0o100)
