r"""`vcvarsall.bat` captured through the system's own `cmd.exe`.

Wine cannot vouch for: the text of cmd's own error messages and their language; `chcp`; batch files that hold non-ASCII
text themselves (Wine reads them in another code page than Windows); a parenthesis from `%PATH%` that breaks a block
(Wine goes on where Windows stops). The real vcvarsall is not here: the stand-in follows its arguments, variables,
messages and exit codes, and has been compared with none.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import studio

from rekindle.build.configure.environment import BuildEnvironment, captured
from rekindle.core.errors import StepFailed
from rekindle.core.version import Version
from rekindle.machine.toolchain.msvc import VcVars, capture

PLACES = ["Microsoft Visual Studio (x86)", "Studio & Söhne", "Tools^1! #2", "ビルド ツール", "plain"]


@pytest.mark.parametrize("place", PLACES)
def test_the_toolset_asked_for_is_the_one_captured(tmp_path: Path, place: str) -> None:
    root = studio.make(tmp_path / place / "2019", "14.16.27023", "14.29.30133", "14.29.30159")
    found = capture(str(root), toolset="14.29.30133", environ=os.environ)
    tools = root / "VC" / "Auxiliary" / "Build" / ".." / ".." / "Tools" / "MSVC" / "14.29.30133"
    assert found.toolset == Version("14.29.30133")
    assert [Path(entry) for entry in found.prepends["PATH"]] == [tools / "bin" / "Hostx64" / "x64"]
    assert (tools / "bin" / "Hostx64" / "x64" / "cl.exe").is_file()
    assert [Path(entry) for entry in found.prepends["INCLUDE"]] == [tools / "include"]
    assert found.sets["VSCMD_ARG_TGT_ARCH"] == "x64"


def test_an_older_toolset_side_by_side_is_reached_by_its_first_two_numbers(tmp_path: Path) -> None:
    root = studio.make(tmp_path / "VS (x86)", "14.16.27023", "14.29.30133", "14.44.35207")
    assert capture(str(root), toolset="14.29", environ=os.environ).toolset == Version("14.29.30133")
    assert capture(str(root), toolset="14.16", environ=os.environ).toolset == Version("14.16.27023")


def _over(found: VcVars) -> dict[str, str]:
    return BuildEnvironment(system="windows", changes=tuple(captured(found))).over(os.environ)


def test_nothing_reaches_this_process(tmp_path: Path) -> None:
    root = studio.make(tmp_path / "VS", "14.29.30133")
    before = dict(os.environ)
    found = capture(str(root), environ=os.environ)
    assert dict(os.environ) == before
    whole = _over(found)
    assert whole["VCToolsVersion"] == "14.29.30133"
    path = next(value for name, value in whole.items() if name.upper() == "PATH")
    assert path.endswith(os.environ["PATH"])
    assert not any(name.startswith(("__", "REKINDLE")) for name in found.sets)


def test_a_toolset_that_is_not_there_is_named_with_what_the_batch_file_said(tmp_path: Path) -> None:
    root = studio.make(tmp_path / "VS (x86)", "14.29.30133")
    with pytest.raises(StepFailed) as caught:
        capture(str(root), toolset="14.44", environ=os.environ)
    assert "Toolset directory for version '14.44' was not found." in caught.value.message
    assert "14.44" in caught.value.message
    assert caught.value.hint


def test_an_error_with_exit_code_0_is_still_an_error(tmp_path: Path) -> None:
    complaint = "echo [ERROR:winsdk.bat] winsdk.bat not found & exit /b 0"
    root = studio.make(tmp_path / "VS", "14.29.30133", extra=complaint)
    with pytest.raises(StepFailed, match=r"winsdk\.bat not found"):
        capture(str(root), environ=os.environ)


def test_a_batch_file_that_says_nothing_and_sets_nothing_is_an_error(tmp_path: Path) -> None:
    root = studio.make(tmp_path / "VS", "14.29.30133", extra="exit /b 0")
    with pytest.raises(StepFailed, match="did not set INCLUDE and LIB"):
        capture(str(root), environ=os.environ)


def test_another_toolset_than_asked_for_is_an_error(tmp_path: Path) -> None:
    root = studio.make(tmp_path / "VS", "14.29.30133", extra="set VCToolsVersion=14.16.27023")
    with pytest.raises(StepFailed, match=r"14\.16\.27023 instead of 14\.29"):
        capture(str(root), toolset="14.29", environ=os.environ)


def test_a_folder_without_visual_studio(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match=r"vcvarsall\.bat"):
        capture(str(tmp_path / "nothing (here)"), environ=os.environ)


def test_a_value_in_any_script_arrives_whole(tmp_path: Path) -> None:
    root = studio.make(tmp_path / "VS", "14.29.30133", extra='set "SEEN=%GIVEN% (x86) & more"')
    found = capture(str(root), environ={**os.environ, "GIVEN": "Zażółć ναι 日本 é"})
    assert found.sets["SEEN"] == "Zażółć ναι 日本 é (x86) & more"


def test_a_batch_file_that_hangs_ends_at_the_time_limit(tmp_path: Path) -> None:
    root = studio.make(tmp_path / "VS", "14.29.30133", extra=":again\ngoto :again")
    with pytest.raises(StepFailed, match="timed out after"):
        capture(str(root), environ=os.environ, timeout=3)


def test_a_second_capture_from_inside_a_prompt_starts_from_outside_it(tmp_path: Path) -> None:
    old = studio.make(tmp_path / "2017", "14.16.27023")
    new = studio.make(tmp_path / "2019", "14.29.30133")
    prompt = {**os.environ, "__VSCMD_PREINIT_PATH": os.environ["PATH"]}
    prompt |= _over(capture(str(old), environ=os.environ))
    found = capture(str(new), environ=prompt)
    assert "2017" not in "".join(found.prepends["PATH"] + found.prepends["INCLUDE"])
    assert found.toolset == Version("14.29.30133")
