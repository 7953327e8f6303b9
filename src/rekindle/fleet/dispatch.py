"""Gives the jobs of a plan to the workers of a fleet, one by one, and takes in what they make.

A job goes to one worker that can build it, never to a queue: when a worker dies it is known which jobs it had. A job
that was there alone is blamed; of several each is tried again alone. What a job needs and no worker has is said.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rekindle.core import codec
from rekindle.core.errors import ChecksFailed, RekindleError
from rekindle.fleet import shelved, view, work
from rekindle.fleet.announcement import Announcement, capacity, describe, lacks
from rekindle.fleet.intake import Intake
from rekindle.fleet.job import FleetJob, JobResult, JobState, JobStep
from rekindle.fleet.planning import Planned
from rekindle.fleet.state import FINAL, Checks, FleetJournal, FleetState, cannot_check, deaths, event, last_of
from rekindle.fleet.view import Pace

Tell = Callable[[str], None]
_BEAT = 0.25


class DispatchRules(msgspec.Struct, frozen=True, kw_only=True):
    """`deaths`: a job that takes so many workers with it, alone, is set aside. `patience`: seconds to wait for one."""

    deaths: int = 4
    patience: float = 120.0
    tries: int = 3
    """Of a job whose worker's disk was full."""
    cache: str | None = None
    keep: bool = False
    """Leave the jobs' folders on the workers."""
    heartbeat: float = 30.0
    """Seconds between two lines that say how far it is."""


class SchedulerLost(Exception):
    """The connection to the scheduler broke; nothing is known of the workers."""


@dataclass(eq=False)
class _Placed:
    """A job on a worker."""

    job: FleetJob
    address: str
    name: str
    alone: bool
    check: bool = False
    """Its wheel is checked on a card there; it was built before."""
    since: float = field(default_factory=time.monotonic)
    step: str = "sent"
    task: asyncio.Task[None] | None = None


