"""Changes files of a tree so that they can always be changed back to the exact bytes.

Before a file is touched, its original bytes lie synced under `.rekindle/patches/originals`, and the journal, written
last, says which files are about to become what. Each file is then exchanged in one step. So at every moment each file
is either as it was or as it shall be, and the journal knows both: whatever was interrupted, `restore` finds the way
back and a second `exchange` the way on. A file that is neither was edited by someone else and is left alone.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from rekindle.core import codec, files
from rekindle.core.command import Command
from rekindle.core.errors import BadInput, Locked, NotWritable
from rekindle.core.files import describe_error
from rekindle.core.paths import STATE_FOLDER
from rekindle.core.untrusted import InsidePath, Sha256
from rekindle.source import tree


class PatchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file: the SHA-256 of its original bytes (also their name in `originals`) and of what it became.

    `earlier` is what it was when an exchange began that has not ended; `edited` says that a person had changed the
    patched file before a later patch came, so that its original still holds both.
    """

    path: InsidePath
    original: Sha256
    current: Sha256
    patches: tuple[str, ...]
    earlier: Sha256 | None = None
    edited: bool = False

    def ours(self, hash: str) -> bool:
        return hash in (self.current, self.earlier)


class PatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.patch-journal/1"
    files: tuple[PatchedFile, ...] = ()


