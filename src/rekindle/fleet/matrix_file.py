"""`matrix.toml`: which wheels are wanted, as lists whose every combination is one job.

Each entry of `gpu` is the cards of one wheel. `[[include]]` adds combinations (what it leaves out is taken from the
lists above), `[[exclude]]` takes some away, `[[override]]` changes the options of some. `machines` are snapshots that
stand for `gpu`, `os`, `arch` and `python` together.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rekindle.core import codec, files, untrusted
from rekindle.core.errors import BadInput, NotFound, UnknownName, UsageError, did_you_mean
from rekindle.core.untrusted import PlainFileName, ProjectName
from rekindle.knowledge.torch.companions import PROJECTS

SCHEMA = "rekindle.matrix-file/1"
"""Written for a CUDA version: a wheel without GPU code."""
_LIMIT = 4 * 1024 * 1024
MOST_JOBS = 100_000
_MOST_RULES = 1_000
_MOST_CARDS = 64

Words = str | tuple[str, ...]
T = TypeVar("T")


class ProjectEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A project of your own: `build` is a build file of a CMake project, `source` the folder of a torch extension."""

    build: str | None = None
    source: str | None = None
    minutes: int | None = None
    """How long it takes, where you know."""
    disk_gb: float | None = None
    memory_gb: float | None = None


