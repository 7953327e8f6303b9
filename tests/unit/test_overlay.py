"""Overlays: rows merge by the key of their table, nothing else is lost, and a bad row is refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rekindle
from rekindle.core.errors import BadInput
from rekindle.knowledge import keys, tables
from rekindle.knowledge.gpu import gpus
from rekindle.knowledge.torch import projects
from support.command import rekindle_command

KNOWLEDGE = Path(rekindle.__file__).parent / "knowledge"
TABLES = sorted(
    path.relative_to(KNOWLEDGE).as_posix() for path in [*KNOWLEDGE.rglob("*.json"), *KNOWLEDGE.rglob("*.toml")]
)
SOURCED = {"source": "a test", "observed_at": "2026-11-15", "evidence": "notes"}


@pytest.fixture(autouse=True)
def _no_overlay() -> Iterator[None]:
    yield
    tables.use_overlay(None)


def overlay(folder: Path, name: str, content: dict[str, Any]) -> Path:
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize("relative", TABLES)
def test_every_list_of_rows_has_a_key_that_is_unique(relative: str) -> None:
    table = tables._read(KNOWLEDGE / relative, Any)
    declared = keys.of_table(relative, table)
    lists = {
        name: rows
        for name, rows in table.items()
        if isinstance(rows, list) and rows and isinstance(rows[0], dict) and "source" in rows[0]
    }
    assert set(lists) <= set(declared)
    for name, rows in lists.items():
        seen: dict[Any, Any] = {}
        for row in rows:
            other = seen.setdefault(keys.value(row, declared[name]), row)
            assert other is row, f"two rows of {relative}:{name} have the key {keys.words(row, declared[name])}"


def test_no_key_is_declared_for_a_table_that_is_not_there() -> None:
    stems = {relative.rpartition(".")[0] for relative in TABLES}
    folders = {f"{stem.rpartition('/')[0]}/*" for stem in stems}
    assert set(keys.KEYS) <= stems | folders


@pytest.mark.parametrize("relative", TABLES)
def test_an_overlay_with_every_row_of_a_table_changes_nothing(relative: str) -> None:
    table = tables._read(KNOWLEDGE / relative, Any)
    assert tables.merge(table, table, keys.of_table(relative, table)) == table


def test_one_overlaid_gt_730_leaves_the_other_one(tmp_path: Path) -> None:
    before = [row for row in gpus.gpus() if row.name == "GeForce GT 730"]
    assert sorted(str(row.capability) for row in before) == ["2.1", "3.0", "3.5"]
    fermi = next(row for row in before if str(row.capability) == "2.1")
    row = {**tables.codec.to_builtins(fermi), "pci_ids": ["ffee"], **SOURCED}
    tables.use_overlay(overlay(tmp_path, "gpus.json", {"gpus": [row]}))
    after = {str(row.capability): row for row in gpus.gpus() if row.name == "GeForce GT 730"}
    assert sorted(after) == ["2.1", "3.0", "3.5"]
    assert after["2.1"].pci_ids == ("ffee",)
    assert after["3.5"] == next(row for row in before if str(row.capability) == "3.5")


def test_one_overlaid_conda_row_replaces_only_its_own(tmp_path: Path) -> None:
    count = len(projects.conda_builds())
    row = {**tables.codec.to_builtins(projects.conda_builds()[3]), "arch_list": "9.0", **SOURCED}
    tables.use_overlay(overlay(tmp_path, "conda_forge.json", {"builds": [row]}))
    assert len(projects.conda_builds()) == count
    assert [build.arch_list for build in projects.conda_builds()].count("9.0") == 1


def test_a_bad_row_is_refused_with_its_field_and_an_example(tmp_path: Path) -> None:
    row = {"name": "GeForce RTX 9090", "capability": 12.0, "architecture": "x", "chip": "y", "pci_ids": [], **SOURCED}
    overlay(tmp_path, "gpus.json", {"gpus": [row | {"official": True}]})
    seen = rekindle_command("--knowledge", str(tmp_path), "gpu", "Tesla K40c")
    assert seen.code == BadInput.exit_code
    assert "row 1 of `gpus` (GeForce RTX 9090): field `capability`" in seen.err
    assert '`"capability": "8.6"`' in seen.err
    assert "$" not in seen.err


def test_a_row_without_a_field_is_refused_with_it(tmp_path: Path) -> None:
    overlay(tmp_path, "torch_releases.json", {"releases": [{"minor": "2.16", **SOURCED}]})
    seen = rekindle_command("--knowledge", str(tmp_path), "plan", "--gpu", "Tesla V100", "--os", "linux")
    assert seen.code == BadInput.exit_code
    assert "row 1 of `releases` (2.16): field `patches`" in seen.err
