"""The page of a fleet: every job has its place, and what went wrong is said."""

from __future__ import annotations

import json
from pathlib import Path

from rekindle.fleet.job import FleetJob, FleetLock, JobKind, JobState
from rekindle.fleet.matrix_file import MatrixCell
from rekindle.fleet.planning import FleetPlan, FleetTotals, Planned
from rekindle.fleet.state import FleetJournal, FleetState, event
from rekindle.web import fleet_page
from support.command import rekindle_command

HOSTILE = '<script>alert(1)</script> "quoted"'


def job(name: str, arch_list: str, python: str) -> FleetJob:
    lock = FleetLock(
        project="torch",
        kind=JobKind.TORCH,
        torch="2.7.1",
        variant="cu118",
        arch_list=arch_list,
        python=python,
        system="linux",
        machine="x86_64",
    )
    return FleetJob(name=name, state=JobState.BUILD, key=lock.key, cells=(MatrixCell(project="torch"),), lock=lock)


def run_of(folder: Path) -> FleetState:
    jobs = (job("one", "3.5", "3.11"), job("two", "3.5;3.7", "3.12"), job("three", "3.7", "3.11"))
    never = FleetJob(name="never", state=JobState.IMPOSSIBLE, reason=HOSTILE, cells=())
    totals = FleetTotals(
        build=3, done=0, not_needed=0, impossible=1, minutes=1, wall_minutes=1, workers=1, unknown=0, disk_gb=1.0,
        download_gb=1.0,
    )  # fmt: skip
    place = FleetState(folder)
    with place.held():
        place.keep(Planned(plan=FleetPlan(knowledge="k", jobs=(*jobs, never), totals=totals, questions=1)))
    log = FleetJournal(place.journal)
    log.write(event("start", name="/shelf"))
    log.write(event("done", key=jobs[0].key, worker="a", wheel="x.whl", seconds=3.0))
    log.write(event("failed", key=jobs[1].key, worker="a", error=HOSTILE))
    return place


def test_jobs_are_a_grid_and_cards_are_counted(tmp_path: Path) -> None:
    found = fleet_page.fleet_report(run_of(tmp_path / "m.fleet").root)
    assert found.columns == ("torch 2.7.1+cu118, Python 3.11", "torch 2.7.1+cu118, Python 3.12")
    grid = {row.name: [[cell.state for cell in cells] for cells in row.cells] for row in found.rows}
    assert grid == {
        "linux x86_64, 3.5": [["done"], []],
        "linux x86_64, 3.5;3.7": [[], ["failed"]],
        "linux x86_64, 3.7": [["waiting"], []],
    }
    assert [(card.capability, card.done, card.of) for card in found.cards] == [("3.5", 1, 2), ("3.7", 0, 2)]
    text = fleet_page.html(found)
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text and "never" in text


def test_report_draws_the_state_folder_of_a_fleet(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "m.fleet").root
    seen = rekindle_command("report", str(folder), "-o", str(tmp_path / "f.html"))
    assert seen.code == 0, seen.err
    assert "1 done" in seen.out and "Fleet m" in (tmp_path / "f.html").read_text(encoding="utf-8")
    assert json.loads(rekindle_command("report", str(folder), "--json").out)["schema"] == "rekindle.fleet-report/1"
    refused = rekindle_command("report", str(folder), "--trace", str(tmp_path / "t.json"))
    assert refused.code == 2 and "timeline" in refused.err
