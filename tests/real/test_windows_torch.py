"""torch's own Windows wheel, loaded by a real Windows Python under Wine, with and without the VC redistributable.

Wine cannot vouch for WinError 127 (it makes up missing exports) nor for speed; 126, a library that is not there, it
tells as Windows does.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from support.artefacts import wheel
from support.windows_python import WindowsPython


def test_without_the_redistributable_it_fails_and_with_its_one_dll_it_computes(
    windows: WindowsPython, site: Path
) -> None:
    said = windows.torch_of(site)
    assert said.splitlines()[-1].startswith("126 "), said
    assert "c10.dll" in said
    with zipfile.ZipFile(wheel("msvc-runtime==14.44.35112", platform="win_amd64")) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data/data/msvcp140.dll"))
        (site / "torch/lib/msvcp140.dll").write_bytes(archive.read(name))
    assert "2.7.1+cpu [[3.0, 3.0], [12.0, 12.0]]" in windows.torch_of(site)


def test_what_is_missing_was_named_before(capsys: pytest.CaptureFixture[str]) -> None:
    from rekindle.cli.main import run

    run(["inspect", str(wheel("torch==2.7.1", platform="win_amd64")), "--json"])
    said = capsys.readouterr().out.lower()
    assert "msvcp140.dll" in said
    assert "redistributable" in said
