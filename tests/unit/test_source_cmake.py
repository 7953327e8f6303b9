"""The CMake reader against CMake's own rules (cmake-language(7), cmake_minimum_required)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.core.version import Version
from rekindle.source import patches
from support.pace import seconds

FLOOR = Version("3.5")


def versions(text: str) -> list[str | None]:
    return [None if one.version is None else str(one.version) for one in patches.requirements(text.encode())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cmake_minimum_required(VERSION 2.8)", ["2.8"]),
        ("CMAKE_MINIMUM_REQUIRED(VERSION 2.8.12 FATAL_ERROR)", ["2.8.12"]),
        ("  CMake_Minimum_Required \t ( VERSION\n   3.1.3\n  FATAL_ERROR )", ["3.1.3"]),
        ("cmake_minimum_required(FATAL_ERROR VERSION 3.0)", ["3.0"]),
        ("cmake_minimum_required( # why\n VERSION # and\n 2.6 # so\n)", ["2.6"]),
        ("cmake_minimum_required(VERSION #[[ 9.9 ) ]] 2.6)", ["2.6"]),
        ('cmake_minimum_required(VERSION "2.8")', ["2.8"]),
        ("cmake_minimum_required(VERSION [==[2.8]==])", ["2.8"]),
        ("cmake_minimum_required(VERSION 2.8...3.10)", ["3.10"]),
        ("cmake_minimum_required(VERSION 2.8...3.1)", ["3.1"]),
        ("cmake_policy(VERSION 2.8.12)", ["2.8.12"]),
        ("cmake_policy(SET CMP0074 NEW)", []),
        ("cmake_policy(PUSH)\ncmake_minimum_required(VERSION 3.1)", ["3.1"]),
        ("cmake_minimum_required(VERSION ${MINIMUM})", [None]),
        ("cmake_minimum_required(VERSION @MINIMUM@)", [None]),
        ("\ufeffcmake_minimum_required(VERSION 2.8)", ["2.8"]),
        ("if(TRUE)\r\n  cmake_minimum_required(VERSION 2.8)\r\nendif()", ["2.8"]),
        # What only looks like it:
        ("# cmake_minimum_required(VERSION 2.8)", []),
        ("#[[\ncmake_minimum_required(VERSION 2.8)\n]]", []),
        ("#[=[ ]]\ncmake_minimum_required(VERSION 2.8)\n]=]\ncmake_minimum_required(VERSION 3.0)", ["3.0"]),
        ('file(WRITE x "\ncmake_minimum_required(VERSION 2.8)\n")', []),
        ('set(x "a \\"\ncmake_minimum_required(VERSION 2.8)\n")', []),
        ("set(x [[\ncmake_minimum_required(VERSION 2.8)\n]])", []),
        ("set(x [=[ ]]\ncmake_minimum_required(VERSION 2.8)\n]=])", []),
        ("set(x\n cmake_minimum_required (VERSION 2.8)\n)", []),
        ("my_cmake_minimum_required(VERSION 2.8)", []),
        ("cmake_minimum_required_by(VERSION 2.8)", []),
        ("set(x cmake_policy)", []),
        ("macro(cmake_policy)\nendmacro()", []),
        # What comes after a trap is still seen:
        ('set(a \\")\ncmake_minimum_required(VERSION 2.8)', ["2.8"]),
        ("set(a b[[c)\ncmake_minimum_required(VERSION 2.8)", ["2.8"]),
        ('set(a "x#y")\ncmake_minimum_required(VERSION 2.8)', ["2.8"]),
        ("#[ not a bracket\ncmake_minimum_required(VERSION 2.8)", ["2.8"]),
        ("#[[ one ]] cmake_minimum_required(VERSION 2.8)", []),  # "Parse error.  Expected a newline"
        ("cmake_minimum_required(VERSION 2.8", ["2.8"]),
    ],
)
def test_reads_what_cmake_reads(text: str, expected: list[str | None]) -> None:
    assert versions(text) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Cmake_Minimum_Required( VERSION\t2.8.12  X )\r\n", "Cmake_Minimum_Required( VERSION\t3.5  X )\r\n"),
        ('cmake_minimum_required(VERSION "3.0")', 'cmake_minimum_required(VERSION "3.5")'),
        ("cmake_minimum_required(VERSION 2.8...3.1)", "cmake_minimum_required(VERSION 2.8...3.5)"),
        ("cmake_minimum_required(VERSION 2.8...3.26)", "cmake_minimum_required(VERSION 2.8...3.26)"),
        ("cmake_minimum_required(VERSION 3.10)", "cmake_minimum_required(VERSION 3.10)"),
        ("cmake_minimum_required(VERSION 3.5)", "cmake_minimum_required(VERSION 3.5)"),
        ("cmake_minimum_required(VERSION 3.4.99)", "cmake_minimum_required(VERSION 3.5)"),
        ("cmake_policy(VERSION 2.6) # é \u4e2d", "cmake_policy(VERSION 3.5) # é \u4e2d"),
    ],
)  # fmt: skip
def test_raises_only_the_number(before: str, after: str) -> None:
    assert patches.raised_minimum(before.encode(), FLOOR) == after.encode()


def test_bytes_that_are_no_text_survive() -> None:
    data = b"\xff\xfe # latin \xe9\ncmake_minimum_required(VERSION 2.8)\n\x00\x80"
    assert patches.raised_minimum(data, FLOOR) == data.replace(b"2.8", b"3.5")


def test_line_numbers_are_those_an_editor_shows() -> None:
    text = b"# one\n\ncmake_minimum_required(\n  VERSION\n  2.8\n)"
    assert [one.line for one in patches.requirements(text)] == [5]


@given(st.text(alphabet='cmake_minimum_required(VERSION 2.8)\n"#[]=\\ \t', max_size=300))
def test_no_text_upsets_it_and_twice_is_once(text: str) -> None:
    data = text.encode()
    once = patches.raised_minimum(data, FLOOR)
    assert patches.raised_minimum(once, FLOOR) == once


@pytest.mark.long
def test_twice_the_traps_cost_twice_the_work() -> None:
    """In this process's own time, the best of three, as a ratio: a reader that backtracks would take sixteen times as
    long. One look alone is disturbed by what else the processor does."""
    import time

    def once(lines: int) -> float:
        data = b'message("a # b" [[ c ]] (d))\n' * lines + b"cmake_minimum_required(VERSION 2.8)\n"
        begun = time.process_time()
        assert patches.raised_minimum(data, FLOOR) == data.replace(b"2.8)\n", b"3.5)\n")
        return time.process_time() - begun

    def work(lines: int) -> float:
        return min(once(lines) for _ in range(3))

    base = int(20_000 / seconds(1))
    assert work(4 * base) < 8 * max(work(base), 0.02)


def test_the_version_of_the_cmake_that_reads_it_is_never_too_old() -> None:
    """pybind11 and fmt: `cmake_policy(VERSION ${CMAKE_MAJOR_VERSION}.${CMAKE_MINOR_VERSION})`."""
    for text in ("${CMAKE_MAJOR_VERSION}.${CMAKE_MINOR_VERSION}", "${CMAKE_VERSION}"):
        assert [one.running for one in patches.requirements(f"cmake_policy(VERSION {text})".encode())] == [True]
    assert not patches.requirements(b"cmake_policy(VERSION ${MINE})")[0].running
