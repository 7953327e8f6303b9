"""Every place where Rekindle does something on Windows only: list them, measure what the tests reach, plant bugs.

    python tools/windows_branches.py                list them
    python tools/windows_branches.py cover          run the tests under Wine, say which are reached
                                                    (`cover --append TEST ...` adds to what was noted before)
    python tools/windows_branches.py plant [N ...] [tests/...] [--anew]
                                                    break each in turn, run the tests that reach it

Exit code 8: less than 90 % of the lines are reached, or a planted bug was not noticed.
"""

from __future__ import annotations

import ast
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(PROJECT / "tools"), str(PROJECT / "src"), str(PROJECT / "tests")]

import windows_plant as planting  # noqa: E402
from support.artefacts import cache  # noqa: E402
from support.windows_python import WindowsPython  # noqa: E402
from support.wine import Bench, CannotSetUp, windows_path  # noqa: E402
from windows_bench import UNVERIFIED, environment  # noqa: E402

FAILED = 8
WANTED = 0.90
REPORT = "windows-coverage.json"


@dataclass(frozen=True)
class Place:
    """Lines that run on Windows only. `first` is where a bug can be planted; None in the middle of an expression."""

    file: Path
    line: int
    what: str
    lines: frozenset[int]
    first: int | None
    indent: int

    def __str__(self) -> str:
        return f"{self.file.as_posix()}:{self.line}  {self.what}"


