"""Runs git only in repositories of ours, with settings of ours; and brings commits from network, mirrors or a clone.

A repository of anyone else's is read as objects: git is run in an empty repository of ours that borrows them, so that
nothing else of it (settings, hooks, attributes, promises to fetch what is missing) is ever looked at. The user's own
configuration counts where an address is asked (proxies, certificates, mirrors), and nowhere else: a filter of it
would run at the wish of a tree's `.gitattributes`. A commit is brought whole or not at all, without its history.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import posixpath
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from rekindle.core import files, run, untrusted
from rekindle.core.command import Command
from rekindle.core.errors import BadInput, FetchFailed, MissingTool, NotFound
from rekindle.core.fetch import setting_behind
from rekindle.core.untrusted import InsidePath
from rekindle.source import tree

_SETTINGS = {
    "core.longpaths": "true",  # Windows: deeper than 260 characters
    "core.autocrlf": "false",  # the bytes of the commit, on every system
    "core.fileMode": "false",  # some disks keep no such bit
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "fetch.unpackLimit": "1",  # objects arrive as one pack or not at all: nothing half-done after a broken connection
    "gc.auto": "0",
    "protocol.version": "2",
    "init.defaultBranch": "rekindle",
} | ({"core.symlinks": "false", "core.ignoreCase": "true"} if os.name == "nt" else {})
_FOREIGN = re.compile(
    r"GIT_(?:DIR|WORK_TREE|INDEX_FILE|COMMON_DIR|NAMESPACE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES)"
)
_SHUT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "git:http:https:ssh",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "LC_ALL": "C.UTF-8",
}
_HOUR = 3600.0
_MOST_LISTED = 32 * 1024**2
"""What git may say: twelve times the list of all files of PyTorch."""
_DEEPEST_LOAN, _MOST_LOANS = 5, 100


def call(
    args: Sequence[str | os.PathLike[str]],
    *,
    objects: Path | None = None,
    work_tree: Path | None = None,
    index: Path | None = None,
    input: bytes | None = None,
) -> run.Result:
    """`git` in an empty repository of ours. What it says is decoded; its exit code is the caller's to judge.

    `objects` is a repository of anyone's whose objects are read. The user's configuration is not.
    """
    nobodys = _nobodys()
    own = {name: value for name, value in os.environ.items() if not name.upper().startswith("GIT_")} | _SHUT
    own |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    own |= {"HOME": str(nobodys), "XDG_CONFIG_HOME": str(nobodys)}  # git before 2.32 looks there nevertheless
    if objects is not None:
        _check_objects(objects / "objects")
        own["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(objects / "objects")
    if index is not None:
        own["GIT_INDEX_FILE"] = str(index)
    where = [f"--git-dir={nobodys}", *([f"--work-tree={work_tree}"] if work_tree is not None else [])]
    return _run([*where, *args], own, work_tree or nobodys, input)


def ask(args: Sequence[str | os.PathLike[str]], *, into: Path | None = None) -> run.Result:
    """`git` that asks an address, as the user has configured it, for a repository of ours. It sees no files."""
    repository = into or _nobodys()
    own = {name: value for name, value in os.environ.items() if not _FOREIGN.fullmatch(name.upper())} | _SHUT
    return _run([f"--git-dir={repository}", *args], own, repository, None)


def checked(
    args: Sequence[str | os.PathLike[str]],
    *,
    doing: str,
    objects: Path | None = None,
    work_tree: Path | None = None,
    index: Path | None = None,
    input: bytes | None = None,
) -> str:
    result = call(args, objects=objects, work_tree=work_tree, index=index, input=input)
    return run.checked(result, doing=doing, hint="rerun the command; what was fetched is kept").out


def _run(args: Sequence[str | os.PathLike[str]], env: Mapping[str, str], cwd: Path, input: bytes | None) -> run.Result:
    settings = [word for key, value in _SETTINGS.items() for word in ("-c", f"{key}={value}")]
    result = run.call(["git", *settings, *args], env=env, cwd=cwd, input=input, timeout=2 * _HOUR, most=_MOST_LISTED)
    if not result.started:
        message = f"cannot start `git`: {result.err.strip()}"
        raise MissingTool(message, hint="install git (on Windows from git-scm.com) and open a new prompt")
    return result


def make(folder: Path) -> Path:
    """A new repository of ours."""
    checked(["init", "-q", "--bare", "--template=", folder], doing="make a repository")
    return folder


def copy(source: Path, names: Iterable[str], into: Path) -> bool:
    """Copy objects of anyone's into a repository of ours; False when one is absent or is not what its name says.

    git believes a pack about the names of what is in it: only what is computed anew can be relied on.
    """
    listed = "\n".join(names).encode("ascii") + b"\n"
    pack = into / "objects" / "pack" / "pack"
    packed = call(["pack-objects", "-q", "--threads=2", pack], objects=source, input=listed)
    index = f"{pack}-{packed.out.strip()}.idx"
    if packed.ok and call(["verify-pack", index]).ok:
        return True
    for half in pack.parent.glob(f"pack-{packed.out.strip() or '*'}.*"):
        half.unlink()
    return False


def is_git_dir(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def has_commit(git_dir: Path, commit: str) -> bool:
    """Whether the repository holds the commit and its top folder. Nothing but its objects is looked at."""
    return is_git_dir(git_dir) and call(["cat-file", "-e", f"{commit}^{{tree}}"], objects=git_dir).ok


def tag_of(git_dir: Path, tag: str) -> str | None:
    """The commit that a tag of anyone's repository names, read off its files; None when it has no such tag."""
    try:
        named = tree.ref(git_dir, f"refs/tags/{tag}")
    except (OSError, UnicodeDecodeError):
        return None
    if not re.fullmatch(r"[0-9a-f]{40}", named):
        return None
    result = call(["rev-parse", "-q", "--verify", f"{named}^{{commit}}"], objects=git_dir)
    return result.out.strip() if result.ok else None


