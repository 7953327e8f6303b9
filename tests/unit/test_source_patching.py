"""`rekindle patch` as a user sees it, on small trees. The real ones are in tests/real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rekindle.cli.main import run
from rekindle.core import files
from rekindle.core.errors import Locked, NotWritable
from rekindle.core.version import Version
from rekindle.knowledge.torch.patches import PatchSetting
from rekindle.source import journal, patches
from rekindle.source.journal import PatchJournal
from support import trees
from support.artefacts import unverified
from support.crashes import crash

WINDOWS = ("--os", "windows")
BELOW = ["aten/src/ATen/CMakeLists.txt", "modules/rocksdb/CMakeLists.txt", "torch/lib/libshm/CMakeLists.txt"]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the crash tests prove is the order of the writes; waiting for the disk 5,000 times proves nothing more."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return trees.pytorch(tmp_path / "pytorch")


def states(text: str) -> dict[str, str]:
    return {one["id"]: one["state"] for one in json.loads(text)["patches"]}


def test_list_says_what_applies_and_why_the_others_do_not(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["patch", str(root), "--list", "--json", "--os", "linux"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "rekindle.patch/1"
    found = {one["id"]: one for one in answer["patches"]}
    assert found["cmake-minimum"]["state"] == "applies"
    assert sorted(found["cmake-minimum"]["files"]) == BELOW
    assert found["distutils-vcenv"]["state"] == "not-needed"
    assert "windows" in found["distutils-vcenv"]["reason"]
    assert found["distutils-vcenv-moved"]["reason"] == "for PyTorch >=2.6,<2.8; this is 1.13"


def test_dry_run_prints_a_diff_that_patch_takes_and_writes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = trees.fingerprint(root)
    assert run(["patch", str(root), "--dry-run", *WINDOWS]) == 0
    text = capsys.readouterr().out
    assert trees.fingerprint(root) == before
    if not shutil.which("patch"):
        unverified("there is no `patch` on this machine; the diff was written and changed nothing")
    if not shutil.which("patch"):
        pytest.skip("UNVERIFIED: the program `patch` is not on this machine")
    subprocess.run(["patch", "-p1", "-s"], cwd=root, input=text.encode(), check=True)
    assert (root / BELOW[0]).read_text() == "cmake_minimum_required(VERSION 3.5 FATAL_ERROR)\n"
    assert run(["patch", str(root), "--list", "--json", *WINDOWS]) == 0
    assert states(capsys.readouterr().out)["distutils-vcenv"] == "applied"


def test_twice_is_once_and_undo_restores_every_byte(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / BELOW[0]).write_bytes(b"\xef\xbb\xbfcmake_minimum_required(VERSION 3.0)\r\n# \xe9\r\n")
    (root / BELOW[0]).chmod(0o755)
    before = trees.fingerprint(root)
    assert run(["patch", str(root), *WINDOWS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] == [*BELOW[:2], "tools/build_pytorch_libs.py", BELOW[2]]
    assert (root / BELOW[0]).read_bytes() == b"\xef\xbb\xbfcmake_minimum_required(VERSION 3.5)\r\n# \xe9\r\n"
    once = trees.fingerprint(root)
    assert once[BELOW[0]].split()[0] == before[BELOW[0]].split()[0]
    assert run(["patch", str(root), *WINDOWS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] == []
    assert trees.fingerprint(root) == once
    assert run(["patch", str(root), "--undo"]) == 0
    assert "restored 4 files" in capsys.readouterr().out
    assert trees.fingerprint(root) == before


def test_patches_made_one_after_the_other_are_undone_together(root: Path) -> None:
    before = trees.fingerprint(root)
    assert run(["patch", str(root), "--only", "distutils-vcenv", *WINDOWS]) == 0
    assert run(["patch", str(root), "--only", "cmake-minimum"]) == 0
    assert run(["patch", str(root), "--undo"]) == 0
    assert trees.fingerprint(root) == before


def test_undo_leaves_a_file_that_was_edited_since_and_names_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = trees.fingerprint(root)
    run(["patch", str(root)])
    mine = (root / BELOW[1]).read_bytes() + b"# mine\n"
    (root / BELOW[1]).write_bytes(mine)
    assert run(["patch", str(root), "--undo"]) == 9
    assert f"left alone, edited since it was patched: {BELOW[1]}" in capsys.readouterr().err
    assert (root / BELOW[1]).read_bytes() == mine
    assert (root / BELOW[0]).read_text() == trees.CMAKE_1_13[BELOW[0]]
    # Its original is still there for the day the edit is taken back.
    (root / BELOW[1]).write_bytes(mine.removesuffix(b"# mine\n"))
    assert run(["patch", str(root), "--undo"]) == 0
    assert trees.fingerprint(root) == before


def test_a_mismatch_changes_nothing_and_names_file_and_nearest_text(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = root / "tools/build_pytorch_libs.py"
    path.write_text(path.read_text().replace("_get_vc_env(vc_arch)", "_get_vc_env(vc_arch, None)"))
    before = trees.fingerprint(root)
    assert run(["patch", str(root), *WINDOWS]) == 11
    said = capsys.readouterr().err
    assert "`tools/build_pytorch_libs.py`: it does not hold" in said
    assert "the nearest is line 7" in said
    assert trees.fingerprint(root) == before
    assert run(["patch", str(root), *WINDOWS, "--list"]) == 11


def test_a_known_cmake_below_4_needs_no_raising(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["patch", str(root), "--list", "--json", "--cmake", "3.25"])
    assert states(capsys.readouterr().out)["cmake-minimum"] == "not-needed"


def test_a_release_that_deals_with_it_itself_is_left_alone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trees.write(root, {"cmake/Dependencies.cmake": "      set(CMAKE_POLICY_VERSION_MINIMUM 3.5)\n"})
    run(["patch", str(root), "--list", "--json"])
    assert states(capsys.readouterr().out)["cmake-minimum"] == "fixed"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["/no/such/folder"], 14),
        (["{root}", "--only", "cmake-minimun"], 3),
        (["{root}", "--torch", "banana"], 2),
        (["{root}", "--cmake", "four"], 2),
        (["{root}", "--list", "--undo"], 2),
        (["{root}", "--undo", "--only", "cmake-minimum"], 2),
        (["{root}/tools"], 4),
        ([], 2),
    ],
)
def test_mistakes_have_their_own_exit_codes(arguments: list[str], code: int, root: Path) -> None:
    assert run(["patch", *[one.format(root=root) for one in arguments]]) == code


def test_one_patch_explains_itself(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["patch", str(root), "--list", "--only", "cmake-minimum"]) == 0
    said = capsys.readouterr().out
    assert "Compatibility with CMake < 3.5 has been removed" in said
    assert "https://github.com/pytorch/pytorch/issues/150149" in said
    assert "CMAKE_POLICY_VERSION_MINIMUM=3.5" in said


def test_an_absurdly_large_cmake_file_is_named_and_not_read(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (root / "CMakeLists.txt").open("wb") as stream:
        stream.truncate(17 * 1024 * 1024)
    assert run(["patch", str(root)]) == 9
    assert "could not be read: CMakeLists.txt: 17 MiB" in capsys.readouterr().err


def test_output_is_readable_in_ascii(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rekindle", "patch", str(root), "--list"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(Path(files.__file__).parents[2])},
        capture_output=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines()[2:] if b" -m rekindle " not in line]
    assert max(map(len, lines)) <= 80


# --- hostile trees ---------------------------------------------------------------------------------------------------


def test_links_out_of_the_tree_are_not_followed(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = tmp_path / "outside"
    trees.write(outside, {"CMakeLists.txt": "cmake_minimum_required(VERSION 2.8)\n"})
    trees.link(root / "linked", outside, to_folder=True)
    (root / "third_party").mkdir()
    trees.link(root / "third_party/CMakeLists.txt", outside / "CMakeLists.txt")
    before = trees.fingerprint(outside)
    assert run(["patch", str(root)]) == 0
    assert trees.fingerprint(outside) == before
    # A patch that names a file behind such a link is refused.
    (root / "tools/build_pytorch_libs.py").unlink()
    (outside / "evil.py").write_text(trees.VCVARS_1_13)
    (root / "tools/build_pytorch_libs.py").symlink_to(outside / "evil.py")
    assert run(["patch", str(root), *WINDOWS]) == 4
    assert "through a link" in capsys.readouterr().err
    assert (outside / "evil.py").read_text() == trees.VCVARS_1_13


def test_build_folders_and_git_are_left_alone(root: Path) -> None:
    old = "cmake_minimum_required(VERSION 2.8)\n"
    trees.write(root, {"build/CMakeCache.txt": "", "build/sub/CMakeLists.txt": old, ".git/x.cmake": old})
    run(["patch", str(root)])
    assert (root / "build/sub/CMakeLists.txt").read_text() == old
    assert (root / ".git/x.cmake").read_text() == old


def test_a_place_that_cannot_be_read_is_said_and_never_a_pass(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = files.plain_bytes

    def refuse(path: Path, **limits: int) -> bytes:
        if path.name == "locked.cmake":
            raise PermissionError(13, "Permission denied")
        return real(path, **limits)

    trees.write(root, {"locked.cmake": "", "odd.cmake": "cmake_minimum_required(VERSION ${X})\n"})
    monkeypatch.setattr(files, "plain_bytes", refuse)
    assert run(["patch", str(root)]) == 9
    said = capsys.readouterr().err
    assert "could not be read: locked.cmake: Permission denied" in said
    assert "could not be read: odd.cmake: line 1: `${X}` is no number" in said
    assert (root / BELOW[0]).read_text() == "cmake_minimum_required(VERSION 3.5 FATAL_ERROR)\n"


@pytest.mark.skipif(os.name == "nt", reason="UNVERIFIED: fifos are a Unix thing")
def test_a_fifo_does_not_hang_it(root: Path) -> None:
    os.mkfifo(root / "pipe.cmake")
    assert run(["patch", str(root)]) == 9


# --- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="UNVERIFIED here: the crash is made with fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_crash_at_every_write_is_repaired(tmp_path: Path) -> None:
    pristine = trees.fingerprint(trees.pytorch(tmp_path / "pristine"))
    whole = trees.pytorch(tmp_path / "whole")
    run(["patch", str(whole), *WINDOWS])
    patched = {path: body for path, body in trees.fingerprint(whole).items() if not path.startswith(".rekindle")}
    for limit in range(1, 400):
        root = trees.pytorch(tmp_path / f"tree{limit}")
        # Every other time a first patch alone, so that the crash also falls between two runs that share one journal.
        if limit % 2:
            run(["patch", str(root), "--only", "distutils-vcenv", *WINDOWS])
        code = crash(root, ["patch", str(root), *WINDOWS], limit, torn=True)
        assert code in (77, 0), f"the child ended with {code}"
        twin = tmp_path / f"twin{limit}"
        shutil.copytree(root, twin)
        assert run(["patch", str(twin), "--undo"]) == 0
        assert trees.fingerprint(twin) == pristine, f"undone after a crash at write {limit}"
        assert run(["patch", str(root), *WINDOWS]) == 0
        now = {path: body for path, body in trees.fingerprint(root).items() if not path.startswith(".rekindle")}
        assert now == patched, f"run again after a crash at write {limit}"
        assert run(["patch", str(root), "--undo"]) == 0
        assert trees.fingerprint(root) == pristine, f"run again and undone after a crash at write {limit}"
        if code == 0:
            assert limit > 20
            return
    pytest.fail("the child never came to its end")


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="UNVERIFIED here: the crash is made with fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_crash_at_every_write_of_undo_is_repaired(tmp_path: Path) -> None:
    pristine = trees.fingerprint(trees.pytorch(tmp_path / "pristine"))
    for limit in range(1, 400):
        root = trees.pytorch(tmp_path / f"tree{limit}")
        run(["patch", str(root), *WINDOWS])
        code = crash(root, ["patch", str(root), "--undo"], limit, torn=True)
        assert run(["patch", str(root), "--undo"]) == 0
        assert trees.fingerprint(root) == pristine, f"after a crash at write {limit}"
        if code == 0:
            return
    pytest.fail("the child never came to its end")


def test_ctrl_c_between_two_files_puts_the_first_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = trees.fingerprint(root)
    real: Callable[[Path, bytes], None] = journal._write_synced
    calls = 0

    def interrupted(path: Path, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        real(path, data)

    monkeypatch.setattr(journal, "_write_synced", interrupted)
    assert run(["patch", str(root), *WINDOWS]) == 130
    assert trees.fingerprint(root) == before


def test_a_full_disk_on_the_third_file_puts_the_first_two_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = trees.fingerprint(root)
    real: Callable[[Path, bytes], None] = journal._write_synced
    calls = 0

    def full(path: Path, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(journal, "_write_synced", full)
    setting = PatchSetting(torch=Version("1.13"), os="windows", compiler="msvc")
    with pytest.raises(NotWritable, match="the disk is full"):
        patches.apply(root, setting)
    assert trees.fingerprint(root) == before


def test_two_at_once_is_refused(root: Path) -> None:
    with PatchJournal.open(root), pytest.raises(Locked), PatchJournal.open(root):
        pass
