"""Which worker gets a job, who is blamed when one dies, and what is said meanwhile. No process is started."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rekindle.core import codec
from rekindle.core.errors import ChecksFailed
from rekindle.core.findings import State
from rekindle.fleet import dispatch, planning, run, shelved, view
from rekindle.fleet.announcement import AnnouncedToolkit, Announcement
from rekindle.fleet.dispatch import Dispatcher, DispatchRules, _Placed
from rekindle.fleet.intake import Intake
from rekindle.fleet.job import FleetJob, JobResult
from rekindle.fleet.shelved import ShelvedJob
from rekindle.fleet.state import FleetJournal, FleetState, event, status_of
from rekindle.wheels.shelf import shelf
from rekindle.wheels.shelf.store import ShelvedWheel
from support.cuda import project
from support.small_wheels import make as small_wheel

MATRIX = """
project = ["spark"]
cuda = ["11.8"]
gpu = ["3.5", "7.5", "8.6"]
[projects.spark]
build = "spark/build.toml"
minutes = 10
"""
KIT = AnnouncedToolkit(version="11.8", targets=("sm_35", "sm_75", "sm_86"))
HAVE = Announcement(
    name="plain", system="linux", machine="x86_64", cores=8, memory_gb=32, disk_gb=100, slots=2,
    toolkits=(KIT,), pythons=("3.11",), gcc=("11.4.0",),
)  # fmt: skip


class Bench:
    def __init__(self, folder: Path, *, matrix: str = MATRIX, **rules: Any) -> None:
        shutil.copytree(project("spark"), folder / "spark", dirs_exist_ok=True)
        (folder / "matrix.toml").write_text(matrix, encoding="utf-8")
        self.planned = planned = planning.make(folder / "matrix.toml")
        state = FleetState(folder / "state")
        self.said: list[str] = []
        intake = Intake(planned, state, folder / "shelf", lambda *_: None)
        journal = FleetJournal(state.journal)
        self.dispatcher = Dispatcher(planned, state, journal, intake, DispatchRules(**rules), self.said.append)
        self.jobs = list(self.dispatcher.jobs.values())

    def join(self, name: str, **change: Any) -> str:
        have = msgspec.structs.replace(HAVE, name=name, **change)
        self.dispatcher.workers[f"tls://{name}"] = have
        self.dispatcher.seen[name] = have
        return f"tls://{name}"

    def put(self, job: FleetJob, address: str, *, alone: bool = False) -> None:
        key = job.key or ""
        self.dispatcher.waiting.remove(key)
        name = self.dispatcher.workers[address].name
        self.dispatcher.running[key] = _Placed(job, address, name, alone=alone)
        self.dispatcher.journal.write(event("begin", key=key, name=job.name, worker=name))

    def events(self, kind: str) -> list[str]:
        return [each.key or "" for each in self.dispatcher.journal.events if each.event == kind]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, deaths=2, heartbeat=0.0)


def best(bench: Bench, job: FleetJob, *, alone: bool = False) -> str | None:
    return bench.dispatcher._best(job, alone=alone)


def test_a_job_goes_to_the_machine_with_its_card_and_else_to_the_one_others_need_least(bench: Bench) -> None:
    kepler = next(job for job in bench.jobs if job.cards == ("sm_35",))
    other = next(job for job in bench.jobs if job.cards == ("sm_86",))
    bench.join("rich", toolkits=(KIT, AnnouncedToolkit(version="12.6")))
    plain = bench.join("plain")
    card = bench.join("card", cards=("sm_35",))
    assert best(bench, kepler) == card, "its check can run there"
    assert best(bench, other) == plain
    bench.dispatcher.last_worker[other.key or ""] = "rich"
    assert best(bench, other) == "tls://rich", "what it made before is there"


def test_no_job_goes_where_it_cannot_be_built_or_where_there_is_no_room(bench: Bench) -> None:
    job = bench.jobs[0]
    bench.join("none", toolkits=())
    bench.join("windows", system="windows")
    assert best(bench, job) is None
    place = bench.join("one", slots=1)
    bench.put(bench.jobs[1], place)
    assert best(bench, job) is None
    roomy = bench.join("two", slots=2)
    bench.put(bench.jobs[2], roomy)
    assert best(bench, job) == roomy
    assert best(bench, job, alone=True) is None, "a suspect waits for a machine of its own"


def test_a_job_that_was_alone_is_blamed_and_set_aside_after_the_limit(bench: Bench) -> None:
    job = bench.jobs[0]
    for _ in range(2):
        bench.put(job, bench.join("one"))
        bench.dispatcher._gone("tls://one", "one")
        del bench.dispatcher.workers["tls://one"]
    assert bench.events("aside") == [job.key]
    assert job.key not in bench.dispatcher.waiting and bench.dispatcher.ended[job.key or ""] == "aside"
    assert "2 workers died" in bench.said[-1]


def test_of_several_none_is_blamed_and_each_is_tried_alone(bench: Bench) -> None:
    for _ in range(3):
        place = bench.join("one")
        for job in bench.jobs[:2]:
            bench.put(job, place)
        bench.dispatcher._gone(place, "one")
    assert bench.events("aside") == []
    assert {bench.jobs[0].key, bench.jobs[1].key} <= set(bench.dispatcher.waiting)
    placed = bench.join("two")
    bench.put(bench.jobs[0], placed, alone=True)
    assert best(bench, bench.jobs[2]) == "tls://one" or best(bench, bench.jobs[2]) is None


def test_what_no_machine_can_build_is_said_with_what_each_lacks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, patience=0.0)
    bench.join("a", toolkits=())
    bench.join("b", gcc=("13.1.0",))
    bench.dispatcher._give_up()
    bench.dispatcher._give_up()
    assert len(bench.events("unplaced")) == 3
    error = next(each.error for each in bench.dispatcher.journal.events if each.event == "unplaced") or ""
    assert "a lacks CUDA 11.8" in error and "b lacks a GCC that CUDA 11.8 takes" in error


def test_a_machine_that_was_there_may_come_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, patience=1000.0)
    bench.join("good")
    bench.dispatcher.workers.clear()
    bench.join("bad", toolkits=())
    bench.dispatcher._idle_since = time.monotonic() - 20
    bench.dispatcher._give_up()
    assert bench.events("unplaced") == []


def test_progress_says_how_far_where_and_how_long(bench: Bench) -> None:
    bench.put(bench.jobs[0], bench.join("one"))
    bench.dispatcher._progress()
    assert bench.said[-1].startswith("0 of 3 done; 1 running: spark-cu118-") and "about 15 min left" in bench.said[-1]
    bench.dispatcher.final("done", bench.jobs[0], seconds=60.0)
    bench.dispatcher.running.clear()
    bench.dispatcher._progress()
    assert "1 of 3 done; about 1 min left" in bench.said[-1], "what was measured counts more than what was guessed"


def test_progress_counts_a_finished_job_once_while_its_wheel_is_checked(tmp_path: Path, bench: Bench) -> None:
    """It said "1 of 2 done" of one job: the check of its wheel was counted beside it."""
    kepler = next(job for job in bench.jobs if job.cards == ("sm_35",))
    shelved_entry(bench, tmp_path, kepler)
    place = bench.join("card", cards=("sm_35",))
    bench.dispatcher.running[kepler.key or ""] = _Placed(kepler, place, "card", alone=False, check=True)
    bench.dispatcher._progress()
    assert bench.said[-1].startswith("1 of 3 done; 1 running: spark-cu118-sm35")


def test_a_job_without_the_wheels_it_was_to_make_has_failed(tmp_path: Path) -> None:
    """A job for two Pythons whose wheel serves one, and one whose wheel is gone: neither is done."""
    bench = Bench(tmp_path, matrix=MATRIX.replace("cuda =", 'python = ["3.11", "3.12"]\ncuda ='))
    half, gone, there = bench.jobs
    assert [len(job.cells) for job in bench.jobs] == [2, 2, 2]
    wheel = small_wheel(tmp_path / "half")
    with pytest.raises(ChecksFailed, match="no code for Python 3"):
        shelved.shelve(tmp_path / "shelf", half, wheel, 60.0)
    assert shelf.entries(tmp_path / "shelf") == () and shelved.jobs_on(tmp_path / "shelf") == {}
    shelved_entry(bench, tmp_path, there)
    bench.dispatcher.final("done", gone, wheel="gone.whl")
    run.count_wheels(bench.dispatcher, tmp_path / "shelf")
    assert bench.events("failed") == [gone.key]
    assert bench.said[-1] == f"failed    {gone.name}: its wheel is not on the shelf"


def test_cancelled_before_it_began(bench: Bench) -> None:
    key = bench.jobs[0].key or ""
    bench.dispatcher.state.ask_cancel((key,))
    bench.dispatcher._cancel_asked(None)
    assert bench.dispatcher.ended[key] == "cancelled" and bench.dispatcher.state.cancelled() == set()


def test_a_run_that_is_over_has_nothing_to_do(bench: Bench) -> None:
    for job in bench.jobs:
        bench.dispatcher.waiting.remove(job.key or "")

    class Client:
        def subscribe_topic(self, *_: object) -> None:
            return

    asyncio.run(bench.dispatcher.session(Client()))


def test_the_shelf_says_what_is_done_and_the_journal_what_failed(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    done, gone, failed = first.jobs
    journal = first.dispatcher.journal
    (entry,) = shelf.add(tmp_path / "shelf", [small_wheel(tmp_path / "made")])
    assert done.lock is not None and done.key is not None
    record = ShelvedJob(key=done.key, wheel=entry.file, sha256=entry.sha256, lock=done.lock)
    shelved.record(tmp_path / "shelf", record)
    journal.write(event("begin", key=done.key, worker="one"))
    journal.write(event("done", key=gone.key, wheel="gone.whl"))
    journal.write(event("failed", key=failed.key, error="no"))
    again = Bench(tmp_path).dispatcher
    assert again.ended == {done.key: "done", failed.key: "failed"}
    assert again.waiting == [gone.key], "its wheel is not on the shelf any more"
    assert again.journal.events[-1].event == "done" and again.journal.events[-1].key == done.key
    journal.write(event("unplaced", key=gone.key, error="no worker"))
    assert Bench(tmp_path).dispatcher.waiting == [gone.key], "another machine may have joined"


def shelved_entry(bench: Bench, folder: Path, job: FleetJob) -> ShelvedWheel:
    """Its wheel on the shelf, as the dispatcher leaves it when a worker without a card has built it."""
    (entry,) = shelf.add(folder / "shelf", [small_wheel(folder / "made")])
    assert job.key and job.lock
    shelved.record(folder / "shelf", ShelvedJob(key=job.key, wheel=entry.file, sha256=entry.sha256, lock=job.lock))
    bench.dispatcher.waiting.remove(job.key)
    bench.dispatcher.final("done", job, worker="plain", wheel=entry.file, sha256=entry.sha256)
    bench.dispatcher.checks.built(job, "plain", entry)
    return entry


def test_a_wheel_is_checked_where_its_card_is_whoever_built_it(
    tmp_path: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    kepler = next(job for job in bench.jobs if job.cards == ("sm_35",))
    shelved_entry(bench, tmp_path, kepler)
    dispatcher = bench.dispatcher
    bench.join("plain")
    bench.join("other", cards=("sm_86",))
    bench.join("windows", cards=("sm_35",), system="windows")

    async def nothing(client: Any, placed: _Placed) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(dispatcher, "_one", nothing)

    async def session() -> None:
        dispatcher._place_checks(None)
        assert not dispatcher.running and not dispatcher.over, "nobody who is there has the card"
        place = bench.join("card", cards=("sm_35",), toolkits=(), memory_gb=1)
        dispatcher._place_checks(None)
        assert dispatcher.running[kepler.key or ""].name == "card"
        dispatcher._gone(place, "card")
        del dispatcher.workers[place]
        assert kepler.key in dispatcher.checks.waiting and bench.events("died") == []
        bench.join("card", cards=("sm_35",), toolkits=())
        dispatcher._place_checks(None)
        await dispatcher._abandon()

    asyncio.run(session())
    assert bench.events("check") == [kepler.key] * 2
    assert dispatcher.ended[kepler.key or ""] == "done" and kepler.key not in dispatcher.waiting


def test_a_wheel_that_nobody_could_check_says_where_it_could_be(tmp_path: Path, bench: Bench) -> None:
    kepler = next(job for job in bench.jobs if job.cards == ("sm_35",))
    entry = shelved_entry(bench, tmp_path, kepler)
    for job in bench.jobs:
        if job is not kepler:
            bench.dispatcher.waiting.remove(job.key or "")
    bench.join("plain")
    bench.dispatcher._place_checks(None)
    assert bench.dispatcher.over
    bench.dispatcher.state.keep(bench.planned)
    status = status_of(bench.dispatcher.state, running=False)
    (job,) = (each for each in status.jobs if each.key == kepler.key)
    assert job.state == "done" and job.check and job.check.state is State.UNVERIFIED
    assert job.check.reason.startswith("no machine of the fleet has a card of sm_35; run `rekindle verify ")
    assert entry.file in job.check.reason and job.check.reason.endswith("on linux x86_64 with a card of sm_35")
    said = "\n".join(view.status_lines(status))
    assert "UNVERIFIED spark-cu118-sm35" in said and "0 of 1 wheels with GPU code were checked on a card" in said


def test_a_later_run_checks_what_the_first_could_not(tmp_path: Path, bench: Bench) -> None:
    kepler = next(job for job in bench.jobs if job.cards == ("sm_35",))
    entry = shelved_entry(bench, tmp_path, kepler)
    bench.dispatcher.checks.unchecked(kepler, "no machine of the fleet has a card of sm_35")
    again = Bench(tmp_path)
    assert list(again.dispatcher.checks.waiting) == [kepler.key]
    again.dispatcher.checks.done(kepler, "card", msgspec.structs.replace(entry, checked_on=("Tesla K40c (3.5)",)))
    assert not Bench(tmp_path).dispatcher.checks.waiting


class DyingFleet:
    """A scheduler with ten workers of eight slots, of which one dies now and then, and is back at another address."""

    status = "running"

    def __init__(self, dice: random.Random) -> None:
        self.scheduler, self.dice, self.deaths = self, dice, 0
        self.there = {f"tls://{number}": f"w{number}" for number in range(10)}

    def subscribe_topic(self, *_: object) -> None: ...

    async def identity(self) -> dict[str, Any]:
        seen = {
            address: {"rekindle": codec.to_json(msgspec.structs.replace(HAVE, name=name, slots=8), indent=0)}
            for address, name in self.there.items()
        }
        return {"workers": seen}

    async def built(self, _: object, placed: _Placed) -> JobResult:
        await asyncio.sleep(0)
        if placed.address in self.there and self.dice.random() < 0.01:
            self.deaths += 1
            self.there[f"tls://again-{self.deaths}"] = self.there.pop(placed.address)
        if placed.address not in self.there:
            await asyncio.Event().wait()
        return JobResult(key=placed.job.key or "", done=True, seconds=1.0)


def test_a_worker_that_goes_right_after_its_job_was_done_does_not_bring_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told to forget the job, and no longer answered: the job counted as lost, and was built once more."""
    bench = Bench(tmp_path)
    dispatcher = bench.dispatcher
    entry = shelved_entry(Bench(tmp_path / "other"), tmp_path / "other", bench.jobs[0])
    fleet = DyingFleet(random.Random(1))
    monkeypatch.setattr(fleet.dice, "random", lambda: 1.0)

    async def take(*_: object) -> ShelvedWheel:
        return entry

    async def gone(*_: object) -> None:
        raise OSError("the scheduler is gone")

    monkeypatch.setattr(dispatch, "_BEAT", 0.001)
    monkeypatch.setattr(dispatch, "call", gone)
    monkeypatch.setattr(dispatcher, "_built", fleet.built)
    monkeypatch.setattr(bench.dispatcher.intake, "take", take)
    asyncio.run(dispatcher.session(fleet))
    for job in bench.jobs:
        assert [each.event for each in dispatcher.journal.events if each.key == job.key][:3] == [
            "begin",
            "done",
            "unchecked",
        ]


