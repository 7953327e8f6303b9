"""From what the user asked for to one of the ways that a tree comes here.

A release tarball is unpacked whole or not at all: its SHA-256 checked, nothing outside the folder.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from rekindle.core import fetch, files, paths, untrusted
from rekindle.core.errors import BadInput, FetchFailed, NotFound, NotWritable, UsageError
from rekindle.core.files import describe_error
from rekindle.core.paths import STATE_FOLDER, sha256_of
from rekindle.core.untrusted import PlainFileName
from rekindle.core.version import Version, typed
from rekindle.formats import unpacking
from rekindle.formats.budget import Unpacking
from rekindle.formats.unpacking import ArchiveEntry
from rekindle.inputs.system import read_system
from rekindle.inputs.torch import read_torch
from rekindle.inputs.versions import read_cuda
from rekindle.knowledge import tables
from rekindle.knowledge.torch.patches import PatchSetting
from rekindle.knowledge.torch.releases import commit_of
from rekindle.source import checkout, git, tree
from rekindle.source.git import Mirrors, Network, Origin


class Size(tables.Row, frozen=True, kw_only=True):
    """What a tree of a release takes: the disk, and its longest path below the root (sources and objects)."""

    torch: Version
    gigabytes: float
    longest_path: int


_sizes = tables.rows("source.toml", "size", Size)


class SourceCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed after `rekindle source`, or what a build asks for. A plan pins the `commit`."""

    torch: str | None = None
    output: Path | None = None
    mirror: Path | None = None
    origin: str | None = None
    sha256: str | None = None
    without: tuple[str, ...] = ()
    jobs: int = 4
    commit: str | None = None


def bring(command: SourceCommand, say: Callable[[str], None]) -> checkout.Tree | Unpacked:
    origin, mirror, without = command.origin, command.mirror, command.without
    release = read_torch(command.torch or "latest").release
    root = (command.output or Path(f"pytorch-{release}")).absolute()  # git is called from within it
    system = paths.system()
    size = size_of(release)
    checkout.check_root(str(root), system=system, longest=size.longest_path)
    for folder in without:
        if not re.fullmatch(r"[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*", folder) or ".." in folder.split("/"):
            message = f"`--without {folder[:60]}` is not a folder below the root"
            raise UsageError(message, hint="write it like `--without android`")
    if origin is not None and not Path(origin).is_dir():
        if not re.search(r"\.(tar(\.\w+)?|tgz)($|\?)", origin):
            message = f"there is no clone or tarball `{origin}`"
            raise NotFound(message, hint="`--from` takes a folder, a .tar.gz or its address")
        return unpack(origin, root, sha256=command.sha256, say=say)
    checkout.check_space(root, size.gigabytes if not root.exists() else 0.5)
    place: Origin = Network() if mirror is None and origin is None else Mirrors(mirror or Path(str(origin)))
    commit = command.commit or commit_of(release)
    tree_wanted = checkout.WantedTree(release=release, without=tuple(without), commit=commit)
    return checkout.assemble(root, tree_wanted, place, jobs=command.jobs, say=say)


def size_of(release: str) -> Size:
    """The row of the newest release that is not newer than this one."""
    rows = sorted(_sizes(), key=lambda row: row.torch)
    fitting = [row for row in rows if row.torch <= Version(release)]
    return fitting[-1] if fitting else rows[0]


def setting(
    root: Path,
    *,
    torch: str | None = None,
    system: str | None = None,
    compiler: str | None = None,
    cmake: str | None = None,
    setuptools: str | None = None,
    cuda: str | None = None,
) -> PatchSetting:
    """The tools that are on this machine now may not be those of the build, so only what was said counts for them."""
    system = read_system(system).system if system is not None else paths.system()
    return PatchSetting(
        torch=tree.release(root, read_torch(torch).release if torch is not None else None),
        os=system,
        arch=paths.architecture(),
        compiler=compiler or ("msvc" if system == "windows" else "gcc"),
        cmake=_version("--cmake", cmake),
        setuptools=_version("--setuptools", setuptools),
        cuda=read_cuda(cuda) if cuda is not None else None,
    )


def _version(option: str, text: str | None) -> Version | None:
    return typed(text, f"`{option}`", "4.0") if text is not None else None


MOST_BYTES = 12 * 1024**3
MOST_MEMBERS = 400_000
MOST_PACKED = 2 * 1024**3
MOST_RATIO = 40
"""A whole PyTorch with its submodules has 2.5 GB in 60,000 files, and is packed to a tenth at best."""
_FLOOR = 16 * 1024**2
_SPARE_MEMBERS, _BYTES_PER_MEMBER = 1_000, 1_000
"""Files and folders cost time even if they are empty. PyTorch's take 3,000 packed bytes each, and more."""


