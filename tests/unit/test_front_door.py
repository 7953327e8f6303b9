"""What a line, a heading or a refusal says to somebody who types it for the first time."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import rekindle
from rekindle.build.configure import request
from rekindle.core import paths
from rekindle.core.errors import MissingTool, UsageError
from rekindle.core.run import call
from rekindle.core.version import Version
from rekindle.knowledge.torch.releases import torch_release
from rekindle.machine import snapshot
from rekindle.machine.model import FoundPython, Machine
from support.command import rekindle_command


def test_a_plan_that_cannot_be_written_is_no_answer_first(tmp_path: Path) -> None:
    """The whole answer was printed, and then that the folder is no plan."""
    seen = rekindle_command("plan", "--gpu", "GTX 1080 Ti", "-o", str(tmp_path))
    assert seen.code == 2
    assert "already exists and is not a plan" in seen.err
    assert seen.out == ""


def test_the_options_of_doctor_are_those_of_the_name_alone() -> None:
    assert rekindle_command("--json").json()["schema"] == "rekindle.doctor/1"
    assert "rekindle doctor --help" in rekindle_command("--no-such").err


def test_nothing_is_folded_where_everything_is_shown() -> None:
    machine = str(Path(__file__).parents[1] / "machines" / "wsl.json")
    assert re.search(r"\d folded\n", rekindle_command("doctor", "--machine", machine).out)
    assert not re.search(r"\d folded\n", rekindle_command("doctor", "--all", "--machine", machine).out)


@pytest.mark.parametrize("words", [("--help",), ("plan", "--help"), ("build", "--help")], ids=" ".join)
def test_help_in_forty_columns(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    """The names of the options took thirty of them, and ten were left."""
    monkeypatch.setenv("COLUMNS", "40")
    lines = rekindle_command(*words).out.splitlines()
    assert [line for line in lines if len(line) > 40 and "[" not in line] == []
    assert not [line for line in lines if re.fullmatch(r" {30,}\S.*", line)]


def _plan_for(folder: Path, python: str) -> Path:
    file = folder / "k.toml"
    text = f'source = "."\npython = "{python}"\ntorch = "2.7.1"\ncuda = "11.8"\narch_list = "3.5"\n'
    file.write_text(text, encoding="utf-8")
    return file


def test_a_build_whose_python_is_missing_names_the_one_that_is_here(tmp_path: Path) -> None:
    """It said to run Rekindle inside of one that nobody had, though the release takes the one that was there."""
    machine = FoundPython(path="/usr/bin/python3", version=Version("3.11.2"), tag="cp311")
    here = Machine(os="linux", arch="x86_64", pythons=(machine,), python=machine)
    with pytest.raises(MissingTool) as refused:
        request.python_of(request.read(_plan_for(tmp_path, "3.12")), here)
    assert "`--python 3.11`" in str(refused.value.hint) and "`uv python install 3.12`" in str(refused.value.hint)
    with pytest.raises(MissingTool) as refused:
        request.python_of(request.read(_plan_for(tmp_path, "3.6")), here)
    assert "plan for the Python" in str(refused.value.hint)


@pytest.mark.skipif(os.name == "nt", reason="the program is a shell script")
def test_a_python_beside_the_first_is_found_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python3.12` was on PATH, and the build said that it was not on this machine."""
    account = {
        "version": "3.12.1",
        "prefix": "/p",
        "base_prefix": "/p",
        "site_packages": [],
        "conda": False,
        "bits": 64,
    }
    program = tmp_path / "python3.12"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(account)}'\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}{tmp_path}")
    seen = rekindle_command("build", str(_plan_for(tmp_path, "3.12")), "--dry-run")
    assert "Python 3.12 is not on this machine" not in seen.err


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A1111's folder with a Python that nobody can start; one stands in it, and Rekindle's own is active."""
    venv = tmp_path / "webui" / "venv"
    site, programs = ("Lib/site-packages", "Scripts") if os.name == "nt" else ("lib/python3.11/site-packages", "bin")
    (venv / site / "pip-24.0.dist-info").mkdir(parents=True)
    (venv / programs).mkdir()
    (venv / programs / ("python.exe" if os.name == "nt" else "python")).touch()
    (venv / "pyvenv.cfg").write_text("home = /nowhere\nversion = 3.11.2\n", encoding="utf-8")
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.chdir(venv.parent)
    return venv.parent


def test_in_an_applications_folder_the_line_is_for_its_python(application: Path) -> None:
    """A bare `pip` was that of Rekindle's own environment."""
    seen = rekindle_command("plan", "--gpu", "GTX 1080 Ti")
    program = str(Path("venv", "Scripts", "python") if os.name == "nt" else Path("venv", "bin", "python"))
    assert f"    {program} -m pip install torch==" in seen.out and "Python 3.11\n" in seen.out
    assert "    pip install" not in seen.out
    # Nor does it lose it when this system is named.
    here = "windows" if os.name == "nt" else "linux"
    assert f"    {program} -m pip install torch==" in rekindle_command("plan", "--gpu", "GTX 1080 Ti", "--os", here).out
    # What is asked about another computer, and whoever asks next, is not concerned.
    other = "linux" if os.name == "nt" else "windows"
    assert "    pip install torch==" in rekindle_command("plan", "--gpu", "GTX 1080 Ti", "--os", other).out


