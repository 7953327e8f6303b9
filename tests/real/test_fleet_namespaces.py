"""The record: a scheduler, workers in network namespaces of their own, TLS between them, a real Redis, 24 jobs.

`REKINDLE_FLEET_RECORD` names a folder that keeps the journal and the status, `REKINDLE_FLEET_KITS` one with the toolkit
that the fourth worker assembles: it takes minutes, and need not be done twice.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.core import codec
from rekindle.fleet import announcement, shelved
from rekindle.fleet.state import FleetState, status_of
from rekindle.wheels.shelf import shelf as shelves
from support.artefacts import unverified
from support.cuda import kepler_toolkit, machine, project
from support.fleets import Fleet, events, pebble

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")
HOST = "10.77.0.1"
SETS = {
    "11.8": ["3.5", "5.2;6.1", "7.0", "8.6"],
    "12.4": ["5.0", "6.1", "7.0;7.5", "9.0"],
    "13.0": ["7.5", "8.0;8.6", "9.0", "12.0"],
}
PYTHONS = ("3.11", "3.12")
"""Of the project whose wheel carries its Python."""
NEW_KIT = "12.4"
"""The CUDA that no worker has and one may assemble."""


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        unverified(f"no network namespaces here: ip {' '.join(words)}: {done.stderr.strip()}")


@contextlib.contextmanager
def namespaces(names: list[str]) -> Iterator[dict[str, tuple[str, ...]]]:
    """A bridge with our own address and a namespace behind it per name; the words that run a program in it."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        unverified("network namespaces need root and iproute2")
    with contextlib.ExitStack() as stack:
        ip("link", "add", "rkbr", "type", "bridge")
        stack.callback(subprocess.run, ["ip", "link", "del", "rkbr"], check=False)
        ip("addr", "add", f"{HOST}/24", "dev", "rkbr")
        ip("link", "set", "rkbr", "up")
        for number, name in enumerate(names, 2):
            ip("netns", "add", f"rk{name}")
            stack.callback(subprocess.run, ["ip", "netns", "del", f"rk{name}"], check=False)
            ip("link", "add", f"rkv{number}", "type", "veth", "peer", "name", f"rkp{number}")
            ip("link", "set", f"rkv{number}", "master", "rkbr", "up")
            ip("link", "set", f"rkp{number}", "netns", f"rk{name}")
            ip("-n", f"rk{name}", "addr", "add", f"10.77.0.{number}/24", "dev", f"rkp{number}")
            ip("-n", f"rk{name}", "link", "set", f"rkp{number}", "up")
            ip("-n", f"rk{name}", "link", "set", "lo", "up")
        yield {name: ("ip", "netns", "exec", f"rk{name}") for name in names}


def small(folder: Path, name: str, *, backend: str = "cmake") -> str:
    """The small CUDA project under another name, with one kernel and one C++ file."""
    shutil.copytree(project("spark"), folder / name)
    cmake = folder / name / "CMakeLists.txt"
    text = cmake.read_text(encoding="utf-8").replace("alpha beta gamma delta", "alpha").replace("red green blue", "red")
    cmake.write_text(text.replace("spark", name), encoding="utf-8")
    (folder / name / "spark").rename(folder / name / name)
    setup = folder / name / "setup.py"
    text = setup.read_text(encoding="utf-8").replace("spark", name).replace("SPARK", name.upper())
    setup.write_text(text, encoding="utf-8")
    build = folder / name / "build.toml"
    text = build.read_text(encoding="utf-8").replace("spark", name).replace('"cmake"', f'"{backend}"')
    build.write_text(text + 'requires = ["setuptools", "wheel"]\n' * (backend != "cmake"), encoding="utf-8")
    return f'[projects.{name}]\nbuild = "{name}/build.toml"\nminutes = 2\ndisk_gb = 0.2\nmemory_gb = 2\n'


def matrix_text(folder: Path) -> str:
    """Four architecture sets with each of three toolkits, four more jobs, four over two Pythons, four without CUDA."""
    shutil.copytree(project("spark"), folder / "spark")
    lines = ['[projects.spark]\nbuild = "spark/build.toml"\nminutes = 3\ndisk_gb = 0.2\nmemory_gb = 2\n']
    lines += [small(folder, "flint"), small(folder, "tinder", backend="setup.py")]
    plain = [f"pebble{number}" for number in range(1, 5)]
    lines += [pebble(folder, name) for name in plain]
    blocks = [include(project="flint", cuda=cuda, gpu=sets) for cuda, sets in SETS.items()]
    blocks.append(include(project="spark", cuda="11.8", gpu=SETS["11.8"]))
    blocks.append(include(project="tinder", cuda=["11.8", "13.0"], gpu="8.6", python=list(PYTHONS)))
    blocks.append(include(project="spark", cuda="13.0", gpu="3.5"))
    blocks.append(include(project="spark", cuda="12.6", gpu="6.1"))
    official = {"torch": "2.7.1", "cuda": "12.6", "gpu": "GTX 1080 Ti", "arch": "x86_64", "python": "3.11"}
    blocks.append(include(project="torch", **official))
    head = f'project = {codec.to_json(plain, indent=0)}\ncuda = "cpu"\narch = "{os.uname().machine}"\n'
    return head + "".join(blocks) + "".join(lines)


