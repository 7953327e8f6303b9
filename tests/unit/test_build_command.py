"""`rekindle build`, `env` and `shell` as they are typed: what is shown, asked, tidied and recorded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest

from rekindle.build import command, env_command, overview
from rekindle.build.configure import request
from rekindle.build.run import folders as tidy
from rekindle.build.run.folders import Folders
from rekindle.build.run.journal import Journal
from rekindle.core.errors import Interrupted, NotFound
from rekindle.machine.snapshot import load
from support.command import rekindle_command

MACHINES = Path(__file__).resolve().parents[1] / "machines"
READY = str(MACHINES / "k40c-ready-windows.json")
PLAN = 'torch = "1.12.1"\ncuda = "11.4"\ncudnn = "8.7"\narch_list = "3.5"\npython = "3.9"\ntoolset = "14.29"\n'


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    return tmp_path / "plan.toml"


def test_a_dry_run_shows_the_recorded_machine_and_not_this_one(plan: Path) -> None:
    seen = rekindle_command("build", str(plan), "--machine", READY, "--dry-run", "--json")
    shown = seen.json()["overview"]
    recorded = load(Path(READY))
    assert shown["folder"].startswith("C:\\") and shown["python"].endswith("python.exe")
    assert shown["memory_gb"] == round((recorded.memory.usable or 0) / 1e9, 1)
    free = {disk.role: disk.free for disk in recorded.disks}
    assert shown["disk_free_gb"] == round((free.get("home") or free.get("here") or 0) / 1e9, 1)
    assert shown["toolkit"].startswith("CUDA 11.4") and shown["cudnn"].startswith("8.7")
    assert shown["minutes"] and shown["disk_needed_gb"] and "ninja>=1.13.2" in shown["requirements"]
    plain = rekindle_command("build", str(plan), "--machine", READY, "--dry-run").out
    for word in ("toolkit", "cuDNN", "compiler", "Python", "disk", "takes", "steps"):
        assert f"\n{word}" in f"\n{plain}", word


def test_no_cudnn_is_an_option(plan: Path) -> None:
    shown = rekindle_command("build", str(plan), "--machine", READY, "--dry-run", "--no-cudnn", "--json").json()
    assert shown["overview"]["cudnn"] is None and "cudnn" not in shown["version"]
    assert any("cuDNN" in each for each in shown["overview"]["missing"])


def test_a_question_that_is_answered_no_stops_before_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    command._confirm(None)  # nobody can be asked: it goes on
    command._confirm(lambda text: True)
    with pytest.raises(Interrupted, match="before anything was done"):
        command._confirm(lambda text: False)


def test_without_a_terminal_nobody_is_asked() -> None:
    assert command._question() is None or sys.stdin.isatty()


def finished(root: Path) -> Folders:
    folders = Folders(root)
    folders.make()
    Journal(folders.journal).write("done", step="package", seconds=3.0)
    for folder in (folders.source, folders.build, folders.tools, folders.stage, folders.smoke):
        folder.mkdir()
        (folder / "large").write_bytes(b"x" * 1000)
    (root / "repaired").mkdir()
    (root / "repaired" / "torch-1.whl").write_bytes(b"wheel")
    return folders


def test_tidying_keeps_the_wheel_the_logs_and_the_journal(tmp_path: Path) -> None:
    folders = finished(tmp_path / "w")
    would = tidy.tidy(folders, dry_run=True)
    assert would.bytes == 5000 and not would.done and folders.build.exists()
    done = tidy.tidy(folders, dry_run=False)
    assert done.bytes == 5000 and "freed" in tidy.tidy_text(done)
    left = {path.name for path in folders.root.iterdir()} - {"lock", "running.json"}
    assert left == {"journal.jsonl", "logs", "wheels", "repaired"}
    assert (folders.root / "repaired" / "torch-1.whl").read_bytes() == b"wheel"


def test_a_build_without_a_wheel_is_not_tidied(tmp_path: Path) -> None:
    folders = finished(tmp_path / "w")
    (folders.root / "repaired" / "torch-1.whl").unlink()
    with pytest.raises(NotFound, match="no wheel yet"):
        tidy.tidy(folders, dry_run=False)
    with pytest.raises(NotFound, match="there is no build"):
        tidy.tidy(Folders(tmp_path / "nothing"), dry_run=False)
    assert folders.build.exists()


def test_a_record_is_fit_to_be_published(tmp_path: Path) -> None:
    folders = finished(tmp_path / "w")
    journal = Journal(folders.journal)
    journal.write("failed", step="compile", seconds=7.0, note=f"broken | in {Path.home()}/secret and {folders.root}/b")
    resolved = request.resolve(request.BuildFile(torch="1.12.1", python="3.9"), load(Path(READY)))
    shown = overview.overview(resolved, load(Path(READY)), folder=str(folders.root), jobs=4, here=False)
    text = overview.write_record(folders, shown, "1.12.1+cpu").read_text(encoding="utf-8")
    assert "## Errors met" in text and "broken \\| in ~/secret and WORK/b" in text
    assert "SHA-256" in text and "| package | done | 3.0 |" in text
    assert str(tmp_path) not in text


def test_env_lists_the_options_of_the_plans_release(plan: Path) -> None:
    listed = rekindle_command("env", str(plan), "--options", "--json").json()
    assert listed["torch"] == "1.12.1"
    names = {option["name"] for option in listed["options"]}
    newest = {option["name"] for option in rekindle_command("env", "--options", "--json").json()["options"]}
    assert "BUILD_CAFFE2" in names and "BUILD_CAFFE2" not in newest


@pytest.mark.parametrize("name", ["prompt.cmd", "prompt.ps1", "prompt.sh"])
def test_a_prompt_as_a_file(plan: Path, tmp_path: Path, name: str) -> None:
    wanted = env_command.EnvCommand(plan=plan, machine=Path(READY))
    env_command.write_launcher(wanted, tmp_path / name)
    text = (tmp_path / name).read_text(encoding="ascii")
    assert "TORCH_CUDA_ARCH_LIST" in text and "3.5" in text
    opens = {"prompt.cmd": "cmd /k", "prompt.ps1": "powershell -NoExit", "prompt.sh": "-i"}
    assert text.rstrip().splitlines()[-1].startswith(opens[name]) or opens[name] in text.rstrip().splitlines()[-1]


@pytest.mark.skipif(os.name == "nt", reason="the shell of the test is a POSIX one")
def test_a_shell_has_the_environment_of_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "sh"
    asked.write_text(f'#!/bin/sh\nprintf "%s" "$CMAKE_GENERATOR" > {tmp_path}/seen\nexit 5\n', encoding="utf-8")
    asked.chmod(0o755)
    monkeypatch.setenv("SHELL", str(asked))
    (tmp_path / "b.toml").write_text('source = "."\nname = "x"\nversion = "1"\nbackend = "cmake"\n', encoding="utf-8")
    assert env_command.open_shell(env_command.EnvCommand(plan=tmp_path / "b.toml"), tell=lambda text: None) == 5
    assert (tmp_path / "seen").read_text(encoding="utf-8") == "Ninja"


@pytest.mark.skipif(os.name == "nt", reason="here it is the other system that is not this one")
def test_a_script_for_a_computer_that_is_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    words = ["plan", "--gpu", "Tesla K40c", "--os", "windows", "--torch", "2.7.1", "-o", str(path)]
    assert rekindle_command(*words).code == 0
    seen = rekindle_command("build", str(path), "--script", str(tmp_path / "build.cmd"), "--json")
    assert seen.code == 0, seen.err
    assert seen.json()["steps"][0] == "preflight"
    text = (tmp_path / "build.cmd").read_text(encoding="ascii")
    assert r'"RK_PYTHON=%USERPROFILE%\AppData\Local\Programs\Python' in text
    assert r"NVIDIA GPU Computing Toolkit\CUDA\v11.8" in text and "RK_CUDNN=" in text
    plain = rekindle_command("build", str(path), "--script", str(tmp_path / "b.cmd"), "--no-cudnn")
    assert plain.code == 0 and "RK_CUDNN=" not in (tmp_path / "b.cmd").read_text(encoding="ascii")


@pytest.mark.parametrize("profile", ["fast", "compat", "minimal"])
def test_every_profile_on_windows_takes_a_blas_that_something_brings(profile: str) -> None:
    from rekindle.build.configure.options import resolve

    wanted = request.BuildFile(torch="1.12.1", python="3.9", profile=profile)
    resolved = request.resolve(wanted, load(Path(READY)))
    assert resolve(resolved).value("BLAS") == "MKL"
    assert resolved.mkl or any(each.startswith("mkl-static") for each in resolved.requirements)


def test_the_record_of_a_build_whose_compiles_all_failed_is_written() -> None:
    from rekindle.build.governor.record import Compile

    failed = [Compile(object="a.o", start=0.0, seconds=1.0, peak_kb=1, code=1)]
    assert "| target |" in overview.compiles_table(failed)


def test_a_source_that_lies_here_is_not_to_be_downloaded() -> None:
    seen = load(Path(READY))
    wanted = request.BuildFile(torch="1.12.1", python="3.9")
    brought = overview.overview(request.resolve(wanted, seen), seen, folder="w", jobs=4, here=False)
    local = msgspec.structs.replace(wanted, source="C:\\src\\pytorch")
    here = overview.overview(request.resolve(local, seen), seen, folder="w", jobs=4, here=False)
    assert "up to 7 GB to download" in overview.text(brought)
    assert here.download_gb is None and "to download" not in overview.text(here)
