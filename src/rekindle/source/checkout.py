"""PyTorch at a release, with every submodule at its pinned commit.

A tree is assembled repository by repository. Each step looks first at what is there, so that the same command goes on
where an earlier one was broken off, repairs what is missing, and does nothing to a tree that is complete. Files that
someone edited (or `rekindle patch` patched) are never overwritten.

A tree that is there may be a stranger's. git is never run in its `.git`: what is needed of it is copied into a new
repository of ours, every hash computed anew, and what git would write into it is written by us.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path

import msgspec

from rekindle.core import codec, files
from rekindle.core.errors import (
    BadInput,
    FetchFailed,
    Locked,
    NotFound,
    NotWritable,
    RekindleError,
    StepFailed,
    UsageError,
)
from rekindle.core.paths import STATE_FOLDER
from rekindle.core.untrusted import Commit, InsidePath
from rekindle.source import git, patches, tree
from rekindle.source.git import Network, Origin
from rekindle.source.git import copy_commit as copy
from rekindle.source.journal import PatchJournal

UPSTREAM = "https://github.com/pytorch/pytorch.git"


class RepositoryState(str, Enum):
    PRESENT = "present"
    FETCHED = "fetched"
    REPAIRED = "repaired"
    LEFT_OUT = "left-out"


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """One repository of the tree; the root is `.`. `edited` counts files that differ from the commit."""

    path: str
    commit: str
    url: str
    state: RepositoryState
    origin: str = ""
    edited: int = 0


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """What `rekindle source` brought. `checked` is None where somebody else's tag had to be believed."""

    schema: str = "rekindle.source/1"
    root: str
    torch: str
    tag: str
    commit: str
    checked: bool | None = True
    repositories: tuple[Repository, ...]
    seconds: float = 0.0


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in the tree's state folder: that the tree is ours, and for which release it was begun."""

    schema: str = "rekindle.source-mark/1"
    tag: str
    commit: Commit
    without: tuple[InsidePath, ...] = ()


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    git_dir: Path
    commit: str
    url: str
    name: str
    parent: Path | None


class WantedTree(msgspec.Struct, frozen=True, kw_only=True):
    """Which release, of which repository, without which submodules. A plan pins the `commit` of the release."""

    release: str
    url: str = UPSTREAM
    without: tuple[str, ...] = ()
    commit: str | None = None

    @property
    def tag(self) -> str:
        return f"v{self.release.removeprefix('v')}"


def assemble(
    root: Path,
    wanted: WantedTree,
    origin: Origin,
    *,
    jobs: int = 4,
    say: Callable[[str], None] = lambda _: None,
) -> Tree:
    """Bring the tree into `root`, or complete what is there."""
    begun = time.monotonic()
    tag, url = wanted.tag, wanted.url
    with _held(root):
        git_dir = root / ".git"
        known = mark_of(root)
        commit = wanted.commit or origin.tag(url, tag)  # a commit is its own proof, a tag may be moved
        left_out = tuple(map(InsidePath, wanted.without)) or (known.without if known else ())
        mark = Mark(tag=tag, commit=Commit(commit), without=left_out)
        _admit(root, known, mark)
        files.write_text(root / STATE_FOLDER / "source.json", codec.to_json(mark) + "\n")
        top = _Job(path=".", git_dir=git_dir, commit=mark.commit, url=url, name="", parent=None)
        done = _everything(root, top, origin, mark.without, jobs, say)
        if git.tag_of(git_dir, tag) != mark.commit:
            files.write_text(tree.place(root, f".git/refs/tags/{tag}"), f"{mark.commit}\n")
    return Tree(
        root=str(root), torch=tag.removeprefix("v"), tag=tag, commit=mark.commit, repositories=tuple(done),
        checked=True if wanted.commit or isinstance(origin, Network) else None,
        seconds=round(time.monotonic() - begun, 1),
    )  # fmt: skip


