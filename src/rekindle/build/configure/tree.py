"""The source a build works on: looked at by a fingerprint, copied where the build writes into it, and patched.

PyTorch's setup.py writes libraries, generated files and a version into the source. So it works on a copy in the
build's folder, and the user's tree stays as it is. Only what has changed is copied again.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from rekindle.build.configure.request import BuildRequest
from rekindle.build.configure.tools import Tools
from rekindle.build.run.journal import fingerprint
from rekindle.core.errors import NotFound, NotWritable
from rekindle.core.files import describe_error
from rekindle.core.paths import sha256_of
from rekindle.core.version import Version
from rekindle.knowledge.torch import patches as catalogue
from rekindle.knowledge.torch.patches import PatchSetting
from rekindle.source import patches

_SKIPPED = frozenset({".git", "__pycache__", ".mypy_cache", ".pytest_cache", ".hg", ".svn"})
_SKIPPED_AT_TOP = frozenset({"build", "dist"})

Manifest = dict[str, str]


def manifest(root: Path, before: Manifest | None = None) -> Manifest:
    """Every file with its size, time and digest; of one that still has the size and time of `before`, that one's."""
    if not root.is_dir():
        message = f"there is no folder `{root}` with the source"
        raise NotFound(message, hint="fetch one with `rekindle source --torch X.Y.Z -o DIR`")
    kept = before or {}
    return {
        name: _link(root, path) if path.is_symlink() else _mark(path, kept.get(name, "")) for name, path in _walk(root)
    }


def names(root: Path) -> list[str]:
    """Every file and link of a tree, without looking into them."""
    return [name for name, _ in _walk(root)]


def manifest_fingerprint(found: Manifest) -> str:
    return fingerprint("\n".join(f"{name} {_content(mark)}" for name, mark in sorted(found.items())))


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
            if _content(before.get(name, "")) == _content(mark) and os.path.lexists(target):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(target):
                target.unlink()
            if (root / name).is_symlink():
                _copy_link(root, name, target)
            else:
                shutil.copy2(root / name, target)
                if name in before:
                    os.utime(target)  # changed by an older file, it would be older than the objects made of it
            copied += 1
    except OSError as error:
        message = f"cannot copy the source to `{into}`: {describe_error(error)}"
        raise NotWritable(message, hint="free some space, or name another place with `--work DIR`") from error
    return copied


def _copy_link(root: Path, name: str, target: Path) -> None:
    """A link within the tree leads to the copy's own file, however it was written: through one that led back, the build
    would write into the user's tree. A file outside is copied; a folder outside is linked where it lies.
    """
    link = root / name
    leads = _end_of(link)
    inside = _inside(root, leads)
    if inside is not None:
        target.symlink_to(os.path.relpath(root / inside, link.parent), target_is_directory=leads.is_dir())
    elif leads.is_file():
        shutil.copy2(leads, target)
    else:
        target.symlink_to(leads, target_is_directory=leads.is_dir())


def _end_of(link: Path) -> Path:
    return Path(os.path.normpath(link.parent / link.readlink()))


def _inside(root: Path, leads: Path) -> Path | None:
    """The path within the tree, whose own folder may be called by another name; None when it is outside."""
    pairs = ((leads, root), (leads.parent.resolve() / leads.name, root.resolve()))
    return next((end.relative_to(top) for end, top in pairs if end.is_relative_to(top)), None)


def _walk(root: Path) -> Iterator[tuple[str, Path]]:
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            with os.scandir(root / prefix) as entries:
                found = sorted(entries, key=lambda each: each.name)
        except OSError as error:
            message = f"`{root / prefix}` cannot be read: {describe_error(error)}"
            raise NotFound(
                message, hint="name a folder that is the source's own, with nothing in it that changes"
            ) from error
        for entry in found:
            name = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                environment = os.path.lexists(os.path.join(entry.path, "pyvenv.cfg"))  # noqa: PTH118 - many, as text
                skipped = environment or entry.name in _SKIPPED or (not prefix and entry.name in _SKIPPED_AT_TOP)
                if not skipped:
                    waiting.append(f"{name}/")
            elif entry.is_symlink() or entry.name != ".git":
                yield name, Path(entry.path)


def _link(root: Path, link: Path) -> str:
    """Where it leads; a file outside is copied, so that a change of it counts."""
    leads = _end_of(link)
    outside = "" if _inside(root, leads) is not None or not leads.is_file() else f" {_content(_mark(leads))}"
    return f"-> {link.readlink()}{outside}"


def _mark(path: Path, before: str = "") -> str:
    """`size:time:digest`; without the digest where it is not a file that can be read."""
    found = path.stat()
    stamp = f"{found.st_size}:{found.st_mtime_ns}"
    if before.startswith(f"{stamp}:"):
        return before
    try:
        return f"{stamp}:{sha256_of(path)}" if stat.S_ISREG(found.st_mode) else stamp
    except OSError:
        return stamp


def _content(mark: str) -> str:
    """What of a mark says that the file is the same, whenever it was written."""
    return mark if mark.startswith("->") or mark.count(":") < 2 else mark.rpartition(":")[2]


def patch_setting(request: BuildRequest, tools: Tools) -> PatchSetting:
    return PatchSetting(
        torch=request.release or Version("0"),
        os=request.system,
        arch=request.arch,
        compiler="msvc" if request.compiler.kind == "cl" else request.compiler.kind,
        compiler_version=tools.cxx.version,
        cmake=tools.cmake.version,
        cuda=request.cuda.version if request.cuda else None,
        python=request.python_version,
        targets=tuple(request.arch_list.split(";")),
    )


def wanted_patches(request: BuildRequest, tools: Tools) -> dict[str, str]:
    """The patches to make, each with the hash of what it does."""
    if not request.torch:
        return {}
    if request.patches is not None:
        found = [catalogue.patch(id) for id in request.patches]
    else:
        found = list(catalogue.needed(patch_setting(request, tools)))
    return {patch.id: patch.hash for patch in found}


def bring_patches(root: Path, request: BuildRequest, tools: Tools, before: tuple[str, ...]) -> None:
    """The tree with exactly the wanted patches; `before` are those of the last time."""
    now = wanted_patches(request, tools)
    chosen = patch_setting(request, tools)
    if set(before) - set(now):
        patches.undo(root, chosen)
    if now:
        patches.apply(root, chosen, only=tuple(now))
