"""Where a build lives, one folder per build in Rekindle's cache, never in the user's source; and its wheel's name.

`rekindle build --tidy` gives back what a finished build no longer needs: wheels, logs, the journal, the record and
what the compiles took stay. The next build of the same plan starts from scratch.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from rekindle.build.configure import compiler_cache
from rekindle.build.configure.request import BuildRequest
from rekindle.core import codec, files
from rekindle.core.disk import size_of
from rekindle.core.errors import Locked, NotFound, UsageError
from rekindle.core.paths import cache_folder
from rekindle.knowledge.builds.profiles import cpu_level
from rekindle.model.cuda_line import CudaLine
from rekindle.model.torch_pin import CPU

LONGEST = 60
"""As long as a build's folder may be on Windows: PyTorch's own paths need the other 200 characters."""


class Folders:
    """The parts of a build's folder. Short names: Windows counts the characters of a path."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.journal = root / "journal.jsonl"
        self.lock = root / "lock"
        self.running = root / "running.json"
        self.logs = root / "logs"
        self.overview = root / "overview.json"
        """What the build said of plan and machine before it began."""
        self.compiles = root / "compiles.jsonl"
        """What every compile took: `governor.record` says in which form."""
        self.source = root / "s"
        """Our copy of the source, where the backend writes into it."""
        self.build = root / "b"
        self.temp = root / "t"
        self.stage = root / "i"
        self.wheels = root / "wheels"
        self.smoke = root / "smoke"
        self.tools = root / "env"
        self.compiler_cache = root / compiler_cache.FOLDER
        """The cache of `--export-cache` and `--import-cache`. It survives `--clean`, as a cache of the user's does."""

    def make(self) -> None:
        for folder in (self.root, self.logs, self.temp, self.wheels):
            folder.mkdir(parents=True, exist_ok=True)


def without_spaces(folder: Path) -> Path:
    """On Windows the 8.3 name of a folder whose own name breaks nvcc or is long, where the drive has such names.

    nvcc takes a path with a space apart, and cannot read letters outside the code page; a Windows user is often called
    `C:\\Users\\Jane Doe`. Only the part of the path that exists has a short name.
    """
    text = str(folder)
    if os.name != "nt" or (" " not in text and text.isascii() and len(text) <= LONGEST):
        return folder
    from rekindle.machine.system import windows

    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    short = windows.short_path(str(there))
    return Path(short, *folder.relative_to(there).parts) if short else folder


def source_of(request: BuildRequest) -> Path:
    """Where the source lies: the folder that was named, or Rekindle's own for this release."""
    return Path(request.source) if request.source else cache_folder() / "source" / f"pytorch-{request.release}"


def folder_of(request: BuildRequest, root: Path | None = None) -> Path:
    """The folder of this build: the same when only options or architectures change, so that little is redone."""
    parts = [request.torch or "", str(request.cuda.version.major_minor) if request.cuda else CPU]
    parts += [str(request.python_version.major_minor) if request.python_version else "py", request.source]
    parts += [request.base.sha256] if request.base else []
    digest = hashlib.sha256("\0".join([request.name, *parts]).encode()).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{request.name}-{request.torch or request.version or '0'}")
    return (root or cache_folder()) / "build" / f"{name}-{digest}"


def wheel_version(request: BuildRequest) -> str:
    """`1.12.1+cu114.cudnn870.sm35`; `sm86ptx` where PTX goes with it. A person's own version stands as it is."""
    if request.version:
        return request.version
    base = str(request.release) if request.release else "0"
    return f"{base}+{local_version(request)}"


def local_version(request: BuildRequest) -> str:
    if request.cuda is None:
        return CPU
    parts = [CudaLine(request.own_cuda or request.cuda.version).name]
    if request.cudnn and request.cudnn.version:
        parts.append("cudnn" + "".join(request.cudnn.version.text.split(".")[:3]))
    targets = request.gpu_targets
    with_ptx = {target.capability for target in targets if target.ptx}
    native = [target for target in targets if not target.ptx]
    parts += [f"{str(t).replace('_', '')}{'ptx' if t.capability in with_ptx else ''}" for t in native]
    if cpu_level(request.profile, request.arch) == "v1":
        # The usual floor is AVX; a wheel for older processors says so, as a label of the shelf does.
        parts.append("x86v1")
    return ".".join(parts)