def forget_left_out(copy: Path) -> None:
    """In a copy that a build works on, what was left out is not asked for: PyTorch's setup.py (from 2.15: CMake) stops
    at the first submodule of `.gitmodules` that is not there, and at FBGEMM's own submodule in any case.
    """
    mark = mark_of(copy)
    listed = copy / ".gitmodules"
    if mark is None or not mark.without or not listed.exists():
        return
    text = files.plain_text(listed, errors="surrogateescape")
    kept = git.without(text, mark.without)
    if kept != text:
        files.write_bytes(listed, kept.encode("utf-8", errors="surrogateescape"))
    if "path = third_party/fbgemm\n" in text and "path = third_party/fbgemm\n" not in kept:
        for place in ("third_party", "external"):  # 2.7 looks in the first, 2.11 and later in the second
            stand_in = copy / "third_party" / "fbgemm" / place / "asmjit" / "CMakeLists.txt"
            stand_in.parent.mkdir(parents=True, exist_ok=True)
            files.write_text(stand_in, "# FBGEMM was left out; only the build's own check reads this file.\n")


def _everything(
    root: Path, top: _Job, origin: Origin, without: tuple[str, ...], jobs: int, say: Callable[[str], None]
) -> list[Repository]:
    """The root first, then level by level what each brings along, several at a time.

    What is not available is named at the end, all of it, and everything else is there by then.
    """
    done: list[Repository] = []
    lacking: list[RekindleError] = []
    level = [top]
    known = 1  # what is known so far: a submodule names its own only when it is here
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        while level:
            following: list[_Job] = []
            results = pool.map(lambda job: _tried(root, job, origin, without), level)
            for job, brought in zip(level, results, strict=True):
                if isinstance(brought, RekindleError):
                    lacking.append(brought)
                    continue
                result, pins = brought
                done.append(result)
                if result.state is not RepositoryState.PRESENT:
                    say(f"[{len(done)}/{known}] {result.state.value} {job.path} at {job.commit[:12]}")
                for pin in pins:
                    path = pin.path if job.path == "." else f"{job.path}/{pin.path}"
                    if git.outside(path, without):
                        done.append(
                            Repository(path=path, commit=pin.commit, url=pin.url, state=RepositoryState.LEFT_OUT)
                        )
                        continue
                    place = job.git_dir.joinpath("modules", *pin.name.split("/"))
                    following.append(
                        _Job(
                            path=path, git_dir=place, commit=pin.commit, url=pin.url, name=pin.name, parent=job.git_dir
                        )
                    )
            _register(following)
            level = following
            known = len(done) + len(level)
    if lacking:
        first = lacking[0]
        if len(lacking) == 1:
            raise first
        lines = "".join(f"\n  {one.message.splitlines()[0]}" for one in lacking)
        raise type(first)(f"cannot fetch {len(lacking)} repositories:{lines}", hint=first.hint)
    return sorted(done, key=lambda one: one.path)


def _tried(
    root: Path, job: _Job, origin: Origin, without: tuple[str, ...]
) -> tuple[Repository, list[git.SubmodulePin]] | RekindleError:
    try:
        return _repository(root, job, origin, without)
    except (NotFound, FetchFailed, StepFailed) as error:
        return error


