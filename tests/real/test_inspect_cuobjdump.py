"""One real wheel read anew: as cuobjdump lists it, and as the committed table says."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from rekindle.formats.package import Wheel, open_package
from rekindle.knowledge.tables import observed
from support.artefacts import wheel
from tools.observe import torch_wheels


def test_torch_2_7_1_is_read_as_the_table_and_cuobjdump_say(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel("nvidia-cuda-cuobjdump")) as archive:
        archive.extractall(tmp_path / "tool")
    tool = next((tmp_path / "tool").rglob("bin/cuobjdump*"))
    tool.chmod(0o755)
    path = wheel("torch==2.7.1", platform="manylinux_2_28_x86_64")
    beside = tmp_path / path.name
    beside.symlink_to(path)
    with open_package(beside) as package:
        assert isinstance(package, Wheel)
        found = torch_wheels.read("2.7.1", beside, package, str(tool), None)
    assert found["differs"] == []
    rows = observed("torch_wheels", dict[str, list[dict[str, Any]]])["wheels"]
    committed = next(row for row in rows if row["version"] == "2.7.1")
    fresh = {key: value for key, value in found["row"].items() if key != "observed_at"}
    assert json.loads(json.dumps(fresh)) == {key: value for key, value in committed.items() if key != "observed_at"}


def test_all_surplus_is_explained() -> None:
    table = json.loads(torch_wheels.SURPLUS.read_text(encoding="utf-8"))
    explained = table.pop("_about")
    assert list(table) == torch_wheels.wanted()
    for rows in table.values():
        for row in rows:
            assert row["section"] in explained
            assert row["offsets"] == sorted(row["offsets"]) and row["offsets"]
