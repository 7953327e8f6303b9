"""The one place that writes files: beside, synced, then renamed. A reader never sees half a file.

What is not yet renamed has a hidden name that says who writes it: `.name.<computer>-<process>-<run>-<number>.part`. The
first write into a folder removes what dead processes of this computer left there. Folders for a while, most of them
among the system's temporary ones, say the same: `rekindle-<what>-<computer>-<process>-<run>-<number>`. What was
removed is counted: `swept` tells it once.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import IO

from rekindle.core.errors import BadInput, NotFound, NotWritable, RekindleError

# IO_REPARSE_TAG_SYMLINK and IO_REPARSE_TAG_MOUNT_POINT of Windows.
_LINKS = (0xA000000C, 0xA0000003)
# A folder may be 12 characters shorter than a file before Windows refuses it: a file name in 8.3 must still fit.
_LONG = 248
_PART = r"(?s)\..+\.([0-9a-f]{8})-(\d{1,9})-([0-9a-f]{8})-\d+\.part"
# Linux tells the start of a process by that of the system, in whole seconds.
_CLOCK = 0.0 if os.name == "nt" else 2.0
_RUN = os.urandom(4).hex()
_NUMBERS = itertools.count()
_SWEPT: set[Path] = set()
_SCRATCH = r"rekindle-[a-z-]+-([0-9a-f]{8})-(\d{1,9})-([0-9a-f]{8})-\d+"
_REMOVED: list[int] = []
"""The sizes of the files that were discarded."""
FULL = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG})


@contextlib.contextmanager
def locked(path: Path, busy: RekindleError, *, timeout: float = 0.0) -> Iterator[None]:
    """Hold a lock file; `busy` is raised where another process holds it for so long. The system lets go of it when the
    process ends, however it ends."""
    from filelock import FileLock, Timeout

    # Older releases of filelock empty what a link leads to.
    no_links(path, path.parent)
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=timeout)
    except Timeout:
        raise busy from None
    except OSError as error:
        raise not_writable(path.parent, error) from error
    try:
        yield
    finally:
        lock.release()


def write_text(path: Path, text: str, *, newline: str = "\n", inside: Path | None = None) -> None:
    """Write `text` as UTF-8. Line ends are written as given by `newline`, the same on every system."""
    write_bytes(path, text.replace("\r\n", "\n").replace("\n", newline).encode("utf-8"), inside=inside)


def write_bytes(path: Path, data: bytes, *, inside: Path | None = None) -> None:
    with replacing(path, inside=inside) as stream:
        stream.write(data)


@contextlib.contextmanager
def replacing(path: Path, *, inside: Path | None = None) -> Iterator[IO[bytes]]:
    """A binary stream whose contents become `path` when the block ends well, and vanish when it does not.

    With `inside`, no link below that folder is written through; one in the place of the file itself is replaced."""
    if inside is not None:
        no_links(path.parent, inside)
    path = reachable(path)
    beside = reachable(path.with_name(f".{path.name}.{_writer()}.part"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent not in _SWEPT:
            _SWEPT.add(path.parent)
            sweep(path.parent)
        with beside.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        rename_over(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise not_writable(path, error) from error
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def sweep(folder: Path) -> None:
    """Remove what is `left_behind` in a folder."""
    for path in left_behind(folder):
        discard(path)


def below(root: Path | str) -> Iterator[os.DirEntry[str]]:
    """What lies below a folder and is no folder itself, however deep: a stranger's may be deeper than Python's stack.

    Links are not followed, and what cannot be listed is left out.
    """
    waiting = [os.fspath(root)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False) and not is_link(Path(entry.path)):
                    waiting.append(entry.path)
                else:
                    yield entry


def discard(path: Path) -> int:
    """Remove a file or folder that a killed run left, and count it; how many bytes it had."""
    folder = path.is_dir() and not is_link(path)
    sizes: dict[Path, int] = {}
    with contextlib.suppress(OSError):
        for each in (Path(entry.path) for entry in below(path)) if folder else (path,):
            sizes[each] = each.lstat().st_size
    if folder:
        remove_tree(path)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
    _REMOVED.extend(size for each, size in sizes.items() if not os.path.lexists(each))
    return sum(sizes.values())


def swept() -> tuple[int, int]:
    """How many files of killed runs were discarded since this was last asked, and their bytes."""
    found = (len(_REMOVED), sum(_REMOVED))
    _REMOVED.clear()
    return found


def remove_tree(folder: Path) -> None:
    """Also read-only files, which Windows refuses to remove."""
    import shutil

    if os.name == "nt":
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                path.chmod(0o666)
    shutil.rmtree(folder, ignore_errors=True)


def left_behind(folder: Path) -> list[Path]:
    """The half-written files and the folders for a while in a folder whose makers are gone."""
    place = reachable(folder)
    return [path for path in sorted([*place.glob(".*.part"), *place.glob("rekindle-*")]) if _left(path)]


def _left(path: Path) -> bool:
    made = re.fullmatch(_PART, path.name) or re.fullmatch(_SCRATCH, path.name)
    if made is None or made[1] != _computer():
        return False
    return _gone(path, int(made[2]), here=made[3] != _RUN)


@contextlib.contextmanager
def scratch(what: str, place: Path | None = None) -> Iterator[Path]:
    """A folder for a while, removed when the block ends."""
    folder = scratch_folder(what, place)
    try:
        yield folder
    finally:
        remove_tree(folder)


def scratch_folder(what: str, place: Path | None = None) -> Path:
    """A folder that nobody else can enter, removed by whoever asks for it; those whose makers were killed go now."""
    import tempfile

    place = place or Path(tempfile.gettempdir())
    sweep(place)  # not another user's: the system refuses that
    while True:
        folder = place / f"rekindle-{what}-{_writer()}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder


def _gone(path: Path, writer: int, *, here: bool) -> bool:
    """Is its writer gone? Systems give a dead process's number to another one, which began after the last write.

    `here` is the answer for what has this process's number."""
    if writer == os.getpid():
        return here
    import psutil

    try:
        return psutil.Process(writer).create_time() > path.stat().st_mtime + _CLOCK
    except (psutil.NoSuchProcess, FileNotFoundError):
        return True
    except (psutil.Error, OSError):
        return False


