"""What Rekindle may do by itself about a failure: what exactly, once each, and remembered."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.build import command
from rekindle.build.configure.options import Choices
from rekindle.build.configure.request import BuildRequest, Compiler
from rekindle.build.configure.tools import Tool, Tools
from rekindle.build.run import fixes
from rekindle.build.run.fixes import Force
from rekindle.build.run.journal import Journal, Remedy
from rekindle.core.version import Version
from rekindle.diagnose import fix
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.diagnose.facts import Facts
from rekindle.knowledge.logs import signatures
from rekindle.knowledge.torch import patches

STOPPED = "ninja: build stopped: subcommand failed.\n"
KILLED = f"FAILED: a.o\ng++: fatal error: Killed signal terminated program cc1plus\n{STOPPED}"
POLICY = (
    "CMake Error at CMakeLists.txt:1 (cmake_minimum_required):\n"
    "  Compatibility with CMake < 3.5 has been removed from CMake.\n-- Configuring incomplete, errors occurred!\n"
)
STUB = "tmpxft_00001378_00000000-6_r.cudafe1.stub.c"
RACES = [
    # What nvcc 11.8 said when its temporary files were removed while it ran.
    f"{STUB}:1:10: fatal error: {STUB}: No such file or directory",
    'Catastrophic error: cannot open source file "/tmp/x/tmpxft_00001431_00000000-5_r.cpp4.ii"',
    "ptxas fatal   : Input file '/tmp/x/tmpxft_0000174a_00000000-6_r.ptx' could not be opened",
    "fatbinary fatal   : Could not open input file '/tmp/x/tmpxft_000017c6_00000000-8_r.sm_75.cubin'",
]


GCC = Compiler(kind="gcc", c="gcc", cxx="g++", cuda_host="g++")


def tools(cmake: str = "4.0.3") -> Tools:
    def tool(name: str, version: str = "12.2") -> Tool:
        return Tool(name=name, path=f"/usr/bin/{name}", version=Version(version))

    return Tools(cmake=tool("cmake", cmake), ninja=tool("ninja"), python=tool("python"), cxx=tool("g++"))


def remedy(
    log: str, *, force: Force | None = None, jobs: int | None = 4, system: str = "linux", **more: Any
) -> Remedy | None:
    asked = BuildRequest(source="s", system=system, arch="x86_64", python="p", compiler=GCC, **more)
    found = diagnose_text(log, known=Facts(os=system))
    context: Any = SimpleNamespace(
        diagnosis=found, step="compile", request=asked, tools=tools(), compiles_at_once=jobs or os.cpu_count()
    )
    return fixes.remedy_for(context, force or Force())


def test_a_killed_compiler_halves_the_jobs() -> None:
    made = remedy(KILLED)
    assert made is not None and made.jobs == 2 and made.cause == "compiler_out_of_memory"
    assert made.summary == "compile fewer files at a time (2 at a time)"


def test_below_one_job_there_is_nothing_to_take_away() -> None:
    assert remedy(KILLED, jobs=1) is None


def test_each_fix_is_tried_once() -> None:
    first = remedy(KILLED)
    assert first is not None
    assert remedy(KILLED, jobs=2, force=Force().plus(first)) is None


@pytest.mark.parametrize("line", RACES)
def test_nvccs_race_is_known_and_the_file_is_compiled_again(line: str) -> None:
    made = remedy(f"FAILED: a.cu.o\n{line}\n{STOPPED}")
    assert made is not None and made.id == "rerun-nvcc-race"
    assert (made.jobs, made.variables, made.patches) == (None, {}, ())


@pytest.mark.parametrize("system", ["linux", "windows"])
def test_cmake_4_gets_its_variable(system: str) -> None:
    made = remedy(POLICY, system=system)
    assert made is not None and made.variables == {"CMAKE_POLICY_VERSION_MINIMUM": "3.5"}


def test_pytorch_gets_the_catalogues_patch_where_the_plan_left_it_out() -> None:
    made = remedy(POLICY, torch="1.13.1", patches=())
    assert made is not None and made.patches == ("cmake-minimum",)
    again = remedy(POLICY, torch="1.13.1", patches=("cmake-minimum",))
    assert again is not None and again.id == "cmake-policy-variable", "it has the patch: then the variable"


def test_flags_add_up() -> None:
    log = "a.cpp:1:5: error: unused variable 'x' [-Werror=unused-variable]\nninja: build stopped: subcommand failed.\n"
    made = remedy(log, force=Force(variables={"CXXFLAGS": "-Wno-error=parentheses"}))
    assert made is not None
    assert made.variables["CXXFLAGS"] == "-Wno-error=parentheses -Wno-error=unused-variable"


def test_a_fault_in_the_source_is_nobodys_to_fix() -> None:
    assert remedy("a.cpp:1:5: error: 'x' was not declared in this scope\n" + STOPPED) is None


@pytest.mark.parametrize(
    ("command", "variables"),
    [
        ("export A=1 B='two words'", {"A": "1", "B": "two words"}),
        (
            'export NVCC_APPEND_FLAGS="-Xcompiler /Zc:preprocessor"',
            {"NVCC_APPEND_FLAGS": "-Xcompiler /Zc:preprocessor"},
        ),
        ("export PATH=/x:$PATH", {}),
        ("export TMPDIR=$(mktemp -d)", {}),
        ("set CUDACXX=%CUDA_PATH%", {}),
        ('pip install "cmake<4"', {}),
        ("set /p x=", {}),
    ],
)
def test_variables_are_read_off_a_fix_and_shell_is_not(command: str, variables: dict[str, str]) -> None:
    assert fixes.assignments([fix.command_of(command, None, {})]) == variables


def test_what_was_fixed_stays_in_force_but_for_the_jobs(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.write("fix", step="compile", fix=Remedy(id="a", cause="c", step="compile", text="t", jobs=2))
    journal.write("fix", step="x", fix=Remedy(id="b", cause="c", step="x", text="t", variables={"A": "1"}))
    journal.write("offer", step="x", fix=Remedy(id="c", cause="c", step="x", text="t", variables={"B": "1"}))
    read = Journal(tmp_path / "j").entries
    assert fixes.in_force(read) == Force(variables={"A": "1"})
    offered = fixes.offered(read)
    assert offered is not None and offered.variables == {"B": "1"}
    journal.write("done", step="x")
    assert fixes.offered(journal.entries) is None, "something went well since: the offer is old"


def test_every_mechanical_fix_is_of_a_known_cause_and_can_be_made() -> None:
    for row in signatures.mechanical():
        cause = signatures.cause(row.cause)
        assert cause is not None, row.id
        if row.action is signatures.FixAction.VARIABLES:
            assert any((step.command or "").startswith(("export ", "set ")) for step in cause.fix), row.id
        assert all(patches.patch(id) for id in row.patches)
        assert (row.divide > 1) == (row.action is signatures.FixAction.JOBS)
        assert row.text[0].islower() and not row.text.endswith("."), "it follows `Rekindle can`"


def test_a_diagnosis_says_what_is_mechanical() -> None:
    assert diagnose_text(KILLED).causes[0].fix.mechanical
    assert (
        not diagnose_text("a.cpp:1:5: error: 'x' was not declared in this scope\nmake: *** [x] Error 1\n")
        .causes[0]
        .fix.mechanical
    )


def test_the_command_to_go_on_with_throws_nothing_away() -> None:
    words = ("build", "my plan.toml", "--clean", "--from", "compile", "--jobs", "4")
    again = command.again(words)
    assert again.startswith("rekindle build") and again.endswith("--jobs 4")
    assert "clean" not in again and "compile" not in again


@pytest.mark.parametrize("unfit", [(), ("a.cpp needs 4 GB and there are 2",)])
def test_what_does_not_fit_even_alone_is_reported_and_not_tried_with_fewer_jobs(
    tmp_path: Path, unfit: tuple[str, ...]
) -> None:
    said: list[str] = []
    fixer = fixes.Fixer(Journal(tmp_path / "j"), Choices(auto_fix=True), said.append, None)
    context: Any = SimpleNamespace(
        diagnosis=diagnose_text(KILLED),
        step="compile",
        governed=SimpleNamespace(unfit=unfit),
        request=BuildRequest(source="s", system="linux", arch="x86_64", python="p", compiler=GCC),
        tools=tools(),
        compiles_at_once=4,
    )
    assert fixer.fixed(context) is not bool(unfit)
    assert bool(said) is not bool(unfit)
