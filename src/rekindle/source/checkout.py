"""PyTorch at a release, with every submodule at its pinned commit.

A tree is assembled repository by repository. Each step looks first at what is there, so that the same command goes on
where an earlier one was broken off, repairs what is missing, and does nothing to a tree that is whole. Files that
someone edited (or `rekindle patch` patched) are never overwritten.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
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
from rekindle.core.files import told
from rekindle.core.paths import STATE_FOLDER
from rekindle.source import git, submodules, tree, trust
from rekindle.source.origin import Origin

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
    """What `rekindle source` brought."""

    schema: str = "rekindle.source/1"
    root: str
    torch: str
    tag: str
    commit: str
    repositories: tuple[Repository, ...]
    seconds: float = 0.0


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in the tree's state folder: that the tree is ours, and for which release it was begun."""

    schema: str = "rekindle.source-mark/1"
    tag: str
    commit: str
    without: tuple[str, ...] = ()


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
    tag, url, commit = wanted.tag, wanted.url, wanted.commit
    with _held(root):
        git_dir = root / ".git"
        trust.check(git_dir, root)
        mark = _mark(root)
        if mark is None or mark.tag != tag:
            mark = Mark(tag=tag, commit=origin.tag(url, tag, git_dir))
        if commit is not None and mark.commit != commit:
            message = f"{tag} is {mark.commit[:12]} here, but the plan pins {commit[:12]}"
            raise BadInput(message, hint="the tag was moved; fetch the source from another place")
        mark = msgspec.structs.replace(mark, without=wanted.without or mark.without)
        _admit(root, mark)
        files.write_text(root / STATE_FOLDER / "source.json", codec.to_json(mark) + "\n")
        top = _Job(path=".", git_dir=git_dir, commit=mark.commit, url=url, name="", parent=None)
        done = _everything(root, top, origin, mark.without, jobs, say)
        git.checked(["update-ref", f"refs/tags/{tag}", mark.commit], git_dir=git_dir, doing="name the release")
    return Tree(
        root=str(root), torch=tag.removeprefix("v"), tag=tag, commit=mark.commit, repositories=tuple(done),
        seconds=round(time.monotonic() - begun, 1),
    )  # fmt: skip


