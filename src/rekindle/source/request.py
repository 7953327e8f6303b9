"""From what the user asked for to one of the ways that a tree comes here.

A release tarball is unpacked whole or not at all: its SHA-256 checked, nothing outside the folder.
"""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import NoReturn

import msgspec

from rekindle.core import fetch, files, paths, untrusted
from rekindle.core.errors import BadInput, FetchFailed, NotFound, NotWritable, UsageError
from rekindle.core.files import describe_error
from rekindle.core.paths import STATE_FOLDER, sha256_of
from rekindle.core.untrusted import PlainFileName
from rekindle.core.version import Version, typed
from rekindle.formats import tar as tar_files
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


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    size: tuple[Size, ...]


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
    rows = sorted(tables.decided("source", Sizes).size, key=lambda row: row.torch)
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


class _Room:
    """What may still come out of a tarball: bytes, and files and folders, both by the size of the tarball."""

    def __init__(self, archive: Path) -> None:
        packed = archive.stat().st_size
        self._archive = archive
        self._most = self._bytes = min(MOST_BYTES, _FLOOR + MOST_RATIO * packed)
        self._most_members = self._members = min(MOST_MEMBERS, _SPARE_MEMBERS + packed // _BYTES_PER_MEMBER)

    def take(self, size: int) -> None:
        self._bytes -= size
        self._members -= 1
        if self._bytes < 0 or self._members < 0:
            most = f"{self._most // 1024**2} MiB or {self._most_members:,} files and folders"
            message = f"`{self._archive}` unpacks to more than {most}, too much for its size"
            raise BadInput(message, hint="this is not a release of PyTorch's; nothing was unpacked")


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
        count = _extract(archive, part)
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


def _extract(archive: Path, part: Path) -> int:
    """Member by member below one common top folder; links may not lead out, devices are refused."""
    count = 0
    room = _Room(archive)
    links: list[tuple[Path, str]] = []
    part.mkdir(parents=True)
    folders = {PurePosixPath(): part}
    try:
        with tar_files.opened(archive, compressed=True) as tar:
            for member, relative in _members(tar, room):
                if member.isdir():
                    _tree_folder(folders, relative, member.name, room)
                    continue
                target = _tree_folder(folders, relative.parent, member.name, room) / relative.name
                if member.issym():
                    _inside(relative.parent, member.linkname, member.name)
                    target.symlink_to(member.linkname)
                    links.append((target, member.name))
                elif member.isfile():
                    source = tar.extractfile(member)
                    assert source is not None
                    with source, target.open("xb") as stream:
                        shutil.copyfileobj(source, stream, 1 << 20)
                    target.chmod(0o755 if member.mode & 0o100 else 0o644)
                else:
                    _hostile(member.name, "is neither file, folder nor symbolic link")
                count += 1
        _resolve(part, links)
    except tar_files.DAMAGE as error:
        message = f"`{archive}` is not a whole tarball: {error}"
        raise BadInput(message, hint="fetch it again and compare its SHA-256") from error
    except FileExistsError as error:
        message = f"`{archive}` holds `{error.filename}` twice"
        raise BadInput(message, hint="fetch it again and compare its SHA-256") from error
    return count


def _members(tar: tarfile.TarFile, room: _Room) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    top: str | None = None
    for member in tar:
        room.take(member.size)
        path = PurePosixPath(member.name)
        parts = [part for part in path.parts if part != "."]
        if path.is_absolute() or ".." in parts or "\\" in member.name or re.match(r"[A-Za-z]:", member.name):
            _hostile(member.name, "leads out of the folder")
        if not parts or member.type in (tarfile.XGLTYPE, tarfile.XHDTYPE):
            continue
        if len(parts) > 1 and parts[1].lower() in (STATE_FOLDER, ".git"):
            _hostile(member.name, "belongs to a tool, and no release brings it")
        top = parts[0] if top is None else top
        if parts[0] != top:
            _hostile(member.name, f"lies beside the top folder `{top}`")
        if len(parts) > 1:
            yield member, PurePosixPath(*parts[1:])


def _tree_folder(folders: dict[PurePosixPath, Path], relative: PurePosixPath, name: str, room: _Room) -> Path:
    """A folder of the tree, made with those above it. Only what was made here as a folder is gone through."""
    missing = [each for each in (relative, *relative.parents) if each not in folders]
    for each in reversed(missing):
        room.take(0)
        path = folders[each.parent] / each.name
        try:
            path.mkdir()
        except FileExistsError:
            _hostile(name, "goes through a symbolic link" if path.is_symlink() else "is a file and a folder")
        folders[each] = path
    return folders[relative]


def _inside(folder: PurePosixPath, link: str, name: str) -> None:
    depth = len(folder.parts)
    if link.startswith("/") or "\\" in link or ":" in link:
        _hostile(name, "is a link out of the folder")
    for part in PurePosixPath(link).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            _hostile(name, "is a link out of the folder")


def _resolve(part: Path, links: list[tuple[Path, str]]) -> None:
    """Now that all is there: where every link really leads, over others. One by one each may look harmless."""
    inside = part.resolve()
    for link, name in links:
        try:
            leads = link.resolve(strict=True)
        except FileNotFoundError:
            leads = link.resolve()
        except (OSError, RuntimeError):
            _hostile(name, "is a link that leads nowhere")
        if not leads.is_relative_to(inside):
            _hostile(name, "is a link out of the folder")


def _hostile(name: str, why: str) -> NoReturn:
    message = f"the tarball's member `{name[:120]}` {why}"
    raise BadInput(message, hint="this is not a release of PyTorch's; nothing was unpacked")
