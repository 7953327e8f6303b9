"""A text that keeps its reader busy ends: in a loop, in a pattern that runs away, behind a handler that swallows it."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from pathlib import Path

import pytest

from rekindle.core.errors import BadInput
from rekindle.core.patience import patience


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "slow.sh").write_text("x", encoding="utf-8")
    return tmp_path / "slow.sh"


def test_a_loop_without_an_end_is_left(script: Path) -> None:
    with pytest.raises(BadInput, match=r"`slow\.sh` keeps its reader busy"), patience([script], seconds=0.05):
        while True:
            pass


@pytest.mark.skipif(os.name == "nt", reason="UNVERIFIED: Windows has no timer that reaches a running pattern")
def test_a_pattern_that_runs_away_is_left(script: Path) -> None:
    with pytest.raises(BadInput, match="busy"), patience([script], seconds=0.05):
        re.match(r"(a|a)*b", "a" * 60)


def test_a_handler_that_swallows_it_is_told_again(script: Path) -> None:
    with pytest.raises(BadInput), patience([script], seconds=0.05):
        with contextlib.suppress(BadInput):
            while True:
                pass
        while True:
            pass


def test_what_is_done_in_time_is_left_alone(script: Path) -> None:
    with patience([script, script.parent / "missing"]):
        assert sum(range(1000)) == 499500


def test_what_has_no_size_is_not_watched(tmp_path: Path) -> None:
    """A pipe may be as long as it likes."""
    with patience([tmp_path / "-"], seconds=0.0):
        assert sum(range(300_000)) > 0


def test_beside_the_main_thread_nothing_is_watched(script: Path) -> None:
    seen: list[str] = []

    def work() -> None:
        with patience([script], seconds=0.0):
            seen.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["done"]
