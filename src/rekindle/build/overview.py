"""What a build is about to do, before hours are spent on it: what was detected, how much it takes, how long."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rekindle.build.configure.preflight import free_below
from rekindle.build.configure.request import BuildRequest
from rekindle.core import console
from rekindle.core.version import Version
from rekindle.knowledge.builds import costs
from rekindle.machine.model import Machine


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a table, and the figures behind them. None: not known."""

    what: str
    toolkit: str | None
    cudnn: str | None
    compiler: str
    python: str
    architectures: tuple[str, ...]
    folder: str
    jobs: int
    memory_gb: float | None
    disk_free_gb: float | None
    disk_needed_gb: float | None
    download_gb: float | None
    """At most: of what the figure counts, the toolkit is here already. None also for a source that lies here."""
    minutes: int | None
    """On the cores of this machine, from scratch; less where something is done already."""
    requirements: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def overview(request: BuildRequest, seen: Machine, *, folder: str, jobs: int | None, here: bool) -> Overview:
    """`here` is False for a recorded machine: its own disks and limits count, not ours."""
    row = costs.source_build(Version(str(request.release)).major_minor) if request.release else None
    row = costs.gpu_half(row) if row and request.base else row
    cores = seen.processor.cores or 1
    count = jobs or cores
    architectures = tuple(dict.fromkeys(target.capability.sm for target in request.gpu_targets))
    real = min(cores, seen.processor.physical or cores)
    minutes = None
    if row is not None:
        minutes = costs.build_minutes(row, request.system, cores=real, jobs=count, architectures=len(architectures))
    what = f"PyTorch {request.release}" if request.release else f"{request.name} {request.version or ''}".strip()
    what += ", its GPU half" if request.base else ""
    return Overview(
        what=what,
        toolkit=f"CUDA {request.cuda.version} in {request.cuda.root}" if request.cuda else None,
        cudnn=_cudnn(request),
        compiler=_compiler(request),
        python=f"{request.python_version or ''} {request.python}".strip(),
        architectures=architectures,
        folder=folder,
        jobs=count,
        memory_gb=_gb(seen.memory.usable),
        disk_free_gb=_gb(_free(folder, seen, here=here)),
        disk_needed_gb=row.disk_gb if row else None,
        download_gb=row.download_gb if row and not request.source else None,
        minutes=minutes,
        requirements=request.requirements,
        patches=request.patches or (),
        missing=_missing(request, seen),
    )


def text(found: Overview) -> str:
    rows = [
        ("build", found.what),
        ("for", ", ".join(found.architectures) or "the CPU"),
        ("toolkit", found.toolkit or "none"),
        ("cuDNN", found.cudnn or "none"),
        ("compiler", found.compiler),
        ("Python", found.python),
        ("folder", found.folder),
        (
            "at a time",
            f"{found.jobs} compile{'s' if found.jobs != 1 else ''}"
            + (f", {found.memory_gb:g} GB of memory" if found.memory_gb else ""),
        ),
        ("disk", _disk(found)),
        ("takes", _time(found)),
        ("installs", ", ".join(found.requirements)),
        ("patches", ", ".join(found.patches)),
        *(("missing", each) for each in found.missing),
    ]
    return console.table([row for row in rows if row[1]])


def _cudnn(request: BuildRequest) -> str | None:
    if request.base is not None:
        return f"{pin}, the base's" if (pin := request.base.pin("cudnn")) else None
    return f"{request.cudnn.version} in {request.cudnn.root}" if request.cudnn else None


def _compiler(request: BuildRequest) -> str:
    compiler = request.compiler
    if compiler.toolset is not None:
        return f"{compiler.kind}, MSVC toolset {compiler.toolset} of {compiler.studio}"
    return f"{compiler.cxx} {compiler.version or ''}".strip()


def _missing(request: BuildRequest, seen: Machine) -> tuple[str, ...]:
    """What the plan does without and a user may not have meant to."""
    found = []
    if request.cuda and _cudnn(request) is None and request.torch:
        found.append("cuDNN: none is planned, so convolutions on the GPU are slow")
    if request.cuda and not seen.gpus:
        found.append("a GPU: none was detected, so the wheel cannot be tried on one here")
    return tuple(found)


def _disk(found: Overview) -> str:
    free = f"{found.disk_free_gb:g} GB free" if found.disk_free_gb is not None else "free space unknown"
    return f"{free}, about {found.disk_needed_gb:g} GB needed" if found.disk_needed_gb is not None else free


def _time(found: Overview) -> str:
    if found.minutes is None:
        return ""
    hours = f"{found.minutes} min" if found.minutes < 90 else f"{found.minutes / 60:.1f} h"
    download = f", up to {found.download_gb:g} GB to download" if found.download_gb is not None else ""
    return f"about {hours} from scratch{download}"


def _free(folder: str, seen: Machine, *, here: bool) -> int | None:
    if not here:
        roles = {disk.role: disk.free for disk in seen.disks}
        return next((roles[role] for role in ("home", "here", "temp") if roles.get(role) is not None), None)
    return free_below(Path(folder))


def _gb(size: int | None) -> float | None:
    return round(size / 1e9, 1) if size is not None else None
