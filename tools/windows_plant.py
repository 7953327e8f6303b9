"""Breaks what only Windows does, place by place, and sees whether a test notices.

Every place is broken at once in a copy of the source, and each bug sleeps until `REKINDLE_PLANTED` names its number. So
one process can go through them all: Windows Python starts once, imports once, and runs for each place only the tests
that reach it. Which those are, the copy writes down itself the first time (with the name that pytest gives the test,
which programs that the test starts inherit).
"""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

MOST = 4
"""Tests for one place. The sharpest come first: those of tests/windows, and of them the shortest."""

# Appends "number test" to a file, where one is named. Closed at once: the tests make an error of an open file.
_APPEND = (
    "with open(r.environ['REKINDLE_REACHED'], 'a', encoding='utf-8') as f: "
    "f.write('@ ' + r.environ.get('PYTEST_CURRENT_TEST', '') + chr(10))"
)
_NOTE = f"r.environ.get('REKINDLE_REACHED') and exec({_APPEND!r}, {{'r': r}})"

DRIVER = """
import json, os, sys, time
import pytest

work = json.loads(open(sys.argv[1], encoding="utf-8").read())
options = ["-q", "-x", "-p", "no:cacheprovider", "--tb=no", "--no-header", "--no-summary", *work["options"]]
if work["reach"]:
    os.environ["REKINDLE_REACHED"] = work["reach"]
    pytest.main([*options[:1], *options[2:], *work["tests"]])
for number, tests in work["places"]:
    os.environ["REKINDLE_PLANTED"] = str(number)
    begun = time.monotonic()
    code = int(pytest.main([*options, *tests]))
    with open(sys.argv[2], "a", encoding="utf-8") as out:
        out.write(json.dumps([number, code, round(time.monotonic() - begun, 1), tests[0]]) + "\\n")
"""


class Place(Protocol):
    file: Path
    line: int
    lines: frozenset[int]
    first: int | None
    indent: int


def instrument(source: Path, target: Path, places: Sequence[Place], asks: Callable[[ast.AST], bool]) -> None:
    """A copy of `source` (the folder `src`) in which every place is broken, and sleeps."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    by_file: dict[Path, list[tuple[int, Place]]] = {}
    for number, place in enumerate(places, 1):
        by_file.setdefault(place.file, []).append((number, place))
    for file, found in by_file.items():
        path = target / file.relative_to("src")
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        tree = ast.parse("".join(lines))
        # From the end of the file, so that the lines above keep their numbers.
        for number, place in sorted(found, key=lambda entry: -(entry[1].first or entry[1].line)):
            if place.first is not None:
                lines.insert(place.first - 1, " " * place.indent + _statement(number))
            else:
                _swap(lines, tree, place, number, asks)
        path.write_text("".join(lines), encoding="utf-8")


def reached(log: Path) -> dict[int, list[str]]:
    """Which tests reach which place, the sharpest first."""
    found: dict[int, set[str]] = {}
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    for line in text.splitlines():
        number, _, test = line.partition(" ")
        node = test.rpartition(" (")[0]
        if number.isdigit() and node.startswith("tests/"):
            found.setdefault(int(number), set()).add(node)
    return {number: sorted(tests, key=_sharpness) for number, tests in found.items()}


def work_file(
    path: Path, *, reach: str, tests: Iterable[str], places: Iterable[tuple[int, list[str]]], options: Iterable[str]
) -> None:
    chosen = [(number, nodes[:MOST]) for number, nodes in places]
    text = json.dumps({"reach": reach, "tests": list(tests), "places": chosen, "options": list(options)})
    path.write_text(text, encoding="utf-8")


def answers(path: Path) -> dict[int, tuple[bool, float, str]]:
    """Per place: noticed, seconds, the first test that was run."""
    if not path.is_file():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    # 1: tests failed; 2 and 3: pytest itself did, which a planted bug can do as well.
    return {number: (code in (1, 2, 3), seconds, test) for number, code, seconds, test in rows}


def _statement(number: int) -> str:
    code = f"{_NOTE}\nif r.environ.get('REKINDLE_PLANTED') == '{number}': raise RuntimeError('planted')"
    return f"exec({code.replace('@', str(number))!r}, {{'r': __import__('os')}})\n"


def _swap(lines: list[str], tree: ast.AST, place: Place, number: int, asks: Callable[[ast.AST], bool]) -> None:
    """`os.name == "nt"` inside an expression answers the other way round while its bug is awake."""
    for node in ast.walk(tree):
        within = isinstance(node, ast.Compare) and node.lineno in place.lines and node.lineno == node.end_lineno
        if isinstance(node, ast.Compare) and within and asks(node):
            data = lines[node.lineno - 1].encode("utf-8")
            begin, end = node.col_offset, node.end_col_offset or 0
            asked = data[begin:end].decode("utf-8")
            awake = f"r.environ.get('REKINDLE_PLANTED') == '{number}'"
            note = _NOTE.replace("@", str(number))
            swapped = f"(lambda r, asked: ({note}, asked != ({awake}))[1])(__import__('os'), {asked})"
            lines[node.lineno - 1] = (data[:begin] + swapped.encode() + data[end:]).decode("utf-8")
            return


def _sharpness(node: str) -> tuple[bool, bool, int, str]:
    slow = any(word in node for word in ("build_chain", "end_to_end", "test_files"))
    return (not node.startswith("tests/windows"), slow, len(node), node)
