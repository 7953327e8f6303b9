"""What a worker has, as it tells the fleet, and what a job lacks there."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import msgspec
import psutil

from rekindle import __version__
from rekindle.compat.host_compiler import takes_compiler
from rekindle.compat.judgement import Clash
from rekindle.core import programs, python, signing
from rekindle.core.errors import RekindleError
from rekindle.core.texts import Dotted, SystemName
from rekindle.core.version import Version
from rekindle.fleet.job import FleetJob, FleetLock, JobKind
from rekindle.machine.model import Machine
from rekindle.model.host_compiler import gcc, msvc
from rekindle.model.platform import PlainWord

_GB = 1024**3


class AnnouncedToolkit(msgspec.Struct, frozen=True, kw_only=True):
    version: Dotted
    targets: tuple[str, ...] = ()


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """One machine of the fleet: what it has, and how many jobs it takes at a time."""

    schema: str = "rekindle.fleet-worker/1"
    name: str
    rekindle: str = __version__
    system: SystemName
    machine: PlainWord
    cores: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
    memory_gb: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    disk_gb: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    slots: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 1
    toolkits: tuple[AnnouncedToolkit, ...] = ()
    cudnns: tuple[Dotted, ...] = ()
    pythons: tuple[str, ...] = ()
    gcc: tuple[Dotted, ...] = ()
    toolsets: tuple[Dotted, ...] = ()
    cards: tuple[str, ...] = ()
    provisions: tuple[str, ...] = ()
    """What it could assemble by itself: `cuda==12.6`."""
    key: str | None = None
    """The public key that its reports are signed with."""


def of(
    machine: Machine,
    *,
    name: str,
    folder: Path,
    slots: int,
    memory_gb: float | None = None,
    offered: tuple[str, ...] = (),
) -> Announcement:
    usable = (machine.memory.usable or 0) / _GB
    return Announcement(
        name=name,
        system=machine.os,
        machine=machine.arch,
        cores=machine.processor.cores or 1,
        memory_gb=round(min(usable, memory_gb) if memory_gb else usable, 1),
        disk_gb=round(free_gb(folder), 3),
        slots=slots,
        toolkits=tuple(
            AnnouncedToolkit(version=str(kit.version.major_minor), targets=tuple(map(str, kit.targets)))
            for kit in machine.toolkits
            if kit.version and kit.nvcc
        ),
        cudnns=tuple(str(each.version) for each in machine.cudnns if each.version and not each.missing),
        pythons=tuple(pythons_here(machine)),
        gcc=tuple(dict.fromkeys(str(each.version) for each in machine.compilers if each.kind == "gcc")),
        toolsets=tuple(str(each.version) for each in machine.toolsets if each.x64),
        cards=tuple(each.capability.sm for each in machine.gpus if each.capability),
        provisions=offered,
        key=_key(),
    )


def provisions(words: Sequence[str]) -> tuple[str, ...]:
    """Of what the owner of a worker lets it assemble (`cuda==12.6`), that which a provider really has."""
    if not words:
        return ()
    from rekindle.toolchain import install
    from rekindle.toolchain.model import ProviderSettings, ToolSpec
    from rekindle.toolchain.store import Store

    found = []
    for word in words:
        how = install.Installation(settings=ProviderSettings(state=Store().state))
        with contextlib.suppress(RekindleError):
            install.find(ToolSpec.parse(word), how)
            found.append(word)
    return tuple(found)


def lacks(job: FleetJob, have: Announcement) -> tuple[str, ...]:
    """What the job needs and this machine does not have; nothing: it can be built there."""
    lock = job.lock
    assert lock is not None
    found: list[str] = []
    if have.rekindle != __version__:
        found.append(f"rekindle {__version__} (it has {have.rekindle})")
    if (lock.system, lock.machine) != (have.system, have.machine):
        return (*found, f"{lock.system} on {lock.machine}")
    if lock.python and lock.python not in have.pythons:
        found.append(f"Python {lock.python}")
    found += _toolkit(lock, have)
    if lock.kind is JobKind.TORCH and lock.cudnn and not _cudnn(lock.cudnn, have):
        found.append(f"cuDNN {lock.cudnn}")
    if job.estimate.memory_gb > have.memory_gb:
        found.append(f"{job.estimate.memory_gb:g} GB of memory")
    if job.estimate.disk_gb > have.disk_gb:
        found.append(f"{job.estimate.disk_gb:g} GB of disk")
    return tuple(found)


def describe(have: Announcement) -> str:
    kits = ", ".join(f"CUDA {each.version}" for each in have.toolkits) or "no CUDA"
    jobs = "1 job" if have.slots == 1 else f"{have.slots} jobs"
    cards = f", {', '.join(have.cards)}" if have.cards else ""
    return f"{have.system} {have.machine}, {have.cores} cores, {have.memory_gb:.0f} GB, {kits}{cards}; {jobs} at a time"


def capacity(have: Announcement) -> int:
    """How much a job could want of it that other machines may not have."""
    return len(have.toolkits) + len(have.cards) + len(have.provisions)


def _toolkit(lock: FleetLock, have: Announcement) -> list[str]:
    cuda = lock.cuda_version
    if cuda is None:
        return []
    wanted = str(cuda.major_minor)
    if f"cuda=={wanted}" in have.provisions:
        return []
    kit = next((each for each in have.toolkits if each.version == wanted), None)
    if kit is None and lock.kind is JobKind.EXTENSION:
        # Another minor release of the same CUDA compiles for an installed torch as well.
        kit = next((each for each in have.toolkits if Version(each.version).major == cuda.major), None)
    if kit is None:
        return [f"CUDA {wanted}"]
    missing = [str(target) for target in lock.targets if not target.ptx and str(target) not in kit.targets]
    if missing:
        return [f"a CUDA {wanted} that compiles for {', '.join(missing)}"]
    return _compiler(cuda, have)


def _compiler(cuda: Version, have: Announcement) -> list[str]:
    windows = have.system == "windows"
    own = [msvc(Version(each)) for each in have.toolsets] if windows else [gcc(Version(each)) for each in have.gcc]
    provided = not windows and any(each.startswith("gcc==") for each in have.provisions)
    if provided or any(not isinstance(takes_compiler(cuda, each), Clash) for each in own):
        return []
    return [f"{'an MSVC toolset' if windows else 'a GCC'} that CUDA {cuda} takes"]


def _cudnn(wanted: str, have: Announcement) -> bool:
    from rekindle.compat.library_card import same_release

    named = any(each.startswith("cudnn==") for each in have.provisions)
    return named or any(same_release(Version(each), Version(wanted)) for each in have.cudnns)


def free_gb(folder: Path) -> float:
    return float(psutil.disk_usage(str(folder)).free) / _GB


def _key() -> str | None:
    try:
        key = signing.own_key() or signing.make_key()
    except RekindleError:
        return None
    return str(key.public)


_MINORS = range(8, 21)
_ASK = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
_ANSWER = re.compile(r"3\.\d+")


def pythons_here(machine: Machine) -> dict[str, str]:
    """By version, `3.12`, the one that is used for it: the probe looks at the first on PATH only, a fleet at all."""
    found: dict[str, str] = {}
    for each in machine.pythons:
        if each.version and not each.trouble:
            found.setdefault(str(each.version.major_minor), each.path)
    with ThreadPoolExecutor(4) as pool:
        others = _pythons_on_path(machine.os)
        for path, version in zip(others, pool.map(_python_version, others), strict=True):
            if version is not None:
                found.setdefault(version, path)
    return found


def _pythons_on_path(system: str) -> list[str]:
    folders = programs.absolute_entries(os.environ.get("PATH", ""), windows=system == "windows")
    if system == "windows":
        # Store stubs are no Pythons; each version has a folder of its own there.
        names = [str(Path(each, "python.exe")) for each in folders if "windowsapps" not in each.lower()]
        return [name for name in dict.fromkeys(names) if Path(name).is_file()]
    hits = [programs.which(f"python3.{minor}", each) for minor in _MINORS for each in folders]
    return list(dict.fromkeys(hit for hit in hits if hit))


def _python_version(path: str) -> str | None:
    """What it says it is; None for one that does not run, or cannot make environments."""
    try:
        said = python.ask(path, "-I", "-c", _ASK, env=os.environ, timeout=20)
    except (RekindleError, OSError):
        return None
    text = said.out.strip()
    return text if said.code == 0 and _ANSWER.fullmatch(text) else None
