"""Job tokens, on whichever system the tests run. With a real ninja: tests/windows and tests/real."""

from __future__ import annotations

import pytest

from rekindle.build.governor.endpoint import JobServer


def test_one_job_needs_no_token() -> None:
    with JobServer(1) as server:
        assert not server.take()
        assert server.jobs == 1


def test_tokens_can_be_taken_and_given_up_to_the_most() -> None:
    with JobServer(3, most=4) as server:
        assert server.take()
        assert server.take()
        assert not server.take(timeout=0.1), "the first job has no token that could be taken"
        assert server.jobs == 1
        for _ in range(3):
            server.give()
        assert server.jobs == 4
        with pytest.raises(ValueError, match="4 of 4"):
            server.give()


def test_what_makes_ninja_look_away_is_kept_out() -> None:
    given = {"PATH": "x", "MAX_JOBS": "2", "CMAKE_BUILD_PARALLEL_LEVEL": "9", "makeflags": "-j5"}
    with JobServer(4) as server:
        found = server.environment(given)
        assert set(found) == {"PATH", "MAKEFLAGS"}
        assert found["MAKEFLAGS"] == f" -j4 --jobserver-auth={server.name}"
    assert given["MAX_JOBS"] == "2"


def test_two_at_once_do_not_meet() -> None:
    with JobServer(2) as one, JobServer(2) as other:
        assert one.name != other.name
        assert one.take()
        assert other.take()


def test_no_jobs_is_no_build() -> None:
    with pytest.raises(ValueError, match="at least one"):
        JobServer(0)