class PatchJournal:
    """The journal of one tree. Use it within `with PatchJournal.open(root)`, which keeps a second writer out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / STATE_FOLDER / "patches"
        self._path = self.folder / "journal.json"
        self._entries: dict[str, PatchedFile] = {entry.path: entry for entry in self._read().files}

    @classmethod
    @contextlib.contextmanager
    def open(cls, root: Path) -> Iterator[PatchJournal]:
        folder = root / STATE_FOLDER
        tree.check_state(root)
        busy = Locked(
            f"another `rekindle patch` is working on `{root}`", hint="wait for it to finish, then rerun the command"
        )
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(files.locked(folder / "lock", busy))
            except NotWritable as error:
                hint = "the tree must be yours to write; copy it first if it is not"
                raise NotWritable(error.message, hint=hint) from error
            journal = cls(root)
            try:
                yield journal
            finally:
                held.close()
                if not journal._entries:
                    shutil.rmtree(journal.folder, ignore_errors=True)
                    _leave_no_trace(folder)

    def entry(self, path: str) -> PatchedFile | None:
        return self._entries.get(path)

    def original(self, path: str, data: bytes) -> bytes:
        """What the file was before any patch: from the journal when it is as we left it, else as it is now."""
        entry = self._entries.get(path)
        if entry is None or not entry.ours(_hash(data)):
            return data
        return self._stored(entry)

    def exchange(self, wanted: Mapping[str, tuple[bytes, tuple[str, ...]]]) -> list[str]:
        """Give each file its new bytes; all of them or, when one cannot be written, none. Returns what changed."""
        originals: dict[str, bytes] = {}
        entries = dict(self._entries)
        for path, (data, patches) in wanted.items():
            now = files.plain_bytes(tree.place(self.root, path))
            original = self.original(path, now)
            originals[path] = now
            known = self._entries.get(path)
            entries[path] = PatchedFile(
                path=InsidePath(path),
                original=_hash(original),
                current=_hash(data),
                patches=patches,
                earlier=_hash(now),
                edited=known is not None and (known.edited or _hash(now) != known.original) and original == now,
            )
            self._store(original)
        self._write(entries)
        done: list[str] = []
        try:
            for path, (data, _) in wanted.items():
                if originals[path] != data:
                    done.append(path)
                    self._put(path, data)
        except (NotWritable, KeyboardInterrupt):
            with contextlib.suppress(NotWritable):
                for path in done:
                    self._put(path, originals[path])
                self._write(dict(self._entries))
            raise
        # What is its original again needs no memory.
        self._entries = {
            path: msgspec.structs.replace(entry, earlier=None)
            for path, entry in entries.items()
            if entry.original != entry.current
        }
        self._write(self._entries)
        return done

    def restore(self) -> tuple[list[str], list[str]]:
        """Every file back to its original bytes: (restored, left alone because someone edited it since)."""
        restored: list[str] = []
        named: list[str] = []
        kept: dict[str, PatchedFile] = {}
        for path, entry in self._entries.items():
            try:
                now = _hash(files.plain_bytes(tree.place(self.root, path)))
            except (OSError, BadInput):
                kept[path] = entry
                continue
            if now == entry.original:
                continue
            if not entry.ours(now):
                kept[path] = entry
                continue
            self._put(path, self._stored(entry))
            restored.append(path)
            if entry.edited:
                named.append(path)
        self._entries = kept
        self._write(kept)
        return restored, [*kept, *named]

    def _put(self, path: str, data: bytes) -> None:
        """Exchange one file in a single step, keeping its mode. What is left by a crash lies in our own folder."""
        target = tree.place(self.root, path)
        beside = self.folder / "next"
        try:
            mode = stat.S_IMODE(target.lstat().st_mode)
            _write_synced(beside, data)
            beside.chmod(mode | stat.S_IWUSR)
            try:
                if os.name == "nt" and not mode & stat.S_IWUSR:
                    target.chmod(mode | stat.S_IWUSR)  # Windows does not replace a read-only file
                beside.replace(target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                with files.replacing(target) as stream:  # a submodule on a volume of its own
                    stream.write(data)
            if mode != mode | stat.S_IWUSR or stat.S_IMODE(target.lstat().st_mode) != mode:
                target.chmod(mode)
            files.sync_folder(target.parent)
        except OSError as error:
            message = f"cannot change `{path}`: {describe_error(error)}"
            raise NotWritable(message, hint="nothing was changed; free some space or make the tree writable") from error

    def _store(self, data: bytes) -> None:
        path = self.folder / "originals" / _hash(data)
        if path.exists() and path.stat().st_size == len(data):
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"cannot write to `{path.parent}`: {describe_error(error)}"
            raise NotWritable(message, hint="free some space or make the tree writable") from error
        files.write_bytes(path, data)

    def _stored(self, entry: PatchedFile) -> bytes:
        path = self.folder / "originals" / entry.original
        try:
            data = files.plain_bytes(path)
        except OSError as error:
            message = f"the original of `{entry.path}` is gone from `{path}`"
            raise BadInput(message, hint=_from_git(entry)) from error
        if _hash(data) != entry.original:
            message = f"the stored original of `{entry.path}` was changed"
            raise BadInput(message, hint=_from_git(entry))
        return data

    def _read(self) -> PatchRecord:
        try:
            data = files.plain_bytes(self._path)
        except FileNotFoundError:
            return PatchRecord()
        return codec.from_json(data, PatchRecord, name=f"`{self._path}`")

    def _write(self, entries: dict[str, PatchedFile]) -> None:
        ignore = self.root / STATE_FOLDER / ".gitignore"
        if not ignore.exists():
            files.write_text(ignore, "*\n")
        files.write_text(self._path, codec.to_json(PatchRecord(files=tuple(entries.values()))) + "\n")


def _leave_no_trace(folder: Path) -> None:
    """Take the state folder away again, unless something else of ours lives there."""
    with contextlib.suppress(OSError):
        (folder / "lock").unlink(missing_ok=True)
        files.sweep(folder)
        if {entry.name for entry in folder.iterdir()} <= {".gitignore"}:
            (folder / ".gitignore").unlink(missing_ok=True)
            folder.rmdir()


def _from_git(entry: PatchedFile) -> str:
    return f"restore it with `{Command('git', 'checkout', '--', entry.path)}`"


def _write_synced(path: Path, data: bytes) -> None:
    """A new file, never one that is there: what a crash left is taken away first, and a link is not followed."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _hash(data: bytes) -> Sha256:
    return Sha256(hashlib.sha256(data).hexdigest())