def test_a_wheel_that_was_shelved_as_the_client_died_is_done_in_the_journal(tmp_path: Path) -> None:
    """The next plan finds it on the shelf and has nothing to build: the journal must not end with `begin`."""
    bench = Bench(tmp_path)
    first = bench.jobs[0]
    bench.put(first, bench.join("one"))
    (entry,) = shelf.add(tmp_path / "shelf", [small_wheel(tmp_path / "made")])
    assert first.key and first.lock
    done = ShelvedJob(key=first.key, wheel=entry.file, sha256=entry.sha256, lock=first.lock)
    shelved.record(tmp_path / "shelf", done)
    again = planning.make(tmp_path / "matrix.toml", shelf_folder=tmp_path / "shelf")
    assert {job.key: job.state.value for job in again.plan.jobs}[first.key] == "done"
    old = bench.dispatcher
    Dispatcher(again, old.state, old.journal, old.intake, old.rules, bench.said.append)
    assert [each.event for each in old.journal.events if each.key == first.key] == ["begin", "done"]


def test_a_wheel_that_was_being_shelved_as_its_worker_went_is_not_built_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    first, address = bench.jobs[0], bench.join("one")
    bench.put(first, address)
    del bench.dispatcher.workers[address]
    bench.dispatcher._gone(address, "one")
    (entry,) = shelf.add(tmp_path / "shelf", [small_wheel(tmp_path / "made")])
    assert first.key and first.lock
    done = ShelvedJob(key=first.key, wheel=entry.file, sha256=entry.sha256, lock=first.lock)
    shelved.record(tmp_path / "shelf", done)
    bench.join("two", slots=1)
    bench.dispatcher.waiting = [first.key]
    bench.dispatcher._place(None)
    assert [each.event for each in bench.dispatcher.journal.events if each.key == first.key] == [
        "begin",
        "died",
        "done",
    ]
    assert bench.dispatcher.over or first.key not in bench.dispatcher.waiting