def test_in_an_applications_folder_install_asks_which_python(application: Path) -> None:
    """It changed Rekindle's own environment, and the application stayed as it was."""
    seen = rekindle_command("install", "--gpu", "GTX 1080 Ti", "--dry-run")
    assert seen.code == 2 and "install .`" in seen.err
    located = rekindle_command("install", ".", "--gpu", "GTX 1080 Ti", "--dry-run")
    assert f"in `{application / 'venv'}`" in located.out


def test_another_environment_that_is_active_is_the_one_that_is_meant(
    application: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert "    pip install torch==" in rekindle_command("plan", "--gpu", "GTX 1080 Ti").out


@pytest.mark.skipif(os.name == "nt", reason="there the shell is the one that asks")
def test_lines_for_windows_say_whose_they_are() -> None:
    asked = ("plan", "--gpu", "Tesla K40c", "--os", "windows")
    assert "  Run (in PowerShell; `--shell cmd` for cmd)\n" in rekindle_command(*asked).out
    assert "  Run\n" in rekindle_command(*asked, "--shell", "cmd").out
    assert "  Run\n" in rekindle_command("plan", "--gpu", "Tesla K40c", "--os", "linux").out


@pytest.mark.parametrize("text", ['{"gpus": ["K80"]}', '{"schema": "rekindle.machine/1", "os": "linux"}'])
def test_a_machine_that_is_described_wrongly_is_shown_how(tmp_path: Path, text: str) -> None:
    """The only way that was named is to record it, on a machine that nobody can log in to."""
    (tmp_path / "node7.json").write_text(text, encoding="utf-8")
    for named in (tmp_path / "node7.json", tmp_path):
        seen = rekindle_command("plan", "--machine", str(named), "-o", str(tmp_path / "out"))
        assert seen.code == 4
        (shown,) = re.findall(r"by hand it is (\{.*\})", " ".join(seen.err.split()))
        (tmp_path / "right.json").write_text(shown, encoding="utf-8")
        assert rekindle_command("plan", "--machine", str(tmp_path / "right.json")).code == 0
        (tmp_path / "right.json").unlink()


def test_who_looks_for_an_extension_without_a_torch_is_told_who_chooses_one() -> None:
    seen = rekindle_command("extension", "find", "flash-attn", "--env", str(Path(sys.prefix)))
    if seen.code == 14:  # there is no torch among the tests' own packages
        assert "plan --gpu NAME --with flash-attn`" in " ".join(seen.err.split())


@pytest.mark.parametrize("card", ["GTX 1080 Ti", "Tesla K40c", "RTX 5090", "V100"])
def test_no_heading_of_a_card_doubts_itself(card: str) -> None:
    """`How to use it (not yet confirmed)`: how it is known is a line below."""
    text = rekindle_command("gpu", card).out
    assert not [line for line in text.splitlines() if "(not yet confirmed)" in line and not line.startswith(" ")]


def test_what_reads_environments_is_not_imported_where_there_is_none(tmp_path: Path) -> None:
    """It took a plan thirty milliseconds more."""
    code = "import sys; from rekindle.cli import main; main.run(['plan', '--gpu', 'GTX 1080 Ti']); "
    code += "print('rekindle.machine.python.environment' in sys.modules, file=sys.stderr)"
    seen = call([sys.executable, "-c", code], cwd=tmp_path)
    assert seen.err.strip().endswith("False"), seen.err


def test_hardly_anything_is_imported_before_an_interruption_is_caught() -> None:
    """`typing` alone took longer than all of ours before it, and Ctrl-C in it ended with a traceback."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2] / 'src')!r}); before = set(sys.modules); "
    code += "import rekindle.__main__; print(*sorted(set(sys.modules) - before))"
    seen = call([sys.executable, "-I", "-S", "-c", code])
    assert "rekindle.__main__" in seen.out.split()
    assert not {"typing", "re", "contextlib", "rekindle.cli"} & set(seen.out.split()), seen.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"torch": "banana"}, "write `torch` like `2.7.1`"),
        ({"python": "x"}, 'write `python="3.11"`'),
        ({"prefer": "newes"}, "did you mean `newest`?"),
        ({"needs": ["bf17"]}, "did you mean `bf16`?"),
        ({"profile": "quick"}, "it takes `fast`, `compat`, `minimal`"),
    ],
)
def test_the_library_speaks_of_its_own_words(words: dict[str, Any], said: str) -> None:
    """It named options of the command line, took any word in `needs`, and ended with a bare ValueError."""
    with pytest.raises(UsageError) as refused:
        rekindle.plan(gpus="V100", **words)
    assert said in str(refused.value.hint) and "--" not in f"{refused.value}{refused.value.hint}"


@pytest.mark.parametrize("columns", [40, 80])
def test_the_table_of_a_lab_stays_in_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """It was a hundred columns wide in every window."""
    cards = ("Tesla K80", "RTX 5090", "Tesla V100-PCIE-16GB", "GTX 1080 Ti", "RTX 3090", "RTX 4090", "Quadro P6000")
    for number, card in enumerate(cards):
        gpus = [{"name": one} for one in cards[: number + 1]] if number < 5 else [{"name": card}]
        machine = {"os": "linux", "arch": "x86_64", "gpus": gpus}
        text = json.dumps({"schema": "rekindle.machine/1", "machine": machine})
        (tmp_path / f"node{number}.json").write_text(text, encoding="utf-8")
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = rekindle_command("plan", "--machine", str(tmp_path)).out.splitlines()
    assert [line for line in lines if len(line) > columns and not re.search(r"pip|rekindle|conda|://", line)] == []
    program = rekindle_command("plan", "--for", "vllm", "--gpu", "V100").out.splitlines()
    assert all(len(line) <= columns for line in program[:4] if "pip" not in line)


def test_in_an_applications_folder_the_next_step_names_it(application: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rekindle install` alone asks there which Python is meant."""
    recorded = snapshot.load(Path(__file__).parents[1] / "machines" / "rtx5070-windows.json")
    monkeypatch.setattr(snapshot, "here", lambda **_: recorded)
    step = rekindle.doctor().next
    assert step is not None and [each.words for each in step.commands] == [("rekindle", "install", ".")]
    monkeypatch.chdir(application.parent)
    step = rekindle.doctor().next
    assert step is not None and [each.words for each in step.commands] == [("rekindle", "install")]


def test_a_plan_that_has_to_be_built_is_not_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`install --plan k.toml` printed the line that writes another plan."""
    venv = pytest.importorskip("venv", reason="UNVERIFIED: this Python has no venv (an embedded one)")
    venv.create(tmp_path / "env", with_pip=False)
    monkeypatch.chdir(tmp_path)
    python = "{}.{}".format(*sys.version_info[:2])
    if python not in torch_release("2.7.1").pythons(paths.system()):
        pytest.skip(f"torch 2.7.1 has no Python {python}")
    words = ("--gpu", "Tesla K40c", "--prefer", "newest", "--torch", "2.7.1", "--python", python)
    assert rekindle_command("plan", *words, "--arch", paths.architecture(), "-o", "k.toml").code == 0
    seen = rekindle_command("install", "env", "--plan", "k.toml", "--dry-run")
    assert seen.code == 6 and "rekindle build k.toml" in seen.err and "rekindle plan" not in seen.err


def test_in_an_environment_of_uvs_the_line_is_for_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no pip: a bare `pip` was another's, or none."""
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("venv").create(tmp_path / ".venv", with_pip=False, symlinks=os.name != "nt")
    assert "    uv pip install torch==" in rekindle_command("plan", "--gpu", "RTX 4090").out, "in the project's folder"
    own, other = f"3.{sys.version_info.minor}", "3.13" if sys.version_info.minor != 13 else "3.12"
    assert "    uv pip install torch==" in rekindle_command("plan", "--gpu", "RTX 4090", "--python", own).out
    assert "    pip install torch==" in rekindle_command("plan", "--gpu", "RTX 4090", "--python", other).out
    (tmp_path / ".venv").rename(tmp_path / "env")
    assert "    pip install torch==" in rekindle_command("plan", "--gpu", "RTX 4090").out, "uv does not find that one"
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))
    assert "    uv pip install torch==" in rekindle_command("plan", "--gpu", "RTX 4090").out, "the active one"


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("conda", "conda env create -f made"),
        ("requirements", "pip install -r made"),
        ("dockerfile", "docker build -t torch -f made ."),
        ("pixi", "pixi install --manifest-path made"),
        ("uv", ""),
    ],
)
def test_a_file_that_was_written_says_what_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = rekindle_command("plan", "--gpu", "Tesla K80", "--os", "linux", "--as", form, "-o", "made")
    assert (
        seen.code == 0 and [line for line in seen.err.splitlines() if "Next" in line] == [f"Next: {said}"][: bool(said)]
    )


def test_the_python_that_makes_an_environment_is_one_that_is_there(tmp_path: Path) -> None:
    """Debian and Ubuntu have no `python`."""
    seen = rekindle_command("install", str(tmp_path / "new"), "--gpu", "V100")
    assert f"`{'python' if os.name == 'nt' else 'python3'} -m venv " in seen.err
