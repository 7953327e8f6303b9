"""Runs git with settings of its own for each command; the user's configuration is read but never written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rekindle.core import run
from rekindle.core.errors import MissingTool

_SETTINGS = {
    "safe.directory": "*",  # a tree on another account's or a mounted disk is still ours to read
    "core.longpaths": "true",  # Windows: deeper than 260 characters
    "core.autocrlf": "false",  # the bytes of the commit, on every system
    "core.fsmonitor": "false",  # a hook of somebody else's tree is never run
    "core.hooksPath": os.devnull,
    "advice.detachedHead": "false",
    "fetch.unpackLimit": "1",  # objects arrive as one pack or not at all: nothing half-done after a broken connection
    "gc.auto": "0",
    "protocol.version": "2",
    "init.defaultBranch": "rekindle",
}
_FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES")
_HOUR = 3600.0


def call(
    args: Sequence[str | os.PathLike[str]],
    *,
    git_dir: Path | None = None,
    work_tree: Path | None = None,
    input: bytes | None = None,
    timeout: float = 2 * _HOUR,
) -> run.Result:
    """`git` with these arguments. What it says is decoded; its exit code is the caller's to judge."""
    where: list[str] = []
    if git_dir is not None:
        where.append(f"--git-dir={git_dir}")
    if work_tree is not None:
        where.append(f"--work-tree={work_tree}")
    result = run.call(["git", *where, *args], env=environment(os.environ), cwd=work_tree, input=input, timeout=timeout)
    if not result.started:
        message = f"`git` could not be started: {result.err.strip()}"
        raise MissingTool(message, hint="install git (on Windows from git-scm.com) and open a new prompt")
    return result


def checked(
    args: Sequence[str | os.PathLike[str]],
    *,
    doing: str,
    git_dir: Path | None = None,
    work_tree: Path | None = None,
    input: bytes | None = None,
) -> str:
    result = call(args, git_dir=git_dir, work_tree=work_tree, input=input)
    return run.checked(result, doing=doing, hint="run the same command again; what has arrived is kept").out


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """The environment of one git command: ours by GIT_CONFIG_COUNT, never asking for a password, in English."""
    kept = {name: value for name, value in base.items() if name not in _FOREIGN and not name.startswith("GIT_CONFIG_")}
    settings = {"GIT_CONFIG_COUNT": str(len(_SETTINGS)), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}
    for number, (key, value) in enumerate(_SETTINGS.items()):
        settings |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return kept | settings


def is_git_dir(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def has_commit(git_dir: Path, commit: str) -> bool:
    """Whether the repository holds the commit and its top folder."""
    return is_git_dir(git_dir) and call(["cat-file", "-e", f"{commit}^{{tree}}"], git_dir=git_dir).ok
