"""Runs git with settings of its own for each command; the user's configuration is read but never written.

A stranger's repository is read as objects: git is run in an empty repository of ours that borrows them, so that
nothing else of it (settings, hooks, attributes, promises to fetch what is missing) is ever looked at.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from rekindle.core import run
from rekindle.core.errors import MissingTool

_SETTINGS = {
    "core.longpaths": "true",  # Windows: deeper than 260 characters
    "core.autocrlf": "false",  # the bytes of the commit, on every system
    "core.fsmonitor": "false",  # a hook of somebody else's tree is never run
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    "protocol.ext.allow": "never",
    "advice.detachedHead": "false",
    "fetch.unpackLimit": "1",  # objects arrive as one pack or not at all: nothing half-done after a broken connection
    "gc.auto": "0",
    "protocol.version": "2",
    "init.defaultBranch": "rekindle",
}
_FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES")
_SHUT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "LC_ALL": "C.UTF-8",
}
_HOUR = 3600.0


def call(
    args: Sequence[str | os.PathLike[str]],
    *,
    git_dir: Path | None = None,
    work_tree: Path | None = None,
    objects: Path | None = None,
    input: bytes | None = None,
    timeout: float = 2 * _HOUR,
) -> run.Result:
    """`git` with these arguments. What it says is decoded; its exit code is the caller's to judge.

    `objects` is a repository of anyone's whose objects are read, instead of a `git_dir` to work in.
    """
    where: list[str] = []
    own = environment(os.environ)
    if objects is not None:
        git_dir = _nobodys()
        own["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(objects / "objects")
    if git_dir is not None:
        where.append(f"--git-dir={git_dir}")
    if work_tree is not None:
        where.append(f"--work-tree={work_tree}")
    result = run.call(["git", *where, *args], env=own, cwd=work_tree, input=input, timeout=timeout)
    if not result.started:
        message = f"cannot start `git`: {result.err.strip()}"
        raise MissingTool(message, hint="install git (on Windows from git-scm.com) and open a new prompt")
    return result


def checked(
    args: Sequence[str | os.PathLike[str]],
    *,
    doing: str,
    git_dir: Path | None = None,
    work_tree: Path | None = None,
    objects: Path | None = None,
    input: bytes | None = None,
) -> str:
    result = call(args, git_dir=git_dir, work_tree=work_tree, objects=objects, input=input)
    return run.checked(result, doing=doing, hint="rerun the command; what was fetched is kept").out


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """The environment of one git command: ours by GIT_CONFIG_COUNT, never asking for a password, in English."""
    kept = {name: value for name, value in base.items() if name not in _FOREIGN and not name.startswith("GIT_CONFIG_")}
    settings = {"GIT_CONFIG_COUNT": str(len(_SETTINGS)), **_SHUT}
    for number, (key, value) in enumerate(_SETTINGS.items()):
        settings |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return kept | settings


def is_git_dir(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def has_commit(git_dir: Path, commit: str) -> bool:
    """Whether the repository holds the commit and its top folder. Nothing but its objects is looked at."""
    return is_git_dir(git_dir) and call(["cat-file", "-e", f"{commit}^{{tree}}"], objects=git_dir).ok


def tag_of(git_dir: Path, tag: str) -> str | None:
    """The commit that a tag of anyone's repository names, read off its files; None when it has no such tag."""
    try:
        named = _ref_file(git_dir, f"refs/tags/{tag}")
    except (OSError, UnicodeDecodeError):
        return None
    if named is None or not re.fullmatch(r"[0-9a-f]{40}", named):
        return None
    result = call(["rev-parse", "-q", "--verify", f"{named}^{{commit}}"], objects=git_dir)
    return result.out.strip() if result.ok else None


def _ref_file(git_dir: Path, name: str) -> str | None:
    loose = git_dir.joinpath(*name.split("/"))
    if loose.is_file():
        return loose.read_text(encoding="ascii").strip()
    packed = git_dir / "packed-refs"
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    return next((line.partition(" ")[0] for line in lines if line.endswith(f" {name}")), None)


@lru_cache(maxsize=1)
def _nobodys() -> Path:
    """An empty repository of ours, for as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix="rekindle-git-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("objects", "refs"):
        (folder / name).mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
    (folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n", encoding="ascii")
    return folder


def _quoted(path: Path) -> str:
    """One entry of a list of paths: in quotes, since a separator may stand in a name."""
    text = path.resolve().as_posix().replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
