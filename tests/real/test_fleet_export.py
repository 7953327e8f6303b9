"""Exported workflows: valid by the formats' own schemas, and one job of them carried out as a runner would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from rekindle.core import own
from rekindle.fleet import planning, shelved
from support.artefacts import unverified
from support.command import rekindle_command
from support.cuda import machine, project
from support.fleets import ROOT, pebble
from support.slurms import finished, program, slurm
from support.workflows import run_as_a_runner, schema

ORPHANS = """
project = ["torch", "torchvision", "torchaudio"]
torch = ["2.15.0"]
cuda = ["12.6"]
gpu = ["5.0;6.0;7.0"]
python = ["3.11", "3.12", "3.13"]
os = ["linux", "windows"]
[[include]]
torch = "2.7.1"
cuda = "11.8"
gpu = "3.5"
"""


@pytest.fixture(autouse=True)
def fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Rekindle that another computer can get, too."""
    monkeypatch.setattr(own, "_origin", lambda: "git+https://host.org/me/rekindle")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lines = pebble(tmp_path, "pebble")
    text = f'project = "pebble"\ncuda = "cpu"\narch = "{os.uname().machine}"\n{lines}'
    (tmp_path / "matrix.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("form", "name"), [("github", "github-workflows"), ("gitlab", "gitlab-ci")])
@pytest.mark.parametrize("count", [1, 60])
def test_the_file_is_valid_by_the_schema_of_its_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, name: str, count: int
) -> None:
    monkeypatch.chdir(tmp_path)
    cards = ", ".join(f'"{card}"' for card in ["5.0", "5.2", "6.0", "6.1", "7.0"][: max(1, count // 10)])
    text = ORPHANS if count == 1 else ORPHANS.replace('["5.0;6.0;7.0"]', f"[{cards}]")
    (tmp_path / "matrix.toml").write_text(text, encoding="utf-8")
    seen = rekindle_command("fleet", "export", form, "-o", "out.yml", "--shelf", str(tmp_path / "shelf"))
    assert seen.code == 0, seen.err
    made = yaml.safe_load((tmp_path / "out.yml").read_text(encoding="utf-8"))
    jsonschema_rs.validate(schema(name), made)
    keys = set(re.findall(r"\b[0-9a-f]{16}\b", (tmp_path / "out.yml").read_text(encoding="utf-8")))
    jobs = planning.make(tmp_path / "matrix.toml").plan.jobs
    # By what is asked of them: a commit to the source makes no workflow stale.
    assert keys == {job.lock.asked[:16] for job in jobs if job.lock and job.state.value == "build"}


@pytest.mark.long
def test_one_exported_job_makes_the_same_wheel_as_the_fleet(small: Path) -> None:
    """In an environment of its own, with the `rekindle` that the workflow installs there."""
    seen = rekindle_command(
        "fleet", "export", "github", "-o", ".github/workflows/fleet.yml", "--shelf", str(small / "s")
    )
    assert seen.code == 0, seen.err
    made = yaml.safe_load((small / ".github/workflows/fleet.yml").read_text(encoding="utf-8"))
    (job,) = made["jobs"].values()
    (entry,) = job["strategy"]["matrix"]["include"]
    runner = small / "runner"
    shutil.copytree(small / "pebble", runner / "pebble")
    shutil.copy(small / "matrix.toml", runner)
    temp = small / "temp"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(temp)], check=True)
    ran = run_as_a_runner(job["steps"], entry, runner, temp)
    assert ran == ["Rekindle", "Build"]
    assert (temp / "output").read_text(encoding="utf-8") == "fresh=yes\n", "the wheel would be uploaded"
    words = [
        "fleet",
        "job",
        "matrix.toml",
        entry["key"],
        "--shelf",
        str(small / "own"),
        "--work",
        str(small / "elsewhere"),
    ]
    here = rekindle_command(*words, "--json")
    assert here.code == 0, here.err
    there = [json.loads(path.read_text(encoding="utf-8")) for path in (runner / "shelf" / "fleet").iterdir()]
    assert [each["sha256"] for each in there] == [here.json()["sha256"]], "the same bytes"
    begun = time.monotonic()
    again = rekindle_command("fleet", "job", "matrix.toml", entry["key"], "--shelf", str(runner / "shelf"), "--json")
    assert again.json()["state"] == "kept" and time.monotonic() - begun < 30


@pytest.mark.long
def test_one_exported_cuda_job_makes_the_same_code_as_the_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two compiles by nvcc differ in a random name: equal are the members and, once stripped, all code in them."""
    if not any(kit.nvcc and kit.version and str(kit.version.major_minor) == "13.0" for kit in machine().toolkits):
        unverified("no CUDA 13.0 here")
    if shutil.which("strip") is None or shutil.which("readelf") is None:
        unverified("binutils are not installed")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(project("spark"), tmp_path / "spark")
    cmake = tmp_path / "spark" / "CMakeLists.txt"
    cmake.write_text(cmake.read_text(encoding="utf-8").replace("alpha beta gamma delta", "alpha"), encoding="utf-8")
    (tmp_path / "matrix.toml").write_text(
        f'project = "spark"\ncuda = "13.0"\ngpu = "7.5"\narch = "{os.uname().machine}"\n'
        '[projects.spark]\nbuild = "spark/build.toml"\n',
        encoding="utf-8",
    )
    seen = rekindle_command("fleet", "export", "github", "-o", "fleet.yml", "--shelf", str(tmp_path / "s"))
    assert seen.code == 0, seen.err
    (job,) = yaml.safe_load((tmp_path / "fleet.yml").read_text(encoding="utf-8"))["jobs"].values()
    (entry,) = job["strategy"]["matrix"]["include"]
    assert entry["toolchain"] == "cuda==13.0"
    runner, temp = tmp_path / "runner", tmp_path / "temp"
    shutil.copytree(tmp_path / "spark", runner / "spark")
    shutil.copy(tmp_path / "matrix.toml", runner)
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(temp)], check=True)
    # A runner that has the toolkit already: what `toolchain install` brings is tested elsewhere.
    assert run_as_a_runner(job["steps"], {**entry, "toolchain": ""}, runner, temp) == ["Rekindle", "Build"]
    words = ["matrix.toml", entry["key"], "--shelf", str(tmp_path / "own"), "--work", str(tmp_path / "elsewhere")]
    here = rekindle_command("fleet", "job", *words, "--json")
    assert here.code == 0, here.err
    (theirs,), (ours,) = ((place / "wheels").glob("*.whl") for place in (runner / "shelf", tmp_path / "own"))
    assert theirs.name == ours.name
    made, again = contents(theirs, tmp_path / "a"), contents(ours, tmp_path / "b")
    assert made.keys() == again.keys()
    libraries = {name for name in made if name.endswith(".so")}
    assert libraries, made.keys()
    different = {name for name in made if made[name] != again[name]}
    assert {name for name in different - libraries if not name.endswith("/RECORD")} == set()
    for name in libraries:
        one, other = sections(tmp_path / "a" / name), sections(tmp_path / "b" / name)
        assert one.keys() == other.keys()
        assert {part for part in one if one[part] != other[part]} <= LAYOUT, name
        assert one[".dynstr"].rstrip(b"\0") == other[".dynstr"].rstrip(b"\0")
    code = sections(tmp_path / "a" / "spark" / "lib" / "libspark_cuda.so")
    assert len(code[".nv_fatbin"]) > 1000 and len(code[".text"]) > 1000, "GPU code is among what was compared"


LAYOUT = {".note.gnu.build-id", ".dynsym", ".dynstr", ".init", ".dynamic"}
"""CMake blanks the build folder's path in the library, and leaves its length: what is behind it lies elsewhere."""


def contents(wheel: Path, folder: Path) -> dict[str, bytes]:
    """Every member; of a library what is left of it without its symbols, which name nvcc's temporary files."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for library in folder.rglob("*.so"):
        subprocess.run(["strip", str(library)], check=True)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def sections(library: Path) -> dict[str, bytes]:
    """By a reader that is not ours."""
    said = subprocess.run(["readelf", "-SW", str(library)], capture_output=True, text=True, check=True).stdout
    data = library.read_bytes()
    rows = re.findall(r"\] (\.\S+) +(\w+) +[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+)", said)
    return {name: data[int(at, 16) : int(at, 16) + int(size, 16)] for name, kind, at, size in rows if kind != "NOBITS"}


def test_a_job_whose_time_is_up_says_so_and_goes_on(small: Path) -> None:
    key = str(planning.make(small / "matrix.toml").plan.jobs[0].key)
    words = ["fleet", "job", "matrix.toml", key[:16], "--shelf", str(small / "s"), "--work", str(small / "w"), "--json"]
    seen = rekindle_command(*words, "--time-limit", "0.01")
    assert (seen.code, seen.json()["state"]) == (75, "unfinished"), seen.err
    assert rekindle_command(*words).json()["state"] == "done"


@pytest.mark.long
def test_a_real_slurm_runs_the_exported_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four jobs as an array on one node; one whose time is up is put back into the queue and goes on."""
    monkeypatch.chdir(tmp_path)
    names = [f"pebble{number}" for number in range(1, 5)]
    lines = "".join(pebble(tmp_path, name) for name in names)
    projects = ", ".join(f'"{name}"' for name in names)
    text = f'project = [{projects}]\ncuda = "cpu"\narch = "{os.uname().machine}"\n{lines}'
    (tmp_path / "matrix.toml").write_text(text, encoding="utf-8")
    with slurm(tmp_path / "slurm") as environ:
        seen = rekindle_command("fleet", "export", "slurm", "--cores", "1", "--shelf", str(tmp_path / "none"))
        assert seen.code == 0, seen.err
        script = tmp_path / "fleet.sbatch"
        # The first turn has a second, the next ones all the time there is.
        short = script.read_text(encoding="utf-8").replace(
            "--time-limit 310", '--time-limit "$([ "${SLURM_RESTART_COUNT:-0}" = 0 ] && echo 0.02 || echo 310)"'
        )
        script.write_text(short, encoding="utf-8")
        temp = tmp_path / "bin"
        temp.mkdir()
        (temp / "rekindle").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rekindle "$@"\n', encoding="utf-8")
        (temp / "rekindle").chmod(0o755)
        environ = {**environ, "PATH": f"{temp}:{environ['PATH']}", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        subprocess.run([program("sbatch"), str(script)], env=environ, check=True)
        finished(environ, 900)
    logs = "".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("fleet-*.log"))
    done = shelved.jobs_on(tmp_path / "shelf")
    assert sorted(job.lock.project for job in done.values()) == names, logs[-3000:]
    assert logs.count("goes on when its turn comes again") >= 1, logs[-3000:]
