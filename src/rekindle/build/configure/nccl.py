"""Where a build's NCCL comes from: the toolkit's neighbour, the source tree, or a clone while CMake configures.

2.7 took NCCL out of the submodules. Since then the build clones it from the network at the release pinned in
`.ci/docker/ci_commit_pins`, unless `third_party/nccl` is there, a system's own is asked for, or it is off. An empty
folder counts for nothing: the copy that is built in has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

import msgspec

from rekindle.build.configure.options import Options, switch
from rekindle.build.configure.request import BuildRequest
from rekindle.core.findings import Finding, Fix, State
from rekindle.core.version import Version
from rekindle.model.cuda_line import CudaLine

REPOSITORY = "https://github.com/NVIDIA/nccl"
_FIRST_CLONED = Version("2.7")
_PINS = (".ci", "docker", "ci_commit_pins")
_TAG = re.compile(r"v\d+(?:\.\d+)+(?:-\d+)?\Z")
_WITHOUT = "without a network: `-D USE_NCCL=0` (one GPU needs none), `-D USE_SYSTEM_NCCL=1` with an NCCL of your own"


class NcclFrom(str, Enum):
    OFF = "off"
    SYSTEM = "system"
    TREE = "tree"
    CLONE = "clone"


class NcclSource(msgspec.Struct, frozen=True, kw_only=True):
    origin: NcclFrom
    tag: str | None = None
    """Of a clone: the release that the tree pins for this CUDA."""


def source_of_nccl(request: BuildRequest, options: Options, tree: Path) -> NcclSource:
    """What the build will do about NCCL, by its options and by what lies in the tree."""
    off = any(switch(options.value(name) or "ON") is False for name in ("USE_CUDA", "USE_DISTRIBUTED", "USE_NCCL"))
    if off or request.cuda is None or request.system != "linux" or request.release is None:
        return NcclSource(origin=NcclFrom.OFF)
    if switch(options.value("USE_SYSTEM_NCCL") or "OFF") or switch(options.value("USE_SYSTEM_LIBS") or "OFF"):
        return NcclSource(origin=NcclFrom.SYSTEM)
    folder = tree / "third_party" / "nccl"
    submodule = request.release < _FIRST_CLONED
    if submodule or (folder.is_dir() and any(folder.iterdir())):
        return NcclSource(origin=NcclFrom.TREE)
    return NcclSource(origin=NcclFrom.CLONE, tag=pinned(tree, request.cuda.version))


def pinned(tree: Path, cuda: Version) -> str | None:
    """The release that the tree names for this CUDA, as its own build looks it up; None when it names none."""
    folder = tree.joinpath(*_PINS)
    for name in (f"nccl-{CudaLine(cuda).name}.txt", f"nccl-cu{cuda.major}.txt", "nccl.txt"):
        path = folder / name
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace").strip()[:80]
            return text if _TAG.match(text) else None
    return None


def findings(request: BuildRequest, options: Options, tree: Path) -> Iterable[Finding]:
    """For the preflight: that the build reaches for the network is said before it does."""
    found = source_of_nccl(request, options, tree)
    if found.origin is NcclFrom.CLONE:
        named = found.tag or "at a release that this tree does not name"
        text = f"the build clones NCCL {named} from {REPOSITORY} while it configures"
        yield Finding(
            id="nccl",
            state=State.PASS if found.tag else State.WARN,
            found=text,
            why="PyTorch took NCCL out of its submodules in 2.7",
            fix=Fix(text=f"{_WITHOUT}, or its source in `third_party/nccl`"),
        )
    elif found.origin is NcclFrom.SYSTEM:
        text = "NCCL is the system's own (USE_SYSTEM_NCCL); `NCCL_ROOT` says where it lies"
        yield Finding(id="nccl", state=State.PASS, found=text)
