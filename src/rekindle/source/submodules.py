"""What a commit says about its submodules: path, name, address and the commit each is pinned to."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from rekindle.core import files, untrusted
from rekindle.core.errors import BadInput
from rekindle.core.untrusted import InsidePath
from rekindle.source import git


class SubmodulePin(msgspec.Struct, frozen=True, kw_only=True):
    """A submodule as its parent's commit wants it. `path` is relative to the parent."""

    path: str
    name: str
    url: str
    commit: str


def pins(repository: Path, commit: str, *, parent_url: str) -> list[SubmodulePin]:
    """The submodules of a commit, in the order of their paths."""
    listing = git.checked(["ls-tree", "-r", "-z", commit], objects=repository, doing="list the files of the commit")
    links = {}
    for row in listing.split("\0"):
        head, _, path = row.partition("\t")
        mode, _, rest = head.partition(" ")
        if mode == "160000":
            links[path] = rest.split(" ")[-1]
    if not links:
        return []
    named = _gitmodules(repository, commit)
    found = []
    for path, pinned in sorted(links.items()):
        if path not in named:
            message = f"`.gitmodules` does not say where `{path}` comes from"
            raise BadInput(message, hint="the commit itself is incomplete; choose a release tag with `--torch`")
        name, url = named[path]
        found.append(SubmodulePin(path=path, name=name, url=absolute(url, parent_url), commit=pinned))
    return found


def without(text: str, folders: Sequence[str]) -> str:
    """A `.gitmodules` that does not name the submodules in these folders."""
    sections = re.split(r"(?m)^(?=[ \t]*\[)", text)
    paths = (re.search(r"(?m)^[ \t]*path[ \t]*=[ \t]*(.*?)[ \t\r]*$", section) for section in sections)
    return "".join(
        section
        for section, path in zip(sections, paths, strict=True)
        if path is None or not outside(path.group(1), folders)
    )


def outside(path: str, without: Sequence[str]) -> bool:
    """Whether a path lies in one of the folders that were left out."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in without)


def empty(root: Path, without: Sequence[str] = ()) -> tuple[str, ...]:
    """The folders that `.gitmodules` of this tree names and that hold nothing, but for those left out on purpose."""
    try:
        text = files.plain_text(root / ".gitmodules")
    except (OSError, UnicodeDecodeError):
        return ()
    found = []
    for path in sorted(re.findall(r"^[ \t]*path[ \t]*=[ \t]*(\S+)[ \t]*$", text, re.MULTILINE)):
        if ".." in path.split("/") or path.startswith("/") or outside(path, without):
            continue
        folder = root / path
        if not folder.is_dir() or not any(folder.iterdir()):
            found.append(path)
    return tuple(found)


def absolute(url: str, parent: str) -> str:
    """A `../sibling.git` is meant relative to the address of the repository that names it."""
    if not url.startswith(("./", "../")):
        return url
    scheme, sep, rest = parent.partition("://")
    joined = posixpath.normpath(f"{rest if sep else parent}/{url}")
    return f"{scheme}://{joined}" if sep else joined


def repository_name(url: str) -> str:
    """`https://github.com/pytorch/FBGEMM.git` → `fbgemm`: what a mirror of it is called, in any letter case."""
    return posixpath.basename(_path(url)).lower()


def repository_owner(url: str) -> str:
    return posixpath.basename(posixpath.dirname(_path(url))).lower()


def _path(url: str) -> str:
    path = urlsplit(url).path if "://" in url else url.rpartition(":")[2]
    return path.rstrip("/").removesuffix(".git")


def _gitmodules(repository: Path, commit: str) -> dict[str, tuple[str, str]]:
    """path → (name, url). Names and addresses are foreign text: what could reach out of the tree is refused."""
    result = git.call(["config", "--blob", f"{commit}:.gitmodules", "-l", "-z"], objects=repository)
    if not result.ok:
        return {}
    rows: dict[str, dict[str, str]] = {}
    for entry in result.out.split("\0"):
        key, _, value = entry.partition("\n")
        section, _, rest = key.partition(".")
        name, _, field = rest.rpartition(".")
        if section == "submodule" and name:
            rows.setdefault(name, {})[field] = value
    found = {}
    for name, fields in rows.items():
        path, url = fields.get("path", ""), fields.get("url", "")
        for text in (path, name):
            if ".git" in untrusted.checked(InsidePath, text, "`.gitmodules`").lower().split("/"):
                message = f"`.gitmodules` names a submodule `{text[:80]}`, which is git's own folder"
                raise BadInput(message, hint="this is not a tree of PyTorch's; do not trust it")
        if url.startswith("-") or "::" in url or not url:
            message = f"`.gitmodules` gives `{url[:80]}` as an address, which git would run as a command"
            raise BadInput(message, hint="this is not a tree of PyTorch's; do not trust it")
        found[path] = (name, url)
    return found
