"""The governor with a real Ninja, real compilers and a real limit on memory."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from rekindle.build.governor import record
from rekindle.build.governor.server import Governor
from support.artefacts import unverified
from support.command import rekindle_program
from support.groups import MemoryGroup, memory_group
from support.ninjas import ninja_with_tokens

if os.name == "nt":
    pytest.skip("UNVERIFIED: Windows has its own test, tests/windows/test_memory_gate.py", allow_module_level=True)

GIB = 1024**3
CMAKE = """cmake_minimum_required(VERSION 3.18)
project(parts CXX)
file(GLOB parts ${CMAKE_SOURCE_DIR}/*.cpp)
add_library(parts SHARED ${parts})
install(TARGETS parts DESTINATION parts/lib)
"""
PLAN = 'source = "."\nname = "parts"\nversion = "1.0"\nbackend = "cmake"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    if shutil.which("g++") is None or shutil.which("cmake") is None:
        unverified("g++ and CMake are not here")
    # A space in the path: the gate's own path is in every compile command.
    folder = tmp_path / "a project"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(CMAKE, encoding="ascii")
    (folder / "build.toml").write_text(PLAN, encoding="ascii")
    for number in range(4):
        (folder / f"part{number}.cpp").write_text(f"int part{number}() {{ return {number}; }}\n", encoding="ascii")
    return folder


def build(
    project: Path, *words: str, group: MemoryGroup | None = None, ninja: bool = True, **more: str
) -> subprocess.CompletedProcess[str]:
    work = project.parent / "a work folder"
    plan = str(project / "build.toml")
    command, environ = rekindle_program("build", plan, "--work", str(work), "--cache", "none", "--json", *words)
    first = f"{ninja_with_tokens()}{os.pathsep}" if ninja else ""
    environ |= {"PATH": first + environ["PATH"], "REKINDLE_SHELF": str(project.parent / "shelf")}
    environ |= {"REKINDLE_CACHE": str(project.parent / "cache"), **more}
    return subprocess.run(
        command,
        env=environ,
        preexec_fn=group.enter if group else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def log_of(project: Path, step: str) -> str:
    import gzip

    (path,) = (project.parent / "a work folder" / "logs").glob(f"*-{step}.log*")
    return (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()


def test_whatever_is_set_ninja_listens_to_the_tokens(project: Path) -> None:
    """Any of these would make it look away: here they are set, and it still says that it found them."""
    deaf = {"MAX_JOBS": "1", "CMAKE_BUILD_PARALLEL_LEVEL": "1", "MAKEFLAGS": "-j1", "NINJAFLAGS": "-j1"}
    done = build(project, "--until", "compile", **deaf)
    assert done.returncode == 0, done.stderr
    log = log_of(project, "compile")
    assert "Jobserver mode detected" in log
    assert " -j" not in log.splitlines()[0], "Ninja's own command line names no number"
    governed = json.loads(done.stdout)["governor"]
    assert governed["compiles"] == 5, "four files and what links them"
    assert governed["peak_kb"] > 10_000


def test_the_real_ninja_looks_away_when_it_is_told_a_number(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text("rule t\n  command = touch $out\nbuild a: t\n", encoding="ascii")
    said = {}
    with Governor(2) as governor:
        for words in ((), ("-j3",)):
            (tmp_path / "a").unlink(missing_ok=True)
            command = [str(ninja_with_tokens() / "ninja"), *words]
            environ = governor.environment(os.environ)
            done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
            said[words] = done.stdout + done.stderr
    assert "Jobserver mode detected" in said[()]
    assert "Jobserver mode detected" not in said[("-j3",)]


def test_no_more_run_at_a_time_than_was_asked_for(project: Path) -> None:
    assert build(project, "--until", "compile", "--jobs", "1").returncode == 0
    done = record.read(project.parent / "a work folder" / "compiles.jsonl")
    spans = sorted((each.start, each.start + each.seconds) for each in done)
    assert all(begin >= end - 0.05 for (_, end), (begin, _) in itertools.pairwise(spans))


def test_an_older_ninja_gets_a_fixed_number_and_that_is_said(project: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    real = ninja_with_tokens() / "ninja"
    (old / "ninja").write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo 1.11.1; else exec "{real}" "$@"; fi\n', encoding="ascii"
    )
    (old / "ninja").chmod(0o755)
    done = build(project, "--until", "compile", "--jobs", "2", ninja=False, PATH=f"{old}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert "Ninja 1.11.1 takes no job tokens, 1.13.2 does: 2 compiles at a time" in done.stderr
    assert " -j 2" in log_of(project, "compile").splitlines()[0]


def test_a_second_run_compiles_nothing_and_makes_no_new_gate(project: Path) -> None:
    assert build(project, "--until", "compile").returncode == 0
    work = project.parent / "a work folder"
    gate = (work / "gate").stat().st_mtime_ns
    done = build(project, "--until", "compile", "--from", "compile")
    assert done.returncode == 0, done.stderr
    steps = {step["name"]: step["state"] for step in json.loads(done.stdout)["steps"]}
    assert (steps["configure"], steps["compile"]) == ("kept", "done")
    assert "no work to do" in log_of(project, "compile")
    assert (work / "gate").stat().st_mtime_ns == gate


def test_a_compile_too_large_is_tried_alone_then_reported_and_the_rest_is_finished(project: Path) -> None:
    """It wants 4 GB under a limit of 2 GB."""
    group = memory_group("rekindle-test", 2 * GIB)
    if isinstance(group, str):
        unverified(group)
        return
    if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") < 3 * GIB:
        unverified("less than 3 GB of memory is here")
    (project / "aaa_huge.cpp").write_text(declarations(2_900_000), encoding="ascii")
    begun = time.time()
    with group:
        done = build(project, "--until", "compile", group=group)
        assert group.killed() == 2, "once beside others, once alone"
    assert done.returncode == 10, done.stderr
    at = r"(1\.[5-9]|2\.0) GiB"
    words = rf"aaa_huge\.cpp\.o was killed for memory, also alone: it needs more than {at}, and 2\.0 GiB is all"
    assert re.search(words, done.stderr), done.stderr
    assert re.search(rf"aaa_huge\.cpp\.o: killed for memory at {at}", done.stderr)
    work = project.parent / "a work folder"
    made = {path.name for path in (work / "b").rglob("*.o")}
    assert {f"part{number}.cpp.o" for number in range(4)} <= made, "the rest is finished"
    lines = {Path(each.object).name: each for each in record.read(work / "compiles.jsonl")}
    huge = lines["aaa_huge.cpp.o"]
    assert huge.retried and huge.code != 0 and 1.5 * GIB < huge.peak_kb * 1024 < 2 * GIB
    assert begun < huge.start < time.time()
    assert "fix:" not in done.stderr, "fewer jobs would not help"
    noted = [entry for entry in journal(work) if entry["event"] == "governor"]
    assert json.loads(noted[0]["note"])["retries"] == 1


def declarations(count: int) -> str:
    """C++ that takes 1.4 kB of the compiler's memory per declaration, and little time."""
    levels = "".join(f"#define L{n}(a) " + " ".join(f"L{n - 1}(a##{i})" for i in range(10)) + "\n" for n in range(1, 6))
    names = "\n".join(f"L5(n{number}_)" for number in range(count // 100_000))
    return f"#define L0(a) int a(int);\n{levels}{names}\n"


def journal(work: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (work / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
