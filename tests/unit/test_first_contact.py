"""What a newcomer stumbled over, each told apart from what they meant."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest

from rekindle.build.run import steps
from rekindle.core import console, paths
from rekindle.core.errors import UnknownName, UsageError
from rekindle.knowledge.gpu import gpus
from rekindle.stack import from_machine
from support import small_wheels
from support.command import rekindle_command


@pytest.mark.parametrize("typed", ["RTX 5080 Tii", "GTX 1080 Tx", "GTX 980 Tl", "RTX 4070 Supr", "RTX 3060 Laptpo"])
def test_a_misspelled_suffix_is_not_left_out(typed: str) -> None:
    with pytest.raises(UnknownName) as error:
        gpus.find(typed)
    assert "did you mean" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("EVGA GTX 980 Ti SC+ ACX 2.0", "GeForce GTX 980 Ti"),
        ("MSI GTX 1080 Gaming X", "GeForce GTX 1080"),
        ("Zotac RTX 3060 Twin Edge OC", "GeForce RTX 3060"),
    ],
)
def test_a_shops_words_are_left_out_as_before(typed: str, name: str) -> None:
    assert gpus.find(typed).name == name


def test_a_number_that_no_card_has_says_that_nothing_is_like_it() -> None:
    with pytest.raises(UnknownName) as error:
        gpus.find("RTX 9999")
    assert "no known name is like it" in (error.value.hint or "")


@pytest.mark.parametrize("text", ["3.99", "3.40", "cp399"])
def test_a_python_that_does_not_exist_is_refused(text: str) -> None:
    seen = rekindle_command("plan", "--gpu", "GTX 1080", "--python", text)
    assert seen.code == UsageError.exit_code
    assert "newest" in seen.err


def test_the_processor_that_was_assumed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "architecture", lambda: "aarch64")
    said = rekindle_command("plan", "--gpu", "GTX 1060", "--os", "linux").out
    assert "x86_64 is assumed" in said and "--arch aarch64" in said
    assert "is assumed" not in rekindle_command("plan", "--gpu", "GTX 1060", "--arch", "x86_64").out
    monkeypatch.setattr(paths, "architecture", lambda: "x86_64")
    assert "is assumed" not in rekindle_command("plan", "--gpu", "GTX 1060", "--os", "linux").out
    assert from_machine.situation_here(gpus=["GTX 1060"], system="linux").arch == "x86_64"


def test_a_board_asked_about_on_windows_runs_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "system", lambda: "windows")
    found = from_machine.situation_here(gpus=["Jetson Nano"])
    assert (found.system, found.arch) == ("linux", "aarch64")
    said = rekindle_command("plan", "--gpu", "NVIDIA GB10").out
    assert "Linux is assumed" in said and "pip install" in said
    assert from_machine.situation_here(gpus=["Jetson Nano"], system="windows").system == "windows"
    assert from_machine.situation_here(gpus=["GTX 1060"]).system == "windows"


def test_letters_beyond_ascii_reach_a_stream_that_keeps_text() -> None:
    kept = io.StringIO()
    with contextlib.redirect_stdout(kept):
        console.out("Zoë Ångström")
    assert kept.getvalue() == "Zoë Ångström\n"


def test_a_written_plan_is_not_asked_for_again(tmp_path: Path) -> None:
    target = tmp_path / "k40.toml"
    words = ("plan", "--gpu", "Tesla K40c", "--os", "linux", "--torch", "2.7.1")
    assert "rekindle plan" in rekindle_command(*words).out
    said = rekindle_command(*words, "-o", str(target)).out
    assert "rekindle plan --gpu" not in said
    assert re.search(rf"rekindle build [\"']?{re.escape(str(target))}", said)


def test_the_steps_of_a_build_are_in_its_help() -> None:
    said = " ".join(rekindle_command("build", "--help").out.split())
    assert ", ".join(step.name for step in steps.STEPS) in said


def test_the_age_of_the_data_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    from rekindle.cli import knowledge

    said = rekindle_command("knowledge").out
    newest = date.fromisoformat(re.findall(r"newest row: (\d{4}-\d\d-\d\d)", said)[0])
    assert knowledge.age(newest, newest) == "today"
    assert knowledge.age(newest, newest + timedelta(days=1)) == "1 day ago"
    assert knowledge.age(newest, newest + timedelta(days=40)) == "40 days ago"
    assert f"({knowledge.age(newest, date.today())})" in said


@pytest.mark.parametrize(
    "words",
    [
        ("review", "nothing.sh"),
        ("inspect", "nothing.whl"),
        ("verify", "nothing.whl"),
        ("repair", "nothing-1.0-py3-none-any.whl"),
        ("diagnose", "nothing.log"),
        ("report", "nothing.log"),
        ("audit", "nothing"),
        ("shelf", "add", "nothing-1.0-py3-none-any.whl"),
        ("build", "nothing.toml"),
        ("install", sys.prefix, "--plan", "nothing.toml"),
        ("source", "--torch", "2.7.1", "--from", "nothing.tar.gz", "-o", "C:\\pt" if os.name == "nt" else "tree"),
        ("knowledge", "update", "nothing.zip"),
    ],
)
def test_a_file_that_is_not_there_is_said_in_one_way(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = rekindle_command(*words)
    assert seen.code != 0
    assert re.search(r"no such file(?: or folder)?: `[^`]*nothing", seen.err), seen.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("install", "torch==2.6.0"), "rekindle install --torch 2.6.0"),
        (("install", "pytorch"), "PyTorch is what it installs"),
        (("inspect", "nvcr.io/nvidia/pytorch:23.10-py3"), "rekindle review Dockerfile --gpu NAME"),
        (("plan", "--machine", "empty.json"), "`empty.json` is empty"),
        (("shelf", "add", "empty.json"), "name a wheel, such as"),
        (("gpu", "Tesla K41"), "`Tesla K40m`"),
        (("inspect", "."), "there is no file in"),
        (("plan", "--gpu", "V100", "--as", "docker"), "did you mean `dockerfile`?"),
        (("plan", "--gpu", "V100", "--torch", "9.9"), "`--torch 2."),
        (("extension", "build", "torchvison", "--gpu", "V100"), "did you mean `torchvision`?"),
        (("plan", "--gpu", "V100", "--cuda", "12.60"), "nearest: 12.6;"),
    ],
)
def test_what_was_named_by_mistake_is_told_apart(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if words[0] != "inspect":
        (tmp_path / "empty.json").touch()
    seen = rekindle_command(*words)
    assert seen.code != 0 and said in " ".join(seen.err.split()), seen.err


@pytest.mark.skipif(os.name == "nt", reason="there it is a path")
@pytest.mark.parametrize("verb", ["install", "inspect", "diagnose", "audit"])
def test_a_path_of_windows_is_known_elsewhere(verb: str) -> None:
    """It was to be made with `python -m venv C:\\ComfyUI`."""
    assert "it is a path of Windows" in rekindle_command(verb, "C:\\ComfyUI_windows_portable").err


def test_a_compiler_library_is_not_called_a_program_for_the_cpu(tmp_path: Path) -> None:
    info = "nvidia_cuda_nvrtc_cu12-12.6.85.dist-info"
    files = {
        "nvidia/cuda_nvrtc/include/nvrtc.h": b"",
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: nvidia-cuda-nvrtc-cu12\nVersion: 12.6.85\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel = small_wheels.make(tmp_path, files, name="nvidia_cuda_nvrtc_cu12-12.6.85-py3-none-any.whl")
    said = rekindle_command("inspect", str(wheel)).out
    assert "runs on the CPU only" not in said
    assert "No GPU code of its own" in said


def test_a_conda_spec_survives_the_shell() -> None:
    words = ("plan", "--gpu", "GTX 1060", "--os", "linux", "--json")
    routes = rekindle_command(*words).json()["routes"]
    lines = [line for route in routes for line in route["commands"] if line.startswith("conda install")]
    assert lines
    for line in lines:
        assert all(word.startswith('"') for word in line.split() if set(word) & set("*<>")), line


def test_review_asks_for_the_card_it_does_not_know(tmp_path: Path) -> None:
    script = tmp_path / "build.sh"
    script.write_text("set -e\nexport MAX_JOBS=4\npip install torch==2.9.0\n", encoding="utf-8")
    assert "--gpu" in rekindle_command("review", str(script)).out
    assert "--gpu" not in rekindle_command("review", str(script), "--gpu", "GTX 1060").out


def test_diagnose_says_whose_torch_it_takes() -> None:
    said = " ".join(rekindle_command("diagnose", "--help").out.split())
    assert "--torch X.Y.Z The PyTorch release that failed" in said


@pytest.mark.long
@pytest.mark.parametrize("driver", ["525", "535", "550", "560", "570", "580"])
def test_the_driver_line_never_asks_for_more_than_the_driver_that_works(driver: str) -> None:
    """A driver that runs CUDA 12.6 by minor-version compatibility was told to be 560 or newer."""
    answer = rekindle_command("plan", "--gpu", "GTX 1060", "--os", "linux", "--driver", driver, "--json").json()
    need = re.match(r"R?(\d+)", answer["recommended"]["driver"])
    assert answer["recommended"]["route"] != "none"
    assert need is not None and int(need[1]) <= int(driver)


def test_review_says_what_happens_when_a_build_fails(tmp_path: Path) -> None:
    script = tmp_path / "build.sh"
    lines = ["git clone --recursive https://github.com/pytorch/pytorch", "cd pytorch", "export MAX_JOBS=4"]
    script.write_text("\n".join([*lines, "python setup.py bdist_wheel", "echo done", ""]), encoding="utf-8")
    said = rekindle_command("review", str(script)).out
    assert "the script goes on when this build fails" in said
    assert "set -e" in said


def test_what_a_described_computer_lacks_is_said_at_once_and_stops_no_script(tmp_path: Path) -> None:
    """One thing was named after the other, and a file that says only the card kept a script from being written."""
    plan, computer, script = tmp_path / "plan.toml", tmp_path / "k40.json", tmp_path / "build.cmd"
    card = ("--gpu", "Tesla K40c", "--os", "Windows 10", "--driver", "472.50")
    assert rekindle_command("plan", *card, "--torch", "2.7.1", "-o", str(plan)).code == 0
    described = {"os": "Windows 10", "arch": "x86_64", "gpus": [{"name": "Tesla K40c"}]}
    computer.write_text(json.dumps({"schema": "rekindle.machine/1", "machine": described}), encoding="utf-8")
    dry = rekindle_command("build", str(plan), "--dry-run", "--machine", str(computer))
    lacks = ("CUDA 11.8", "cuDNN 8.7.0.84", "Python 3.12", "MSVC toolset")
    assert dry.code == 6 and all(f"{each}" in dry.err for each in lacks)
    seen = rekindle_command("build", str(plan), "--machine", str(computer), "--script", str(script))
    assert seen.code == 0 and script.is_file() and seen.out.count("later ") == len(lacks)
