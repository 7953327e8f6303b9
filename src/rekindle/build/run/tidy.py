"""`rekindle build --tidy`: gives back what a finished build no longer needs, tens of gigabytes for a PyTorch.

Wheels, logs, the journal, the record and what the compiles took stay; the source copy, objects, the build's own
Python environment and temporary files go. The next build of the same plan starts from scratch.
"""

from __future__ import annotations

import contextlib
import stat
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.build.run.folders import Folders, held
from rekindle.core import files
from rekindle.core.disk import size_of
from rekindle.core.errors import Locked, NotFound

_TRIES = 5


def clean(folders: Folders, *, keep: Sequence[Path] = ()) -> int:
    """Remove everything but `keep`; how many went. What cannot be removed is an error that says why."""
    gone = 0
    for entry in sorted(folders.root.iterdir()):
        if entry not in keep:
            gone += remove(entry)
    return gone


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


def text(found: Tidied) -> str:
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
