"""A source tree on disk: which release it is, which files it has, and what may be touched in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from rekindle.core import files, untrusted
from rekindle.core.errors import BadInput, NotFound
from rekindle.core.paths import STATE_FOLDER
from rekindle.core.untrusted import InsidePath
from rekindle.core.version import Version

LARGEST_CMAKE = 16 * 1024 * 1024  # the largest of PyTorch and its submodules has 0.5 MB
_SKIPPED = {".git", STATE_FOLDER}
_MOST_STATE = 100_000
_RELEASE = re.compile(r"\d{1,9}\.\d{1,9}(?:\.\d{1,9})?(?!\d)")


def release(root: Path, stated: str | None = None) -> Version:
    """The PyTorch release of a tree: as stated, or as its `version.txt` says.

    In v1.13.1 that is `1.13.0a0`: only the minor release is available from it.
    """
    if not root.is_dir():
        message = f"there is no folder `{root}`"
        raise NotFound(
            message, hint="pass the root of PyTorch's source; fetch one with `rekindle source --torch X.Y.Z`"
        )
    if stated is not None:
        return Version(stated)
    try:
        text = files.plain_text(root / "version.txt").strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    found = _RELEASE.match(text)
    if found is None:
        message = f"`{root}` does not look like PyTorch's source: it has no version.txt with a release in it"
        raise BadInput(message, hint="name the root of the tree, or say which release it is with `--torch X.Y.Z`")
    return Version(found.group()).major_minor


def head(root: Path) -> str | None:
    """The commit that a checkout is at, read off its files; None where there is no git. git itself is not run."""
    git_dir = root / ".git"
    try:
        if git_dir.is_file():
            git_dir = _named(git_dir, root, "gitdir: ")
    except (OSError, UnicodeDecodeError):
        return None
    return head_of(git_dir)


def _named(file: Path, beside: Path, label: str = "") -> Path:
    """The folder that a file of git's names; OSError where it lies on another computer."""
    said = files.plain_text(file).strip().removeprefix(label)
    if untrusted.on_another_computer(said):
        raise OSError(None, "it names another computer", str(file))
    return beside / said


def head_of(git_dir: Path) -> str | None:
    """The commit that a repository is at, read off its files."""
    try:
        text = files.plain_text(git_dir / "HEAD").strip()
        common = git_dir / "commondir"
        shared = _named(common, git_dir) if common.is_file() else git_dir
        if text.startswith("ref: "):
            text = ref(git_dir, text[5:]) or ref(shared, text[5:])
    except (OSError, UnicodeDecodeError):
        return None
    return text if re.fullmatch(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", text) else None


def ref(git_dir: Path, name: str) -> str:
    """What a ref names, loose or packed; nothing when it is not there."""
    if not re.fullmatch(r"refs/[A-Za-z0-9_./+-]+", name) or ".." in name:
        return ""
    loose = git_dir / name
    if loose.is_file():
        return files.plain_text(loose).strip()
    packed = git_dir / "packed-refs"
    lines = files.plain_text(packed).splitlines() if packed.is_file() else []
    return next((line.split(" ")[0] for line in lines if line.endswith(f" {name}")), "")


def cmake_files(root: Path) -> Iterator[str]:
    """Every CMake file of the tree, relative to its root. Symbolic links and build folders are left alone."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(root / folder if folder else root) as listing:
                entries = list(listing)
        except OSError:
            yield folder + "/"  # said to be unreadable by whoever opens it
            continue
        if folder and any(entry.name == "CMakeCache.txt" for entry in entries):
            continue
        for entry in entries:
            name = entry.name
            if is_cmake(name):
                if not entry.is_symlink():
                    yield f"{folder}/{name}" if folder else name
            elif entry.is_dir(follow_symlinks=False) and name not in _SKIPPED and not files.is_link(Path(entry.path)):
                waiting.append(f"{folder}/{name}" if folder else name)


def is_cmake(name: str) -> bool:
    return name in ("CMakeLists.txt", "CMakeLists.txt.in") or name.endswith((".cmake", ".cmake.in"))


def place(root: Path, relative: str) -> Path:
    """The file of that name inside the tree; refused when it leads outside, by `..` or by a link on the way."""
    return untrusted.checked(InsidePath, relative, "what names files of the tree").below(root)


def check_state(root: Path) -> None:
    """What we keep in a tree lies in it: a folder or file of ours that is a link was put there by someone else."""
    top = root / STATE_FOLDER
    if not os.path.lexists(top):
        return
    places = [top]
    if not top.is_symlink() and top.is_dir():
        for folder, folders, names in os.walk(top):
            places += [Path(folder, name) for name in (*folders, *names)]
            if len(places) > _MOST_STATE:
                message = f"`{top}` holds more than {_MOST_STATE} files, which are not Rekindle's"
                raise BadInput(message, hint="remove that folder; the tree itself is not touched")
    for path in places:
        if files.is_link(path):
            message = f"`{path}` is a link, and Rekindle never makes one there"
            raise BadInput(message, hint=f"remove `{top}`: this tree came from someone else")