def places() -> list[Place]:
    found: list[Place] = []
    for file in sorted((PROJECT / "src").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if not any(word in text for word in ("os.name", "sys.platform", "platform.system")):
            continue
        tree = ast.parse(text)
        name = file.relative_to(PROJECT)
        taken: set[ast.AST] = set()
        for node in ast.walk(tree):
            for statements in _bodies(node):
                for position, statement in enumerate(statements):
                    side = _windows_side(statement, statements[position + 1 :])
                    if side and isinstance(statement, ast.If):
                        taken.update(ast.walk(statement.test))
                        found += _of_block(name, statement, side)
        for node in ast.walk(tree):
            if isinstance(node, (ast.IfExp, ast.BoolOp)) and node not in taken and _asks(node):
                taken.update(ast.walk(node))
                lines = frozenset(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                found.append(Place(name, node.lineno, ast.unparse(node)[:90], lines, None, 0))
    return sorted(found, key=lambda place: (place.file.as_posix(), place.line))


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        if isinstance(statements, list) and statements and isinstance(statements[0], ast.stmt):
            yield statements


def _of_block(file: Path, node: ast.If, side: list[ast.stmt]) -> list[Place]:
    """A block is one place; a block that defines functions is one place for each of them."""
    functions = [inner for statement in side for inner in ast.walk(statement) if isinstance(inner, ast.FunctionDef)]
    if not functions:
        return [_place(file, node.lineno, f"if {ast.unparse(node.test)[:80]}", side)]
    return [_place(file, function.lineno, f"def {function.name}", function.body) for function in functions]


def _place(file: Path, line: int, what: str, body: list[ast.stmt]) -> Place:
    start = body[1] if len(body) > 1 and _is_docstring(body[0]) else body[0]
    statements = [inner for statement in body for inner in ast.walk(statement) if isinstance(inner, ast.stmt)]
    lines = frozenset(statement.lineno for statement in statements if not _is_docstring(statement))
    return Place(file, line, what, lines, start.lineno, start.col_offset)


def _windows_side(node: ast.stmt, rest: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that only Windows runs: the block, its `else`, or all that follows `if not Windows: return`."""
    if not isinstance(node, ast.If) or not _asks(node.test) or _mixed(node.test):
        return []
    if "!=" not in ast.unparse(node.test):
        return node.body
    if node.orelse:
        return node.orelse
    return rest if isinstance(node.body[-1], (ast.Return, ast.Raise, ast.Continue)) else []


def _mixed(test: ast.expr) -> bool:
    """`a and not (Windows and b)`: neither side of the block is Windows alone; the expression is the place."""
    parts = test.values if isinstance(test, ast.BoolOp) else []
    return any(isinstance(part, ast.UnaryOp) and _asks(part) for part in parts)


def _asks(node: ast.AST) -> bool:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Compare):
            text = ast.unparse(inner)
            if text.startswith(("os.name", "sys.platform", "platform.system()")) and (
                "nt" in text or "win" in text.lower()
            ):
                return True
    return False


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def cover(tests: list[str]) -> int:
    """Run the tests as Windows with coverage, and note which test reached which line."""
    python = _python()
    settings = cache() / "windows-coverage.ini"
    settings.write_text(
        "[run]\nsource = rekindle\ndynamic_context = test_function\ndata_file = C:\\coverage\\data\nparallel = false\n"
        "[json]\nshow_contexts = true\n",
        encoding="utf-8",
    )
    (python.folder.parent / "coverage").mkdir(exist_ok=True)
    rc = f"--rcfile={windows_path(settings)}"
    added = ["--append"] if "--append" in tests else []
    tests = [word for word in tests if word != "--append"]
    run = [
        python.executable,
        "-m",
        "coverage",
        "run",
        rc,
        *added,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    code = python.bench.call(run, env=environment(), cwd=PROJECT, timeout=3000, capture=False).returncode
    report = cache() / REPORT
    made = [python.executable, "-m", "coverage", "json", rc, "-q", "-o", windows_path(report)]
    python.bench.call(made, env=environment(), cwd=PROJECT, timeout=300, capture=False)
    return code or said(report)


def said(report: Path) -> int:
    executed = _executed(report)
    total = reached = 0
    for number, place in enumerate(places(), 1):
        ran = place.lines & set(executed.get(place.file.as_posix(), {}))
        total += len(place.lines)
        reached += len(ran)
        missing = ", ".join(map(str, sorted(place.lines - ran)))
        print(f"{number:3}  {len(ran):3} of {len(place.lines):3}  {place}" + (f"  (not {missing})" if missing else ""))
    share = reached / total if total else 1.0
    print(f"Windows-only lines reached by tests that ran as win32: {reached} of {total} ({share:.0%})")
    return 0 if share >= WANTED else FAILED


def plant(words: list[str]) -> int:
    """Break each place in a copy of the source; the tests that reach it must notice.

    Numbers choose places; `tests/...` are the tests that are run first to see which reach what. Both are remembered:
    a second call goes on with the places that nobody has noticed yet (`--anew` forgets).
    """
    folder = cache() / "planted"
    if "--anew" in words:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    every = places()
    numbers = [int(word) for word in words if word.isdigit()]
    tests = [word for word in words if word.startswith("tests/")]
    copy = folder / "src"
    shutil.rmtree(copy, ignore_errors=True)
    planting.instrument(PROJECT / "src", copy, every, _asks)
    reach, out, work, driver = (folder / name for name in ("reached.txt", "answers.jsonl", "work.json", "driver.py"))
    driver.write_text(planting.DRIVER, encoding="utf-8")
    python = _python()
    # With slashes: pytest reads this setting as a shell would, and backslashes would be lost.
    options = ["-o", f"pythonpath={windows_path(copy)} tests".replace("\\", "/")]
    env = environment() | {"PYTHONPATH": windows_path(copy), "PYTHONPYCACHEPREFIX": r"C:\planted"}
    command = [python.executable, windows_path(driver), windows_path(work), windows_path(out)]

    def run(chosen: list[tuple[int, list[str]]], first: list[str]) -> None:
        log = windows_path(reach) if first else ""
        planting.work_file(work, reach=log, tests=first, places=chosen, options=options)
        python.bench.call(command, env=env, cwd=PROJECT, timeout=3600, capture=False)

    if tests or not reach.is_file():
        run([], tests or ["tests/windows", "tests/unit"])
    known = planting.reached(reach)
    waiting = [number for number in numbers or range(1, len(every) + 1) if number in known]
    while todo := [number for number in waiting if number not in planting.answers(out)]:
        before = len(planting.answers(out))
        run([(number, known[number]) for number in todo], [])
        if len(planting.answers(out)) == before:
            # The bug has ended the process that runs the tests: that is noticing it.
            with out.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps([todo[0], 1, 0.0, known[todo[0]][0]]) + "\n")
    return _planted(every, numbers, planting.answers(out))


def _planted(every: list[Place], numbers: list[int], answers: dict[int, tuple[bool, float, str]]) -> int:
    wrong = 0
    for number, place in enumerate(every, 1):
        if numbers and number not in numbers:
            continue
        noticed, _, test = answers.get(number, (False, 0.0, ""))
        wrong += not noticed
        word = "noticed  " if noticed else "UNNOTICED" if number in answers else "NO TEST  "
        print(f"{number:3}  {word}  {place}" + (f"  by {test.rpartition('/')[2]}" if noticed else ""), flush=True)
    print(f"{wrong} planted bugs were not noticed")
    return FAILED if wrong else 0


def _executed(report: Path) -> dict[str, dict[int, list[str]]]:
    if not report.is_file():
        print("run `python tools/windows_branches.py cover` first", file=sys.stderr)
        sys.exit(2)
    data = json.loads(report.read_text(encoding="utf-8"))["files"]
    result: dict[str, dict[int, list[str]]] = {}
    for name, entry in data.items():
        short = "src/rekindle/" + name.replace("\\", "/").rpartition("src/rekindle/")[2]
        contexts = entry.get("contexts", {})
        result[short] = {line: contexts.get(str(line), []) for line in entry["executed_lines"]}
    return result


def _python() -> WindowsPython:
    try:
        bench = Bench(say=lambda text: print(text, file=sys.stderr, flush=True))
        bench.set_up()
        python = WindowsPython(bench)
        python.set_up(PROJECT)
    except CannotSetUp as error:
        print(f"UNVERIFIED: the tests could not be run as Windows: {error}")
        sys.exit(UNVERIFIED)
    return python


def main(words: list[str]) -> int:
    if not words:
        for number, place in enumerate(places(), 1):
            print(f"{number:3}  {place}")
        return 0
    if words[0] == "cover":
        return cover(words[1:] or ["tests/unit", "tests/windows"])
    if words[0] == "said":
        return said(cache() / REPORT)
    if words[0] == "plant":
        return plant(words[1:])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