def _repository(
    root: Path, job: _Job, origin: Origin, without: tuple[str, ...]
) -> tuple[Repository, list[git.SubmodulePin]]:
    """One repository whole: its objects, its files, at its commit. Also the submodules that the commit pins."""
    work = root if job.path == "." else tree.place(root, job.path)
    here = within(job.path, without)
    _check_places(root, job, work)
    work.mkdir(parents=True, exist_ok=True)
    head = tree.head_of(job.git_dir)
    with files.scratch("work", root / STATE_FOLDER) as scratch:
        ours = git.make(scratch / "repository")
        came_from = ""
        if not git.has_commit(job.git_dir, job.commit) or copy(job.git_dir, job.commit, ours, ".gitmodules".__eq__):
            came_from = origin.bring(job.url, job.commit, ours, without=here)
        index = _Index(ours, job.commit, work, scratch / "index", here)
        if head is not None and head != job.commit:
            _leave(root, job, head, index)
        back, edited = index.differences()
        back |= edited if head != job.commit else set()
        if back:
            if not came_from and copy(job.git_dir, job.commit, ours, back.__contains__):
                came_from = origin.bring(job.url, job.commit, ours, without=here)
            index.bring_back(back, job.path)
            _, edited = index.differences()
        pins = git.pins(ours, job.commit, parent_url=job.url)
        if came_from:
            _hand_over(root, ours, job)
        if moved := bool(came_from) or head != job.commit or not _linked(job, work):
            _configure(job, work, here)
        if head != job.commit or not (job.git_dir / "index").exists():
            moved = True
            files.rename_over(index.file, job.git_dir / "index")
            files.write_text(job.git_dir / "HEAD", f"{job.commit}\n")
    if not any(name.name != ".git" for name in work.iterdir()):
        message = f"`{job.path}` is still empty after its commit {job.commit[:12]} was checked out"
        raise BadInput(message, hint=f"the commit from {came_from or job.url} has no files; check the mirror")
    state = RepositoryState.REPAIRED if moved or back else RepositoryState.PRESENT
    if came_from or head is None:
        state = RepositoryState.FETCHED
    return Repository(
        path=job.path, commit=job.commit, url=job.url, state=state, origin=came_from, edited=len(edited)
    ), pins  # fmt: skip


def edited(root: Path, commit: str) -> list[str]:
    """The files of a checkout that somebody changed since its commit. Our patches and other line ends do not count."""
    tree.check_state(root)
    with files.scratch("work") as scratch:
        proven = git.make(scratch / "repository")
        if lacking := copy(root / ".git", commit, proven, lambda _: False):  # its folders, by their hashes
            message = f"the repository of `{root}` is not complete: {lacking}"
            raise BadInput(message, hint="take the commit into a new folder: `rekindle source -o NEW`")
        index = _Index(proven, commit, root, scratch / "index", ())
        _, differing = index.differences()
        blobs = index.blobs() if differing else {}
    journal = PatchJournal(root)

    def ours(path: str) -> bool:
        try:
            now = files.plain_bytes(tree.place(root, path))
            data = journal.original(path, now)
        except OSError:
            return False
        entry = journal.entry(path)
        if entry is not None and data != now and now not in patches.made_by(entry.patches, path, data):
            return False  # the journal, which came with the tree, calls somebody else's edit a patch
        return blobs[path] in (_blob(data, blobs[path]), _blob(data.replace(b"\r\n", b"\n"), blobs[path]))

    return sorted(path for path in differing if not ours(path))


def _blob(data: bytes, like: str) -> str:
    """git's name for these bytes."""
    kind = hashlib.sha256 if len(like) == 64 else hashlib.sha1
    return kind(b"blob %d\0" % len(data) + data).hexdigest()


class _Index:
    """The files of a commit, held against those in a folder: an index of ours, which no filter or setting touches."""

    def __init__(self, objects: Path, commit: str, work: Path, file: Path, without: tuple[str, ...]) -> None:
        self.objects, self.work, self.file, self.without = objects, work, file, without
        git.listed(objects, commit)
        self._git(["read-tree", commit], "list the files of the commit")
        self.paths = set(self._git(["ls-files", "-z"], "list the files of the commit").split("\0")) - {""}
        self._git(
            ["update-index", "--skip-worktree", "-z", "--stdin"],
            "leave folders out",
            [path for path in self.paths if git.outside(path, without)],
        )

    def differences(self) -> tuple[set[str], set[str]]:
        """Files that are gone, and those whose bytes are not the commit's."""
        refresh = ["update-index", "-q", "--ignore-submodules", "--refresh"]
        git.call(refresh, objects=self.objects, work_tree=self.work, index=self.file)  # its code is the answer below
        listing = self._git(["diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=all"], "compare them")
        cells = listing.split("\0")
        found = {path: row.split(" ") for row, path in zip(cells[::2], cells[1::2], strict=False)}
        gone = {path for path, row in found.items() if row[4] == "D"}
        return gone, set(found) - gone - self._as_stored({path: row[2] for path, row in found.items() if row[4] == "M"})

    def blobs(self) -> dict[str, str]:
        """git's name for the bytes of each file."""
        rows = self._git(["ls-files", "-s", "-z"], "list the files of the commit").split("\0")
        return {path: facts.split(" ")[1] for row in rows if row for facts, _, path in [row.partition("\t")]}

    def bring_back(self, paths: set[str], name: str) -> None:
        doing = f"bring back {len(paths)} files of `{name}`"
        self._git(["checkout-index", "-q", "-f", "-u", "-z", "--stdin"], doing, sorted(paths))

    def _as_stored(self, files: dict[str, str]) -> set[str]:
        """Some were stored with line ends that their own attributes forbid: git calls them changed from the start."""
        names = [path for path in files if "\n" not in path]
        words = ["hash-object", "--no-filters", "--stdin-paths"]
        lines = "".join(f"{path}\n" for path in names).encode("utf-8", "surrogateescape")
        hashed = git.call(words, objects=self.objects, work_tree=self.work, input=lines)
        found = hashed.out.split() if hashed.ok else []
        return {path for path, hash in zip(names, found, strict=False) if files[path] == hash}

    def _git(self, args: list[str], doing: str, paths: Iterable[str] = ()) -> str:
        names = "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")
        return git.checked(args, objects=self.objects, work_tree=self.work, index=self.file, input=names, doing=doing)


