"""Where the objects of a commit come from: the network, a folder of mirrors, or a clone that is already here.

Each brings exactly one commit into a repository of ours, whole or not at all, and without its history.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from rekindle.core.errors import FetchFailed, NotFound
from rekindle.core.fetch import setting_behind
from rekindle.source import git

_TRIES = 4
_GENERIC = {"repo", ".git", "git", "modules"}
_DEPTH = 5


class Origin(Protocol):
    def tag(self, url: str, tag: str) -> str:
        """The commit that a release tag names."""

    def bring(self, url: str, commit: str, into: Path, *, without: Sequence[str]) -> str:
        """Put the commit into the repository `into`; returns where it was found, in words."""


class Network:
    """Straight from the addresses that the tree names, one commit deep."""

    def tag(self, url: str, tag: str) -> str:
        listed = self._tried(["ls-remote", url, f"refs/tags/{tag}", f"refs/tags/{tag}^{{}}"], url)
        rows = [line.split("\t", 1) for line in listed.splitlines() if "\t" in line]
        commits = {name: commit for commit, name in rows}
        found = commits.get(f"refs/tags/{tag}^{{}}") or commits.get(f"refs/tags/{tag}")
        if not found:
            raise NotFound(f"`{url}` has no tag `{tag}`", hint="`--torch` takes a release like 2.0.1")
        return found

    def bring(self, url: str, commit: str, into: Path, *, without: Sequence[str]) -> str:
        shallow = git.ask(["fetch", "-q", "--depth=1", "--no-tags", url, commit], into=into)
        if not shallow.ok and "not our ref" not in shallow.err and "unadvertised object" not in shallow.err:
            self._tried(["fetch", "-q", "--depth=1", "--no-tags", url, commit], url, into=into, after=shallow.err)
        elif not shallow.ok:  # a server that gives out branches and tags only
            self._tried(["fetch", "-q", "--no-tags", url, "+refs/*:refs/rekindle/*"], url, into=into)
        if not git.has_commit(into, commit):
            message = f"`{url}` does not have the commit {commit}"
            raise FetchFailed(message, hint="give a mirror that has it with `--mirror DIR`")
        return url

    def _tried(self, args: list[str], url: str, *, into: Path | None = None, after: str = "") -> str:
        problem = after
        for attempt in range(_TRIES):
            if attempt or after:
                time.sleep(min(2.0**attempt, 15) / 2)
            result = git.ask(args, into=into)
            if result.ok:
                return result.out
            problem = result.err
        last = problem.strip().splitlines()[-1:] or ["no answer"]
        message = f"cannot fetch `{url}`: {setting_behind(problem) or last[0]}"
        raise FetchFailed(message, hint="check the connection and rerun the command; what was fetched is kept")


class Mirrors:
    """Repositories on this machine, found by the name of the one they mirror, in any letter case.

    `DIR/pytorch.git`, `DIR/owner/name`, `DIR/owner+name/repo` and a clone with its `.git/modules` all will do. A
    commit is known by its hash, so a mirror under another name is as good when it is the only one to hold it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._found = list(_discover(folder))
        if not self._found:
            message = f"there is no git repository in `{folder}`"
            raise NotFound(message, hint="`--mirror` takes a folder with one (bare) repository for each submodule")

    def tag(self, url: str, tag: str) -> str:
        named = self.named(url)
        own = [folder for folder in (self.folder, self.folder / ".git") if git.is_git_dir(folder)]
        for mirror in [*own, *named]:
            commit = git.tag_of(mirror, tag)
            if commit is not None:
                return commit
        message = f"no mirror of `{git.repository_name(url)}` in `{self.folder}` has the tag `{tag}`"
        looked = ", ".join(f"`{mirror}`" for mirror in named) or "no folder of that name"
        raise NotFound(message, hint=f"looked in {looked}; fetch the tag there first")

    def bring(self, url: str, commit: str, into: Path, *, without: Sequence[str]) -> str:
        named = self.named(url)
        others = [folder for _, folder in self._found if folder not in named]
        lacking = ""
        for mirror in [*named, *others]:
            if not git.has_commit(mirror, commit):
                continue
            lacking = copy(mirror, commit, into, lambda path: not git.outside(path, without))
            if not lacking:
                return str(mirror)
        wanted = f"{git.repository_owner(url)}/{git.repository_name(url)}"
        if lacking:
            message = f"the mirror of `{wanted}` is not whole: {lacking}"
            raise NotFound(message, hint="complete it, or leave that folder out with `--without FOLDER`")
        have = f"`{named[0]}` lacks it" if named else "no folder of that name is there"
        message = f"no mirror in `{self.folder}` has the commit {commit} of `{wanted}`: {have}"
        raise NotFound(message, hint=f"fetch it there: `git clone --mirror {url}`")

    def named(self, url: str) -> list[Path]:
        owner, name = git.repository_owner(url), git.repository_name(url)
        same = [(words, folder) for words, folder in self._found if words[-1] == name]
        return [folder for words, folder in sorted(same, key=lambda one: owner not in one[0])]


def _discover(top: Path) -> Iterable[tuple[tuple[str, ...], Path]]:
    """Every repository below a folder, with the words of its path: the last is its name, an earlier one its owner."""
    waiting: list[tuple[Path, tuple[str, ...], int]] = [(top, (_plain(top.resolve().name),), 0)]
    while waiting:
        folder, words, depth = waiting.pop()
        if git.is_git_dir(folder):
            yield words, folder
            folder = folder / "modules"
            if not folder.is_dir():
                continue
        if (folder / ".git").is_dir():
            waiting.append((folder / ".git", words, depth + 1))
            continue
        if depth >= _DEPTH:
            continue
        try:
            with os.scandir(folder) as listing:
                children = [entry.name for entry in listing if entry.is_dir()]
        except OSError:
            continue
        for child in sorted(children, reverse=True):
            added = () if child in _GENERIC else tuple(_plain(part) for part in child.split("+"))
            waiting.append((folder / child, words + added, depth + 1))


def _plain(name: str) -> str:
    return name.lower().removesuffix(".git")


def copy(mirror: Path, commit: str, into: Path, needs: Callable[[str], bool]) -> str:
    """Copy a commit, its folders and the files that are needed into our repository. Says what the mirror lacks."""
    listing = git.call(["ls-tree", "-r", "-t", "-z", commit], objects=mirror)
    top = git.call(["rev-parse", f"{commit}^{{tree}}"], objects=mirror)
    if not (listing.ok and top.ok):
        return "its folders cannot be read"
    wanted = {commit: "the commit", top.out.strip(): "the top folder"}
    for row in listing.out.split("\0"):
        head, _, path = row.partition("\t")
        parts = head.split(" ")
        if len(parts) == 3 and (parts[1] == "tree" or (parts[1] == "blob" and needs(path))):
            wanted.setdefault(parts[2], path)
    names = "\n".join(wanted).encode("ascii") + b"\n"
    answers = git.checked(["cat-file", "--batch-check=%(objectname)"], objects=mirror, input=names, doing="read it")
    missing = [wanted[line.split(" ")[0]] for line in answers.splitlines() if line.endswith(" missing")]
    if missing:
        return f"{len(missing)} of its files are absent, e.g. `{missing[0]}`"
    return "" if git.copy(mirror, wanted, into) else "some of its files are not what their hashes say"