class Dispatcher:
    def __init__(
        self,
        planned: Planned,
        state: FleetState,
        journal: FleetJournal,
        intake: Intake,
        rules: DispatchRules,
        tell: Tell,
    ) -> None:
        self.state, self.journal, self.intake, self.rules, self.tell = state, journal, intake, rules, tell
        self.running: dict[str, _Placed] = {}
        self.workers: dict[str, Announcement] = {}
        self.seen: dict[str, Announcement] = {}
        """Every worker that was ever there, by name: it may come back."""
        self.jobs = {str(job.key): job for job in planned.plan.jobs if job.state is JobState.BUILD and job.key}
        self.ended = self._ended([job for job in planned.plan.jobs if job.state is JobState.DONE and job.key])
        self.waiting = [key for key in self.jobs if key not in self.ended]
        self._with_needs = [key for key, job in self.jobs.items() if job.needs]
        self.checks = Checks(self.jobs, [key for key in self.ended if self.ended[key] == "done"], journal, intake.shelf)
        self.last_worker = {each.key: each.worker for each in journal.events if each.key and each.worker}
        self.pace = Pace(self.jobs, journal.events)
        self._told_at = time.monotonic()
        self._dead = {key: deaths(journal.events, key) for key in {each.key for each in journal.events if each.key}}
        self._looked = 0.0
        self._again: set[str] = set()
        self._full: dict[str, set[str]] = {}
        self._idle_since: float | None = None
        self._told: set[asyncio.Future[Any]] = set()
        self._settling: asyncio.Future[None] | None = None

    def _ended(self, before: list[FleetJob]) -> dict[str, str]:
        """What need not be run: the shelf says what is done, the journal what failed.

        A job whose wheel was taken off the shelf is built again; one that was shelved just before the client died is
        done, also where the plan found it on the shelf (`before`). Who found no worker is tried again: another machine
        may have joined.
        """
        last = last_of(self.journal.events)
        there = shelved.jobs_on(self.intake.shelf)
        found: dict[str, str] = {}
        for job in (*self.jobs.values(), *before):
            key, done = str(job.key), there.get(str(job.key))
            word = last[key].event if key in last else ""
            if done is not None and word != "done" and (word or key in self.jobs):
                self.journal.write(event("done", key=key, name=job.name, wheel=done.wheel, sha256=done.sha256))
            if key in self.jobs and (done is not None or (word in FINAL and word not in ("done", "unplaced"))):
                found[key] = "done" if done is not None else word
        return found

    @property
    def over(self) -> bool:
        return not self.waiting and not self.running and not self.checks.waiting

    async def session(self, client: Any) -> None:
        """Until everything is ended; raises `SchedulerLost` when the scheduler goes."""
        client.subscribe_topic(work.TOPIC, self._heard)
        try:
            while not self.over:
                await self._look(client)
                self._strays()
                self._cancel_asked(client)
                self._blocked()
                self._place(client)
                self._place_checks(client)
                self._give_up()
                self._progress()
                self._settle()
                await self._beat()
        finally:
            await self._abandon()
            if self._settling is not None:
                await self._settling
            if self.journal.unsettled:
                self.journal.settle()

    async def _look(self, client: Any) -> None:
        if time.monotonic() - self._looked < _BEAT and self.workers:
            return
        self._looked = time.monotonic()
        try:
            seen = await asyncio.wait_for(client.scheduler.identity(), 30)
        except (OSError, asyncio.TimeoutError) as error:
            raise SchedulerLost(str(error)) from error
        if client.status != "running":
            raise SchedulerLost("the connection was closed")
        here: dict[str, Announcement] = {}
        for address, told in seen["workers"].items():
            if address in self.workers:
                here[address] = self.workers[address]
            elif "rekindle" in told:
                with contextlib.suppress(RekindleError):
                    here[address] = codec.from_json(told["rekindle"], Announcement, name="the announcement")
                    self.seen[here[address].name] = here[address]
                    self.tell(f"worker {here[address].name} joined: {describe(here[address])}")
        for address in self.workers.keys() - here.keys():
            self._gone(address, self.workers[address].name)
        self.workers = here

    def _gone(self, address: str, name: str) -> None:
        with_it = [placed for placed in self.running.values() if placed.address == address]
        self.tell(f"worker {name} is gone" + (f" with {len(with_it)} jobs" if with_it else ""))
        for placed in with_it:
            self._end_task(placed)
            if not placed.check:
                key, alone = placed.job.key or "", len(with_it) == 1
                told = event("died", key=key, worker=placed.name, step=placed.step, alone=alone, seconds=_since(placed))
                self.journal.write(told)
                self._dead[key] = deaths(self.journal.events, key)
            self._back(placed)

    def _back(self, placed: _Placed) -> None:
        job = placed.job
        assert job.key is not None
        if placed.check:
            self.checks.again(job)
            return
        _, blamed = self._dead.get(job.key, (0, 0))
        if blamed >= self.rules.deaths:
            error = f"{blamed} workers died while this job ran on them alone"
            self.final("aside", job, error=error, log=self.intake.keep_log(job.key, self._log_of(job.key)))
        elif job.key not in self.waiting:
            # What was begun goes on first: a worker may hold most of it.
            self.waiting.insert(0, job.key)
            self._again.add(job.key)

    def _shelved_meanwhile(self, key: str) -> bool:
        """Its worker went while its wheel was being taken in: what is on the shelf is done, whoever went."""
        done = shelved.jobs_on(self.intake.shelf).get(key) if key in self._again else None
        if done is None:
            return False
        self.waiting.remove(key)
        self.final("done", self.jobs[key], wheel=done.wheel, sha256=done.sha256)
        return True

    def _log_of(self, key: str) -> str:
        mine = [each for each in self.journal.events if each.key == key]
        lines = [f"{each.at} {each.event} {each.worker or ''} {each.step or ''}" for each in mine]
        return "\n".join([*lines, *[each.log for each in mine if each.log][-1:]])

    def _place(self, client: Any) -> None:
        for key in list(self.waiting):
            job = self.jobs[key]
            if any(self.ended.get(need) != "done" for need in job.needs if need in self.jobs):
                continue
            if not any(self._free(*each, alone=False) for each in self.workers.items()):
                return
            suspect = self._dead.get(key, (0, 0))[0] > 0
            address = self._best(job, alone=suspect)
            if address is None or self._shelved_meanwhile(key):
                continue
            self.waiting.remove(key)
            self._send(client, _Placed(job, address, self.workers[address].name, alone=suspect), "begin")

    def _send(self, client: Any, placed: _Placed, word: str) -> None:
        key = str(placed.job.key)
        self.running[key] = placed
        self.journal.write(event(word, key=key, name=placed.job.name, worker=placed.name))
        placed.task = asyncio.ensure_future(self._one(client, placed))

    def _place_checks(self, client: Any) -> None:
        """Finished wheels to machines with a fitting card. Builds that only such a machine can do come first."""
        for key, job in list(self.checks.waiting.items()):
            fitting = [
                address
                for address, have in self.workers.items()
                if not cannot_check(job, have) and self._free(address, have, alone=False)
            ]
            if not fitting:
                continue
            del self.checks.waiting[key]
            name = self.workers[fitting[0]].name
            self._send(client, _Placed(job, fitting[0], name, alone=False, check=True), "check")
        if not self.waiting and not self.running:
            self.checks.nobody(self.workers.values(), self.rules.patience)

    def _best(self, job: FleetJob, *, alone: bool) -> str | None:
        """A free worker that can build it: the one that had it, then one with such a card, then the least wealthy.

        The build's own check runs on a card where there is one; what others may need is left to them.
        """

        def fits(address: str, have: Announcement) -> bool:
            return self._free(address, have, alone=alone) and not lacks(job, have) and not self._was_full(job, have)

        free = [each for each in self.workers.items() if fits(*each)]
        if not free:
            return None
        before = self.last_worker.get(job.key or "")

        def rank(each: tuple[str, Announcement]) -> tuple[bool, bool, int, int]:
            address, have = each
            return (
                have.name != before, not set(job.cards) & set(have.cards), capacity(have), -self._room(address, have)
            )  # fmt: skip

        return min(free, key=rank)[0]

    def _room(self, address: str, have: Announcement) -> int:
        return have.slots - sum(placed.address == address for placed in self.running.values())

    def _free(self, address: str, have: Announcement, *, alone: bool) -> bool:
        there = [placed for placed in self.running.values() if placed.address == address]
        taken = any(placed.alone for placed in there) or (alone and there)
        return not taken and len(there) < have.slots

    def _was_full(self, job: FleetJob, have: Announcement) -> bool:
        return have.name in self._full.get(job.key or "", ())

    def _blocked(self) -> None:
        """A job whose need failed will never run."""
        for key in [each for each in self._with_needs if each in self.waiting]:
            bad = [need for need in self.jobs[key].needs if self.ended.get(need, "done") != "done"]
            if bad:
                self.waiting.remove(key)
                self.final("failed", self.jobs[key], error=f"it needs {self.jobs[bad[0]].name}, which did not succeed")

    def _give_up(self) -> None:
        """When nothing runs and nobody came for what is left within the patience, it is said what is missing."""
        if self.running or not self.waiting:
            self._idle_since = None
            return
        self._idle_since = self._idle_since or time.monotonic()
        # Where nobody who was ever there could build it, only a new machine helps: seconds, not minutes.
        lacking = ((self.jobs[key], have) for key in self.waiting for have in self.seen.values())
        hopeless = bool(self.seen) and all(lacks(job, have) or self._was_full(job, have) for job, have in lacking)
        patience = min(self.rules.patience, 10.0) if hopeless else self.rules.patience
        if time.monotonic() - self._idle_since < patience:
            return
        for key in list(self.waiting):
            self.waiting.remove(key)
            self.final("unplaced", self.jobs[key], error=self._missing(self.jobs[key]))

    def _missing(self, job: FleetJob) -> str:
        if not self.workers:
            return "no worker is there"
        said = [f"{have.name} lacks {', '.join(lacks(job, have) or ('disk space',))}" for have in self.workers.values()]
        return "no worker can build it: " + "; ".join(sorted(said)[:5])

    async def _one(self, client: Any, placed: _Placed) -> None:
        job = placed.job
        assert job.key is not None
        try:
            result = await self._built(client, placed)
            if placed.check:
                await self._take_check(client, placed, result)
            elif result.done:
                placed.step = "upload"
                entry = await self.intake.take(client, placed.address, job, result, self.workers[placed.address].key)
                self.final(
                    "done", job, worker=placed.name, wheel=entry.file, sha256=entry.sha256, seconds=_since(placed),
                    cache_hits=result.cache_hits, cache_misses=result.cache_misses,
                )  # fmt: skip
                self.checks.built(job, placed.name, entry)
                # Whatever happens to its worker from now on, it is done.
                del self.running[job.key]
                if not self.rules.keep:
                    await self._forget(client, placed)
            else:
                self._failed(placed, result)
        except RekindleError as error:
            self._wrong(placed, error.message)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if placed.address not in self.workers or _is_connection(error):
                # The worker or the scheduler is going: the next look tells which.
                return
            self._wrong(placed, f"{type(error).__name__}: {error}"[:500])
        if self.running.get(job.key) is placed:
            del self.running[job.key]

    def _wrong(self, placed: _Placed, error: str) -> None:
        if placed.check:
            self.checks.unchecked(placed.job, error, worker=placed.name)
        else:
            self.final("failed", placed.job, worker=placed.name, error=error, seconds=_since(placed))

    async def _take_check(self, client: Any, placed: _Placed, result: JobResult) -> None:
        """What a card said of a wheel. One that failed there is not offered any more."""
        job, key = placed.job, self.workers[placed.address].key
        if not result.done:
            self.checks.unchecked(job, result.error or "the check broke off", worker=placed.name)
            return
        try:
            entry = await self.intake.take_check(client, placed.address, job, result, key)
        except ChecksFailed as error:
            self.checks.failed(job, placed.name, error.message)
            self.intake.yank(job, f"it failed on {placed.name}")
            self.final("failed", job, worker=placed.name, error=error.message, seconds=_since(placed), step="check")
        else:
            self.checks.done(job, placed.name, entry)
        await self._forget(client, placed)

    async def _forget(self, client: Any, placed: _Placed) -> None:
        """Its folder on the worker may go. A worker that does not hear it makes nothing of the job undone."""
        self._hold(placed.task)
        with contextlib.suppress(Exception):
            await call(client, placed.address, work.forget, placed.job.key)

    async def _built(self, client: Any, placed: _Placed) -> JobResult:
        if placed.check:
            order = await self.intake.check_order(client, placed.address, placed.job)
        else:
            order = await self.intake.order(client, placed.address, placed.job, self.rules.cache)
        said = await call(client, placed.address, work.build, codec.to_json(order, indent=0))
        return codec.from_json(said, JobResult, name="the result")

    def _failed(self, placed: _Placed, result: JobResult) -> None:
        job, key = placed.job, placed.job.key or ""
        log = self.intake.keep_log(key, result.log)
        if result.cancelled:
            self.final("cancelled", job, worker=placed.name, seconds=_since(placed), log=log)
        elif result.full and len(self._full.setdefault(key, set())) < self.rules.tries:
            self._full[key].add(placed.name)
            if placed.address in self.workers:
                # Until it joins again, and says how much is free then.
                have = msgspec.structs.replace(self.workers[placed.address], disk_gb=0.0)
                self.workers[placed.address] = have
            self.journal.write(event("full", key=key, worker=placed.name, error=result.error, log=log))
            self.waiting.insert(0, key)
        else:
            self.final(
                "failed", job, worker=placed.name, error=result.error, diagnosis=result.diagnosis, log=log,
                step=placed.step, seconds=result.seconds,
            )  # fmt: skip

    def final(self, kind: str, job: FleetJob, **values: Any) -> None:
        assert job.key is not None
        self.journal.write(event(kind, key=job.key, name=job.name, **values))
        self.ended[job.key] = kind
        if kind == "done" and values.get("seconds") is not None:
            self.pace.took(job, values["seconds"])
        reason = f": {values['error']}" if values.get("error") else ""
        self.tell(f"{kind:<9} {job.name}{reason}")

    def _heard(self, said: Any) -> None:
        with contextlib.suppress(RekindleError, KeyError, IndexError, TypeError):
            step = codec.from_builtins(said[1], JobStep)
            self.running[step.key].step = step.step

    def _progress(self) -> None:
        """A line every so often: how far, where, how long still."""
        if time.monotonic() - self._told_at < self.rules.heartbeat:
            return
        self._told_at = time.monotonic()
        counts = {"done": 0}
        for key in self.jobs:
            state = self.ended.get(key) or ("running" if key in self.running else "waiting")
            counts[state] = counts.get(state, 0) + 1
        now = [(placed.job.name, placed.name, placed.step) for placed in self.running.values()]
        slots = sum(have.slots for have in self.workers.values())
        since = {key: _since(placed) for key, placed in self.running.items()}
        self.tell(view.progress_line(counts, now, self.pace.left(self.waiting, since, slots)))

    def _strays(self) -> None:
        """A call that broke off while its worker stayed: the job is taken up again."""
        for placed in list(self.running.values()):
            if placed.task is not None and placed.task.done():
                self._end_task(placed)
                self._lost(placed)

    def _cancel_asked(self, client: Any) -> None:
        for key in self.state.cancelled():
            if key in self.waiting:
                self.waiting.remove(key)
                self.final("cancelled", self.jobs[key])
            elif key in self.running:
                self._hold(asyncio.ensure_future(call(client, self.running[key].address, work.stop, key)))
            self.state.answer_cancel(key)

    def _hold(self, task: asyncio.Future[Any] | None) -> None:
        if task is not None:
            self._told.add(task)
            task.add_done_callback(self._told.discard)

    def _settle(self) -> None:
        """The journal to the disk, beside the work and never twice at once: what ends meanwhile goes with the next."""
        if self._settling is not None and self._settling.done():
            self._settling.result()
            self._settling = None
        if self._settling is None and self.journal.unsettled:
            self._settling = asyncio.ensure_future(asyncio.to_thread(self.journal.settle))

    async def _beat(self) -> None:
        """A moment, or less when a job ends."""
        tasks = [placed.task for placed in self.running.values() if placed.task and not placed.task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=_BEAT, return_when=asyncio.FIRST_COMPLETED)
        elif not self.over:
            can_place = any(self._best(self.jobs[key], alone=False) for key in self.waiting[:5])
            await asyncio.sleep(0.02 if can_place else _BEAT)

    def _end_task(self, placed: _Placed) -> None:
        if placed.task is not None:
            placed.task.cancel()
        self.running.pop(placed.job.key or "", None)

    async def _abandon(self) -> None:
        """The scheduler is gone, or we are: what ran is waiting again, and goes on from where it is."""
        for placed in list(self.running.values()):
            self._end_task(placed)
            self._lost(placed)
        self.workers = {}

    def _lost(self, placed: _Placed) -> None:
        if not placed.check:
            self.journal.write(event("lost", key=placed.job.key, worker=placed.name, step=placed.step))
        self._back(placed)


def _since(placed: _Placed) -> float:
    return round(time.monotonic() - placed.since, 3)


def _is_connection(error: Exception) -> bool:
    from distributed.client import FutureCancelledError

    # A connection that closed is an OSError there.
    return isinstance(error, (OSError, asyncio.TimeoutError, FutureCancelledError))


async def call(client: Any, address: str, function: Callable[..., Any], *words: Any) -> Any:
    future = client.submit(function, *words, workers=[address], allow_other_workers=False, pure=False)
    try:
        return await future
    finally:
        future.release()
