"""Fixes on the way, from the command line, with a real small CMake and Ninja project and real failures."""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rekindle.build.run.journal import read
from support import artefacts
from support.command import Seen, rekindle_command

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the compiler is g++")

# Stands before every compile, as a launcher does, and goes wrong in the way its first argument says.
LAUNCHER = """
import os, signal, subprocess, sys, time
how, mark, command = sys.argv[1], sys.argv[2], sys.argv[3:]
if how == "race" and not os.path.exists(mark):
    open(mark, "w").close()
    # What nvcc 11.8 and its host compiler say when a temporary file is taken away while they work.
    name = "tmpxft_00001378_00000000-6_r.cudafe1.stub.c"
    sys.exit(f"{name}:1:10: fatal error: {name}: No such file or directory\\ncompilation terminated.")
if how == "memory":
    # As if memory had room for one compile: the second of two is killed, as the kernel does it.
    try:
        os.mkdir(mark)
    except FileExistsError:
        compiler = subprocess.Popen(command, start_new_session=True)
        os.killpg(compiler.pid, signal.SIGKILL)
        compiler.wait()
        sys.exit("g++: fatal error: Killed signal terminated program cc1plus\\ncompilation terminated.")
    time.sleep(0.7)
    code = subprocess.call(command)
    os.rmdir(mark)
    sys.exit(code)
sys.exit(subprocess.call(command))
"""


