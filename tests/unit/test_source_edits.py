from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rekindle.knowledge.torch.patches import Edit
from rekindle.source import edits, patches
from rekindle.source.edits import Found
from support.artefacts import unverified


def edit(before: str, after: str, **more: object) -> Edit:
    return Edit(file="f", before=before, after=after, **more)  # type: ignore[arg-type]


def test_an_edit_is_made_once_and_recognised_afterwards() -> None:
    wanted = edit("const size_type count_;", "size_type count_;")
    first = edits.make(b"  const size_type count_;\n", wanted)
    assert (first.found, first.data) == (Found.PENDING, b"  size_type count_;\n")
    assert edits.make(first.data, wanted).found is Found.APPLIED


def test_a_line_put_beside_another_is_not_put_there_twice() -> None:
    wanted = edit("#include <a>\n", "#include <a>\n#include <b>\n")
    first = edits.make(b"#include <a>\nint x;\n", wanted)
    assert first.data == b"#include <a>\n#include <b>\nint x;\n"
    assert edits.make(first.data, wanted).found is Found.APPLIED


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_line_ends_are_the_files_own(end: bytes) -> None:
    wanted = edit("a\nb\n", "a\nx\nb\n")
    assert edits.make(end.join([b"0", b"a", b"b", b""]), wanted).data == end.join([b"0", b"a", b"x", b"b", b""])


def test_in_a_mixed_file_the_line_that_is_edited_decides() -> None:
    assert edits.make(b"one\r\ntwo\nthree\r\n", edit("two", "2\n2")).data == b"one\r\n2\n2\nthree\r\n"
    assert edits.make(b"one\ntwo\r\nthree\n", edit("two", "2\n2")).data == b"one\n2\r\n2\r\nthree\n"


def test_byte_order_mark_and_foreign_bytes_survive() -> None:
    data = b"\xef\xbb\xbfold \xe9\xff\n"
    assert edits.make(data, edit("old", "new")).data == b"\xef\xbb\xbfnew \xe9\xff\n"


def test_upstreams_own_fix_is_recognised() -> None:
    assert edits.make(b"def _get_vc_env(x):\n", edit("old()", "new()", fixed="def _get_vc_env(")).found is Found.FIXED


def test_no_match_names_the_nearest_line() -> None:
    outcome = edits.make(
        b"class A;\nclass TORCH_API ForkedSubgraphLauncher {\n", edit("class ForkedSubgraphSRLauncher {", "x")
    )
    assert outcome.found is Found.MISMATCH
    assert "nearest is line 2: `class TORCH_API ForkedSubgraphLauncher {`" in outcome.reason


def test_more_places_than_it_says_is_a_mismatch_that_names_them() -> None:
    outcome = edits.make(b"old\nx\nold\n", edit("old", "new"))
    assert outcome.found is Found.MISMATCH
    assert "2 times unpatched" in outcome.reason and "line 1, 3" in outcome.reason
    assert edits.make(b"old\nx\nold\n", edit("old", "new", count=2)).data == b"new\nx\nnew\n"


def test_half_made_is_a_mismatch_and_not_a_pass() -> None:
    assert edits.make(b"old\nnew\n", edit("old", "new", count=2)).found is Found.MISMATCH


LINES = st.lists(st.sampled_from([b"a", b"b", b"", b"c\r", b"\xff", b"long line"]), max_size=30)


@pytest.mark.skipif(not shutil.which("patch"), reason="UNVERIFIED: the program `patch` is not on this machine")
@settings(deadline=None)
@given(before=LINES, after=LINES, ends=st.booleans())
@example(before=[b"a"] * 8, after=[b"a", b"a", b"a", b"b", *[b"a"] * 7], ends=False)
def test_git_applies_every_diff(
    before: list[bytes], after: list[bytes], ends: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not shutil.which("patch"):
        unverified("there is no `patch` on this machine")
    old = b"\n".join(before) + (b"\n" if ends and before else b"")
    new = b"\n".join(after)
    if old == new or not old or not new:
        assert (patches.unified("f", old, new) == "") == (old == new)
        return
    folder: Path = tmp_path_factory.mktemp("diff")
    (folder / "f").write_bytes(old)
    text = patches.unified("f", old, new).encode("utf-8", "surrogateescape")
    done = subprocess.run(["patch", "-p1", "--binary", "-s"], cwd=folder, input=text, capture_output=True, check=False)
    assert done.returncode == 0, (text, done.stdout)
    assert (folder / "f").read_bytes() == new


def test_a_diff_is_as_large_as_the_change_not_the_file() -> None:
    old = b"x\n" * 2_000_000 + b"old\n" + b"y\n" * 2_000_000
    text = patches.unified("big", old, old.replace(b"old\n", b"new\n"))
    assert text.splitlines()[2:] == [
        "@@ -1999998,7 +1999998,7 @@", " x", " x", " x", "-old", "+new", " y", " y", " y",
    ]  # fmt: skip
