"""One job of a fleet: what is built, locked down to the byte where that is known. Its key is the hash of its lock.

The source of a project of your own travels to another machine in one archive, and its hash is in the lock.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
from enum import Enum
from pathlib import Path

import msgspec

from rekindle.build.configure import request as build_request
from rekindle.build.configure import tree
from rekindle.build.configure.request import BuildFile
from rekindle.core import codec, files, untrusted
from rekindle.core.errors import BadInput, NotFound, NotWritable
from rekindle.core.files import describe_error
from rekindle.core.paths import sha256_of
from rekindle.core.texts import ArchList, Dotted, SystemName
from rekindle.core.untrusted import InsidePath, PlainFileName, Sha256
from rekindle.core.version import Version
from rekindle.diagnose.answer import Diagnosis
from rekindle.fleet.matrix_file import MatrixCell
from rekindle.formats import unpacking
from rekindle.knowledge.torch.releases import parse_arch_list
from rekindle.model.card import Target
from rekindle.model.cuda_line import CudaLine
from rekindle.model.platform import PlainWord
from rekindle.model.torch_pin import CPU
from rekindle.stack.plan import Pinned, Plan
from rekindle.wheels.shelf.provenance import BuildFacts


class JobKind(str, Enum):
    """What makes the wheel: `rekindle build` of a plan, of a build file, or `rekindle extension build`."""

    TORCH = "torch"
    CMAKE = "cmake"
    EXTENSION = "extension"


class JobState(str, Enum):
    BUILD = "build"
    DONE = "done"
    NOT_NEEDED = "not-needed"
    IMPOSSIBLE = "impossible"


class FleetLock(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides which bytes come out, and nothing else: two jobs with one lock are one job."""

    schema: str = "rekindle.fleet-lock/1"
    project: str
    kind: JobKind
    source: str | None = None
    """The SHA-256 of a folder's files, or the requirement."""
    torch: str | None = None
    variant: str | None = None
    cuda: Dotted | None = None
    cudnn: Dotted | None = None
    arch_list: ArchList = ""
    python: str | None = None
    """None: the wheel is the same for every Python."""
    system: SystemName
    machine: PlainWord
    profile: str = "fast"
    backend: str | None = None
    commit: str | None = None
    version: str | None = None
    options: dict[str, str] = {}
    patches: tuple[Pinned, ...] = ()
    requires: tuple[str, ...] = ()

    @property
    def key(self) -> Sha256:
        """One line of sorted JSON, hashed: the same on every machine."""
        plain = json.dumps(codec.to_builtins(self), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return Sha256(hashlib.sha256(plain.encode("ascii")).hexdigest())

    @property
    def asked(self) -> str:
        """The same without the source, which every commit changes: what a workflow inside of it can name."""
        return msgspec.structs.replace(self, source=None).key

    @property
    def compiles_like(self) -> str:
        """Jobs that differ in their Python alone share nearly all of what they compile."""
        return msgspec.structs.replace(self, python=None, requires=()).key

    @property
    def targets(self) -> tuple[Target, ...]:
        return parse_arch_list(self.arch_list)

    @property
    def cuda_version(self) -> Version | None:
        return Version(self.cuda) if self.cuda else None


class JobEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Rough. `minutes` None: nobody knows."""

    minutes: int | None = None
    disk_gb: float = 1.0
    memory_gb: float = 2.0
    download_gb: float = 0.0


class FleetJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the plan. `lock` and `key` are there unless nothing can be built."""

    name: str
    state: JobState
    reason: str = ""
    key: Sha256 | None = None
    cells: tuple[MatrixCell, ...]
    """The combinations that this one wheel serves."""
    lock: FleetLock | None = None
    cards: tuple[str, ...] = ()
    wheel: str | None = None
    """On the shelf, when it is done."""
    needs: tuple[Sha256, ...] = ()
    """The keys of jobs that come before it."""
    order: int | None = None
    estimate: JobEstimate = JobEstimate()

    @property
    def short(self) -> str:
        return (self.key or "")[:12]


def name_of(lock: FleetLock) -> str:
    """`torch-2.15.0-cu126-sm50.sm60.sm70-py312-linux-x86_64`: for people and folders; the key is what counts."""
    targets = dict.fromkeys(str(target).replace("_", "") for target in lock.targets)
    version = lock.torch if lock.kind is JobKind.TORCH else None
    parts = [
        lock.project,
        version,
        f"torch{lock.torch}" if lock.kind is JobKind.EXTENSION else None,
        CudaLine(Version(lock.cuda)).name if lock.cuda else CPU,
        ".".join(targets) or None,
        f"py{lock.python.replace('.', '')}" if lock.python else None,
        lock.system,
        lock.machine,
        lock.profile if lock.profile != "fast" else None,
    ]
    return plain_name("-".join(part for part in parts if part))


def plain_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)


