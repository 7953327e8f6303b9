"""The releases of other programs are held against the wheels that they were read from."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rekindle.formats import package
from rekindle.knowledge.builds import programs as rows
from rekindle.knowledge.builds.programs import ProgramRelease
from rekindle.model.card import Target
from support import torch_like
from tools.observe import programs, web

WHEEL = "vllm-9.9-cp312-cp312-manylinux_2_28_x86_64.whl"


def _wheel(folder: Path, *targets: str) -> Path:
    metadata = "Requires-Dist: torch==2.13.0\nRequires-Python: >=3.11\n"
    tag = "cp312-cp312-manylinux_2_28_x86_64"
    code = {"vllm/_C.abi3.so": (tuple(targets),)}
    return torch_like.wheel(folder, libraries=code, version="9.9", tag=tag, project="vllm", metadata=metadata)


def _row(**more: object) -> ProgramRelease:
    row = msgspec.structs.replace(
        rows.releases("vllm")[0],
        torch="2.13.0",
        pythons=("3.11", "3.12"),
        targets=(Target.parse("sm_75"), Target.parse("sm_90")),
        source=f"vllm/_C.abi3.so of {WHEEL}",
    )
    return msgspec.structs.replace(row, **more)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, None),
        (
            {"targets": (Target.parse("sm_70"), Target.parse("sm_90"))},
            "lacks sm_70",
        ),
        ({"torch": "2.14.0"}, "pins torch 2.13.0, the row says 2.14.0"),
        ({"pythons": ("3.10", "3.11")}, "does not take Python 3.10"),
    ],
)
def test_what_differs_is_named(row: dict[str, object], said: str | None, tmp_path: Path) -> None:
    with package.open_package(_wheel(tmp_path, "sm_75", "sm_90")) as found:
        wrong = list(programs.differences(_row(**row), found, "_C.abi3.so"))
        assert list(programs.differences(_row(), found, "other")) == ["there is no other in it"]
    assert (not wrong) if said is None else said in wrong[0]


def test_a_newer_release_and_a_wheel_that_is_gone_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = _wheel(tmp_path, "sm_75", "sm_90")
    there = [(WHEEL, wheel.as_uri(), False), ("vllm-10.0-py3-none-any.whl", "", False)]
    monkeypatch.setattr(web, "wheels", lambda _: there)
    monkeypatch.setattr(web, "opened", lambda _: package.open_package(wheel))
    row = _row()
    monkeypatch.setattr(rows, "releases", lambda _: [row])
    monkeypatch.setattr("sys.argv", ["programs", "vllm"])
    assert programs.main() == 3
    assert "NEWER      vllm 10.0; the newest row is of 9.9" in capsys.readouterr().out
    del there[1]
    assert programs.main() == 0
    del there[0]
    assert programs.main() == 3
    assert "is not on the index" in capsys.readouterr().out