def _writer() -> str:
    return f"{_computer()}-{os.getpid()}-{_RUN}-{next(_NUMBERS)}"


@cache
def _computer() -> str:
    """A process's number counts on one computer and, on Linux, in one container: a shared folder may know several."""
    import platform
    import zlib

    # Windows reads this path below the drive one stands on, where anything may lie.
    numbers = Path("/proc/self/ns/pid") if os.name != "nt" else None
    space = numbers.stat().st_ino if numbers and numbers.exists() else 0
    return f"{zlib.crc32(f'{platform.node()} {space}'.encode()):08x}"


def is_link(path: Path) -> bool:
    """A symbolic link, or on Windows a junction. A file that OneDrive has not fetched yet is none."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) or getattr(found, "st_reparse_tag", 0) in _LINKS


def no_links(path: Path, inside: Path) -> None:
    """Refuse a path that is a link below `inside`, or goes through one: it may lead to anything on this computer."""
    for each in (path, *path.parents):
        if each == inside:
            return
        if is_link(each):
            message = f"`{each}` is a link, and may lead out of `{inside}`"
            raise BadInput(message, hint="replace the link with what it leads to, or remove it")


_BELOW: ContextVar[tuple[Path, ...]] = ContextVar("below", default=())


@contextlib.contextmanager
def only_below(folders: tuple[Path, ...]) -> Iterator[None]:
    """While the block runs, files of others are read below these folders alone: `ordinary`, `plain_bytes` see to it."""
    before = _BELOW.set(folders)
    try:
        yield
    finally:
        _BELOW.reset(before)


def _within(path: Path) -> None:
    folders = _BELOW.get()
    if folders and not any(path.resolve().is_relative_to(folder) for folder in folders):
        raise PermissionError(errno.EACCES, "it lies outside of the folders that may be read", str(path))


def ordinary(path: Path) -> None:
    """Refuse what is no plain file. A pipe in a stranger's folder would be waited for without an end; the shell's own
    (`<(…)`) is what the user asked for.
    """
    _within(path)
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise NotFound(f"`{path}` is a folder, not a file", hint="name the file itself")
    if not stat.S_ISREG(mode) and path.parts[:3] not in (("/", "dev", "fd"), ("/", "proc", "self")):
        raise NotFound(f"`{path}` is not a plain file", hint="name the file itself")


_KINDS = (
    (rb"PK\x03\x04", "a wheel or another zip archive"),
    (rb"\x7fELF", "a Linux program or library"),
    (rb"MZ(?s:.{0,250})\0", "a Windows program or library"),
    (rb"!<arch>\n(?!debian-binary)", "a static library"),
    (rb"!<arch>\ndebian-binary", "a Debian package"),
    (rb"\xed\xab\xee\xdb", "an RPM package"),
    (rb"MSCF\0", "a cabinet archive"),
    (rb"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (rb"Rar!\x1a\x07", "a RAR archive"),
    (rb"\x1f\x8b", "a gzip archive"),
    (rb"BZh[1-9]1AY&SY", "a bzip2 archive"),
    (rb"\xfd7zXZ\0", "an xz archive"),
    (rb"\x28\xb5\x2f\xfd", "a zstd archive"),
    (rb"\x04\x22\x4d\x18", "an LZ4 archive"),
)


def binary_kind(data: bytes) -> str | None:
    """What a file is that begins like this and is surely no text, in words."""
    return next((words for begin, words in _KINDS if re.match(begin, data)), None)


def not_a(where: str | Path, wanted: str) -> str:
    """The sentence for a file that is no `wanted`: what it is instead, where its first bytes say so."""
    kind = None
    if Path(where).is_file():
        with Path(where).open("rb") as stream:
            kind = binary_kind(stream.read(256))
    return f"`{where}` is {kind}, not {wanted}" if kind else f"`{where}` is not {wanted}"


def read_bytes(path: Path, *, limit: int = 256 * 1024 * 1024) -> bytes:
    """The whole of a file a user named, or an error that says what is wrong with it."""
    try:
        ordinary(path)
        data = _read(path, limit + 1)
    except FileNotFoundError as error:
        raise NotFound.path(path) from error
    except OSError as error:
        message = f"cannot read `{path}`: {error.strerror or error}"
        raise NotFound(message, hint="check the permissions of the file") from error
    if len(data) > limit:
        kind = binary_kind(data)
        message = f"`{path}` is {kind}" if kind else f"`{path}` is larger than {limit // (1024 * 1024)} MiB"
        raise NotFound(message, hint="this is not the kind of file expected here")
    return data


def plain_bytes(path: Path, *, limit: int = 128 * 1024 * 1024) -> bytes:
    """The bytes of a plain file of somebody's folder. OSError says why not, for whoever reports it or goes without."""
    _within(path)
    # Without O_NONBLOCK, opening a fifo waits for a writer that never comes.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(None, "not a regular file", str(path))
        if status.st_size > limit:
            size = f"{status.st_size // (1024 * 1024)} MiB"
            raise OSError(None, f"{size}, too large for a file of its kind", str(path))
        # Of a file that grows meanwhile no more; those of /proc have no size, and some give nothing until they have it.
        data: bytes | None = stream.read(max(status.st_size, 1 << 20))
        if data is None:
            raise OSError(None, "not a regular file: it has nothing to read yet", str(path))
        return data


