"""Repaired Windows wheels, loaded by a real Windows Python under Wine, on a machine without the VC redistributable."""

from __future__ import annotations

import zipfile
from pathlib import Path

from rekindle.wheels.repair import repair
from support.artefacts import wheel
from support.compiled import MINGW, Compiler
from support.windows_python import WindowsPython


def _installed(made: Path, site: Path) -> None:
    """What the wheel holds, and nothing else; its unchanged files are there already."""
    with zipfile.ZipFile(made) as archive:
        names = {name for name in archive.namelist() if name.startswith("torch/lib/") and name.endswith(".dll")}
        for old in (site / "torch/lib").glob("*.dll"):
            if f"torch/lib/{old.name}" not in names:
                old.unlink()
        for name in names:
            if not (site / name).exists() or (site / name).stat().st_size != archive.getinfo(name).file_size:
                archive.extract(name, site)


def test_repaired_it_computes_and_one_test_library_can_undo_that(
    windows: WindowsPython, site: Path, tmp_path: Path
) -> None:
    original = wheel("torch==2.7.1", platform="win_amd64")
    assert windows.torch_of(site).splitlines()[-1].startswith("126 ")
    works = "2.7.1+cpu [[3.0, 3.0], [12.0, 12.0]]"

    repaired = repair.repair(original, tmp_path / "repaired", wish=repair.RepairWish())
    assert [item.member for item in repaired.added] == ["torch/lib/msvcp140.dll"]
    assert repaired.output is not None
    _installed(repaired.output, site)
    assert works in windows.torch_of(site)

    # As a build with BUILD_TEST leaves it: one more DLL in torch/lib, which needs what is not there.
    (tmp_path / "built").mkdir()
    mingw = Compiler(tmp_path / "built", MINGW)
    library = mingw.import_library("helper_of_tests.dll", ["help"])
    test_dll = mingw.build("aoti_custom_ops.dll", wants=["help"], options=[str(library)])
    with_test = repair.repair(repaired.output, tmp_path / "with-test", add=[str(test_dll)]).output
    assert with_test is not None
    _installed(with_test, site)
    said = windows.torch_of(site)
    assert said.splitlines()[-1].startswith("126 ") and "aoti_custom_ops.dll" in said

    without = repair.repair(with_test, tmp_path / "without", remove=["aoti_custom_ops.dll"]).output
    assert without is not None
    _installed(without, site)
    assert works in windows.torch_of(site)

    helper = mingw.build("helper/helper_of_tests.dll", offers=["help"])
    wish = repair.RepairWish(folders=(helper.parent,), index=False)
    whole = repair.repair(with_test, tmp_path / "whole", wish=wish)
    assert [item.member for item in whole.added] == ["torch/lib/helper_of_tests.dll"]
    assert whole.output is not None
    _installed(whole.output, site)
    assert works in windows.torch_of(site)
