"""A fleet's run as a page: its jobs as a grid, and which cards the wheels that are done serve."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rekindle.fleet.job import FleetJob, FleetLock
from rekindle.fleet.state import FleetState, FleetStatus, JobStatus, status_of
from rekindle.web import page


class FleetCell(msgspec.Struct, frozen=True, kw_only=True):
    """One job in the grid."""

    name: str
    state: str
    said: str
    """Everything known of it, in lines."""


class FleetRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cells: tuple[tuple[FleetCell, ...], ...]
    """By column; several jobs may fall into one, which differ in their options only."""


class CoveredCard(msgspec.Struct, frozen=True, kw_only=True):
    """A compute capability, and how many of the wheels for it are done."""

    capability: str
    done: int
    of: int


class FleetSummary(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "rekindle.fleet-report/1"
    title: str
    status: FleetStatus
    columns: tuple[str, ...]
    rows: tuple[FleetRow, ...]
    cards: tuple[CoveredCard, ...]
    others: tuple[JobStatus, ...]
    """Jobs that have no place in the grid, because nothing can be built."""


def is_fleet(path: Path) -> bool:
    return (path / "plan.json").is_file() and (path / "journal.jsonl").is_file() and not (path / "b").exists()


def fleet_report(folder: Path, title: str | None = None) -> FleetSummary:
    state = FleetState(folder)
    jobs = state.planned().plan.jobs
    status = status_of(state)
    by_name = {each.name: each for each in status.jobs}
    placed = [(job, job.lock, by_name[job.name]) for job in jobs if job.lock is not None]
    columns = tuple(dict.fromkeys(_column(lock) for _, lock, _ in placed))
    grid: dict[str, dict[str, list[FleetCell]]] = {}
    for job, lock, where in placed:
        grid.setdefault(_row(lock), {}).setdefault(_column(lock), []).append(_cell(job, where))
    return FleetSummary(
        title=title or f"Fleet {folder.resolve().stem}",
        status=status,
        columns=columns,
        rows=tuple(
            FleetRow(name=name, cells=tuple(tuple(cells.get(column, ())) for column in columns))
            for name, cells in grid.items()
        ),
        cards=_cards([(lock, where.state) for _, lock, where in placed]),
        others=tuple(by_name[job.name] for job in jobs if job.lock is None),
    )


def html(found: FleetSummary) -> str:
    return page.render("fleet.html", fleet=found)


def _row(lock: FleetLock) -> str:
    return f"{lock.system} {lock.machine}, {lock.arch_list or 'CPU'}"


def _column(lock: FleetLock) -> str:
    release = f"{lock.torch or lock.version or ''}{'+' + lock.variant if lock.variant else ''}"
    cuda = f", CUDA {lock.cuda}" if lock.cuda and not lock.variant else ""
    return f"{lock.project} {release}{cuda}, {'Python ' + lock.python if lock.python else 'any Python'}"


def _cell(job: FleetJob, where: JobStatus) -> FleetCell:
    parts = [where.name, where.reason, where.cause or "", f"fix: {where.fix}" if where.fix else ""]
    parts += [f"on {where.worker}, {where.step or 'begun'}" if where.state == "running" else ""]
    parts += [f"{where.seconds:.0f} s" if where.seconds is not None else "", where.wheel or ""]
    parts += [f"serves {', '.join(job.cards)}" if job.cards else ""]
    return FleetCell(name=where.name, state=where.state, said="\n".join(part for part in parts if part))


def _cards(jobs: list[tuple[FleetLock, str]]) -> tuple[CoveredCard, ...]:
    found: dict[str, list[bool]] = {}
    capabilities = {target.capability for lock, _ in jobs for target in lock.targets}
    for capability in sorted(capabilities):
        found[str(capability)] = [
            state == "done" for lock, state in jobs if any(each.capability == capability for each in lock.targets)
        ]
    return tuple(CoveredCard(capability=name, done=sum(each), of=len(each)) for name, each in found.items())
