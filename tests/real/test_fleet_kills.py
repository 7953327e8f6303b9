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

from support.fleets import Fleet, KilledRound

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills processes as Linux does")

SEED = int(os.environ.get("REKINDLE_SEED", "38"))
KILLS, JOBS = 30, 5


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
            this = KilledRound(fleet, rounds, JOBS)
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
