"""The last answer about an environment, given again while nothing that it was read from has changed.

Everything that an audit looks at has a time: folders, compiled files, metadata, the folders of the system's libraries.
As long as all of them stand as they were, the question is the same and so is the answer; asking the file system for
two thousand times takes a few milliseconds. What is needed to find an answer is imported only where there is none.
"""

# ruff: noqa: PTH112, PTH113, PTH116, PTH118 - plain strings: a Path object for each of thousands of files takes longer than the rest
from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rekindle import __version__
from rekindle.audit.answer import Audit
from rekindle.core import codec, files
from rekindle.core.kept import keep, kept_file, stamp_of
from rekindle.core.programs import reads_only
from rekindle.knowledge import tables
from rekindle.machine.python.environment import find as find_environment
from rekindle.model.environment import Environment


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """`places` are folders with their times, `files` files with times and sizes."""

    asked: str
    places: dict[str, int]
    files: dict[str, tuple[int, int]]
    answer: Audit


@reads_only()
def audit(
    where: Path | None,
    *,
    names: Sequence[str],
    machine: Path | None,
    driver: str | None,
    cache: Path | None,
    system: str | None = None,
) -> Audit:
    """The audit of an environment for the cards that are named, recorded in a file, or here. No program is started."""
    environment = find_environment(where)
    file = kept_file(cache, environment.root, "answer")
    question = _question(environment, names, f"{driver} {system}") if names and machine is None else None
    known = _known(file, question)
    if known is not None:
        return known
    from rekindle.audit.cards import cards_for

    seen = cards_for(names, machine, driver, system=system or environment.os)
    if question is None:
        question = _question(environment, [f"{card.name} {card.capability}" for card in seen.cards], repr(seen[1:]))
        known = _known(file, question)
        if known is not None:
            return known
    from rekindle.audit import audit as finding

    answer = finding.audit(where, **seen._asdict(), cache=cache)
    if file is not None:
        _keep(file, question, answer, cache)
    return answer


def _question(environment: Environment, cards: Iterable[str], driver: str | None) -> str:
    """Everything but files on which an answer depends."""
    overlay = tables.overlay_folder()
    over = sorted((each.path, stamp_of(each.stat())) for each in files.below(overlay)) if overlay else []
    outside = [os.environ.get("LD_LIBRARY_PATH"), str(overlay), over, str(tables.update_folder())]
    return codec.to_json([__version__, environment, list(cards), driver, outside], indent=0)


def _known(file: Path | None, question: str | None) -> Audit | None:
    kept = codec.kept(file, _Kept) if question is not None else None
    return kept.answer if kept and kept.asked == question and _stands(kept) else None


def _stands(kept: _Kept) -> bool:
    try:
        if any(stamp_of(os.stat(folder)) != stamp for folder, stamp in kept.places.items()):
            return False
        for path, (stamp, size) in kept.files.items():
            status = os.stat(path)
            if (stamp_of(status), status.st_size) != (stamp, size):
                return False
    except OSError:
        return False
    return True


def _keep(file: Path, question: str, answer: Audit, cache: Path | None) -> None:
    from rekindle.audit import contents, environment_checks

    seen = contents.seen(kept_file(cache, answer.environment.root, "modules"))
    if not seen.folders:
        return  # nothing to watch was kept
    watched = [*seen.files, os.path.join(answer.environment.root, "pyvenv.cfg")]
    if answer.torch is not None:
        watched.append(os.path.join(answer.torch.root, "version.py"))
    places = [*seen.folders, *(environment_checks.looked_in() if answer.environment.here else ())]
    kept = _Kept(
        asked=question,
        places={folder: stamp_of(os.stat(folder)) for folder in places if os.path.isdir(folder)},
        files={path: _of(path) for path in watched if os.path.isfile(path)},
        answer=answer,
    )
    keep(file, kept)


def _of(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return stamp_of(status), status.st_size