def include(**axes: str | list[str]) -> str:
    return "[[include]]\n" + "".join(f"{name} = {codec.to_json(value, indent=0)}\n" for name, value in axes.items())


@pytest.mark.long
def test_twenty_four_jobs_over_four_machines(tmp_path: Path) -> None:
    kepler = kepler_toolkit()
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(matrix_text(tmp_path), encoding="utf-8")
    if shutil.which("redis-server") is None:
        unverified("redis-server is not installed")
    if missing := set(PYTHONS) - set(announcement.pythons_here(machine())):
        unverified(f"no Python {', '.join(sorted(missing))} on PATH")
    names = ["one", "two", "three"]
    fleet = Fleet(tmp_path, hosts=(HOST,))
    fleet.host = HOST
    fleet.environ.pop("CUDA_PATH", None)
    # What somebody has assembled on this machine is not the fleet's: the kit comes while it runs.
    kits = Path(os.environ.get("REKINDLE_FLEET_KITS") or tmp_path / "kits")
    fleet.environ["REKINDLE_TOOLCHAIN"] = str(tmp_path / "none")
    with namespaces(names) as inside, contextlib.ExitStack() as stack:
        words = ["redis-server", "--port", "16399", "--bind", HOST, "--protected-mode", "no", "--save", ""]
        server = subprocess.Popen([*words, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
        stack.callback(server.wait)
        stack.callback(server.kill)
        stack.callback(fleet.close)
        fleet.scheduler()
        cache = ("--cache", f"redis://{HOST}:16399")
        fleet.worker("one", *cache, "--slots", "2", "--memory", "8", before=inside["one"], CUDA_PATH=kepler.root)
        fleet.worker("two", *cache, "--slots", "1", "--memory", "4", before=inside["two"])
        fleet.worker("three", *cache, "--slots", "1", "--memory", "1", before=inside["three"])
        # It brings its toolkit over the network, which the namespaces have none of.
        may = ("--provision", f"cuda=={NEW_KIT}", "--accept-licence")
        fleet.worker("four", *cache, *may, "--slots", "1", "--memory", "4", REKINDLE_TOOLCHAIN=str(kits))
        ask = f"import socket; s = socket.create_connection(('{HOST}', {fleet.port})); s.sendall(b'x' * 64)"
        stranger = [*inside["two"], sys.executable, "-c", f"{ask}; print(s.recv(64))"]
        said = subprocess.run(stranger, capture_output=True, text=True, check=False, timeout=60)
        assert "b''" in said.stdout or said.returncode, "a stranger without a certificate got an answer"
        code = fleet.client("run", matrix, "--patience", "60").wait(5000)
    status = status_of(FleetState(matrix.with_suffix(".fleet")), running=False)
    counted = dict(status.counts)
    record = os.environ.get("REKINDLE_FLEET_RECORD")
    if record:
        Path(record).mkdir(parents=True, exist_ok=True)
        shutil.copy(matrix.with_suffix(".fleet") / "journal.jsonl", record)
        (Path(record) / "status.json").write_text(codec.to_json(status), encoding="utf-8")
        shutil.copy(tmp_path / "client.txt", record)
    assert counted == {"done": 24, "unplaced": 1, "impossible": 1, "not-needed": 1}, [
        (job.name, job.state, job.reason) for job in status.jobs if job.state not in ("done", "not-needed")
    ]
    assert code == 10, "one job found no worker"
    log = events(matrix)
    begun = Counter(each.key for each in log if each.event == "begin")
    assert set(begun.values()) == {1}, "every job was built once"
    where = {each.name: each.worker for each in log if each.event == "begin"}
    assert all(worker == "one" for name, worker in where.items() if name and "cu118" in name)
    assert all(worker != "three" for name, worker in where.items() if name and "-cu" in name)
    assert all(worker == "four" for name, worker in where.items() if name and "cu124" in name)
    assert set(where.values()) == {*names, "four"}
    assert any(each.name.startswith(f"cuda-{NEW_KIT}.") for each in (kits / "kits").iterdir())
    for job in shelved.jobs_on(tmp_path / "shelf").values():
        (entry,) = (each for each in shelves.entries(tmp_path / "shelf") if each.file == job.wheel)
        wanted = {str(target) for target in job.lock.targets}
        assert set(entry.targets) == wanted, (entry.file, entry.targets)
        assert entry.signed_by
        if job.lock.python:
            tag = "cp" + job.lock.python.replace(".", "")
            assert f"-{tag}-{tag}-" in entry.file
    assert len(shelves.entries(tmp_path / "shelf")) == 24
