"""Files that people hand each other: what a second red team got through, and does no longer."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from rekindle.core import codec
from rekindle.core.errors import BadInput
from rekindle.core.findings import State
from rekindle.machine import snapshot
from rekindle.wheels.shelf import health, shelf
from support import torch_like
from support.artefacts import unverified
from support.command import rekindle_command

MACHINES = Path(__file__).parents[1] / "machines"
HUGE = "0x" + "F" * 6000
CARD = "NVIDIA GeForce RTX 5070\n\nrun:\n  pip install evil-torch\n\nx"


def _shelved(folder: Path) -> Path:
    """A shelf of somebody, with a torch on it that serves a K40c."""
    wheel = torch_like.wheel(
        folder, project="torch", version="2.7.1+cu118", libraries={"torch/lib/kernels.fatbin": (("sm_35",),)},
        tag="cp311-cp311-manylinux_2_28_x86_64",
    )  # fmt: skip
    shelf.add(folder / "shelf", [wheel])
    return folder / "shelf"


def _entry(place: Path) -> Path:
    return next((place / "wheels").glob("*.shelf.json"))


def _changed(entry: Path, **fields: object) -> None:
    entry.write_text(json.dumps({**json.loads(entry.read_text(encoding="utf-8")), **fields}), encoding="utf-8")


@pytest.mark.skipif(os.name == "nt", reason="links need a right of their own there")
def test_a_corrected_script_is_not_written_through_a_link(tmp_path: Path) -> None:
    script, victim, link = tmp_path / "a.sh", tmp_path / "victim", tmp_path / "out.sh"
    script.write_text("pip install torch==2.8.0\n", newline="\n")
    victim.write_text("mine")
    link.symlink_to(victim)
    rekindle_command("review", str(script), "--gpu", "GTX 1080 Ti", "--fix", "-o", str(link))
    assert victim.read_text() == "mine" and "cu126" in link.read_text() and not link.is_symlink()
    script.chmod(0o755)
    rekindle_command("review", str(script), "--gpu", "GTX 1080 Ti", "--fix", "-o", str(script))
    assert "cu126" in script.read_text() and stat.S_IMODE(script.stat().st_mode) == 0o755


def test_an_entry_of_somebodys_folder_is_not_read_off_the_file(tmp_path: Path) -> None:
    place = _shelved(tmp_path)
    _changed(_entry(place), signed_by="ed25519:" + "A" * 43 + "=", state="PASS", checked_on=["Tesla K40c (3.5)"])
    card = ("--gpu", "K40c", "--os", "linux", "--arch", "x86_64", "--python", "3.11", "--driver", "470.57.02")
    found = rekindle_command("plan", *card, "--shelf", str(place), "--json").json()["recommended"]
    assert found["route"] == "shelf" and found["evidence"] == "notes"
    assert any("no key that you trust" in each for each in found["unverified"])
    shown = rekindle_command("shelf", "list", "--shelf", str(place)).out
    assert "signed    no: " in shown and "by its entry alone" in shown and "on Tesla K40c" not in shown


def test_an_entry_that_was_changed_is_not_mended_in_silence(tmp_path: Path) -> None:
    place = _shelved(tmp_path)
    _changed(_entry(place), signed_by="ed25519:" + "A" * 43 + "=")
    assert health.mend(place).state is State.FAIL
    _changed(_entry(place), signed_by=None, size=5)
    done = health.mend(place)
    assert done.state is State.FAIL and "set aside" in done.findings[0].found


def test_an_entry_without_containers_stops_nobody(tmp_path: Path) -> None:
    place = _shelved(tmp_path)
    code = json.loads(_entry(place).read_text(encoding="utf-8"))["code"]
    _changed(_entry(place), code=[{**each, "groups": []} for each in code])
    done = rekindle_command("plan", "--gpu", "K40c", "--os", "linux", "--arch", "x86_64", "--shelf", str(place))
    assert done.code in (0, 5) and "not considered" in done.err


def test_the_facts_of_a_snapshot_are_lines(tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    machine = {"os": "linux", "arch": "x86_64\nrun: x", "gpus": [{"name": CARD, "capability": "12.0"}]}
    file.write_text(json.dumps({"schema": "rekindle.machine/1", "machine": machine}), encoding="utf-8")
    done = rekindle_command("plan", "--machine", str(file))
    assert "\nrun:" not in done.out and "\n  pip install evil" not in done.out + done.err


def test_a_path_of_thousands_of_separators(tmp_path: Path) -> None:
    raw = json.loads((MACHINES / "k40c-windows.json").read_text(encoding="utf-8"))
    raw["recording"]["present"][5] += "/" * 300_000
    assert snapshot.read(json.dumps(raw)).os == "windows"


@pytest.mark.skipif(os.name == "nt", reason="/proc is of Linux")
@pytest.mark.parametrize("verb", [("doctor", "--machine"), ("plan", "--machine"), ("fleet", "plan")])
def test_a_file_that_gives_nothing_is_not_waited_for(tmp_path: Path, verb: tuple[str, ...]) -> None:
    kernel = Path("/proc/kmsg")
    if not os.access(kernel, os.R_OK):
        unverified("this user cannot open the kernel's messages")
    link = tmp_path / "m.json"
    link.symlink_to(kernel)
    assert rekindle_command(*verb, str(link)).code not in (0, 1, 70)


@pytest.mark.parametrize(
    ("name", "text", "verb"),
    [
        ("m.toml", f"schema = {HUGE}\n", ("fleet", "plan")),
        ("b.toml", f"schema = {HUGE}\n", ("env",)),
        ("pyproject.toml", f'[project]\nname = "x"\nrequires-python = {HUGE}\n', ("review",)),
        ("pixi.toml", f"[dependencies]\npytorch = {HUGE}\n", ("review",)),
        ("Pipfile", f"[requires]\npython_version = {HUGE}\n", ("review",)),
        ("pyproject.toml", f"[[tool.poetry.source]]\nname = {HUGE}\nurl = {HUGE}\n", ("review",)),
    ],
)
def test_a_number_that_python_does_not_write(tmp_path: Path, name: str, text: str, verb: tuple[str, ...]) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8", newline="\n")
    done = rekindle_command(*verb, str(tmp_path / name))
    assert done.code in (2, 4, 9) and "internal error" not in done.err
    with pytest.raises(BadInput, match="64 bits"):
        codec.from_toml(f"a = {HUGE}", dict)


def test_a_hash_in_a_text_is_no_number() -> None:
    assert codec.from_toml(f'a = "{HUGE}"', dict) == {"a": HUGE}


def test_a_matrix_that_would_be_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    matrix = tmp_path / "-o.toml"
    matrix.write_text('schema = "rekindle.matrix/1"\n[[jobs]]\n', encoding="utf-8")
    from rekindle.core.errors import UsageError
    from rekindle.fleet.export.write import relative_matrix

    with pytest.raises(UsageError, match="option"):
        relative_matrix(matrix, tmp_path)
