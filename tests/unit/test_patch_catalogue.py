"""The catalogue: every patch against the real lines of its releases, and which stack needs which."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from rekindle.cli.main import run
from rekindle.core.errors import BadInput
from rekindle.core.version import Version
from rekindle.knowledge import tables
from rekindle.knowledge.builds import sweeps
from rekindle.knowledge.torch import patches
from rekindle.knowledge.torch.patches import Bounds, Need, PatchSetting
from rekindle.model.card import Capability
from rekindle.source import edits
from support import trees

LINES = json.loads((Path(__file__).parents[1] / "fixtures" / "patch_lines.json").read_text(encoding="utf-8"))["rows"]
BY_RELEASE: dict[tuple[str, str], dict[str, list[str | None]]] = defaultdict(lambda: defaultdict(list))
for row in LINES:
    BY_RELEASE[row["patch"], row["release"]][row["path"]].append(row["lines"])


@pytest.fixture(autouse=True)
def _shipped_tables_afterwards() -> object:
    yield
    tables.use_overlay(None)


@pytest.mark.parametrize(("id", "release"), sorted(BY_RELEASE))
def test_a_patch_fits_the_first_and_last_release_of_its_range_and_none_outside(id: str, release: str) -> None:
    patch, version = patches.patch(id), Version(release)
    found = [
        edits.make((text or "").encode(), edit).found
        for edit in patch.edit
        for text in BY_RELEASE[id, release][edit.file]
        if edit.torch is None or version in edit.torch or version not in patch.when.torch
    ]
    if version in patch.when.torch:
        assert set(found) == {edits.Found.PENDING}
    else:
        assert edits.Found.PENDING not in found or set(found) != {edits.Found.PENDING}


def test_every_patch_with_edits_has_its_real_lines() -> None:
    assert {id for id, _ in BY_RELEASE} == {one.id for one in patches.patches() if one.edit}
    for one in patches.patches():
        if one.edit:
            inside = [Version(release) for id, release in BY_RELEASE if id == one.id]
            assert any(version not in one.when.torch for version in inside), one.id


def test_every_patch_says_what_it_is_for() -> None:
    for one in patches.patches():
        assert one.title and one.symptom.strip() and one.cause.strip() and one.source and one.observed_at, one.id
        assert one.upstream or one.unverified, one.id
        assert one.edits or one.options or one.unverified, one.id
        assert all(address.startswith("https://github.com/") for address in one.upstream)


WINDOWS = PatchSetting(torch=Version("1.13.1"), os="windows", compiler="msvc")
ANY_WINDOWS = {"flatbuffers-const-count", "test-dll-backend-with-compiler"}
LINUX = PatchSetting(torch=Version("1.13.1"), os="linux", compiler="gcc")


@pytest.mark.parametrize(
    ("setting", "change", "expected"),
    [
        # Seeds 000 and 001: 1.12/1.13 on Windows, whatever CMake and setuptools will be there.
        (WINDOWS, {}, {"cmake-minimum", "distutils-vcenv", *ANY_WINDOWS}),
        (WINDOWS, {"cmake": "3.25", "setuptools": "73.0.1"}, ANY_WINDOWS),
        (
            WINDOWS,
            {"compiler": "icx", "cmake": "3.25", "setuptools": "59.8.0"},
            {"forked-subgraph-export", "functorch-clz", *ANY_WINDOWS},
        ),
        (LINUX, {"cmake": "4.2.1"}, {"cmake-minimum", "flatbuffers-const-count"}),
        (LINUX, {"torch": "2.0.1", "cmake": "4"}, {"cmake-minimum", "flatbuffers-const-count"}),
        (LINUX, {"torch": "2.6.0", "cmake": "4"}, {"cmake-minimum"}),
        # 2.7.1 needs no CMake patch (seed 001 says it does).
        (LINUX, {"torch": "2.7.1", "cmake": "4.2.1"}, {"nccl-checkout"}),
        (
            WINDOWS,
            {"torch": "2.7.1", "setuptools": "76.1.0"},
            {"distutils-vcenv-moved", "nccl-checkout", "test-dll-aoti-custom-ops", "test-dll-backend-with-compiler"},
        ),
        (
            WINDOWS,
            {"torch": "2.7.1", "setuptools": "78.1.0"},
            {"nccl-checkout", "test-dll-aoti-custom-ops", "test-dll-backend-with-compiler"},
        ),
        (WINDOWS, {"torch": "2.8.0"}, {"test-dll-aoti-custom-ops", "test-dll-backend-with-compiler"}),
        (LINUX, {"torch": "2.11.0", "cmake": "4"}, set()),
        # A Blackwell card with an older PyTorch.
        (LINUX, {"torch": "2.5.1", "cuda": "12.8", "cmake": "3.30", "targets": ("12.0",)}, {"arch-two-digits"}),
        (LINUX, {"torch": "2.5.1", "cuda": "12.8", "cmake": "3.30", "targets": ("9.0", "8.6")}, set()),
        (LINUX, {"torch": "2.5.1", "cuda": "12.4", "cmake": "3.30"}, set()),
        (LINUX, {"torch": "2.4.1", "cuda": "12.9", "cmake": "3.30", "targets": ("8.6",)}, set()),
    ],
)  # fmt: skip
def test_which_stack_needs_which(setting: PatchSetting, change: dict[str, object], expected: set[str]) -> None:
    versions = {"torch", "cmake", "setuptools", "cuda"}
    values = {key: Version(str(value)) if key in versions else value for key, value in change.items()}
    assert {one.id for one in patches.needed(msgspec.structs.replace(setting, **values))} == expected


def test_nothing_unverified_is_applied_unless_it_is_asked_for() -> None:
    for torch in ("1.10.0", "1.13.1", "2.0.1", "2.3.1", "2.7.1", "2.11.0"):
        for cuda in (None, "11.4", "11.8", "12.9", "13.0"):
            setting = PatchSetting(torch=Version(torch), os="windows", cuda=Version(cuda) if cuda else None)
            for one in patches.judged(setting):
                assert not (one.patch.unverified and one.need is Need.YES)
                assert one.reason


def test_no_patch_is_listed_that_changes_nothing() -> None:
    """The "bfloat patch" of somebody's notes is gone: every CUDA file of 2.7.1 compiles for 3.5 without one."""
    assert "kepler-bfloat" not in {one.id for one in patches.patches()}
    assert all(one.edits or one.options for one in patches.patches())
    found = sweeps.sweep("2.7.1", Version("11.8"), Capability.parse("3.5"))
    assert found is not None
    assert found.whole
    assert found.files == 288


