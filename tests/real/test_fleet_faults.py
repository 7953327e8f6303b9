"""A fleet of real processes over TLS, with a real Redis, while its parts are killed.

What must hold: everything is built but the one job that kills its workers, nothing is lost, and nothing that is on the
shelf is built again. All of it is counted from the journals.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from rekindle.fleet import shelved
from support.artefacts import unverified
from support.fleets import Fleet, events, killer, pebble, redis, steps, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills processes as Linux does")


class Killer(threading.Thread):
    """Kills the worker that is in each of these steps, once; `upload` is when the wheel is arriving."""

    def __init__(self, fleet: Fleet, workers: dict[str, Path], matrix: Path, wanted: list[str]) -> None:
        super().__init__(daemon=True)
        self.fleet, self.workers, self.matrix, self.wanted = fleet, workers, matrix, wanted
        self.killed: list[tuple[str, str]] = []
        self.hit: set[str] = set()
        self.stop = False

    def run(self) -> None:
        while self.wanted and not self.stop:
            self._uploads()
            self._fill()
            for name, place in self.workers.items():
                for key, said in steps(place).items():
                    event, step = said[-1]
                    # One death each: a job that dies often is meant to be set aside.
                    if event not in ("begin", "process") or step not in self.wanted or key in self.hit:
                        continue
                    if self.fleet.kill_worker(name):
                        self.wanted.remove(step)
                        self.hit.add(key)
                        self.killed.append((step, name))
            time.sleep(0.002)

    def _fill(self) -> None:
        """The disk of the third worker runs full while it builds."""
        place = self.fleet.folder / "small"
        if "disk" not in self.wanted or not any(place.glob("jobs/*/w/journal.jsonl")):
            return
        self.wanted.remove("disk")
        with contextlib.suppress(OSError), (place / "ballast").open("wb", buffering=0) as stream:
            while True:
                stream.write(b"x" * 65536)

    def _uploads(self) -> None:
        if "upload" not in self.wanted:
            return
        arriving = self.matrix.with_suffix(".fleet") / "arriving"
        for part in arriving.glob("*/*.part"):
            begun = [
                each
                for each in events(self.matrix)
                if each.event == "begin" and (each.key or "")[:16] == part.parent.name
            ]
            if begun and part.is_file() and self.fleet.kill_worker(str(begun[-1].worker)):
                self.wanted.remove("upload")
                self.killed.append(("upload", str(begun[-1].worker)))
                return


def finished_of(matrix: Path) -> int:
    return sum(each.event == "done" for each in events(matrix))


@pytest.mark.long
def test_everything_is_finished_but_the_job_that_kills_its_workers(tmp_path: Path) -> None:
    folder = tmp_path
    names = [f"pebble{number}" for number in range(1, 12)]
    lines = [pebble(folder, name, files=3, header="algorithm") for name in names[:-1]]
    lines += [pebble(folder, names[-1], megabytes=48), killer(folder)]
    broken = pebble(folder, "broken", header="no_such_header.h")
    matrix = folder / "matrix.toml"
    arch = os.uname().machine
    projects = ", ".join(f'"{name}"' for name in [*names, "broken", "killer"])
    matrix.write_text(
        f'project = [{projects}]\ncuda = "cpu"\narch = "{arch}"\n' + "\n".join([*lines, broken]), encoding="utf-8"
    )
    fleet = Fleet(folder)
    small = folder / "small"
    small.mkdir()
    mounted = (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "none", str(small)], check=False).returncode == 0
    )
    try:
        with redis(folder) as (address, stop_redis, start_redis):
            fleet.scheduler()
            workers = {
                "one": fleet.worker("one", "--cache", address, "--slots", "2", "--memory", "4"),
                "two": fleet.worker("two", "--cache", address, "--slots", "1", "--memory", "2"),
            }
            if mounted:
                workers["small"] = fleet.worker("small", "--slots", "1", "--memory", "1")
            client = fleet.client("run", matrix, "--deaths", "3", "--keep", "--patience", "90")
            hunter = Killer(
                fleet,
                {name: workers[name] for name in ("one", "two")},
                matrix,
                ["compile", "package", "verify", "upload", *(["disk"] if mounted else [])],
            )
            hunter.start()
            until(lambda: finished_of(matrix) >= 2, 400, "nothing was finished")
            stop_redis()
            fleet.processes["scheduler"].kill()
            fleet.processes["scheduler"].wait()
            time.sleep(3)
            fleet.scheduler()
            until(lambda: finished_of(matrix) >= 5, 600, "nothing more was finished after the scheduler came back")
            start_redis()
            client.kill()
            client.wait()
            finished = {each.key for each in events(matrix) if each.event == "done"}
            assert fleet.client("resume", matrix, "--deaths", "3", "--keep", "--patience", "90").wait(1500) == 10
            hunter.stop = True
            hunter.join()
    finally:
        fleet.close()
        if mounted:
            subprocess.run(["umount", "-l", str(small)], check=False)
    said = events(matrix)
    last = {each.key: each.event for each in said if each.key}
    by_name = {each.name: last[each.key] for each in said if each.event == "begin"}
    assert by_name == {**dict.fromkeys([f"{name}-cpu-linux-{arch}" for name in names], "done"),
                       f"broken-cpu-linux-{arch}": "failed", f"killer-cpu-linux-{arch}": "aside"}  # fmt: skip
    assert {step for step, _ in hunter.killed} == {"compile", "package", "verify", "upload"}, hunter.killed
    shelf = shelved.jobs_on(folder / "shelf")
    assert {key for key, event in last.items() if event == "done"} == set(shelf), "what is done is on the shelf"
    for key in shelf:
        after = [each.event for each in said if each.key == key]
        assert after.count("done") == 1 and after[-1] == "done", "a finished job was begun again"
    assert finished <= set(shelf)
    killer_deaths = [each for each in said if each.event == "died" and last[each.key] == "aside"]
    assert len([each for each in killer_deaths if each.alone]) == 3
    failed = next(each for each in said if each.event == "failed")
    assert failed.diagnosis is not None and "no_such_header.h" in failed.diagnosis.causes[0].evidence[0].text
    if not mounted:
        unverified("a small tmpfs could not be mounted: the full disk was not tried")
    assert [each for each in said if each.event == "full"], "the small disk was never filled"
    print(Counter(each.event for each in said), hunter.killed)
