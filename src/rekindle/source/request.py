"""From what the user asked for to one of the ways that a tree comes here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from rekindle.core import paths
from rekindle.core.errors import NotFound, UsageError
from rekindle.core.version import Version, typed
from rekindle.inputs.system import read_system
from rekindle.inputs.torch import read_torch
from rekindle.inputs.versions import read_cuda
from rekindle.knowledge import tables
from rekindle.knowledge.torch.patches import PatchSetting
from rekindle.knowledge.torch.releases import torch_releases
from rekindle.source import checkout, tarball, tree
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


def bring(command: SourceCommand, say: Callable[[str], None]) -> checkout.Tree | tarball.Unpacked:
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
        return tarball.unpack(origin, root, sha256=command.sha256, say=say)
    checkout.check_space(root, size.gigabytes if not root.exists() else 0.5)
    place: Origin = Network() if mirror is None and origin is None else Mirrors(mirror or Path(str(origin)))
    wanted = command.commit or known_commit(release)
    tree_wanted = checkout.WantedTree(release=release, without=tuple(without), commit=wanted)
    return checkout.assemble(root, tree_wanted, place, jobs=command.jobs, say=say)


def known_commit(release: str) -> str | None:
    """The commit of PyTorch's own tag, where the tables have it: a mirror's tag may be anything."""
    return next((row.git_version for row in torch_releases() if row.newest == release), None)


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