class Project:
    """Three files, a library, and something that goes wrong."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.launcher = root / "launcher.py"
        self.launcher.write_text(LAUNCHER, encoding="utf-8")
        (root / "p").mkdir()
        for number in (1, 2, 3):
            text = f"int f{number}() {{ int unused = {number}; return {number}; }}\n"
            (root / "p" / f"f{number}.cpp").write_text(text, encoding="utf-8")
        self.plan = root / "build.toml"
        self.plan.write_text('source = "p"\nname = "small"\nversion = "1.0"\nbackend = "cmake"\n', encoding="utf-8")

    def writes(self, *, minimum: str = "3.10", flags: str = "", how: str = "") -> None:
        launch = f'"{sys.executable}" "{self.launcher}" {how} "{self.root / "mark"}"'
        lines = [
            f"cmake_minimum_required(VERSION {minimum})",
            "project(small LANGUAGES CXX)",
            "add_library(small SHARED f1.cpp f2.cpp f3.cpp)",
            f"set_property(TARGET small PROPERTY RULE_LAUNCH_COMPILE [[{launch}]])" if how else "",
            f"target_compile_options(small PRIVATE {flags})" if flags else "",
            "install(TARGETS small DESTINATION small/lib)",
        ]
        (self.root / "p" / "CMakeLists.txt").write_text("\n".join(lines), encoding="utf-8")

    def build(self, *words: str) -> Seen:
        place = ["--work", str(self.root / "w"), "--cache", "none", "--until", "compile"]
        return rekindle_command("build", str(self.plan), *place, *words)

    @property
    def journal(self) -> list[Any]:
        return [(entry.event, entry.fix) for entry in read(self.root / "w" / "journal.jsonl") if entry.fix]

    @property
    def compiles(self) -> int:
        """How often the step was begun: what shows a loop."""
        entries = read(self.root / "w" / "journal.jsonl")
        return sum(entry.event == "begin" and entry.step in ("configure", "compile") for entry in entries)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    for program in ("g++", "cmake", "ninja"):
        if not shutil.which(program):
            artefacts.unverified(f"there is no {program} here")
    monkeypatch.setenv("REKINDLE_CACHE", str(tmp_path / "cache"))
    return Project(tmp_path)


@pytest.fixture(scope="module")
def cmake4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cmake4")
    with zipfile.ZipFile(artefacts.wheel("cmake==4.0.3")) as wheel:
        wheel.extractall(folder)
    program = folder / "cmake" / "data" / "bin" / "cmake"
    program.chmod(0o755)
    return program.parent


def test_cmake_4_that_refuses_an_old_project_is_told_to_read_it(
    project: Project, cmake4: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{cmake4}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CMAKE_POLICY_VERSION_MINIMUM", raising=False)
    project.writes(minimum="3.4")
    seen = project.build()
    assert seen.code == 10
    assert "cmake4_policy_removed" in seen.err, "the cause is named"
    assert "CMAKE_POLICY_VERSION_MINIMUM=3.5" in seen.err
    assert f"rekindle build {project.plan}" in seen.err and "--until compile --auto-fix" in seen.err
    assert [event for event, _ in project.journal] == ["offer"]

    seen = project.build("--auto-fix", "--json")
    assert seen.code == 0, seen.err
    assert seen.json()["fixes"] == [
        {
            "id": "cmake-policy-variable",
            "cause": "cmake4_policy_removed",
            "step": "configure",
            "text": "tell CMake 4 to read old projects as 3.5",
            "jobs": None,
            "variables": {"CMAKE_POLICY_VERSION_MINIMUM": "3.5"},
            "patches": [],
        }
    ]
    assert seen.err.count("failed after") == 0, "what was offered is done at once, not after failing again"

    again = project.build("--json").json()
    states = {step["name"]: step["state"] for step in again["steps"]}
    assert states["configure"] == states["compile"] == "kept", "a fix stays in force, and nothing is done again"


def test_a_killed_compiler_makes_it_fewer_jobs(project: Project) -> None:
    project.writes(how="memory")
    seen = project.build("--auto-fix", "--jobs", "2", "--json")
    assert seen.code == 0, seen.err
    (fix,) = seen.json()["fixes"]
    assert (fix["id"], fix["jobs"], fix["cause"]) == ("fewer-jobs", 1, "compiler_out_of_memory")
    assert project.compiles == 3, "configured once, compiled twice"


def test_without_leave_it_is_the_next_step_with_the_exact_command(project: Project) -> None:
    project.writes(how="memory")
    seen = project.build("--jobs", "2")
    assert seen.code == 10
    assert "Rekindle can compile fewer files at a time (1 at a time) and continue" in seen.err
    command = next(line.strip() for line in seen.err.splitlines() if line.strip().startswith("rekindle build"))
    import shlex

    assert rekindle_command(*shlex.split(command)[1:]).code == 0, "the command that is printed does it"


def test_one_file_is_compiled_again_after_nvccs_race(project: Project) -> None:
    project.writes(how="race")
    seen = project.build("--auto-fix", "--jobs", "1", "--json")
    assert seen.code == 0, seen.err
    assert [fix["id"] for fix in seen.json()["fixes"]] == ["rerun-nvcc-race"]


def test_a_missing_variable_is_set(project: Project) -> None:
    """-Werror in a project that a newer compiler warns about: CXXFLAGS lacks what lets the warning be one."""
    project.writes(flags="-Wall -Werror")
    seen = project.build("--auto-fix", "--json")
    assert seen.code == 0, seen.err
    (fix,) = seen.json()["fixes"]
    assert fix["variables"]["CXXFLAGS"] == "-Wno-error=unused-variable"


def test_a_failure_that_stays_is_not_tried_for_ever(project: Project) -> None:
    """Every run is killed, however few jobs there are."""
    project.writes(how="memory")
    (project.root / "mark").mkdir()
    seen = project.build("--auto-fix", "--jobs", "4")
    assert seen.code == 10
    assert [fix.id for event, fix in project.journal if event == "fix"] == ["fewer-jobs"]
    assert project.compiles == 3


def test_a_cause_that_needs_a_decision_is_left_alone(project: Project) -> None:
    project.writes()
    (project.root / "p" / "f1.cpp").write_text("int f1() { return nowhere; }\n", encoding="utf-8")
    seen = project.build("--auto-fix")
    assert seen.code == 10 and "auto-fix" not in seen.err
    assert project.journal == []


def test_the_journal_holds_what_was_done(project: Project) -> None:
    project.writes(how="race")
    project.build("--auto-fix", "--jobs", "1")
    lines = [json.loads(line) for line in (project.root / "w" / "journal.jsonl").read_text("utf-8").splitlines()]
    events = [(line["event"], line.get("step")) for line in lines if line["event"] in ("failed", "fix", "done")]
    at = events.index(("fix", "compile"))
    assert events[at - 1] == ("failed", "compile") and ("done", "compile") in events[at:]