class LockHolder(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    since: str


@contextlib.contextmanager
def held(folders: Folders) -> Iterator[None]:
    with files.locked(folders.lock, _refused(folders.running, folders.root)):
        try:
            now = LockHolder(pid=os.getpid(), since=time.strftime("%Y-%m-%d %H:%M:%S"))
            files.write_text(folders.running, codec.to_json(now) + "\n")
            yield
        finally:
            with contextlib.suppress(OSError):
                folders.running.unlink(missing_ok=True)


def _refused(path: Path, root: Path) -> Locked:
    who = "another run"
    if first := codec.kept(path, LockHolder):
        who = f"another run (process {first.pid}, since {first.since})"
    message = f"{who} is building in `{root}`"
    return Locked(message, hint="wait for it, or end it; two builds in one folder would corrupt each other")


_TRIES = 5


def clean(folders: Folders, *, keep: Sequence[Path] = ()) -> int:
    """Remove everything but `keep`; how many went. What cannot be removed is an error that says why."""
    there = sorted(folders.root.iterdir())
    strange = [each for each in there if each not in vars(folders).values()]
    if strange and not folders.journal.exists():
        message = f"`{folders.root}` is no folder of a build: it holds `{strange[0].name}`"
        raise UsageError(message, hint="name another with `--work`, or leave `--clean` out")
    return sum(remove(entry) for entry in there if entry not in keep)


def remove(path: Path) -> int:
    gone = 0
    folder = path.is_dir() and not files.is_link(path)
    if folder:
        _writable(path)
        for entry in list(path.iterdir()):
            gone += remove(entry)
    for attempt in range(_TRIES):
        try:
            if folder:
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
            return gone + 1
        except OSError:
            _writable(path)
            _writable(path.parent)
            # A scanner or an indexer lets go of a file soon; a program that uses it does not.
            time.sleep(0.1 * (attempt + 1) if attempt else 0)
    who = holders(path)
    message = f"`{path}` cannot be removed" + (f": it is held by {', '.join(who)}" if who else "")
    raise Locked(message, hint="end that program and rerun the command" if who else "check who may write there")


def holders(path: Path) -> list[str]:
    """The programs that have this file open, as far as they can be seen."""
    import psutil

    found = []
    wanted = str(path)
    for process in psutil.process_iter(["name"]):
        with contextlib.suppress(psutil.Error, OSError):
            opened = [each.path for each in process.open_files()]
            if wanted in opened or process.cwd() == wanted:
                found.append(f"{process.name()} ({process.pid})")
    return found


def _writable(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.chmod(stat.S_IRWXU if path.is_dir() else stat.S_IRUSR | stat.S_IWUSR)


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    bytes: int


class Tidied(msgspec.Struct, frozen=True, kw_only=True):
    """`bytes` is what was freed, or would be with `--dry-run`."""

    removed: tuple[Removed, ...]
    kept: tuple[str, ...]
    bytes: int
    wheel: str | None
    done: bool


def tidy(folders: Folders, *, dry_run: bool) -> Tidied:
    if not folders.journal.exists():
        message = f"there is no build in `{folders.root}`"
        raise NotFound(message, hint="name its folder with `--work DIR`; the end of a build prints it")
    wheels = sorted(folders.root.glob("repaired/*.whl")) or sorted(folders.wheels.glob("*.whl"))
    if not wheels:
        message = f"the build in `{folders.root}` has no wheel yet: its objects are still needed"
        raise NotFound(message, hint="finish the build first, or empty the folder with `--clean`")
    going = [path for path in _gone(folders) if path.exists()]
    removed = tuple(Removed(path=str(path), bytes=size_of(path)) for path in going)
    if not dry_run:
        with held(folders):
            for path in going:
                remove(path)
    kept = sorted(path.name for path in folders.root.iterdir() if path not in going)
    return Tidied(
        removed=removed,
        kept=tuple(kept),
        bytes=sum(each.bytes for each in removed),
        wheel=str(wheels[-1]),
        done=not dry_run,
    )


def tidy_text(found: Tidied) -> str:
    verb = "freed" if found.done else "would free"
    lines = [
        f"{verb} {found.bytes / 1e9:.1f} GB: {', '.join(Path(each.path).name for each in found.removed) or 'nothing'}"
    ]
    return "\n".join([*lines, f"kept {', '.join(found.kept)}"])


def _gone(folders: Folders) -> list[Path]:
    return [
        folders.source,
        folders.build,
        folders.temp,
        folders.stage,
        folders.smoke,
        folders.tools,
        folders.root / "p",
    ]
