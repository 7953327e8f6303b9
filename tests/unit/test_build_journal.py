"""The journal: what survives a crash, and what counts as done."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.build.run.journal import THERE, Journal, fingerprint, output, read
from rekindle.core.errors import BadInput, NotWritable


def journal_of(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def test_a_step_that_is_done_with_the_same_inputs_is_still_done_for_the_next_run(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    journal.write("begin", step="configure", fingerprint="aa")
    journal.write("done", step="configure", fingerprint="aa")
    assert journal_of(tmp_path).done("configure", "aa") is not None
    assert journal_of(tmp_path).done("configure", "bb") is None, "an input has changed"


def test_a_step_that_only_began_is_not_done_even_if_it_was_done_before(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    journal.write("done", step="configure", fingerprint="aa")
    journal.write("begin", step="configure", fingerprint="aa")
    assert journal_of(tmp_path).done("configure", "aa") is None


@pytest.mark.parametrize("event", ["failed", "interrupted"])
def test_a_failed_step_is_not_done(tmp_path: Path, event: str) -> None:
    journal = journal_of(tmp_path)
    journal.write("done", step="compile", fingerprint="aa")
    journal.write(event, step="compile")
    assert journal.done("compile", "aa") is None


def test_a_step_whose_output_is_gone_or_changed_is_not_done(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"wheel")
    journal = journal_of(tmp_path)
    journal.write("done", step="package", fingerprint="aa", outputs={str(wheel): output(str(wheel))})
    assert journal.done("package", "aa") is not None
    wheel.write_bytes(b"another")
    assert journal.done("package", "aa") is None
    wheel.unlink()
    assert journal.done("package", "aa") is None


def test_an_output_that_later_steps_rewrite_only_has_to_be_there(tmp_path: Path) -> None:
    cache = tmp_path / "CMakeCache.txt"
    cache.write_text("one", encoding="utf-8")
    journal = journal_of(tmp_path)
    journal.write("done", step="configure", fingerprint="aa", outputs={str(cache): THERE})
    cache.write_text("rewritten by ninja", encoding="utf-8")
    assert journal.done("configure", "aa") is not None


@pytest.mark.parametrize("torn", [b'{"at":"2026', b"\0\0\0\0", b'{"at":"x","event":"done"', b"\xff\xfe"])
def test_a_line_torn_by_a_power_cut_is_cut_off_and_the_rest_stands(tmp_path: Path, torn: bytes) -> None:
    journal = journal_of(tmp_path)
    journal.write("done", step="source", fingerprint="aa")
    with journal.path.open("ab") as stream:
        stream.write(torn)
    again = journal_of(tmp_path)
    assert again.done("source", "aa") is not None
    again.write("done", step="configure", fingerprint="bb")
    assert [entry.step for entry in read(journal.path)] == ["source", "configure"]


def test_a_broken_line_in_the_middle_is_not_built_upon(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    journal.write("done", step="source", fingerprint="aa")
    journal.path.write_bytes(b"not ours\n" + journal.path.read_bytes())
    with pytest.raises(BadInput, match="line 1"):
        read(journal.path)


def test_a_full_disk_is_said_as_such(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    journal.write("start")
    journal.path = Path("/dev/full") if Path("/dev/full").exists() else tmp_path
    with pytest.raises(NotWritable, match="cannot write the journal"):
        journal.write("start")


def test_processes_without_an_end_are_the_ones_to_look_for(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    journal.write("process", step="configure", pid=100)
    journal.write("ended", step="configure", pid=100, code=0)
    journal.write("process", step="compile", pid=200)
    assert [entry.pid for entry in journal_of(tmp_path).left_running()] == [200]


def test_fingerprints_do_not_depend_on_the_order_of_a_mapping() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint("a", "b") != fingerprint("ab"), "parts must not run together"
