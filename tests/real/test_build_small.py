"""A small CMake + Ninja C++/CUDA project from plan to wheel with the real nvcc, for the K40c's sm_35."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.formats import fatbin
from support.artefacts import unverified
from support.command import rekindle_command
from support.cuda import kepler_toolkit, machine, project

STEPS = ["preflight", "source", "patch", "smoke", "configure", "check", "compile", "package", "repair",
         "verify", "shelve"]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A shelf of our own, not the user's."""
    place = tmp_path_factory.mktemp("shelf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REKINDLE_SHELF", str(place))
        yield place


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, and a build of it that has gone through once."""
    root = tmp_path_factory.mktemp("small")
    shutil.copytree(project("spark"), root / "spark")
    plan = root / "spark" / "build.toml"
    cuda = str(kepler_toolkit().version)
    plan.write_text(plan.read_text(encoding="utf-8").replace('"11.8"', f'"{cuda}"'), encoding="utf-8")
    seen = run(root)
    assert seen["steps"] and [step["state"] for step in seen["steps"]] == ["done"] * len(STEPS)
    return root


def run(root: Path, *words: str) -> dict[str, object]:
    arguments = ["build", str(root / "spark" / "build.toml"), "--work", str(root / "w"), "--jobs", "2", "--json"]
    seen = rekindle_command(*arguments, "--cache", "none", *words)
    assert seen.code == 0, seen.err
    return seen.json()


def states(report: dict[str, object]) -> dict[str, str]:
    return {step["name"]: step["state"] for step in report["steps"]}  # type: ignore[attr-defined]


def test_the_wheel_holds_libraries_with_code_for_sm_35_and_nothing_else(folder: Path) -> None:
    wheel = next((folder / "w" / "wheels").glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        cuda = archive.read("spark/lib/libspark_cuda.so")
    assert {"spark/__init__.py", "spark/lib/libspark_core.so", "spark/lib/libspark_cuda.so"} <= set(names)
    targets = {str(target) for container in fatbin.scan(cuda) for target in container.targets}
    assert targets == {"sm_35"}


def test_the_wheel_is_repaired_verified_and_lies_on_the_shelf(folder: Path, shelf: Path) -> None:
    report = json.loads(next((folder / "w" / "repaired").glob("*.verify.json")).read_text(encoding="utf-8"))
    states = {check["id"]: check["state"] for check in report["checks"]}
    assert [states[name] for name in ("file", "record", "tags", "closure", "coverage")] == ["PASS"] * 5
    assert states["import"] == "UNVERIFIED", "it is no torch: nothing was imported, and nothing is claimed"
    assert [path.name for path in (shelf / "wheels").glob("*.whl")] == [
        "spark-1.0-py3-none-linux_" + machine().arch + ".whl"
    ]


def test_the_same_command_again_repeats_nothing(folder: Path) -> None:
    again = states(run(folder))
    assert again.pop("preflight") == "done", "looking at the machine is done every time"
    assert set(again.values()) == {"kept"}


def test_a_changed_source_file_redoes_what_depends_on_it(folder: Path) -> None:
    file = folder / "spark" / "spark" / "__init__.py"
    file.write_text(file.read_text(encoding="utf-8") + "VERSION = 2\n", encoding="utf-8")
    again = states(run(folder))
    assert again["smoke"] == "kept", "the compiler has not changed"
    assert [again[name] for name in ("source", "patch", "configure", "compile", "package")] == ["done"] * 5
    with zipfile.ZipFile(next((folder / "w" / "wheels").glob("*.whl"))) as archive:
        assert b"VERSION = 2" in archive.read("spark/__init__.py")


def test_a_deleted_wheel_is_packed_again_and_nothing_else(folder: Path) -> None:
    next((folder / "w" / "wheels").glob("*.whl")).unlink()
    again = states(run(folder))
    assert again["compile"] == "kept"
    assert [again[name] for name in ("package", "repair", "verify", "shelve")] == ["done"] * 4


def test_the_build_leaves_nothing_in_the_source(folder: Path) -> None:
    made = {path.relative_to(folder / "spark").as_posix() for path in (folder / "spark").rglob("*") if path.is_file()}
    assert made == {
        path.relative_to(project("spark")).as_posix() for path in project("spark").rglob("*") if path.is_file()
    }


def test_until_stops_there_and_from_does_it_again(folder: Path) -> None:
    stopped = states(run(folder, "--until", "check", "--from", "check"))
    assert stopped["check"] == "done" and stopped["compile"] == "left"


def test_the_journal_is_readable_line_by_line(folder: Path) -> None:
    lines = (folder / "w" / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    done = [entry["step"] for entry in entries if entry["event"] == "done" and entry["run"] == entries[0]["run"]]
    assert done == STEPS


def test_a_setup_py_that_runs_cmake_is_built_in_our_copy_of_the_source(folder: Path) -> None:
    """The way PyTorch is built through 2.13: `build --cmake-only`, the check, ninja, `bdist_wheel`."""
    plan = folder / "spark" / "setup.toml"
    text = (folder / "spark" / "build.toml").read_text(encoding="utf-8").replace('"cmake"', '"setup.py"')
    plan.write_text(text, encoding="utf-8")
    before = set((folder / "spark").rglob("*"))
    words = ["build", str(plan), "--work", str(folder / "p"), "--jobs", "2", "--cache", "none", "--json"]
    seen = rekindle_command(*words)
    assert seen.code == 0, seen.err
    report = seen.json()
    assert states(report)["check"] == "done"
    assert report["governor"]["compiles"] >= 7, "its compilers stand behind the gate too"
    with zipfile.ZipFile(report["wheel"]) as archive:
        cuda = archive.read("spark/lib/libspark_cuda.so")
    assert {str(t) for container in fatbin.scan(cuda) for t in container.targets} == {"sm_35"}
    assert set((folder / "spark").rglob("*")) == before, "the user's source is as it was"
    plan.unlink()


def test_a_failure_is_diagnosed_and_the_same_command_goes_on_after_the_fix(folder: Path) -> None:
    kernel = folder / "spark" / "src" / "kernel.cu.in"
    good = kernel.read_text(encoding="utf-8")
    kernel.write_text(good.replace("__global__", "#include <no_such_header.h>\n__global__"), encoding="utf-8")
    words = ["build", str(folder / "spark" / "build.toml"), "--work", str(folder / "w"), "--cache", "none"]
    failed = rekindle_command(*words)
    assert failed.code == 10 and "no_such_header.h" in failed.err and "06" not in failed.out
    kernel.write_text(good, encoding="utf-8")
    assert rekindle_command(*words).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-D", "USE_CUDA=OFF"), "CUDA is off"),
        (("-D", "CMAKE_CUDA_ARCHITECTURES=50-real"), "not compiled for sm_35"),
        (("-D", "CMAKE_CXX_COMPILER=/usr/bin/c++"), "not `"),
    ],
)
def test_a_plan_that_does_not_get_what_it_says_is_stopped_by_the_check(
    folder: Path, words: tuple[str, ...], said: str
) -> None:
    plan = str(folder / "spark" / "build.toml")
    seen = rekindle_command("build", plan, "--work", str(folder / "wrong"), "--cache", "none", "--clean", *words)
    assert seen.code == 8 and said in seen.err, seen.err
    assert not list((folder / "wrong").glob("**/*.so")), "nothing was compiled"


def test_another_nvcc_is_stopped_by_the_check(folder: Path) -> None:
    other = next((kit for kit in machine().toolkits if kit.nvcc and kit.version and kit.version.major >= 12), None)
    if other is None:
        unverified("no second CUDA toolkit is here")
        return
    plan = folder / "other.toml"
    text = (folder / "spark" / "build.toml").read_text(encoding="utf-8")
    plan.write_text(text.replace('"."', '"spark"').replace('"3.5"', '"7.5"'), encoding="utf-8")
    words = ["--work", str(folder / "wrong"), "--cache", "none", "--clean", "-D", f"CMAKE_CUDA_COMPILER={other.nvcc}"]
    seen = rekindle_command("build", str(plan), *words)
    assert seen.code == 8 and f"CUDA {other.version}" in seen.err, seen.err


def test_a_scikit_build_core_project_is_configured_checked_and_packed(folder: Path) -> None:
    """The way PyTorch is built from 2.14 on."""
    shutil.copytree(project("ember"), folder / "ember")
    words = ["build", str(folder / "ember" / "build.toml"), "--work", str(folder / "e"), "--cache", "none", "--json"]
    seen = rekindle_command(*words)
    if "Could not find a version" in seen.err:
        unverified("scikit-build-core could not be downloaded")
    assert seen.code == 0, seen.err
    report = seen.json()
    with zipfile.ZipFile(report["wheel"]) as archive:
        names = archive.namelist()
    assert {"ember/__init__.py", "ember/lib/libember_core.so", "ember/lib/libember_glow.so"} <= set(names)
    assert states(rekindle_command(*words).json())["package"] == "kept"


def test_a_compiler_cache_serves_the_second_build(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("ccache") is None:
        unverified("ccache is not installed")
    monkeypatch.setenv("CCACHE_DIR", str(folder / "ccache"))
    words = ["build", "", "--cache", "ccache", "-D", "USE_CUDA=OFF", "--json"]
    plan = folder / "cpu.toml"
    plan.write_text('source = "spark"\nname = "spark"\nversion = "1.0"\nbackend = "cmake"\n', encoding="utf-8")
    words[1] = str(plan)
    used = []
    for _ in range(2):
        seen = rekindle_command(*words, "--work", str(folder / "c"), "--clean")
        assert seen.code == 0, seen.err
        used.append(seen.json()["cache"])
    assert (used[0]["hits"], used[0]["misses"]) == (0, 4)
    assert (used[1]["hits"], used[1]["misses"]) == (4, 0)
