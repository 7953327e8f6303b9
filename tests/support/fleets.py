"""A real fleet on this machine: scheduler, workers and client as processes of their own, with certificates."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from rekindle.fleet import scheduler, shelved
from rekindle.fleet.state import FleetEvent
from rekindle.fleet.state import read_events as read
from support.artefacts import unverified

ROOT = Path(__file__).resolve().parents[2]

CMAKE = """cmake_minimum_required(VERSION 3.18)
project(pebble LANGUAGES CXX)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
{before}
set(files)
foreach(number RANGE 1 {files})
  configure_file(part.cpp.in ${{CMAKE_CURRENT_BINARY_DIR}}/part_${{number}}.cpp @ONLY)
  list(APPEND files ${{CMAKE_CURRENT_BINARY_DIR}}/part_${{number}}.cpp)
endforeach()
add_library({name} SHARED ${{files}})
install(TARGETS {name} DESTINATION {name}/lib)
install(FILES __init__.py DESTINATION {name})
{after}
"""
PART = """#include <{header}>
extern "C" int {name}_@number@(int x) {{ return x + @number@; }}
"""
KILLER = """import os, signal, psutil
for each in psutil.Process().parents():
    if any("rekindle.fleet.worker" in word for word in each.cmdline()):
        os.kill(each.pid, signal.SIGKILL)
"""


def pebble(
    folder: Path, name: str, *, files: int = 2, before: str = "", megabytes: int = 0, header: str = "cstddef"
) -> str:
    """A CMake project of a few small C++ files; the lines that a matrix needs for it."""
    place = folder / name
    place.mkdir(parents=True)
    after = f"install(FILES ballast.bin DESTINATION {name})" if megabytes else ""
    if megabytes:
        (place / "ballast.bin").write_bytes(os.urandom(megabytes * 1024**2))
    text = CMAKE.format(name=name, files=files, before=before, after=after)
    (place / "CMakeLists.txt").write_text(text, encoding="utf-8")
    (place / "part.cpp.in").write_text(PART.format(name=name, header=header), encoding="utf-8")
    (place / "__init__.py").write_text("", encoding="utf-8")
    (place / "build.toml").write_text(
        f'source = "."\nname = "{name}"\nversion = "1.0"\nbackend = "cmake"\n', encoding="utf-8"
    )
    return f'[projects.{name}]\nbuild = "{name}/build.toml"\nminutes = 1\ndisk_gb = 0.01\nmemory_gb = 0.5\n'


def killer(folder: Path, name: str = "killer") -> str:
    """A project that kills the worker which builds it, as a compiler that eats all memory does."""
    script = f'execute_process(COMMAND "{sys.executable}" "${{CMAKE_CURRENT_SOURCE_DIR}}/kill.py")'
    lines = pebble(folder, name, files=1, before=script)
    (folder / name / "kill.py").write_text(KILLER, encoding="utf-8")
    return lines


class Fleet:
    """Processes that are ended with it; `environ` is what each of them gets besides."""

    def __init__(self, folder: Path, *, hosts: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.certs = folder / "certs"
        scheduler.make(self.certs, hosts)
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        self.environ["REKINDLE_KEY"] = str(folder / "key.pem")
        self.host = "127.0.0.1"

    @property
    def address(self) -> str:
        return f"tls://{self.host}:{self.port}"

    def start(self, name: str, *words: str, before: tuple[str, ...] = (), **environ: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.txt").open("ab")
        command = [*before, sys.executable, "-m", "rekindle", "fleet", *words]
        process = subprocess.Popen(
            command, env={**self.environ, **environ}, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        log.close()
        self.processes[name] = process
        return process

    def scheduler(self) -> None:
        words = ("--host", self.host, "--port", str(self.port), "--certs", str(self.certs))
        self.start("scheduler", "scheduler", *words)
        until(lambda: reaches(self.host, self.port), 60, "the scheduler did not start")

    def worker(self, name: str, *words: str, before: tuple[str, ...] = (), **environ: str) -> Path:
        place = self.folder / name
        self.start(
            name, "worker", "--scheduler", self.address, "--certs", str(self.certs), "--name", name,
            "--folder", str(place), *words, before=before, **environ,
        )  # fmt: skip
        return place

    def worker_process(self, name: str) -> int | None:
        """The process that does the work, below the command that watches over it."""
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.processes[name].pid).children():
                if any("rekindle.fleet.worker" in word for word in child.cmdline()):
                    return int(child.pid)
        return None

    def kill_worker(self, name: str) -> bool:
        pid = self.worker_process(name)
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        return True

    def client(self, verb: str, matrix: Path, *words: str) -> subprocess.Popen[bytes]:
        return self.start(
            "client", verb, str(matrix), "--scheduler", self.address, "--certs", str(self.certs),
            "--shelf", str(self.folder / "shelf"), *words,
        )  # fmt: skip

    def close(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait()


class KilledRound:
    """A matrix that is built while its parts are killed."""

    def __init__(self, fleet: Fleet, number: int, jobs: int) -> None:
        self.fleet, self.jobs = fleet, jobs
        names = [f"pebble{number}x{each}" for each in range(jobs)]
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
        assert len(mine) == self.jobs
        assert mine <= set(shelved.jobs_on(self.fleet.folder / "shelf")), "a wheel was lost"
        for key in mine:
            after = [each.event for each in said if each.key == key]
            assert after.count("done") == 1 and after[-1] == "done", f"a finished job was begun again: {after}"


def until(holds: Callable[[], object], seconds: float, said: str) -> None:
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit, said
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def reaches(host: str, port: int) -> bool:
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex((host, port)) == 0


def events(matrix: Path) -> list[FleetEvent]:
    return read(matrix.with_suffix(".fleet") / "journal.jsonl")


def steps(worker: Path) -> dict[str, list[tuple[str, str]]]:
    """What the builds on a worker did, by job: (event, step) as their own journals say."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in worker.glob("jobs/*/w/journal.jsonl"):
        with contextlib.suppress(OSError):
            for line in path.read_bytes().splitlines():
                with contextlib.suppress(ValueError):
                    said = json.loads(line)
                    found.setdefault(path.parts[-3], []).append((said["event"], said.get("step", "")))
    return found


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """A real Redis: its address, and how to stop and to start it."""
    if shutil.which("redis-server") is None:
        unverified("redis-server is not installed")
    port = free_port()
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        running.append(subprocess.Popen(words, stdout=subprocess.DEVNULL))
        until(lambda: reaches("127.0.0.1", port), 30, "Redis did not start")

    def stop() -> None:
        running[-1].kill()
        running[-1].wait()

    start()
    try:
        yield f"redis://127.0.0.1:{port}", stop, start
    finally:
        stop()