def forget_left_out(copy: Path) -> None:
    """In a copy that a build works on, what was left out is not asked for: PyTorch's setup.py (from 2.15: CMake) stops
    at the first submodule of `.gitmodules` that is not there, and at FBGEMM's own submodule in any case.
    """
    mark = _mark(copy)
    listed = copy / ".gitmodules"
    if mark is None or not mark.without or not listed.exists():
        return
    text = listed.read_bytes().decode("utf-8", errors="surrogateescape")
    kept = submodules.without(text, mark.without)
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

    What cannot be had is named at the end, all of it, and everything else is there by then.
    """
    done: list[Repository] = []
    lacking: list[RekindleError] = []
    level = [top]
    known = 1  # what is known so far: a submodule names its own only when it is here
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        while level:
            following: list[_Job] = []
            results = pool.map(lambda job: _tried(root, job, origin, without), level)
            for job, result in zip(level, results, strict=True):
                if isinstance(result, RekindleError):
                    lacking.append(result)
                    continue
                done.append(result)
                if result.state is not RepositoryState.PRESENT:
                    say(f"[{len(done)}/{known}] {result.state.value} {job.path} at {job.commit[:12]}")
                for pin in submodules.pins(job.git_dir, job.commit, parent_url=job.url):
                    path = pin.path if job.path == "." else f"{job.path}/{pin.path}"
                    if submodules.outside(path, without):
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
        message = f"cannot fetch {len(lacking)} repositories:{lines}"
        raise type(first)(message, hint=first.hint)
    return sorted(done, key=lambda one: one.path)


def _tried(root: Path, job: _Job, origin: Origin, without: tuple[str, ...]) -> Repository | RekindleError:
    try:
        return _repository(root, job, origin, without)
    except (NotFound, FetchFailed, StepFailed) as error:
        return error


def _repository(root: Path, job: _Job, origin: Origin, without: tuple[str, ...]) -> Repository:
    """One repository whole: its objects, its files, at its commit."""
    work = root if job.path == "." else tree.place(root, job.path)
    here = within(job.path, without)
    trust.check(job.git_dir, root)
    head = _head(job.git_dir)
    came_from = ""
    state = RepositoryState.PRESENT
    if not git.has_commit(job.git_dir, job.commit):
        _initialise(job, work)
        came_from = origin.bring(job.url, job.commit, job.git_dir, without=here)
        _shallow(job.git_dir, job.commit)
        state = RepositoryState.FETCHED
    if not _linked(job, work):
        _initialise(job, work)
        state = RepositoryState.REPAIRED if state is RepositoryState.PRESENT else state
    if head != job.commit:
        _check_out(job, work, here, fresh=head is None)
        state = RepositoryState.FETCHED if head is None else RepositoryState.REPAIRED
    elif not (job.git_dir / "index").exists():
        _reindex(job, work, here)
        state = RepositoryState.REPAIRED
    gone, edited = _differences(job.git_dir, work)
    if gone:
        _bring_back(job, work, gone)
        state = RepositoryState.REPAIRED if state is RepositoryState.PRESENT else state
    if not any(name.name != ".git" for name in work.iterdir()):
        message = f"`{job.path}` is still empty after its commit {job.commit[:12]} was checked out"
        raise BadInput(message, hint=f"the commit from {came_from or job.url} has no files; check the mirror")
    return Repository(path=job.path, commit=job.commit, url=job.url, state=state, origin=came_from, edited=edited)


def within(path: str, without: Sequence[str]) -> tuple[str, ...]:
    """The folders left out that lie in the repository at `path`, as it calls them."""
    if path == ".":
        return tuple(without)
    return tuple(one[len(path) + 1 :] for one in without if one.startswith(f"{path}/"))


def _head(git_dir: Path) -> str | None:
    """The commit that was checked out to the end: git moves HEAD last."""
    try:
        text = (git_dir / "HEAD").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    if not text.startswith("ref:"):
        return text or None
    result = git.call(["rev-parse", "-q", "--verify", "HEAD^{commit}"], git_dir=git_dir)
    return result.out.strip() if result.ok else None


def _initialise(job: _Job, work: Path) -> None:
    """The repository and the link between it and its folder, as `git submodule` would lay them out."""
    work.mkdir(parents=True, exist_ok=True)
    job.git_dir.parent.mkdir(parents=True, exist_ok=True)
    git.checked(["init", "-q", "--bare", job.git_dir], doing=f"make the repository for `{job.path}`")
    settings = {"core.bare": "false", "core.longpaths": "true", "gc.auto": "0", "remote.origin.url": job.url}
    if job.parent is not None:
        settings["core.worktree"] = Path(os.path.relpath(work, job.git_dir)).as_posix()
        link = work / ".git"
        if link.is_dir():
            message = f"`{link}` is a folder of its own, not the link that a submodule has"
            raise BadInput(message, hint="move that folder away and rerun the command")
        files.write_text(link, f"gitdir: {Path(os.path.relpath(job.git_dir, work)).as_posix()}\n")
    for key, value in settings.items():
        git.checked(["config", "--file", job.git_dir / "config", key, value], doing="configure the repository")


def _linked(job: _Job, work: Path) -> bool:
    if job.parent is None:
        return True
    try:
        text = (work / ".git").read_text(encoding="utf-8").strip()
    except OSError:
        return False
    return (work / text.removeprefix("gitdir: ")).resolve() == job.git_dir.resolve()


def _shallow(git_dir: Path, commit: str) -> None:
    """Say that history ends here, so that git does not look for the parents that were not brought."""
    known = (git_dir / "shallow").read_text(encoding="ascii") if (git_dir / "shallow").exists() else ""
    if commit not in known:
        files.write_text(git_dir / "shallow", f"{known}{commit}\n")


def _check_out(job: _Job, work: Path, without: tuple[str, ...], *, fresh: bool) -> None:
    (job.git_dir / "index.lock").unlink(missing_ok=True)  # of a run that was killed; ours is the only one now
    if without:
        settings = {"core.sparseCheckout": "true", "core.sparseCheckoutCone": "false"}
        for key, value in settings.items():
            git.checked(["config", "--file", job.git_dir / "config", key, value], doing="leave folders out")
        files.write_text(job.git_dir / "info" / "sparse-checkout", "/*\n" + "".join(f"!/{one}/\n" for one in without))
    # Half a first checkout may be overwritten; a commit that someone else chose may hold edits, and git then refuses.
    force = ["--force"] if fresh else []
    git.checked(
        ["checkout", "-q", "--detach", *force, job.commit],
        git_dir=job.git_dir,
        work_tree=work,
        doing=f"check out `{job.path}` at {job.commit[:12]}",
    )


def _reindex(job: _Job, work: Path, without: tuple[str, ...]) -> None:
    """A lost index is written anew from the commit, without touching a file."""
    doing = f"write the index of `{job.path}` anew"
    git.checked(["read-tree", job.commit], git_dir=job.git_dir, work_tree=work, doing=doing)
    if without:
        git.checked(["sparse-checkout", "reapply"], git_dir=job.git_dir, work_tree=work, doing=doing)


def _differences(git_dir: Path, work: Path) -> tuple[list[str], int]:
    """(files that are gone, how many are edited)."""
    listing = git.checked(
        ["status", "--porcelain=v1", "-z", "-uno", "--no-renames", "--ignore-submodules=all"],
        git_dir=git_dir,
        work_tree=work,
        doing=f"look at `{work}`",
    )
    rows = [row for row in listing.split("\0") if row]
    gone = [row[3:] for row in rows if row[1] == "D"]
    return gone, len(rows) - len(gone)


def _bring_back(job: _Job, work: Path, gone: list[str]) -> None:
    names = "\0".join(gone).encode("utf-8", "surrogateescape") + b"\0"
    (job.git_dir / "index.lock").unlink(missing_ok=True)
    git.checked(
        ["checkout-index", "-q", "-f", "-z", "--stdin"],
        git_dir=job.git_dir,
        work_tree=work,
        input=names,
        doing=f"bring back {len(gone)} files of `{job.path}`",
    )


def _register(jobs: list[_Job]) -> None:
    """Tell each parent of its submodules, so that `git submodule status` knows them. One at a time: one file."""
    for job in jobs:
        assert job.parent is not None
        config = job.parent / "config"
        for key, value in (("url", job.url), ("active", "true")):
            name = f"submodule.{job.name}.{key}"
            git.checked(["config", "--file", config, name, value], doing=f"register `{job.path}`")


def _mark(root: Path) -> Mark | None:
    try:
        data = (root / STATE_FOLDER / "source.json").read_bytes()
    except FileNotFoundError:
        return None
    return codec.from_json(data, Mark, name="the mark of an earlier run")


def _admit(root: Path, mark: Mark) -> None:
    """A folder is taken when it is new, ours, or a clone that is at this release already."""
    known = _mark(root)
    others = [entry.name for entry in root.iterdir() if entry.name not in (STATE_FOLDER,)]
    if not others or (known is not None and known.commit == mark.commit):
        return
    head = _head(root / ".git")
    if head == mark.commit:
        return
    what = f"a checkout of {head[:12]}" if head else "not empty"
    message = f"`{root}` is {what}, and {mark.tag} is {mark.commit[:12]}"
    raise NotWritable(message, hint="choose another folder with `-o`; nothing was changed")


@contextlib.contextmanager
def _held(root: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    folder = root / STATE_FOLDER
    tree.check_state(root)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files.write_text(folder / ".gitignore", "*\n")
        lock = FileLock(folder / "lock")
        lock.acquire(timeout=0)
    except Timeout as busy:
        message = f"another Rekindle is working on `{root}`"
        raise Locked(message, hint="wait for it to finish, then rerun the command") from busy
    except OSError as error:
        message = f"cannot write to `{root}`: {told(error)}"
        raise NotWritable(message, hint="choose another place with `-o`") from error
    try:
        yield
    finally:
        lock.release()


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
        message = f"the folder `{root}` {wrong}"
        raise UsageError(message, hint="use a short one: `-o C:\\pt`")