@pytest.mark.long
def test_ten_thousand_jobs_while_workers_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, and nothing that is done is begun again."""
    bench = Bench(tmp_path, keep=True, heartbeat=1e9)
    first = bench.jobs[0]
    entry = shelved_entry(bench, tmp_path, first)
    (tmp_path / "shelf").rename(tmp_path / "elsewhere")
    many = tuple(msgspec.structs.replace(first, key=f"{number:064x}", name=f"job {number}") for number in range(10_000))
    planned = msgspec.structs.replace(bench.planned, plan=msgspec.structs.replace(bench.planned.plan, jobs=many))
    state = FleetState(tmp_path / "many")
    intake = Intake(planned, state, tmp_path / "shelf", lambda *_: None)
    journal = FleetJournal(state.journal)
    dispatcher = Dispatcher(planned, state, journal, intake, bench.dispatcher.rules, bench.said.append)
    fleet = DyingFleet(random.Random(38))

    async def take(*_: object) -> ShelvedWheel:
        return entry

    monkeypatch.setattr(dispatch, "_BEAT", 0.001)
    monkeypatch.setattr(dispatcher, "_built", fleet.built)
    monkeypatch.setattr(intake, "take", take)
    asyncio.run(dispatcher.session(fleet))
    kinds: dict[str, list[str]] = {}
    for each in journal.events:
        if each.key and each.event in ("begin", "died", "done"):
            kinds.setdefault(each.key, []).append(each.event)
    assert set(dispatcher.ended.values()) == {"done"} and len(dispatcher.ended) == 10_000
    assert fleet.deaths > 50
    for told in kinds.values():
        assert told == ["begin", "died"] * (len(told) // 2 - 1) + ["begin", "done"]