def cell_name(cell: MatrixCell) -> str:
    """What a combination is called that has no lock because it cannot be built."""
    cards = (cell.machine or cell.gpu or "").rpartition("/")[2]
    line = cell.cuda and re.sub(r"^(?=\d)", "cu", cell.cuda)
    parts = [cell.project, cell.torch, line, cards, cell.python, cell.os]
    return plain_name("-".join(part for part in parts if part))[:120]


class JobOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a worker gets it. `source` and `torch_wheel` are files that were sent before, by their SHA-256."""

    schema: str = "rekindle.fleet-order/1"
    key: Sha256
    name: str
    lock: FleetLock
    cards: tuple[str, ...] = ()
    plan: Plan | None = None
    build: BuildFile | None = None
    source: Sha256 | None = None
    torch_wheel: Sha256 | None = None
    torch_wheel_name: PlainFileName | None = None
    cache: str | None = None
    """The address of the shared compile cache."""
    check: Sha256 | None = None
    """Build nothing: check this wheel, which was sent before, on a card. By its SHA-256."""
    check_name: PlainFileName | None = None


class MadeFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the result, below the job's folder."""

    name: InsidePath
    sha256: Sha256
    size: int


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """`wheel`, `report` and `signature` are there when it is done; `error` and `diagnosis` when it failed.

    A check makes no wheel.
    """

    schema: str = "rekindle.fleet-result/1"
    key: Sha256
    done: bool
    seconds: float
    wheel: MadeFile | None = None
    report: MadeFile | None = None
    signature: MadeFile | None = None
    facts: BuildFacts | None = None
    error: str | None = None
    code: int | None = None
    diagnosis: Diagnosis | None = None
    log: str = ""
    """The end of the log."""
    cache_hits: int | None = None
    cache_misses: int | None = None
    cancelled: bool = False
    full: bool = False
    """The disk was full: another machine may do."""


class JobStep(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running job is."""

    key: str
    step: str
    worker: str


MOST = 256 * 1024 * 1024
_TIME = 1_000_000_000
_NOT_SOURCE = ("shelf", "fleet-work", "fleet-cache", "site", "upload.txt", ".github", "matrix.toml", "FACTORY.md")
"""What a factory has in the root of a project: it changes without the project."""


def source_root(named: Path, job: FleetJob) -> Path:
    """The folder of a job's source: a CMake project is named by its build file."""
    if job.lock is None or job.lock.kind is not JobKind.CMAKE:
        return named
    return named.parent / (build_request.read(named).source or ".")


def digest_source(root: Path) -> str:
    """One hash over the names and bytes of every file; times, modes and owners do not count."""
    found = hashlib.sha256()
    for name in source_names(root):
        found.update(f"{name}\0".encode())
        found.update(bytes.fromhex(sha256_of(root / name)))
    return found.hexdigest()


def packed(folder: str, job: FleetJob) -> tuple[Sha256, bytes]:
    data = pack_source(source_root(Path(folder), job))
    return Sha256(hashlib.sha256(data).hexdigest()), data


def pack_source(root: Path) -> bytes:
    """The same bytes for the same files, on every machine."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in source_names(root):
            data = (root / name).read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), _TIME
            member.mode = 0o755 if (os.name != "nt" and bool((root / name).stat().st_mode & 0o100)) else 0o644
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def unpack_source(data: bytes, into: Path) -> None:
    """Only plain files with plain names below `into`; anything else is refused."""
    if odd := next((each.name for each in unpacking.of_tar(data, "the source") if each.link is not None), None):
        shown = untrusted.printable(odd)
        raise BadInput(f"the source holds `{shown}`, which is no plain file", hint="send it again")
    files.remove_tree(into)
    try:
        for path in unpacking.write(unpacking.of_tar(data, "the source"), into):
            # The build tells by their times that files have not changed: they are the same wherever it goes on.
            os.utime(path, (_TIME, _TIME))
    except FileExistsError as error:
        raise BadInput(
            f"the source holds a file and a folder of one name: {describe_error(error)}", hint="rename one"
        ) from error
    except OSError as error:
        raise NotWritable(
            f"cannot unpack into `{into}`: {describe_error(error)}", hint="free some space there"
        ) from error


def source_names(root: Path) -> list[str]:
    """The files that travel; an error, before any is read, where they are more than a worker is sent."""
    if not root.is_dir():
        raise NotFound(f"there is no folder `{root}`", hint="a project's `source` is relative to the matrix")
    aside = {each for each in _NOT_SOURCE if not (root / each / "__init__.py").exists()}
    named = (name for name in tree.names(root) if name.partition("/")[0] not in aside)
    found = sorted(name for name in named if (root / name).is_file() and not (root / name).is_symlink())
    if sum((root / name).stat().st_size for name in found) > MOST:
        hint = "keep data and build folders out of the project's folder"
        raise BadInput(f"`{root}` has more than {MOST // 1024**2} MiB of files", hint=hint)
    return found