def _leave(root: Path, job: _Job, head: str, index: _Index) -> None:
    """Take away the files of a commit that someone else chose. Those that were edited are left, and named."""
    if lacking := copy(job.git_dir, head, index.objects, lambda _: False):
        message = f"`{job.path}` is at {head[:12]}, which cannot be read: {lacking}"
        raise BadInput(message, hint="choose another folder with `-o`; nothing was changed")
    earlier = _Index(index.objects, head, index.work, index.file.with_name("earlier"), index.without)
    edited = earlier.differences()[1] | (index.differences()[1] - earlier.paths)
    if edited:
        message = f"cannot check out `{job.path}` at {job.commit[:12]}: `{min(edited)}` would be overwritten"
        raise StepFailed(message, hint=f"it is at {head[:12]}; undo your changes there, or choose another folder")
    for path in earlier.paths - index.paths:
        place = tree.place(root, path if job.path == "." else f"{job.path}/{path}")
        if not place.is_dir():
            place.unlink(missing_ok=True)


def within(path: str, without: Sequence[str]) -> tuple[str, ...]:
    """The folders left out that lie in the repository at `path`, as it calls them."""
    if path == ".":
        return tuple(without)
    return tuple(one[len(path) + 1 :] for one in without if one.startswith(f"{path}/"))


def _check_places(root: Path, job: _Job, work: Path) -> None:
    """What we write of a repository must lie in the tree: a link in a stranger's would lead us elsewhere."""
    for name in ("", "objects/pack", "refs/tags", "info", "modules", "config"):
        tree.place(root, (job.git_dir / name).relative_to(root).as_posix())
    link = work / ".git"
    if job.parent is not None and link.is_dir():
        message = f"`{link}` is a folder of its own, not the link that a submodule has"
        raise BadInput(message, hint="move that folder away and rerun the command")
    if job.git_dir.exists() and not job.git_dir.is_dir():
        message = f"`{job.git_dir}` is a file: the repository of this tree lies elsewhere"
        raise BadInput(
            message, hint="take the commit out of it into a new folder: `rekindle source --from TREE -o NEW`"
        )


def _hand_over(root: Path, ours: Path, job: _Job) -> None:
    """Give the tree the objects that were brought, and whatever else its repository lacks; its HEAD last of all."""
    (job.git_dir / "refs").mkdir(parents=True, exist_ok=True)
    brought = [path for path in ours.rglob("*") if path.is_file()]
    for path in sorted(brought, key=lambda path: (path.name == "HEAD", path.suffix == ".idx")):
        target = tree.place(root, (job.git_dir / path.relative_to(ours)).relative_to(root).as_posix())
        if path.parent.name == "pack" or not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            files.rename_over(path, target)
    # History ends here: git does not look for the parents that were not brought.
    shallow = job.git_dir / "shallow"
    known = files.plain_text(shallow) if shallow.exists() else ""
    if job.commit not in known:
        files.write_text(shallow, f"{known}{job.commit}\n")


