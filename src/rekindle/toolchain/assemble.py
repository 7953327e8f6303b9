"""Packages to a kit: every member hashed into the store as it comes out, links mended, small files written.

Nothing in a package is run: no installer, no maintainer script.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rekindle.core import untrusted
from rekindle.core.console import plural
from rekindle.core.errors import BadInput
from rekindle.formats import unpacking as packages
from rekindle.toolchain import finish
from rekindle.toolchain.layout import Layout
from rekindle.toolchain.model import Kit, KitFile, Offering
from rekindle.toolchain.progress import Pulse, unpacking
from rekindle.toolchain.store import Store

_SHARED = re.compile(r"(?P<stem>lib[^/]+?\.so)\.[\d.]+\Z")
_HOPS = 16


def assemble(
    store: Store, offering: Offering, archives: Iterable[Path], *, say: Callable[[str], None] = lambda _: None
) -> Kit:
    """Unpack the archives into the store, and tell what the kit is made of. It is not published yet."""
    layout = Layout(id=offering.layout, place=offering.place, full=offering.full)
    files: dict[str, KitFile] = {}
    ordered = list(archives)
    say(f"unpacking {plural(len(ordered), 'archive')}")
    done: list[int] = []
    with ThreadPoolExecutor(max_workers=2) as pool:
        # The largest first, so that it is not the last one alone; added in order, so that a clash is always the same.
        largest = sorted(ordered, key=lambda path: -path.stat().st_size)
        jobs = {path: pool.submit(_unpacked, store, layout, path, done) for path in largest}
        with Pulse(unpacking(done, jobs.values()), say):
            for archive in ordered:
                for file in jobs[archive].result():
                    _add(files, file, archive.name)
    say(f"unpacked {plural(len(files), 'file')}, {sum(done) / 1e6:,.0f} MB")
    for file in finish.written(store, offering, files):
        files[file.path] = file
    if clash := untrusted.conflict(files):
        message = f"the archives hold `{clash[1]}` below `{clash[0]}`, which is no folder"
        raise BadInput(message, hint="do not use them; nothing of them was installed")
    made = _link_names(files)
    dangling = _without_dangling(files)
    return Kit(
        name=offering.name,
        version=offering.version,
        release=offering.release,
        variant=offering.variant,
        place=offering.place,
        provider=offering.provider,
        full=offering.full,
        layout=offering.layout,
        gone=offering.gone,
        parts=offering.parts,
        files=tuple(files[path] for path in sorted(files)),
        made=tuple(made),
        missing=(*offering.gone, *(_absent(path, full=offering.full) for path in dangling)),
        unverified=offering.unverified,
        made_at=time.strftime("%Y-%m-%d"),
    )


def _unpacked(store: Store, layout: Layout, archive: Path, done: list[int]) -> list[KitFile]:
    """The members that belong into the kit, each in the store; `done` grows by the sizes of what comes out."""
    found = []
    for entry in packages.entries(archive):
        path = layout.target(entry.name)
        if path is None:
            continue
        if entry.link is not None:
            link = layout.link(entry.name, entry.link)
            if link is not None and posixpath.normpath(posixpath.join(posixpath.dirname(path), link)) != path:
                found.append(KitFile(path=path, link=link))
            continue
        executable = entry.executable or path.startswith(("bin/", "nvvm/bin/"))
        sha256, size = store.keep(_counted(entry.data, done), executable=executable)
        found.append(KitFile(path=path, sha256=sha256, size=size, executable=executable))
    return found


def _counted(data: Iterable[bytes], done: list[int]) -> Iterable[bytes]:
    """Piece by piece: a library of 600 MB is one member, and takes a minute."""
    for piece in data:
        done.append(len(piece))
        yield piece


def _add(files: dict[str, KitFile], file: KitFile, archive: str) -> None:
    """Two packages may bring the same file, but not two files of one name. Licences are the exception."""
    known = files.get(file.path)
    if known is not None and (known.sha256, known.link) != (file.sha256, file.link):
        if not file.path.startswith("licences/"):
            message = f"`{archive}` brings another `{file.path}` than a part before it"
            raise BadInput(message, hint="the parts do not belong together; report it")
        name = f"{file.path}-{archive.partition('-')[0].partition('_')[0]}-{file.sha256[:6]}"
        file = KitFile(path=name, sha256=file.sha256, size=file.size)
    files[file.path] = file


def _link_names(files: dict[str, KitFile]) -> list[str]:
    """`libcudart.so` for `libcudart.so.13`: what a linker asks for and a wheel does not hold."""
    made = []
    for path in sorted(files):
        folder, _, name = path.rpartition("/")
        match = _SHARED.fullmatch(name)
        if not match or not folder.startswith(("lib", "nvvm/lib")):
            continue
        wanted = f"{folder}/{match['stem']}"
        if wanted not in files:
            files[wanted] = KitFile(path=wanted, link=name)
            made.append(wanted)
    return made


def _without_dangling(files: dict[str, KitFile]) -> list[str]:
    """Links that lead to nothing here are taken out, and named."""
    folders = {parent for path in files for parent in _parents(path)}
    gone = [path for path, file in files.items() if file.link is not None and not _leads(files, folders, path)]
    for path in gone:
        del files[path]
    return sorted(gone)


def _absent(path: str, *, full: bool) -> str:
    """A link without its file: left out on purpose, or truly not there."""
    name = path.rpartition("/")[2]
    return name if full else f"{name} (`--full` may bring it)"


def _parents(path: str) -> Iterable[str]:
    while path := posixpath.dirname(path):
        yield path


def _leads(files: dict[str, KitFile], folders: set[str], path: str) -> bool:
    for _ in range(_HOPS):
        file = files.get(path)
        if file is None:
            return path in folders
        if file.link is None:
            return True
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), file.link))
    return False
