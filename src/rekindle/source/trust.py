"""Whether git may be run in a repository: its settings can make git start any program, so only harmless ones may be.

What is only read is never worked in at all: `git.call(objects=…)` takes objects out of a stranger's repository
without looking at anything else in it. A tree that is completed in place has a `.git` of its own, and a tree that
someone handed over may bring one. It is worked on only when it is ours, has no links, and says nothing but this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from rekindle.core.errors import BadInput

# What `git init`, `git clone`, `git submodule` and we ourselves write, and what people set in a clone of their own.
_HARMLESS = re.compile(
    r"core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|longpaths"
    r"|autocrlf|eol|safecrlf|worktree|sparsecheckout|sparsecheckoutcone|abbrev|compression|bigfilethreshold|untrackedcache)"
    r"|remote\..+\.(?:url|pushurl|fetch|tagopt|prune)"
    r"|branch\..+\.(?:remote|merge|rebase|description)"
    r"|submodule\..+\.(?:url|active|branch|ignore|shallow)|submodule\.(?:active|recurse|fetchjobs)"
    r"|user\.(?:name|email|signingkey)|gc\.\w+|pull\.(?:rebase|ff)|push\.default|fetch\.\w+|index\.version"
    r"|advice\.\w+|color\..+|extensions\.objectformat|lfs\.repositoryformatversion"
)
_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\](.*)', re.DOTALL)
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=.*)?\Z", re.DOTALL)
_PARTS = (
    "",
    "objects",
    "objects/pack",
    "objects/info",
    "refs",
    "info",
    "modules",
    "config",
    "HEAD",
    "index",
    "shallow",
)
_ASIDE = "take the commit out of it into a new folder: `rekindle source --from TREE -o NEW`"


def check(git_dir: Path, root: Path) -> None:
    """Refuses to work in `git_dir`, below the tree `root`, unless nothing in it could make git do something else."""
    if not os.path.lexists(git_dir):
        return
    for name in _PARTS:
        place = git_dir / name if name else git_dir
        above = [place, *place.parents]
        for each in above[: above.index(root)] if root in above else [place]:
            if each.is_symlink() or _is_junction(each):
                message = f"`{each}` is a link: git would write to where it leads"
                raise BadInput(message, hint="replace the link by the folder itself, or choose another place with `-o`")
    if not git_dir.is_dir():
        message = f"`{git_dir}` is a file: the repository of this tree lies elsewhere"
        raise BadInput(message, hint=_ASIDE)
    _check_owner(git_dir)
    config = git_dir / "config"
    try:
        text = config.read_bytes().decode("utf-8", "surrogateescape") if config.exists() else ""
    except OSError as error:
        message = f"cannot read `{config}`: {error.strerror or error}"
        raise BadInput(message, hint="choose another place with `-o`") from error
    strange = settings(text) - {name for name in settings(text) if _HARMLESS.fullmatch(name)}
    if strange:
        message = f"`{config}` sets `{min(strange)[:80]}`, which can make git run a program"
        hint = "remove that setting, or take the commit into a new folder: `rekindle source --from TREE -o NEW`"
        raise BadInput(message, hint=hint)


def settings(text: str) -> set[str]:
    """The names of all settings of a git configuration, in lower case. What cannot be read has a name of its own."""
    found: set[str] = set()
    section = ""
    for line in text.splitlines():
        rest = line.strip()
        while rest.startswith("["):
            match = _SECTION.match(rest)
            if match is None:
                return {*found, f"unreadable: {line.strip()[:60]}"}
            section = match[1].lower() + (f".{match[2].lower()}" if match[2] is not None else "")
            rest = match[3].strip()
        if not rest or rest[0] in "#;":
            continue
        key = _KEY.match(rest)
        if key is None or not section or rest.endswith("\\"):
            return {*found, f"unreadable: {line.strip()[:60]}"}
        found.add(f"{section}.{key[1].lower()}")
    return found


def _user() -> int | None:
    """The user's number; None on Windows, which has none."""
    ask: Callable[[], int] | None = getattr(os, "geteuid", None)
    return ask() if ask is not None else None


def _check_owner(git_dir: Path) -> None:
    """As git itself does: another user's repository may say anything, at any time."""
    me = _user()
    if me is None:
        return
    mine = {me}
    sudo = os.environ.get("SUDO_UID", "")
    if me == 0 and sudo.isdigit():
        mine.add(int(sudo))
    owner = git_dir.stat().st_uid
    if owner not in mine:
        message = f"`{git_dir}` belongs to another user (uid {owner})"
        raise BadInput(message, hint=_ASIDE)


def _is_junction(path: Path) -> bool:
    """A Windows junction is a folder to `is_dir` but leads elsewhere like a link."""
    if os.name != "nt":
        return False
    try:
        tag = getattr(os.lstat(path), "st_reparse_tag", 0)
    except OSError:
        return False
    return bool(tag)
