"""Generations against releases, as a coloured grid: what runs, by which CUDA line, and why nothing does."""

from __future__ import annotations

from typing import Any

import msgspec

from rekindle.knowledge.gpu import gpus
from rekindle.stack.matrix import MatrixRow, MatrixWheel, matrix, spoken_source
from rekindle.stack.resolver import resolve
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Situation, Wish
from rekindle.stack.verdict import Verdict
from rekindle.stack.why_not import against, incompatible, why_not
from rekindle.web import spellings


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One release for one capability: `yes` (ready-made), `part` (and loses something), `build` or `no`."""

    torch: str
    state: str
    text: str
    why: str
    lines: tuple[str, ...] = ()
    """The ready-made builds, by name; `-` behind one that loses something."""


class GridRow(msgspec.Struct, frozen=True, kw_only=True):
    capability: str
    generation: str
    cells: tuple[Cell, ...]


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    system: str
    releases: tuple[str, ...]
    lines: tuple[str, ...]
    rows: tuple[GridRow, ...]


class SharedTexts:
    """Reasons and CUDA lines of cells, each once: a thousand cells share some hundred of them."""

    def __init__(self) -> None:
        self._why: dict[str, int] = {}
        self._lines: dict[tuple[str, ...], int] = {}

    def at(self, why: str) -> int:
        return self._why.setdefault(why, len(self._why))

    def lines_at(self, lines: tuple[str, ...]) -> int:
        return self._lines.setdefault(lines, len(self._lines))

    def data(self) -> dict[str, list[Any]]:
        return {"why": list(self._why), "lines": [list(each) for each in self._lines]}


def grid(system: str) -> Grid:
    found = {gpu.capability: gpu.architecture for gpu in gpus.gpus()}
    every = {each: _rows(str(each), system) for each in sorted(found)}
    releases = next(tuple(row.torch for row in rows) for _, rows, _ in every.values() if rows)
    return Grid(
        system=system,
        releases=releases,
        lines=tuple(sorted({wheel.name for _, rows, _ in every.values() for row in rows for wheel in row.wheels})),
        rows=tuple(
            GridRow(
                capability=str(each),
                generation=found[each],
                cells=tuple(_cell(row, situation) for row in rows) or tuple(_never(torch, note) for torch in releases),
            )
            for each, (situation, rows, note) in every.items()
        ),
    )


def _rows(capability: str, system: str) -> tuple[tuple[Situation, Verdict], tuple[MatrixRow, ...], str]:
    situation = spellings.situation(capability, system)
    found = matrix(situation, Wish())
    return (situation, resolve(situation, Wish(), as_it_is=True)), found.rows, "; ".join(found.notes)


def _cell(row: MatrixRow, where: tuple[Situation, Verdict]) -> Cell:
    """The best ready-made build decides: an official wheel that loses nothing, then any other."""
    built = f"From source: CUDA {spoken_source(row)}" if row.source_cuda else ""
    if row.wheels:
        best = min(row.wheels, key=lambda wheel: (bool(wheel.loses), wheel.route is not RouteKind.OFFICIAL_WHEEL))
        why = "\n".join([*(_spoken(wheel) for wheel in row.wheels), *([built] if built else [])])
        lines = tuple(f"{wheel.name}{'-' if wheel.loses else ''}" for wheel in row.wheels)
        # A stranger's wheel is taken only by people who say so.
        whole = not best.loses and best.route is not RouteKind.COMMUNITY
        text = best.name if best.route is RouteKind.OFFICIAL_WHEEL else best.name.partition("-")[0].partition(" ")[0]
        return Cell(torch=row.torch, state="yes" if whole else "part", text=text, why=why, lines=lines)
    situation, verdict = where
    if row.source_cuda:
        chain = against(row.torch, verdict) or why_not(f"torch=={row.torch}", situation, Wish(), verdict).chain
        first = next((each.sentence for each in chain), "")
        return Cell(torch=row.torch, state="build", text="build", why=f"{built}\nNo wheel: {first}" if first else built)
    return Cell(torch=row.torch, state="no", text="no", why=_impossible(row.torch, situation, verdict))


def _impossible(torch: str, situation: Situation, verdict: Verdict) -> str:
    """What `--why-not` says. It asks anew for the one release only where another system might have a route to it."""
    chain = against(torch, verdict)
    if chain and not any(route.torch == torch or route.route is RouteKind.WSL for route in verdict.routes):
        return incompatible(f"PyTorch {torch}", chain[0].sentence)
    return why_not(f"torch=={torch}", situation, Wish(), verdict).sentence


def _never(torch: str, note: str) -> Cell:
    return Cell(torch=torch, state="no", text="no", why=note)


def _spoken(wheel: MatrixWheel) -> str:
    lost = f", without: {'; '.join(wheel.loses)}" if wheel.loses else ""
    lost += ", only with `--community`" if wheel.route is RouteKind.COMMUNITY else ""
    return f"{wheel.name}: {wheel.route.value}, CUDA {wheel.cuda}{lost} ({wheel.evidence.phrase})"
