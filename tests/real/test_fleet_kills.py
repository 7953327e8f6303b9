"""kill -9 of client, scheduler and workers at thirty seeded moments: nothing is lost, nothing is built twice.

REKINDLE_SEED repeats a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from rekindle.fleet import shelved
from support.fleets import Fleet, events, pebble

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills processes as Linux does")

SEED = int(os.environ.get("REKINDLE_SEED", "38"))
KILLS, JOBS = 30, 5


class Round:
    """A matrix that is built while its parts are killed."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.fleet = fleet
        names = [f"pebble{number}x{each}" for each in range(JOBS)]
        lines = [pebble(fleet.folder, name, files=3, header="algorithm") for name in names]
        listed = ", ".join(f'"{name}"' for name in names)
        self.matrix = fleet.folder / f"matrix{number}.toml"
        head = f'project = [{listed}]\ncuda = "cpu"\narch = "{os.uname().machine}"\n'
        self.matrix.write_text(head + "\n".join(lines), encoding="utf-8")
        self.client = self.started()

    def started(self) -> subprocess.Popen[bytes]:
        """The same command, again and again: it goes on where the journal ends."""
        return self.fleet.client("run", self.matrix, "--deaths", "99", "--patience", "120")

    def kill(self, who: str) -> bool:
        if who not in ("client", "scheduler"):
            return self.fleet.kill_worker(who)
        process = self.fleet.processes[who]
        if process.poll() is not None:
            return False
        process.kill()
        process.wait()
        if who == "scheduler":
            self.fleet.scheduler()
        else:
            self.client = self.started()
        return True

    def judge(self) -> None:
        said = [each for each in events(self.matrix) if each.key]
        mine = {str(each.key) for each in said}
        assert len(mine) == JOBS
        assert mine <= set(shelved.jobs_on(self.fleet.folder / "shelf")), "a wheel was lost"
        for key in mine:
            after = [each.event for each in said if each.key == key]
            assert after.count("done") == 1 and after[-1] == "done", f"a finished job was begun again: {after}"


@pytest.mark.long
def test_nothing_is_lost_and_nothing_is_built_twice(tmp_path: Path) -> None:
    lot, killed, rounds = random.Random(SEED), Counter[str](), 0
    fleet = Fleet(tmp_path)
    try:
        fleet.scheduler()
        for name in ("one", "two"):
            fleet.worker(name, "--slots", "1", "--memory", "2")
        while killed.total() < KILLS:
            rounds += 1
            this = Round(fleet, rounds)
            while killed.total() < KILLS and this.client.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    this.client.wait(lot.uniform(0.1, 8))
                who = lot.choice(("client", "scheduler", "one", "two"))
                killed[who] += this.client.poll() is None and this.kill(who)
            assert this.client.wait(900) == 0, (tmp_path / "client.txt").read_text(encoding="utf-8")[-2000:]
            this.judge()
    finally:
        fleet.close()
    wheels = list((tmp_path / "shelf" / "wheels").glob("*.whl"))
    assert len(wheels) == rounds * JOBS, "one wheel of each job"
    assert set(killed) == {"client", "scheduler", "one", "two"}, killed
    print(SEED, killed, rounds)
