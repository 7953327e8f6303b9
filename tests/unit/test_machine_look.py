"""The look at a machine: probes side by side, and a snapshot that gives the same machine again."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
from pathlib import Path

import pytest

from rekindle.core.codec import to_json
from rekindle.core.errors import BadInput, UnknownName
from rekindle.core.version import Version
from rekindle.doctor import report
from rekindle.doctor.report import examine
from rekindle.doctor.text import paste, text
from rekindle.machine import snapshot
from rekindle.machine.gpu import smi
from rekindle.machine.host import CouldNotRead, Host, Recording, Replay, Said, matters
from rekindle.machine.model import FoundDriver, FoundGpu, Machine
from rekindle.machine.probe import look, together
from rekindle.model.card import Capability
from support.artefacts import unverified

MACHINES = Path(__file__).parents[1] / "machines"


def test_a_snapshot_of_this_machine_replays_to_the_same_machine(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    machine = snapshot.save_here(file)
    plain = snapshot.redacted(snapshot.Snapshot(machine=machine))
    assert to_json(snapshot.load(file)) == to_json(plain.machine)


def test_names_are_taken_out_of_lists_inside_too() -> None:
    recording = Recording(os="windows", arch="x86_64", folders={"D:\\": (r"C:\Users\Zoë Ångström\cuda",)})
    clean = snapshot.redacted(snapshot.Snapshot(recording=recording))
    assert clean.recording is not None
    assert clean.recording.folders == {"D:\\": (r"C:\Users\<the üser>\cuda",)}


def test_a_command_below_a_name_with_a_space_is_found_again() -> None:
    """The words were quoted when they were recorded, and no longer need it when the name is gone."""
    recording = Recording(
        os="windows", arch="x86_64", commands={'"C:\\Jane Doe\\nvcc.exe" --version': Said(code=0, out="x")}
    )
    assert Replay(recording).command("C:\\Jane Doe\\nvcc.exe", "--version").out == "x"
    renamed = Recording(
        os="windows", arch="x86_64", commands={'"C:\\<name>\\nvcc.exe" --version': Said(code=0, out="y")}
    )
    assert Replay(renamed).command("C:\\<name>\\nvcc.exe", "--version").out == "y"


@pytest.mark.parametrize(
    ("name", "recorded"),
    [("CUDA_PATH_V11_8", True), ("Path", True), ("USE_CUDNN", True), ("BUILD_TOKEN", False), ("AWS_SECRET", False)],
)
def test_only_variables_that_matter_to_a_build_are_recorded(name: str, recorded: bool) -> None:
    assert matters(name) is recorded


def test_a_probe_that_hangs_costs_its_own_answer_only() -> None:
    released = threading.Event()
    answers = together({"hangs": lambda: released.wait(60), "answers": lambda: 7}, time_limit=0.2)
    released.set()
    assert answers["answers"] == 7
    assert isinstance(answers["hangs"], CouldNotRead)
    assert "0 s" in str(answers["hangs"])


def test_this_machine_is_read_without_a_gpu_or_with() -> None:
    machine = look(Host())
    assert machine.python is not None
    assert machine.memory.physical
    assert machine.memory.physical > 1024**3
    assert machine.disks


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "schema"),
        ('{"schema": "rekindle.machine/9"}', "rekindle.machine/9"),
        ('{"schema": "rekindle.machine/1"}', "neither"),
        ("[1, 2", "cannot be read"),
        ('{"schema": "rekindle.machine/1", "machine": {"os": 3}}', "cannot be read"),
    ],
)
def test_a_file_that_is_no_snapshot_says_so(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "machine.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=says):
        snapshot.load(file)


def test_a_machine_written_by_hand_is_taken_at_its_word(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "plan.md").read_text(encoding="utf-8")
    (tmp_path / "node7.json").write_text(page.split("```json\n{")[1].split("```")[0].join(("{", "")), encoding="utf-8")
    found = snapshot.load(tmp_path / "node7.json")
    assert [str(gpu.capability) for gpu in found.gpus] == ["7.0", "7.0"] and found.capabilities == (Capability(7, 0),)
    with pytest.raises(UnknownName, match="Tesla W100"):
        snapshot.read('{"schema": "rekindle.machine/1", "machine": {"os": "linux", "arch": "x86_64", "gpus": '
                      '[{"name": "Tesla W100"}]}}')  # fmt: skip


def test_facts_that_were_edited_beside_a_recording_are_not_dropped_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads((MACHINES / "two-keplers-linux.json").read_text(encoding="utf-8"))
    data["machine"] = json.loads(to_json(snapshot.load(MACHINES / "two-keplers-linux.json")))
    assert snapshot.read(json.dumps(data)) and capsys.readouterr().err == ""
    data["machine"]["gpus"] = [{"name": "Tesla V100-SXM2-16GB"}]
    snapshot.read(json.dumps(data))
    said = " ".join(capsys.readouterr().err.split())
    assert "`machine.gpus` was changed and is not used" in said and "take `recording` out" in said


def script(folder: Path, name: str, body: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    file.chmod(0o755)


def test_a_hanging_nvcc_and_a_talkative_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvcc that never answers costs itself; an nvidia-smi that knows no query still names its card."""
    if os.name == "nt":
        unverified("the programs here are shell scripts")
    if shutil.which("nvidia-smi"):
        unverified("this machine has an nvidia-smi of its own, which is asked first")
    table = json.loads((MACHINES / "two-keplers-linux.json").read_text(encoding="utf-8"))
    (tmp_path / "table").write_text(table["recording"]["commands"]["/usr/bin/nvidia-smi"]["out"], encoding="utf-8")
    script(tmp_path, "nvcc", "exec sleep 60")
    script(tmp_path, "nvidia-smi", f"cat {tmp_path / 'table'}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    machine = look(Host(longest=3.0))
    assert [gpu.name for gpu in machine.gpus if "nvidia-smi" in gpu.sources] == ["Tesla K40c", "Tesla K20c"]
    stuck = next(toolkit for toolkit in machine.toolkits if toolkit.nvcc == str(tmp_path / "nvcc"))
    assert stuck.version is None
    assert re.fullmatch(r"it timed out after \d+ s", stuck.trouble or "")


def test_a_card_that_only_the_list_of_nvidia_smi_names_is_a_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table may be drawn otherwise some day: the driver was shown, and below it that there is no card."""
    if os.name == "nt":
        unverified("the programs here are shell scripts")
    row = "Tesla V100-SXM2-16GB, 00000000:00:1E.0, 0x1DB110DE, 16384, 550.54.15, 7.0"
    script(tmp_path, "nvidia-smi", f'test $# = 0 && echo "Driver Version: 550.54.15" || echo "{row}"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(smi, "find", lambda run: str(tmp_path / "nvidia-smi"))
    machine = look(Host())
    card = next(gpu for gpu in machine.gpus if gpu.sources == ("nvidia-smi",))
    assert (card.name, str(card.capability)) == ("Tesla V100-SXM2-16GB", "7.0")
    said = list(examine(machine, only=["gpu.sources-agree"]))
    assert any("only nvidia-smi names it" in finding.found for finding in said)


def test_a_driver_without_a_card_is_said_with_it() -> None:
    driver = FoundDriver(version=Version("550.54.15"), sources=("nvidia-smi",))
    (finding,) = examine(Machine(os="linux", arch="x86_64", driver=driver), only=["gpu.present"])
    assert "though nvidia-smi reports driver 550.54.15" in finding.found


def test_names_that_are_no_text_do_not_stop_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.name == "nt":
        unverified("file names are always text on Windows")
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    Path(os.fsdecode(odd)).mkdir()
    monkeypatch.chdir(os.fsdecode(odd))
    monkeypatch.setenv("CUDA_PATH", os.fsdecode(odd))
    file = tmp_path / "machine.json"
    machine = snapshot.save_here(file)
    assert machine.environment["CUDA_PATH"].endswith("caf\ufffd")
    assert snapshot.load(file).surroundings.here


def test_escape_codes_in_a_foreign_snapshot_do_not_reach_the_terminal() -> None:
    gpu = FoundGpu(name="Tesla\x1b]0;owned\x07 K40c", capability=Capability(3, 5), sources=("nvml",))
    answer = report.report(Machine(os="linux", arch="x86_64", gpus=(gpu,)))
    assert "\x1b]" not in text(answer, everything=True)
    assert "\x1b" not in paste(answer)


def test_what_a_probe_writes_for_a_while_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvcc's dry run makes files that it removes itself, unless it is killed: then the next run sweeps their folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = "import pathlib, tempfile as t; pathlib.Path(t.gettempdir(), 'tmpxft').touch(); print(t.gettempdir())"
    said = Host().command(sys.executable, "-I", "-c", code, apart=True)
    assert Path(said.out.strip()).parent == tmp_path
    assert list(tmp_path.iterdir()) == []