def plain_text(path: Path, *, errors: str = "strict") -> str:
    """The same as text that a person or a program wrote: UTF-8, its lines ended as any system ends them."""
    text = plain_bytes(path, limit=64 * 1024 * 1024).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read(path: Path, size: int, *, patience: float = 3.0) -> bytes:
    """Windows refuses to open a file in the moment in which another one is renamed over it: a reader waits for that."""
    give_up = time.monotonic() + patience
    while True:
        try:
            with reachable(path).open("rb") as stream:
                # Python reserves what it is asked to read at once: not the limit, but what the file should have.
                status = os.fstat(stream.fileno())
                if sys.platform != "win32":
                    # A file of /proc may wait for what comes; only a pipe that the shell made is waited for.
                    os.set_blocking(stream.fileno(), not stat.S_ISREG(status.st_mode))
                piece = status.st_size + (1 << 20)
                parts: list[bytes] = []
                while size > 0 and (part := stream.read(min(piece, size))):
                    parts.append(part)
                    size -= len(part)
                return b"".join(parts)
        except PermissionError:
            if os.name != "nt" or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def rename_over(source: Path, path: Path, *, patience: float = 5.0) -> None:
    """Give a finished file its name, over an older one of that name, and make the rename durable.

    Windows refuses while another program has the old file open, and virus scanners and indexers open every new file
    for a moment: it is tried again for `patience` seconds. An old file that is marked read-only is replaced, as on
    every other system.
    """
    limit = time.monotonic() + patience
    while True:
        try:
            source.replace(path)
        except PermissionError:
            if os.name != "nt" or time.monotonic() > limit:
                raise
            with contextlib.suppress(OSError):
                if not path.stat().st_mode & stat.S_IWRITE:
                    path.chmod(stat.S_IWRITE | stat.S_IREAD)
            time.sleep(0.05)
        else:
            break
    sync_folder(path.parent)


def reachable(path: Path) -> Path:
    """The path in the spelling that Windows also takes beyond 260 characters; on other systems the path itself."""
    if os.name != "nt":
        return path
    full = os.path.abspath(path)  # noqa: PTH100 - without links followed, but without `..`, which that spelling lacks
    if len(full) < _LONG or full.startswith("\\\\?\\"):
        return path
    return Path("\\\\?\\UNC\\" + full[2:] if full.startswith("\\\\") else "\\\\?\\" + full)


def sync_folder(folder: Path) -> None:
    """Make the rename itself durable where the system lets a folder be synced (not on Windows)."""
    if os.name == "nt":
        return
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def not_writable(path: Path | str, error: OSError) -> NotWritable:
    """The error that says why a place cannot be written to, and what to do about it."""
    return NotWritable(f"cannot write `{path}`: {describe_error(error)}", hint=_advice(error))


def describe_error(error: OSError | ValueError) -> str:
    """Why the system refused, in plain words."""
    number = error.errno if isinstance(error, OSError) else None
    if number in FULL:
        return "the disk is full"
    if number == errno.EROFS:
        return "the disk is read-only"
    if number in (errno.EACCES, errno.EPERM):
        return "permission denied"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _advice(error: OSError) -> str:
    if error.errno in FULL:
        return "free some space, or choose another place"
    if os.name == "nt" and isinstance(error, PermissionError):
        return "close the program that has the file open, or choose another place with `-o`"
    return "choose another place that you may write to"
