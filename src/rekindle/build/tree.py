"""The source a build works on: looked at by a fingerprint, copied where the build writes into it.

PyTorch's setup.py writes libraries, generated files and a version into the source. So it works on a copy in the
build's folder, and the user's tree stays as it is. Only what has changed is copied again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rekindle.build.journal import fingerprint
from rekindle.errors import NotFound, NotWritable

_SKIPPED = frozenset({".git", "__pycache__", ".mypy_cache", ".pytest_cache", ".hg", ".svn"})
_SKIPPED_AT_TOP = frozenset({"build", "dist"})

Manifest = dict[str, str]


def manifest(root: Path) -> Manifest:
    """Every file with its size and time: what says that a tree has not changed since."""
    if not root.is_dir():
        message = f"there is no folder `{root}` with the source"
        raise NotFound(message, hint="`rekindle source --torch X.Y.Z -o DIR` brings one")
    return dict(_walk(root, ""))


def manifest_fingerprint(found: Manifest) -> str:
    return fingerprint("\n".join(f"{name} {mark}" for name, mark in sorted(found.items())))


def copy(root: Path, into: Path, found: Manifest, before: Manifest) -> int:
    """Bring `into` up to date with `root`; how many files were copied.

    `before` is the manifest of the last copy: a file that has not changed since is left, also when a patch or the
    build has changed the copy of it.
    """
    copied = 0
    try:
        into.mkdir(parents=True, exist_ok=True)
        for name in before.keys() - found.keys():
            (into / name).unlink(missing_ok=True)
        for name, mark in found.items():
            target = into / name
            if before.get(name) == mark and os.path.lexists(target):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(target):
                target.unlink()
            shutil.copy2(root / name, target, follow_symlinks=False)
            copied += 1
    except OSError as error:
        message = f"cannot copy the source to `{into}`: {error.strerror or error}"
        raise NotWritable(message, hint="free some space, or name another place with `--work DIR`") from error
    return copied


def _walk(root: Path, prefix: str) -> Iterator[tuple[str, str]]:
    with os.scandir(root) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            name = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED and not (not prefix and entry.name in _SKIPPED_AT_TOP):
                    yield from _walk(Path(entry.path), f"{name}/")
            elif entry.is_symlink():
                yield name, f"-> {Path(entry.path).readlink()}"
            elif entry.name != ".git":
                found = entry.stat()
                yield name, f"{found.st_size}:{found.st_mtime_ns}"
