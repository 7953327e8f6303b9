"""Rekindle's own folder of toolchains: kits, and one copy of every file that any of them holds.

    objects/ab/cdef…      a file by its SHA-256, read-only; a kit's file is another name (a hard link) of it
    kits/cuda-11.8.89/    a whole tool; it appears by one rename, with its record inside, or not at all
    archives/             what was downloaded, by SHA-256; `gc` clears it
    lock                  held by whoever changes anything

Whoever dies in between leaves a folder whose name begins with a dot and objects that nothing links to; the next one
sweeps them away.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rekindle.core import codec, files, paths
from rekindle.core.disk import size_of
from rekindle.core.errors import BadInput, Locked, NotFound
from rekindle.model.platform import Platform
from rekindle.toolchain.model import Kit, KitFile, Part, ToolSpec

_PATIENCE = 3600.0
_RECORD = "kit.json"


class Store:
    def __init__(self, root: Path | None = None) -> None:
        self.root = root or paths.toolchain_folder()
        self.objects = self.root / "objects"
        self.kits_folder = self.root / "kits"
        self.archives = self.root / "archives"
        self.state = self.root / "state"

    def kits(self) -> tuple[Kit, ...]:
        """Every kit that is there, by its record. A folder without a readable record is none."""
        found = []
        for folder in sorted(self.kits_folder.glob("[!.]*")):
            with contextlib.suppress(BadInput, NotFound):
                found.append(self.read(folder))
        return tuple(found)

    def read(self, folder: Path) -> Kit:
        record = paths.state_folder(folder) / _RECORD
        return codec.from_json(files.read_bytes(record), Kit, name=f"`{record}`")

    def find(self, wanted: ToolSpec) -> Kit | None:
        """The newest kit that fits, a full one before one that holds only what a build needs."""
        fitting = [kit for kit in self.kits() if wanted.fits(kit.name, kit.version, kit.release)]
        return max(fitting, key=lambda kit: (kit.place == Platform.here(), kit.version, kit.full), default=None)

    def required(self, wanted: ToolSpec) -> Kit:
        found = self.find(wanted)
        if found is None:
            message = f"{wanted} is not installed in `{self.root}`"
            raise NotFound(message, hint=f"`rekindle toolchain install {wanted}`; `rekindle toolchain list` shows all")
        return found

    def folder(self, kit: Kit) -> Path:
        return Path(kit.adopted) if kit.adopted else self.kits_folder / kit.id

    def archive(self, part: Part) -> Path:
        """Where a part is kept once it has been downloaded and its hash was right."""
        return self.archives / part.sha256[:2] / part.sha256 / part.file

    @contextlib.contextmanager
    def locked(self, *, waiting: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """One writer. A second one waits: what the first one brings, it need not bring again."""
        message = f"another run has held `{self.root}` for {_PATIENCE / 60:.0f} minutes"
        busy = Locked(message, hint="wait for it, or end it")
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(files.locked(self.root / "lock", busy))
            except Locked:
                waiting("waiting for another run that is installing a toolchain")
                held.enter_context(files.locked(self.root / "lock", busy, timeout=_PATIENCE))
            self._no_links()
            self._sweep()
            yield

    def _no_links(self) -> None:
        """What is cleared and written here must lie here: the folder may be a shared one."""
        for folder in (self.objects, self.kits_folder, self.archives, self.state):
            for place in (folder, *folder.glob("*")):
                files.no_links(place, self.root)

    def keep(self, data: Iterable[bytes], *, executable: bool) -> tuple[str, int]:
        """A file's contents among the objects: its hash and its size. What already exists is not written twice."""
        digest, size = hashlib.sha256(), 0
        beside = self.objects / f".{secrets.token_hex(8)}.part"
        try:
            beside.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("xb") as stream:
                for piece in data:
                    digest.update(piece)
                    size += len(piece)
                    stream.write(piece)
            place = self.object(digest.hexdigest(), executable=executable)
            if not _holds(place, digest.hexdigest(), size):
                place.parent.mkdir(parents=True, exist_ok=True)
                beside.chmod(0o555 if executable else 0o444)
                _replace(beside, place, digest.hexdigest(), size)
        except OSError as error:
            raise files.not_writable(self.objects, error) from error
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        return digest.hexdigest(), size

    def object(self, sha256: str, *, executable: bool) -> Path:
        return self.objects / sha256[:2] / (sha256[2:] + ("x" if executable else ""))

    def adopt(self, kit: Kit) -> None:
        """Remember a folder of somebody else's: only its record is ours."""
        final = self.kits_folder / kit.id
        if final.exists():
            raise BadInput(f"{kit.id} already exists", hint=f"remove it first: `rekindle toolchain remove {kit.name}`")
        files.write_text(paths.state_folder(final) / "adopted", f"{kit.adopted}\n")
        files.write_text(paths.state_folder(final) / _RECORD, codec.to_json(kit) + "\n")

    def publish(self, kit: Kit) -> Path:
        """Make the kit's folder from objects, and give it its name when it is complete."""
        final = self.kits_folder / kit.id
        part = self.kits_folder / f".{kit.id}.{secrets.token_hex(4)}.part"
        try:
            for file in kit.files:
                self._place(part / file.path, file)
            files.write_text(paths.state_folder(part) / _RECORD, codec.to_json(kit) + "\n")
            if hasattr(os, "sync"):
                os.sync()
            if final.exists():
                old = self.kits_folder / f".{kit.id}.{secrets.token_hex(4)}.old"
                final.replace(old)
                part.replace(final)
                files.remove_tree(old)
            else:
                part.replace(final)
        except OSError as error:
            files.remove_tree(part)
            raise files.not_writable(final, error) from error
        except BaseException:
            files.remove_tree(part)
            raise
        files.sync_folder(self.kits_folder)
        return final

    def _place(self, target: Path, file: KitFile) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.link is not None:
            target.symlink_to(file.link)
            return
        source = self.object(file.sha256, executable=file.executable)
        try:
            os.link(source, target)
        except OSError as error:
            if isinstance(error, (FileNotFoundError, FileExistsError)):
                raise
            # A disk without hard links, or too many names of one file: a copy serves.
            shutil.copy2(source, target)

    def remove(self, kit: Kit) -> None:
        old = self.kits_folder / f".{kit.id}.{secrets.token_hex(4)}.old"
        (self.kits_folder / kit.id).replace(old)
        files.remove_tree(old)

    def collect(self) -> int:
        """Drop archives, and objects that no kit links to. How many bytes that freed."""
        used = {(file.sha256, file.executable) for kit in self.kits() for file in kit.files if file.link is None}
        freed = 0
        for path in self.objects.glob("*/*"):
            name = path.parent.name + path.name
            if (name.removesuffix("x"), name.endswith("x")) not in used:
                freed += path.stat().st_size
                path.unlink()
        freed += size_of(self.archives)
        files.remove_tree(self.archives)
        return freed

    def _sweep(self) -> None:
        for leftover in (*self.kits_folder.glob(".*"), *self.objects.glob(".*.part")):
            files.discard(leftover)


def _holds(place: Path, sha256: str, size: int) -> bool:
    """Its contents count, not its name: a damaged one is replaced, or `--again` would bring it back."""
    return place.is_file() and place.stat().st_size == size and paths.sha256_of(place) == sha256


def _replace(beside: Path, place: Path, sha256: str, size: int) -> None:
    try:
        beside.replace(place)
    except PermissionError:
        # Windows puts nothing over a file that is read-only: one that another archive just brought, or a damaged one.
        if not _holds(place, sha256, size):
            place.chmod(0o644)
            beside.replace(place)
