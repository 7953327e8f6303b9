"""Every place where Rekindle does something on Windows only: list them, measure what the tests reach, plant bugs.

    python tools/windows_branches.py                list them
    python tools/windows_branches.py cover          run the tests under Wine, say which are reached
                                                    (`cover --append TEST ...` adds to what was noted before)
    python tools/windows_branches.py plant [N ...]  break each in turn (or those numbers) and run the tests

Exit code 8: less than 90 % of the lines are reached, or a planted bug was not noticed. `plant` uses what `cover` noted:
for each place only the tests that reach it are run.
"""

from __future__ import annotations

import ast
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(PROJECT / "tools"), str(PROJECT / "src"), str(PROJECT / "tests")]

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


def plant(numbers: list[int]) -> int:
    """Break each place in a copy of the source; the tests that reach it must notice."""
    executed = _executed(cache() / REPORT)
    python = _python()
    unnoticed = []
    for number, place in enumerate(places(), 1):
        if numbers and number not in numbers:
            continue
        contexts = {
            name for line in place.lines for name in executed.get(place.file.as_posix(), {}).get(line, ()) if name
        }
        tests = _nodes(contexts)
        if not tests:
            unnoticed.append(place)
            print(f"{number:3}  NO TEST    {place}", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "src"
            shutil.copytree(PROJECT / "src", copy)
            _break(copy / place.file.relative_to("src"), place)
            env = environment() | {"PYTHONPATH": windows_path(copy), "PYTHONPYCACHEPREFIX": r"C:\planted"}
            command = [python.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=line"]
            # With slashes: pytest reads this setting as a shell would, and backslashes would be lost.
            planted = windows_path(copy).replace("\\", "/")
            command += ["-o", f"pythonpath={planted} tests", *tests[:6]]
            noticed = python.bench.call(command, env=env, cwd=PROJECT, timeout=300).returncode != 0
        print(f"{number:3}  {'noticed  ' if noticed else 'UNNOTICED'}  {place}", flush=True)
        if not noticed:
            unnoticed.append(place)
    print(f"{len(unnoticed)} planted bugs were not noticed")
    return FAILED if unnoticed else 0


def _break(file: Path, place: Place) -> None:
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    if place.first is not None:
        lines.insert(place.first - 1, " " * place.indent + 'raise RuntimeError("planted")\n')
    else:
        index = place.line - 1
        swapped = lines[index].replace("==", "\0").replace("!=", "==").replace("\0", "!=")
        lines[index] = swapped
    file.write_text("".join(lines), encoding="utf-8")


def _nodes(contexts: set[str]) -> list[str]:
    """pytest's names for coverage's contexts (`test_files.test_long`); Windows' own tests first, the sharpest."""
    found = []
    for context in contexts:
        module, _, rest = context.partition(".")
        for folder in ("tests/windows", "tests/unit"):
            file = PROJECT / folder / f"{module.rpartition('.')[2]}.py"
            if file.is_file() and rest.split(".")[-1].startswith("test_"):
                found.append(f"{folder}/{file.name}::{rest.replace('.', '::')}")
    return sorted(set(found), key=lambda node: (not node.startswith("tests/windows"), node))


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
        return plant([int(word) for word in words[1:]])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