class Unpacked(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of a tarball. `empty` are submodule folders that it does not fill; `checked` is None when there
    was no hash to hold it against."""

    schema: str = "rekindle.source-tarball/1"
    root: str
    torch: str
    sha256: str
    checked: bool | None
    files: int
    empty: tuple[str, ...]


def unpack(where: str, root: Path, *, sha256: str | None, say: Callable[[str], None] = lambda _: None) -> Unpacked:
    """From a file or an address to a tree at `root`, which must be new or empty."""
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise NotWritable(f"`{root}` is not empty", hint="choose another folder with `-o`; nothing was changed")
    archive = _fetched(where, root, sha256, say) if "://" in where else Path(where)
    if not archive.is_file():
        raise NotFound.path(archive, hint="`--from` takes a clone, a release tarball or its address")
    found = sha256_of(archive)
    if sha256 is not None and found != sha256.lower():
        message = f"`{archive}` has the SHA-256 {found}, not {sha256}"
        raise FetchFailed(message, hint="fetch it again; do not build from this file")
    part = root.with_name(f".{root.name}.part")
    files.discard(part)
    try:
        count = _extract(archive, part, found)
        if root.exists():
            root.rmdir()
        part.replace(root)
    except OSError as error:
        message = f"cannot unpack into `{root}`: {describe_error(error)}"
        raise NotWritable(message, hint="free some space or choose another place with `-o`") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    files.sync_folder(root.parent)
    return Unpacked(
        root=str(root),
        torch=str(tree.release(root)),
        sha256=found,
        checked=None if sha256 is None else True,
        files=count,
        empty=git.empty(root),
    )


def _fetched(url: str, root: Path, sha256: str | None, say: Callable[[str], None]) -> Path:
    target = root.parent / untrusted.checked(PlainFileName, url.split("?")[0].rpartition("/")[2], f"`{url}`")
    if target.is_file() and sha256 and sha256_of(target) == sha256.lower():
        return target
    say(f"fetching {url}")
    return fetch.download(url, target, sha256=sha256, most=MOST_PACKED)


class _Hashing:
    """A stream, and the hash of what was read of it: somebody else may write to the file between two readings."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.digest = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.digest.update(data)
        return data


def _extract(archive: Path, part: Path, sha256: str) -> int:
    """What lies below the one top folder of a release; how many files and links that was."""
    try:
        with archive.open("rb") as raw:
            stream = _Hashing(raw)
            written = unpacking.write(_members(archive, stream), part)
            while stream.read(1 << 20):
                pass
        if stream.digest.hexdigest() != sha256:
            raise BadInput(f"`{archive}` was exchanged while it was read")
        _resolve(part, [path for path in written if path.is_symlink()])
    except FileExistsError as error:
        message = f"`{archive}` holds `{error.filename}` twice"
        raise BadInput(message, hint="fetch it again and compare its SHA-256") from error
    except BadInput as error:
        raise BadInput(error.message, hint="this is not a release of PyTorch's; nothing was unpacked") from error
    return len(written)


def _members(archive: Path, stream: Any) -> Iterator[ArchiveEntry]:
    packed = archive.stat().st_size
    members = min(MOST_MEMBERS, _SPARE_MEMBERS + packed // _BYTES_PER_MEMBER)
    budget = Unpacking(str(archive), packed, members=members, most=min(MOST_BYTES, _FLOOR + MOST_RATIO * packed))
    tops = set()
    for entry in unpacking.of_stream(stream, archive.name, budget):
        top, _, name = entry.name.partition("/")
        tops.add(top)
        if len(tops) > 1 or not name:
            raise BadInput(f"the tarball's member `{untrusted.printable(entry.name)}` lies beside its top folder")
        if name.partition("/")[0].lower() in (STATE_FOLDER, ".git"):
            raise BadInput(f"the tarball's member `{untrusted.printable(entry.name)}` belongs to a tool")
        if entry.link is not None:
            unpacking.kept_inside(name, entry.link)
        yield msgspec.structs.replace(entry, name=name)


def _resolve(part: Path, links: Iterable[Path]) -> None:
    """Now that all is there: where every link really leads, over others. One by one each may look harmless."""
    for link in links:
        if not untrusted.leads_inside(link, part):
            name = link.relative_to(part).as_posix()
            raise BadInput(f"the tarball's member `{untrusted.printable(name)}` is a link out of the folder")
