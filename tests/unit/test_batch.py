"""Several wheels or a folder at once, and architectures that a wheel must have."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import torch_like
from support.command import rekindle_command
from support.shelves import pure_wheel

BOTH = (("sm_61", "sm_75", "compute_75"), ("sm_61", "sm_75", "compute_75"))
ONE = (("sm_75", "compute_75"), ("sm_61", "sm_75", "compute_75"))
LIBRARY = "torch/lib/libkernels.so"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "my wheels"
    torch_like.wheel(place, libraries={LIBRARY: BOTH})
    pure_wheel(place)
    return place


def test_inspect_takes_a_folder_and_several(folder: Path) -> None:
    seen = rekindle_command("inspect", str(folder), "--json").json()
    assert seen["schema"] == "rekindle.inspections/1"
    assert sorted(one["project"] for one in seen["inspections"]) == ["demo", "torch"]
    wheels = [str(path) for path in sorted(folder.glob("*.whl"))]
    assert len(rekindle_command("inspect", *wheels, "--json").json()["inspections"]) == 2
    assert rekindle_command("inspect", wheels[0], "--json").json()["schema"] == "rekindle.inspect/1"
    text = rekindle_command("inspect", *wheels).out
    assert all(Path(wheel).name in text for wheel in wheels)


def test_verify_writes_a_report_beside_each(folder: Path) -> None:
    seen = rekindle_command("verify", str(folder), "--no-run", "--json")
    assert (seen.code, seen.json()["schema"]) == (9, "rekindle.verifications/1")
    assert len(list(folder.glob("*.whl.verify.json"))) == 2
    assert rekindle_command("verify", str(folder), "--no-run", "-o", str(folder / "x.json")).code == 2


def test_repair_takes_several(folder: Path, tmp_path: Path) -> None:
    seen = rekindle_command("repair", str(folder), "--no-index", "-o", str(tmp_path / "out"), "--json").json()
    assert (seen["schema"], len(seen["repairs"])) == ("rekindle.repairs/1", 2)
    assert len(list((tmp_path / "out").glob("*.whl"))) == 2
    assert rekindle_command("repair").code == 2
    assert rekindle_command("repair", str(tmp_path / "out"), "--pack", str(tmp_path)).code == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("libraries", "required", "code", "said"),
    [
        ({LIBRARY: BOTH}, ("sm_61", "compute_75"), 0, "sm_61 is in the one library with GPU code"),
        ({LIBRARY: BOTH}, ("sm_61", "sm_90"), 8, "sm_90 is not in"),
        ({LIBRARY: BOTH}, ("compute_61",), 8, "compute_61 is not in"),
        ({LIBRARY: BOTH, "torch/lib/libmore.so": (("sm_75",),)}, ("sm_61",), 8, "libmore.so"),
        ({LIBRARY: ONE}, ("sm_61",), 0, "in fewer places"),
        ({}, ("sm_61",), 8, "no GPU code"),
    ],
)
def test_a_lost_architecture_is_an_exit_code(
    tmp_path: Path, libraries: dict[str, tuple[tuple[str, ...], ...]], required: tuple[str, ...], code: int, said: str
) -> None:
    wheel = torch_like.wheel(tmp_path, libraries=libraries)
    words = [word for target in required for word in ("--require", target)]
    seen = rekindle_command("inspect", str(wheel), *words, "--json")
    assert seen.code == code
    assert any(said in item["found"] for item in seen.json()["findings"] if item["id"] == "require")


def test_what_is_no_target_is_refused(tmp_path: Path) -> None:
    wheel = torch_like.wheel(tmp_path, libraries={LIBRARY: BOTH})
    for word in ("sm61", "Pascal", ""):
        assert rekindle_command("inspect", str(wheel), "--require", word).code == 2, word


def test_several_wheels_end_with_what_each_lacks(tmp_path: Path) -> None:
    for name, targets in (("one", ("sm_61", "sm_90")), ("two", ("sm_90",))):
        torch_like.wheel(tmp_path / name, libraries={LIBRARY: (targets,)})
    words = ("--require", "sm_61,sm_90", "--gpu", "GTX 1080 Ti")
    seen = rekindle_command("inspect", str(tmp_path / "one"), str(tmp_path / "two"), *words)
    assert seen.code == 8
    closing = " ".join(seen.out.partition("what is wrong")[2].split())
    assert closing.count("no sm_61") == 1
    assert closing.count("no code for GeForce GTX 1080 Ti") == 1
    assert closing.index("no sm_61") > closing.rindex(".whl")