def _configure(job: _Job, work: Path, without: tuple[str, ...]) -> None:
    """The repository's settings and the link between it and its folder, as `git submodule` would lay them out."""
    settings = {"core.bare": "false", "core.longpaths": "true", "gc.auto": "0", "remote.origin.url": job.url}
    if job.parent is not None:
        settings["core.worktree"] = Path(os.path.relpath(work, job.git_dir)).as_posix()
        files.write_text(work / ".git", f"gitdir: {Path(os.path.relpath(job.git_dir, work)).as_posix()}\n")
    if without:
        settings |= {"core.sparseCheckout": "true", "core.sparseCheckoutCone": "false"}
        files.write_text(job.git_dir / "info" / "sparse-checkout", "/*\n" + "".join(f"!/{one}/\n" for one in without))
    for key, value in settings.items():
        git.checked(["config", "--file", job.git_dir / "config", key, value], doing="configure the repository")


def _linked(job: _Job, work: Path) -> bool:
    if job.parent is None:
        return True
    try:
        text = files.plain_text(work / ".git").strip()
    except OSError:
        return False
    return (work / text.removeprefix("gitdir: ")).resolve() == job.git_dir.resolve()


def _register(jobs: list[_Job]) -> None:
    """Tell each parent of its submodules, so that `git submodule status` knows them. One at a time: one file."""
    for job in jobs:
        assert job.parent is not None
        config = job.parent / "config"
        for key, value in (("url", job.url), ("active", "true")):
            name = f"submodule.{job.name}.{key}"
            git.checked(["config", "--file", config, name, value], doing=f"register `{job.path}`")


def mark_of(root: Path) -> Mark | None:
    try:
        data = files.plain_bytes(root / STATE_FOLDER / "source.json")
    except FileNotFoundError:
        return None
    return codec.from_json(data, Mark, name="the mark of an earlier run")


def _admit(root: Path, known: Mark | None, mark: Mark) -> None:
    """A folder is taken when it is new, ours, or a clone that is at this release already."""
    others = [entry.name for entry in root.iterdir() if entry.name not in (STATE_FOLDER,)]
    if not others or (known is not None and known.commit == mark.commit):
        return
    head = tree.head(root)
    if head == mark.commit:
        return
    what = f"a checkout of {head[:12]}" if head else "not empty"
    message = f"`{root}` is {what}, and {mark.tag} is {mark.commit[:12]}"
    raise NotWritable(message, hint="choose another folder with `-o`; nothing was changed")


@contextlib.contextmanager
def _held(root: Path) -> Iterator[None]:
    folder = root / STATE_FOLDER
    tree.check_state(root)
    busy = Locked(f"another Rekindle is working on `{root}`", hint="wait for it to finish, then rerun the command")
    files.write_text(folder / ".gitignore", "*\n")
    with files.locked(folder / "lock", busy):
        yield


def check_space(root: Path, gigabytes: float) -> None:
    """Before anything is fetched: is there room?"""
    place = next(folder for folder in [root, *root.absolute().parents] if folder.exists())
    free = shutil.disk_usage(place).free / 1e9
    if free < gigabytes:
        message = f"the disk of `{place}` has {free:.1f} GB free; the tree needs about {gigabytes:.1f}"
        raise NotWritable(message, hint="free some space or choose another place with `-o`")


def check_root(root: str, *, system: str, longest: int) -> None:
    """On Windows a root with spaces or non-ASCII letters, or too long a one, breaks the build hours later."""
    if system != "windows":
        return
    room = 259 - longest - 1
    wrong = ""
    if " " in root:
        wrong = "has a space in it, which breaks response files and nvcc"
    elif not root.isascii():
        wrong = "has letters outside ASCII, which the compilers' tools misread"
    elif len(root) > room:
        wrong = f"is {len(root)} characters long; more than {room} and the deepest files pass Windows' limit of 260"
    if wrong:
        raise UsageError(f"the folder `{root}` {wrong}", hint="use a short one: `-o C:\\pt`")
