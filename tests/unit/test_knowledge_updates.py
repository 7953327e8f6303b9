"""`rekindle knowledge`: only a good bundle is taken, all of it or nothing, and it can be undone."""

from __future__ import annotations

import datetime
import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rekindle.core.errors import BadInput, Locked, NotFound, UsageError
from rekindle.knowledge import inventory, tables, updates
from rekindle.knowledge.gpu import gpus
from support.command import rekindle_command
from support.rows import NEW_CARD
from tools.observe.bundle import make

CARD = {**NEW_CARD, "observed_at": "2027-01-15"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "updates"
    monkeypatch.setenv("REKINDLE_UPDATES", str(folder))
    monkeypatch.setattr(updates, "_today", lambda: date(2027, 6, 1))
    tables.forget()
    yield folder
    monkeypatch.delenv("REKINDLE_UPDATES")
    tables.forget()


def bundle(tmp_path: Path, made_at: str = "2027-01-20", row: dict[str, Any] | None = None) -> tuple[Path, str]:
    folder = tmp_path / f"tables-{made_at}"
    (folder / "gpu").mkdir(parents=True, exist_ok=True)
    (folder / "gpu/gpus.json").write_text(json.dumps({"gpus": [row or CARD]}), encoding="utf-8")
    data = make(folder, ["gpu/gpus.json"], made_at)
    path = tmp_path / f"bundle-{made_at}.zip"
    path.write_bytes(data)
    return path, hashlib.sha256(data).hexdigest()


def known() -> bool:
    tables.forget()
    return any(gpu.name == "GeForce RTX 9090" for gpu in gpus.gpus())


def test_a_good_bundle_is_taken_and_undone(tmp_path: Path) -> None:
    path, digest = bundle(tmp_path)
    count = len(gpus.gpus())
    assert not known()
    assert rekindle_command("knowledge", "update", str(path), "--sha256", digest).code == 0
    assert known()
    assert len(gpus.gpus()) == count + 1
    answer = rekindle_command("knowledge", "--json").json()
    assert answer["update"] == "2027-01-20"
    assert [state["table"] for state in answer["tables"] if state["updated"]] == ["gpu/gpus.json"]
    assert rekindle_command("gpu", "rtx 9090").code == 0
    assert rekindle_command("knowledge", "reset").code == 0
    assert not known()
    assert rekindle_command("knowledge", "--json").json()["update"] is None


def test_a_hash_beside_the_bundle_serves_too(tmp_path: Path) -> None:
    path, digest = bundle(tmp_path)
    assert rekindle_command("knowledge", "update", str(path)).code == UsageError.exit_code
    path.with_name(path.name + ".sha256").write_text(f"{digest}  {path.name}\n", encoding="ascii")
    assert rekindle_command("knowledge", "update", str(path)).code == 0
    assert known()


def test_a_tampered_bundle_is_refused(tmp_path: Path) -> None:
    path, digest = bundle(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    seen = rekindle_command("knowledge", "update", str(path), "--sha256", digest)
    assert seen.code == BadInput.exit_code
    assert "another hash" in seen.err
    assert not known()


def test_a_table_changed_inside_is_refused(tmp_path: Path) -> None:
    path, _ = bundle(tmp_path)
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    assert rekindle_command("knowledge", "update", str(folder)).code == 0
    rekindle_command("knowledge", "reset")
    (folder / "gpu/gpus.json").write_text(json.dumps({"gpus": [CARD | {"capability": "9.0"}]}), encoding="utf-8")
    seen = rekindle_command("knowledge", "update", str(folder))
    assert seen.code == BadInput.exit_code
    assert "`gpu/gpus.json`" in seen.err
    assert not known()


def test_a_bundle_of_a_day_to_come_is_refused(tmp_path: Path) -> None:
    """One of the year 9999 was taken, and no later bundle ever again."""
    path, digest = bundle(tmp_path, made_at="9999-01-01")
    seen = rekindle_command("knowledge", "update", str(path), "--sha256", digest)
    assert (seen.code, "has not come yet" in seen.err, known()) == (4, True, False)


@pytest.mark.parametrize("made_at", ["2027-01-10", "2026-01-01"])
def test_a_downgrade_is_refused(tmp_path: Path, made_at: str) -> None:
    path, digest = bundle(tmp_path)
    assert rekindle_command("knowledge", "update", str(path), "--sha256", digest).code == 0
    old, old_digest = bundle(tmp_path, made_at, CARD | {"capability": "9.0"})
    seen = rekindle_command("knowledge", "update", str(old), "--sha256", old_digest)
    assert seen.code == BadInput.exit_code
    assert "newer" in seen.err
    assert known()


def test_a_half_written_bundle_is_refused(tmp_path: Path) -> None:
    path, _ = bundle(tmp_path)
    path.write_bytes(path.read_bytes()[:-40])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert rekindle_command("knowledge", "update", str(path), "--sha256", digest).code == BadInput.exit_code
    assert not known()
    assert rekindle_command("knowledge", "update", str(tmp_path / "absent.zip")).code == NotFound.exit_code


def test_another_schema_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    manifest = {"schema": "rekindle.knowledge-bundle/9", "made_at": "2027-01-20", "tables": {}}
    (folder / "bundle.json").write_text(json.dumps(manifest), encoding="utf-8")
    seen = rekindle_command("knowledge", "update", str(folder))
    assert seen.code == BadInput.exit_code
    assert "rekindle.knowledge-bundle/1" in seen.err


def test_a_bad_row_is_refused_with_its_field(tmp_path: Path) -> None:
    path, digest = bundle(tmp_path, row=CARD | {"capability": 12})
    seen = rekindle_command("knowledge", "update", str(path), "--sha256", digest)
    assert seen.code == BadInput.exit_code
    assert "field `capability`" in seen.err
    assert not known()


def test_a_table_that_steers_decisions_is_not_taken(tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    (folder / "builds").mkdir(parents=True)
    (folder / "builds/rules.toml").write_text("", encoding="utf-8")
    path = tmp_path / "rules.zip"
    path.write_bytes(make(folder, ["builds/rules.toml"], "2027-01-20"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert rekindle_command("knowledge", "update", str(path), "--sha256", digest).code == BadInput.exit_code


def test_a_second_process_is_told_to_wait(tmp_path: Path, home: Path) -> None:
    path, digest = bundle(tmp_path)
    with updates._changing():
        seen = rekindle_command("knowledge", "update", str(path), "--sha256", digest)
    assert seen.code == Locked.exit_code
    assert not known()
    assert rekindle_command("knowledge", "update", str(path), "--sha256", digest).code == 0


def test_of_two_processes_at_once_one_wins_and_the_tables_are_whole(tmp_path: Path) -> None:
    command = "import sys; from rekindle.cli.main import run; sys.exit(run(sys.argv[1:]))"
    running = []
    for pci in ("ffe1", "ffe2"):
        (tmp_path / pci).mkdir()
        path, digest = bundle(tmp_path / pci, date.today().isoformat(), row=CARD | {"pci_ids": [pci]})
        words = [sys.executable, "-c", command, "knowledge", "update", str(path), "--sha256", digest]
        running.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
    codes = [each.wait(timeout=60) for each in running]
    assert 0 in codes
    assert set(codes) <= {0, Locked.exit_code}
    assert known()
    rekindle_command("knowledge", "--json").json()


def test_a_damaged_update_is_said_and_can_be_undone(tmp_path: Path, home: Path) -> None:
    path, digest = bundle(tmp_path)
    rekindle_command("knowledge", "update", str(path), "--sha256", digest)
    (home / "current").write_text("bundle-gone\n", encoding="ascii")
    tables.forget()
    seen = rekindle_command("gpu", "Tesla K40c")
    assert seen.code == BadInput.exit_code
    assert "rekindle knowledge reset" in seen.err
    assert rekindle_command("knowledge", "reset").code == 0
    assert rekindle_command("gpu", "Tesla K40c").code == 0


def test_the_tables_are_shown_with_date_and_evidence() -> None:
    seen = rekindle_command("knowledge")
    assert seen.code == 0
    assert "gpu/gpus.json" in seen.out
    answer = rekindle_command("knowledge", "--json").json()
    states = {state["table"]: state for state in answer["tables"]}
    assert states["gpu/gpus.json"]["rows"] == len(gpus.gpus())
    assert sum(states["gpu/gpus.json"]["evidence"].values()) == len(gpus.gpus())
    assert states["torch/torch_wheels.json"]["evidence"] == {"binary": states["torch/torch_wheels.json"]["rows"]}


def test_old_data_is_said_after_90_days(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = datetime.date.fromisoformat(tables.built_in_date())
    assert inventory.stale(newest + datetime.timedelta(days=90)) is None
    line = inventory.stale(newest + datetime.timedelta(days=91))
    assert line is not None
    assert "91 days old" in line


def test_an_answer_says_that_the_data_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "STALE_AFTER", -1)
    seen = rekindle_command("gpu", "Tesla K40c")
    assert seen.code == 0
    assert "days old" in seen.err
    assert "days old" not in rekindle_command("knowledge", "reset").err


def test_an_overlay_without_the_tables_lists_is_refused(tmp_path: Path) -> None:
    """Rows in another frame were taken without a word and ignored."""
    (tmp_path / "gpus.json").write_text('{"rows": []}', encoding="utf-8")
    try:
        done = rekindle_command("--knowledge", str(tmp_path), "gpu", "RTX 3090")
    finally:
        tables.use_overlay(None)
    assert done.code == 4 and "its rows stand in `gpus`" in done.err
