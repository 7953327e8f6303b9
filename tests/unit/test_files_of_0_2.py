"""Files that version 0.2 wrote are still read: plans, a snapshot, a shelf's entry, an install's record, a matrix."""

from __future__ import annotations

import shutil
from pathlib import Path

from rekindle.core import paths
from rekindle.core.version import Version
from rekindle.install import conda, record
from rekindle.machine import snapshot
from rekindle.model.card import Capability
from rekindle.model.environment import Environment
from rekindle.stack import plan as lock
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind
from rekindle.wheels.shelf import shelf
from support.command import rekindle_command

FOLDER = Path(__file__).parents[1] / "data" / "from-0.2"


def test_every_kind_of_plan_is_read_and_compared() -> None:
    plans = {path.stem: lock.read(path) for path in sorted(FOLDER.glob("plan-*.toml"))}
    assert {name: plan.route for name, plan in plans.items()} == {
        "plan-conda": RouteKind.CONDA_FORGE,
        "plan-official": RouteKind.OFFICIAL_WHEEL,
        "plan-source": RouteKind.SOURCE_BUILD,
    }
    for name in plans:
        assert rekindle_command("plan", "--from", str(FOLDER / f"{name}.toml"), "--json").code in (0, 8), name


def test_a_command_in_a_file_is_shown_and_never_taken_apart() -> None:
    plan = lock.read(FOLDER / "plan-conda.toml")
    assert plan.commands and all(command.told and not command.words for command in plan.commands)
    route = Route(**plan.facts())
    assert conda.packages(route) == ("python=3.12", "pytorch=2.4.1=cuda*", "cuda-version=11.8")


def test_a_source_plan_of_0_2_still_dry_runs() -> None:
    machine = Path(__file__).parents[1] / "machines" / "k40c-ready-windows.json"
    seen = rekindle_command("build", str(FOLDER / "plan-source.toml"), "--machine", str(machine), "--dry-run")
    assert seen.code in (0, 6) and "internal error" not in seen.err


def test_a_snapshot_of_0_2_is_read() -> None:
    machine = FOLDER / "machine.json"
    found = snapshot.load(machine)
    assert (found.os, found.driver_system, [gpu.name for gpu in found.gpus]) == (
        "linux", "windows", ["NVIDIA GeForce GTX 1080 Ti"],
    )  # fmt: skip
    for words in (("plan",), ("doctor",), ("audit", str(FOLDER.parents[2]), "--no-cache")):
        seen = rekindle_command(*words, "--machine", str(machine), "--json")
        assert seen.code in (0, 8, 9, 14) and "internal error" not in seen.err, words


def test_a_shelf_of_0_2_is_read(tmp_path: Path) -> None:
    (entry,) = FOLDER.glob("*.whl.shelf.json")
    (tmp_path / "wheels").mkdir()
    shutil.copy(entry, tmp_path / "wheels" / entry.name)
    (shelved,) = shelf.entries(tmp_path)
    assert (shelved.project, shelved.torch, str(shelved.cuda), shelved.state) == (
        "torch", "2.7.1+cu118", "11.8", "UNVERIFIED",
    )  # fmt: skip
    assert shelf.serves(shelved, Capability(3, 5)) and not shelf.serves(shelved, Capability(3, 0))
    seen = rekindle_command("shelf", "find", "--shelf", str(tmp_path), "--gpu", "Tesla K40c", "--json")
    assert [each["file"] for each in seen.json()["wheels"]] == [shelved.file]


def test_what_0_2_installed_is_undone(tmp_path: Path) -> None:
    """Its record names the files of the environment by their full paths."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    folder = paths.state_folder(tmp_path) / "undo-20261116T140219000000"
    for root, version, text in (
        (folder / "files" / site.relative_to(tmp_path), "2.8.0", "old"),
        (site, "2.7.1+cu118", "new"),
    ):
        info = root / f"torch-{version}.dist-info"
        info.mkdir(parents=True)
        (root / "torch").mkdir()
        (root / "torch" / "__init__.py").write_text(text, encoding="utf-8")
        (info / "METADATA").write_text(f"Name: torch\nVersion: {version}\n", encoding="utf-8")
        (info / "RECORD").write_text(
            f"torch/__init__.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n", encoding="utf-8"
        )
    text = (FOLDER / "install-record.json").read_text(encoding="utf-8").replace("/srv/env", tmp_path.as_posix())
    (folder / "record.json").write_text(text, encoding="utf-8")
    (tmp_path / "constraints.txt").write_text("torch==2.7.1", encoding="utf-8")
    environment = Environment(
        root=str(tmp_path), os=paths.system(), kind="venv", python=Version("3.11.4"), site_packages=(str(site),),
        interpreter=str(tmp_path / "bin" / "python"), has_headers=True, pip="24.0",
    )  # fmt: skip
    assert record.read(environment, folder).route is RouteKind.OFFICIAL_WHEEL
    assert [(each.name, each.after) for each in record.restore(environment, folder)] == [("torch", "2.8.0")]
    assert (site / "torch" / "__init__.py").read_text(encoding="utf-8") == "old"
    assert (tmp_path / "pip.conf").read_text(encoding="utf-8") == "[global]\nretries = 3\n"
    assert not (tmp_path / "constraints.txt").exists()


def test_a_matrix_of_0_2_is_planned() -> None:
    seen = rekindle_command("fleet", "plan", str(FOLDER / "matrix.toml"), "--json")
    assert seen.code in (0, 5), seen.err
    assert {cell["torch"] for job in seen.json()["jobs"] for cell in job["cells"]} >= {"2.15.0", "2.7.1"}
