"""`review`: scripts in, what is wrong with each out; the corrected script; a table that compares several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.core import files
from rekindle.core.findings import State
from rekindle.core.version import Version, typed
from rekindle.knowledge.gpu.capability import Capability
from rekindle.review import cuda, options, packages, shell
from rekindle.review.remark import Remark
from rekindle.review.said import Said, said
from rekindle.review.script import Script, load, read

_ROUNDS = 8


class Reviewed(msgspec.Struct, frozen=True, kw_only=True):
    """One script. `refused` when something in it cannot work. What the script does not say is None."""

    script: str
    dialect: str
    refused: bool
    remarks: tuple[Remark, ...]
    torch: str | None = None
    cuda: str | None = None
    architectures: tuple[str, ...] = ()
    toolset: str | None = None
    python: str | None = None
    generator: str | None = None


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle review`."""

    schema: str = "rekindle.review/1"
    gpus: tuple[str, ...] = ()
    scripts: tuple[Reviewed, ...]


def review(paths: Sequence[Path], *, gpus: Sequence[Capability] = (), torch: Version | None = None) -> Review:
    found = tuple(review_script(load(path), gpus=gpus, torch=torch) for path in paths)
    return Review(gpus=tuple(gpu.sm for gpu in gpus), scripts=found)


def review_script(script: Script, *, gpus: Sequence[Capability] = (), torch: Version | None = None) -> Reviewed:
    known = said(script, gpus=gpus, torch=torch)
    every = [remark for part in (cuda, options, shell, packages) for remark in part.check(known)]
    remarks = sorted(_once(every), key=lambda remark: (remark.line, -remark.state.rank))
    return _reviewed(known, tuple(remarks))


def corrected(script: Script, remarks: Sequence[Remark]) -> str:
    """The script with every correction that needs no decision. Wrong lines are replaced; what must go, goes."""
    lines: list[str | None] = list(script.lines)
    for remark in remarks:
        if remark.corrected is None or not 0 < remark.line <= len(lines):
            continue
        now = lines[remark.line - 1]
        if now is None:
            continue
        indent = now[: len(now) - len(now.lstrip())]
        if remark.corrected == "":
            lines[remark.line - 1] = None
        elif now.strip() == remark.text:
            lines[remark.line - 1] = indent + remark.corrected.strip()
    for item in script.commands:
        _close(lines, item.line - 1, item.last - 1)
    kept = [line for line in lines if line is not None]
    return script.ends.join(kept) + script.ends


def _close(lines: list[str | None], first: int, last: int) -> None:
    """When the last line of a statement went, the one before must not continue into nothing."""
    if last >= len(lines) or lines[last] is not None:
        return
    for index in range(last, first - 1, -1):
        line = lines[index]
        if line is not None:
            lines[index] = line.rstrip().rstrip("^`\\").rstrip()
            return


def _once(remarks: Sequence[Remark]) -> list[Remark]:
    return list({(remark.id, remark.line, remark.found): remark for remark in remarks}.values())


def _reviewed(known: Said, remarks: tuple[Remark, ...]) -> Reviewed:
    asked = known.targets()
    return Reviewed(
        script=known.script.name,
        dialect=known.script.dialect.value,
        refused=any(remark.state is State.FAIL for remark in remarks),
        remarks=remarks,
        torch=str(known.torch) if known.torch else None,
        cuda=str(known.cuda) if known.cuda else None,
        architectures=tuple(str(target) for target in asked[1]) if asked else (),
        toolset=str(known.toolset) if known.toolset else known.studio and f"newest of {known.studio}",
        python=str(known.python) if known.python else None,
        generator=None if known.ninja is None else "Ninja" if known.ninja else "other",
    )


def release(text: str | None) -> Version | None:
    """`--torch` as a number; an error with what to write when it is none."""
    return typed(text, "`--torch`", "2.7.1") if text is not None else None


def write_corrected(path: Path, output: Path, *, gpus: Sequence[Capability] = (), torch: Version | None = None) -> None:
    """Corrects until nothing is left to correct: one line may have several faults."""
    script = load(path)
    for _ in range(_ROUNDS):
        text = corrected(script, review_script(script, gpus=gpus, torch=torch).remarks)
        again = read(text, name=script.name)
        if again.lines == script.lines:
            break
        script = again
    files.write_text(output, "\n".join(script.lines) + "\n", newline=script.ends)