def test_an_option_is_said_and_edits_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = trees.pytorch(tmp_path / "tree")
    before = trees.fingerprint(root)
    assert run(["patch", str(root), "--only", "test-dll-backend-with-compiler", "--os", "windows"]) == 0
    assert "build with BUILD_TEST=0, INSTALL_TEST=0" in capsys.readouterr().out
    assert trees.fingerprint(root) == before


def test_a_submodule_that_is_not_there_is_said_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = trees.pytorch(tmp_path / "tree")
    (root / "third_party/flatbuffers").mkdir(parents=True)
    assert run(["patch", str(root), "--json"]) == 0
    found = {one["id"]: one for one in json.loads(capsys.readouterr().out)["patches"]}
    assert found["flatbuffers-const-count"]["state"] == "absent"
    assert "`third_party/flatbuffers` is empty" in found["flatbuffers-const-count"]["reason"]
    # A flatbuffers that is there but other is a mismatch.
    trees.write(root, {"third_party/flatbuffers/include/flatbuffers/stl_emulation.h": "int x;\n"})
    assert run(["patch", str(root)]) == 11


def test_a_plan_keeps_its_hash_when_only_the_prose_improves() -> None:
    one = patches.patch("cmake-minimum")
    assert msgspec.structs.replace(one, cause="better words", source="elsewhere").hash == one.hash
    other = msgspec.structs.replace(one, when=msgspec.structs.replace(one.when, torch=Bounds(">=1.9,<2.7")))
    assert other.hash != one.hash
    assert len({each.hash for each in patches.patches()}) == len(patches.patches())


def overlay(folder: Path, text: str, name: str = "mine") -> Path:
    trees.write(folder, {f"torch/patches/{name}.toml": text})
    return folder


MINE = """
id = "mine"
title = "t"
symptom = "s"
cause = "c"
upstream = ["https://github.com/a/b/pull/1"]
source = "me"
observed_at = "2026-11-15"
evidence = "notes"
[when]
torch = ">=1.10"
[[edit]]
file = "FILE"
before = "3.13"
after = "3.14"
"""


def test_a_users_own_patch_is_laid_over_the_catalogue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = trees.pytorch(tmp_path / "tree")
    folder = overlay(tmp_path / "own", MINE.replace("FILE", "CMakeLists.txt"))
    assert run(["--knowledge", str(folder), "patch", str(root), "--only", "mine"]) == 0
    assert (root / "CMakeLists.txt").read_text() == "cmake_minimum_required(VERSION 3.14 FATAL_ERROR)\n"


@pytest.mark.parametrize(
    "path", ["../evil.txt", "a/../../evil.txt", "/etc/passwd", "C:/Windows/x", "a\\\\..\\\\evil", "", "a//b", "./a"]
)
def test_a_patch_file_that_names_something_outside_is_refused(tmp_path: Path, path: str) -> None:
    root = trees.pytorch(tmp_path / "tree")
    (tmp_path / "evil.txt").write_text("3.13")
    folder = overlay(tmp_path / "own", MINE.replace("FILE", path))
    assert run(["--knowledge", str(folder), "patch", str(root)]) == 4
    assert (tmp_path / "evil.txt").read_text() == "3.13"


def test_a_broken_patch_file_is_named(tmp_path: Path) -> None:
    tables.use_overlay(overlay(tmp_path / "own", MINE.replace('before = "3.13"', "before = 3")))
    with pytest.raises(BadInput, match=r"mine\.toml"):
        patches.patches()
    tables.use_overlay(overlay(tmp_path / "two", MINE, name="other"))
    with pytest.raises(BadInput, match="calls itself `mine`"):
        patches.patches()


@pytest.mark.parametrize("text", ["1.10", "~=1.0", ">=x", "", ">=1.0,,<2"])
def test_unreadable_spans_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="version"):
        Bounds(text)