class MatrixInclude(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """More combinations. What is left out is taken from the lists of the matrix."""

    project: Words = ()
    torch: Words = ()
    cuda: Words = ()
    gpu: Words = ()
    python: Words = ()
    os: Words = ()
    arch: Words = ()
    profile: Words = ()


class MatrixOverride(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes for the jobs that match every word of `when`."""

    when: dict[str, str]
    options: dict[str, str] = {}
    minutes: int | None = None
    always: bool = False
    """Build it even where an official wheel serves."""


class MatrixFile(MatrixInclude, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: str = SCHEMA
    project: Words = ("torch",)
    os: Words = ("linux",)
    arch: Words = ("x86_64",)
    profile: Words = ("fast",)
    machines: Words = ()
    include: tuple[MatrixInclude, ...] = ()
    exclude: tuple[dict[str, str], ...] = ()
    override: tuple[MatrixOverride, ...] = ()
    projects: dict[str, ProjectEntry] = {}
    configured_index: bool = False
    """Only wheels of the index that pip is configured for count as official."""


class MatrixCell(msgspec.Struct, frozen=True, kw_only=True):
    """One combination, as it is written."""

    project: str
    torch: str | None = None
    cuda: str | None = None
    gpu: str | None = None
    python: str | None = None
    os: str = "linux"
    arch: str = "x86_64"
    profile: str = "fast"
    machine: str | None = None
    """The snapshot it is for."""


AXES = ("project", "torch", "cuda", "gpu", "python", "os", "arch", "profile")
_NAMED = (*AXES, "machine")


def read(path: Path) -> MatrixFile:
    name = f"`{path}`"
    data = files.read_bytes(path, limit=_LIMIT)
    head = codec.from_toml(data, dict[str, Any], name=name)
    hint = "docs/guides/fleet.md shows a matrix"
    codec.expect(head.get("schema", SCHEMA), SCHEMA, "a matrix", name=name, hint=hint)
    found = codec.from_toml(data, MatrixFile, name=name)
    _check(found, name)
    return found


def _check(matrix: MatrixFile, name: str) -> None:
    if len(matrix.override) > _MOST_RULES:
        message = f"{name} has {len(matrix.override):,} entries `override`"
        raise BadInput(message, hint=f"at most {_MOST_RULES:,} are read: name fewer axes in each")
    for said in (*matrix.exclude, *(each.when for each in matrix.override)):
        if not said or (wrong := sorted(said.keys() - set(_NAMED))):
            what = f"`{wrong[0][:60]}`" if said else "an empty `exclude` or `when`"
            message = f"{name}: {what} names no axis of the matrix"
            raise BadInput(message, hint=f"the axes are {', '.join(_NAMED)}")
    for project in (
        word for each in (matrix.project, *(more.project for more in matrix.include)) for word in _words(each)
    ):
        if project != "torch" and project not in PROJECTS and project not in matrix.projects:
            known = ("torch", *PROJECTS, *matrix.projects)
            own = f"declare your own as `[projects.{project[:60]}]`, with `source` (a folder) or `build` (a build file)"
            hint = f"{did_you_mean(project, known)}{own}; known are {', '.join(known)}"
            raise UnknownName(f"{name}: unknown project `{project[:60]}`", hint=hint)
    for word in (word for each in (matrix, *matrix.include) for word in _words(each.gpu)):
        if len(re.findall("[;,]", word)) >= _MOST_CARDS:
            message = f"{name}: `{word[:40]}…` are more than {_MOST_CARDS} cards for one wheel"
            raise BadInput(message, hint="name their capabilities, each once: `5.0;6.1;7.0`")
    paths = [path for each in matrix.projects.values() for path in (each.build, each.source) if path]
    if shared := next(filter(untrusted.on_another_computer, (*paths, *_words(matrix.machines))), None):
        message = f"{name} names `{shared[:60]}`, on another computer"
        raise BadInput(message, hint="copy it here: Windows logs on to a share before anything of it is read")
    for project, entry in matrix.projects.items():
        untrusted.checked(ProjectName, project, name)
        if (entry.build is None) is (entry.source is None):
            message = f"{name}: project `{project[:60]}` needs either `build` or `source`"
            hint = "`build` is the build file of a CMake project, `source` the folder of a torch extension"
            raise BadInput(message, hint=hint)


def below(path: Path) -> list[Path]:
    """The folders of projects of your own, seen from the matrix, for a repository that holds both; not its own folder.

    Their names are plain ones: `.git` and `.github` say what others run.
    """
    found = []
    for entry in read(path).projects.values():
        named = Path(entry.build).parent if entry.build else Path(entry.source or ".")
        if named.is_absolute() or ".." in named.parts:
            message = f"the project in `{named}` does not lie below the matrix"
            raise UsageError(message, hint='put the matrix into its folder, with `source = "."`')
        name = f"the project in `{named}`"
        found.append(Path(*(untrusted.checked(PlainFileName, part, name) for part in named.parts)))
    return found


def cells(matrix: MatrixFile, machines: tuple[str, ...] = ()) -> Iterator[MatrixCell]:
    """Every combination once, in the order of the file. `machines` are the snapshots of the file and of the command."""
    blocks = [{axis: _words(getattr(matrix, axis)) for axis in AXES}]
    for more in matrix.include:
        own = {axis: _words(getattr(more, axis)) for axis in AXES}
        blocks.append({axis: own[axis] or blocks[0][axis] for axis in AXES})
    blocks, first = [block for block in blocks if block["gpu"] or not machines], blocks[0]
    _bounded(blocks)
    every = (codec.from_builtins(each, MatrixCell) for block in blocks for each in _combined(block, AXES))
    fixed = ("project", "torch", "cuda", "profile")
    more_cells = (MatrixCell(machine=machine, **each) for machine in machines for each in _combined(first, fixed))
    seen: set[MatrixCell] = set()
    excluded = rules_for((dict(said), True) for said in {tuple(sorted(each.items())) for each in matrix.exclude})
    for cell in itertools.chain(every, more_cells):
        if cell not in seen and not excluded(cell):
            seen.add(cell)
            yield cell


def _combined(block: dict[str, tuple[str, ...]], axes: Sequence[str]) -> Iterator[dict[str, Any]]:
    every = itertools.product(*(block[axis] or (None,) for axis in axes))
    return (dict(zip(axes, values, strict=True)) for values in every)


def rules_for(rules: Iterable[tuple[dict[str, str], T]]) -> Callable[[MatrixCell], list[T]]:
    """Which rules hold for a combination, in their order. They are looked up: a file of a hundred kilobytes can have
    thousands of both, and to compare each with each took minutes."""
    tables: dict[tuple[str, ...], dict[tuple[str, ...], list[tuple[int, T]]]] = {}
    for number, (said, rule) in enumerate(rules):
        axes = tuple(sorted(said))
        tables.setdefault(axes, {}).setdefault(tuple(said[axis] for axis in axes), []).append((number, rule))

    def find(cell: MatrixCell) -> list[T]:
        rows = (table.get(tuple(getattr(cell, axis) for axis in axes), ()) for axes, table in tables.items())
        return [rule for _, rule in sorted(itertools.chain.from_iterable(rows), key=itemgetter(0))]

    return find


def _bounded(blocks: list[dict[str, tuple[str, ...]]]) -> None:
    count = sum(math.prod(len(words) or 1 for words in block.values()) for block in blocks)
    if count > MOST_JOBS:
        raise BadInput(f"the matrix has {count:,} combinations", hint=f"at most {MOST_JOBS:,} are planned at once")


def _words(value: Words) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def snapshots_of(matrix: MatrixFile, root: Path) -> dict[str, Path]:
    """The snapshot files that `machines` names, by the word; a pattern stands for every file it finds."""
    found: dict[str, Path] = {}
    for word in _words(matrix.machines):
        if any(sign in word for sign in "*?["):
            # `**` would look through everything below the folder that it begins at, which may be the whole disk.
            named = sorted(root.glob(word)) if "**" not in word and not Path(word).is_absolute() else []
        else:
            named = [root / word]
        if not named or not all(os.path.isfile(path) for path in named):  # noqa: PTH113 - a name may be too long to ask
            raise NotFound(f"there is no snapshot `{word[:120]}`", hint="`rekindle doctor --save FILE` writes one")
        found |= {str(path): path for path in named}
    return found
