"""The README and the guides are typed by CI; here is what counts as typed, and what counts as printed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import typed_docs
from tools.typed_docs import PROJECT, blocks, missing_lines, type_block, without_remark


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(typed_docs, "PROJECT", tmp_path)
    return tmp_path / "guide.md"


def test_a_block_is_typed_unless_a_comment_says_why_not(page: Path) -> None:
    page.write_text(
        "<!-- not typed: needs a card -->\n```console\n$ rekindle verify\n```\n\n"
        "```console\n$ echo one \\\n  two\none two\n$ echo three\n```\n"
        "```toml\nx = 1\n```\n",
        encoding="utf-8",
    )
    first, second = blocks(page)
    assert (first.reason, second.reason) == ("needs a card", "")
    assert [(each.command, each.shown) for each in second.commands] == [
        ("echo one two", ("one two",)),
        ("echo three", ()),
    ]


def test_a_comment_counts_only_for_the_block_right_after_it(page: Path) -> None:
    page.write_text("<!-- not typed: x -->\nSome words.\n\n```console\n$ true\n```\n", encoding="utf-8")
    assert next(blocks(page)).reason == ""


def test_a_comment_that_cannot_be_read_stops_the_run(page: Path) -> None:
    page.write_text("<!-- typed: fetch it -->\n```console\n$ true\n```\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="cannot read `fetch it`"):
        list(blocks(page))


@pytest.mark.parametrize(
    ("shown", "output", "absent"),
    [
        (["a", "c"], "a\nb\nc\n", []),
        (["c", "a"], "a\nb\nc\n", ["a"]),
        (["a", "…", "c"], "a\nb\nc\n", []),
        (["took … s"], "took 3.1 s\n", []),
        (["d"], "a\n", ["d"]),
    ],
)
def test_what_is_shown_has_to_come_in_that_order(shown: list[str], output: str, absent: list[str]) -> None:
    assert missing_lines(shown, output) == absent


@pytest.mark.skipif(os.name == "nt", reason="UNVERIFIED: the docs are typed in bash")
def test_a_command_that_fails_or_prints_something_else_is_a_fault(page: Path) -> None:
    page.write_text("```console\n$ false\n$ echo yes\nno\n```\n", encoding="utf-8")
    ended, printed = type_block(next(blocks(page)), os.environ["PATH"])
    assert "ended with 1, not 0" in ended
    assert printed.endswith("did not print: no")
    page.write_text(
        "<!-- typed: run echo hi > f; exit 0 3 -->\n```console\n$ cat f\nhi\n$ exit 3\n```\n", encoding="utf-8"
    )
    assert type_block(next(blocks(page)), os.environ["PATH"]) == []


def test_a_remark_is_not_typed() -> None:
    assert without_remark("pytest         # the tests") == "pytest"
    assert without_remark('echo "# one"') == 'echo "# one"'


def test_the_readme_opens_with_a_block_for_a_fresh_machine() -> None:
    first = next(block for block in blocks(PROJECT / "README.md") if not block.reason)
    commands = [without_remark(each.command) for each in first.commands]
    assert not any(set(command) & set("<>") for command in commands), "a shell takes it for a redirection"
    assert "rekindle" in commands and commands[-1] == "pytest"