@lru_cache(maxsize=1)
def _nobodys() -> Path:
    """An empty repository of ours, for as long as this process lives. Its attributes win over those of any tree."""
    folder = files.scratch_folder("git")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("objects", "refs", "info"):
        (folder / name).mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
    (folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n", encoding="ascii")
    (folder / "info" / "attributes").write_text("* -filter\n", encoding="ascii")
    return folder


@lru_cache(maxsize=4096)
def _check_objects(folder: Path, depth: int = 0) -> None:
    """What git opens of anyone's objects is a plain file, here and where they say that there are more: git waits for a
    pipe without an end, and Windows logs on to the host of `//host/share`.
    """
    listed = folder / "info" / "alternates"
    for place in (folder, *folder.glob("*"), *folder.glob("*/*"), *folder.glob("info/*/*")):
        with contextlib.suppress(OSError):
            mode = place.stat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise BadInput(f"`{place}` is neither a file nor a folder", hint="remove it; git never makes one there")
    try:
        more = files.plain_text(listed, errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in more:
        elsewhere = untrusted.on_another_computer(line) or line.startswith('"') or not line.isprintable()
        if elsewhere or depth == _DEEPEST_LOAN or len(more) > _MOST_LOANS:
            message = f"`{listed}` borrows objects from `{untrusted.printable(line)}`"
            raise BadInput(message, hint="run `git repack -a -d` there and delete that file")
        if line and not line.startswith("#"):
            _check_objects((folder / line).resolve(), depth + 1)


def _quoted(path: Path) -> str:
    """One entry of a list of paths: in quotes, since a separator may stand in a name."""
    text = path.resolve().as_posix().replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


class SubmodulePin(msgspec.Struct, frozen=True, kw_only=True):
    """A submodule as its parent's commit wants it. `path` is relative to the parent."""

    path: str
    name: str
    url: str
    commit: str


def pins(repository: Path, commit: str, *, parent_url: str) -> list[SubmodulePin]:
    """The submodules of a commit, in the order of their paths."""
    links = {path: name for mode, _, name, path in listed(repository, commit) if mode == "160000"}
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


def listed(repository: Path, commit: str) -> list[tuple[str, str, str, str]]:
    """Mode, kind, name and path of every folder and file. A few objects can be a tree of a billion files: git's own
    memory is at stake where it is not asked here first."""
    said = call(["ls-tree", "-r", "-t", "-z", commit], objects=repository)
    if said.too_much:
        message = f"the commit {commit[:12]} of `{repository}` has too many files, too deep for any release"
        raise BadInput(message, hint="this is not a tree of PyTorch's; do not trust it")
    if not said.ok:
        raise NotFound(f"the folders of the commit {commit[:12]} of `{repository}` cannot be read", hint="complete it")
    rows = (row.partition("\t") for row in said.out.split("\0") if row)
    return [(mode, kind, name, path) for head, _, path in rows for mode, kind, name in [head.split(" ")]]


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
    result = call(["config", "--blob", f"{commit}:.gitmodules", "-l", "-z"], objects=repository)
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


_TRIES = 4
_GENERIC = {"repo", ".git", "git", "modules"}
_DEEPEST = 5


class Network:
    """Straight from the addresses that the tree names, one commit deep."""

    def tag(self, url: str, tag: str) -> str:
        """The commit that a release tag names."""
        listed = self._tried(["ls-remote", url, f"refs/tags/{tag}", f"refs/tags/{tag}^{{}}"], url)
        rows = [line.split("\t", 1) for line in listed.splitlines() if "\t" in line]
        commits = {name: commit for commit, name in rows}
        found = commits.get(f"refs/tags/{tag}^{{}}") or commits.get(f"refs/tags/{tag}")
        if not found:
            raise NotFound(f"`{url}` has no tag `{tag}`", hint="`--torch` takes a release like 2.0.1")
        return found

    def bring(self, url: str, commit: str, into: Path, *, without: Sequence[str]) -> str:
        """Put the commit into the repository `into`; returns where it was found, in words."""
        shallow = ask(["fetch", "-q", "--depth=1", "--no-tags", url, commit], into=into)
        if not shallow.ok and "not our ref" not in shallow.err and "unadvertised object" not in shallow.err:
            self._tried(["fetch", "-q", "--depth=1", "--no-tags", url, commit], url, into=into, after=shallow.err)
        elif not shallow.ok:  # a server that gives out branches and tags only
            self._tried(["fetch", "-q", "--no-tags", url, "+refs/*:refs/rekindle/*"], url, into=into)
        if not has_commit(into, commit):
            message = f"`{url}` does not have the commit {commit}"
            raise FetchFailed(message, hint="give a mirror that has it with `--mirror DIR`")
        return url

    def _tried(self, args: list[str], url: str, *, into: Path | None = None, after: str = "") -> str:
        problem = after
        for attempt in range(_TRIES):
            if attempt or after:
                time.sleep(min(2.0**attempt, 15) / 2)
            result = ask(args, into=into)
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
        own = [folder for folder in (self.folder, self.folder / ".git") if is_git_dir(folder)]
        for mirror in [*own, *named]:
            commit = tag_of(mirror, tag)
            if commit is not None:
                return commit
        message = f"no mirror of `{repository_name(url)}` in `{self.folder}` has the tag `{tag}`"
        looked = ", ".join(f"`{mirror}`" for mirror in named) or "no folder of that name"
        raise NotFound(message, hint=f"looked in {looked}; fetch the tag there first")

    def bring(self, url: str, commit: str, into: Path, *, without: Sequence[str]) -> str:
        named = self.named(url)
        others = [folder for _, folder in self._found if folder not in named]
        lacking = ""
        for mirror in [*named, *others]:
            if not has_commit(mirror, commit):
                continue
            lacking = copy_commit(mirror, commit, into, lambda path: not outside(path, without))
            if not lacking:
                return str(mirror)
        wanted = f"{repository_owner(url)}/{repository_name(url)}"
        if lacking:
            message = f"the mirror of `{wanted}` is not complete: {lacking}"
            raise NotFound(message, hint="complete it, or leave that folder out with `--without FOLDER`")
        have = f"`{named[0]}` lacks it" if named else "no folder of that name is there"
        message = f"no mirror in `{self.folder}` has the commit {commit} of `{wanted}`: {have}"
        raise NotFound(message, hint=f"fetch it there: `{Command('git', 'clone', '--mirror', url)}`")

    def named(self, url: str) -> list[Path]:
        owner, name = repository_owner(url), repository_name(url)
        same = [(words, folder) for words, folder in self._found if words[-1] == name]
        return [folder for words, folder in sorted(same, key=lambda one: owner not in one[0])]


Origin = Network | Mirrors


def _discover(top: Path) -> Iterable[tuple[tuple[str, ...], Path]]:
    """Every repository below a folder, with the words of its path: the last is its name, an earlier one its owner."""
    waiting: list[tuple[Path, tuple[str, ...], int]] = [(top, (_plain_name(top.resolve().name),), 0)]
    while waiting:
        folder, words, depth = waiting.pop()
        if is_git_dir(folder):
            yield words, folder
            folder = folder / "modules"
            if not folder.is_dir():
                continue
        if (folder / ".git").is_dir():
            waiting.append((folder / ".git", words, depth + 1))
            continue
        if depth >= _DEEPEST:
            continue
        try:
            with os.scandir(folder) as listing:
                children = [entry.name for entry in listing if entry.is_dir()]
        except OSError:
            continue
        for child in sorted(children, reverse=True):
            added = () if child in _GENERIC else tuple(_plain_name(part) for part in child.split("+"))
            waiting.append((folder / child, words + added, depth + 1))


def _plain_name(name: str) -> str:
    return name.lower().removesuffix(".git")


def copy_commit(mirror: Path, commit: str, into: Path, needs: Callable[[str], bool]) -> str:
    """Copy a commit, its folders and the files that are needed into our repository. Says what the mirror lacks."""
    top = call(["rev-parse", f"{commit}^{{tree}}"], objects=mirror)
    try:
        rows = listed(mirror, commit)
    except NotFound:
        return "its folders cannot be read"
    wanted = {commit: "the commit", top.out.strip(): "the top folder"}
    for _, kind, name, path in rows:
        if kind == "tree" or (kind == "blob" and needs(path)):
            wanted.setdefault(name, path)
    names = "\n".join(wanted).encode("ascii") + b"\n"
    answers = checked(["cat-file", "--batch-check=%(objectname)"], objects=mirror, input=names, doing="read it")
    missing = [wanted[line.split(" ")[0]] for line in answers.splitlines() if line.endswith(" missing")]
    if missing:
        return f"{len(missing)} of its files are absent, e.g. `{missing[0]}`"
    return "" if copy(mirror, wanted, into) else "some of its files are not what their hashes say"
