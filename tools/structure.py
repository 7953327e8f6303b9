"""Measures the shape of the tree: sizes, parameters, class names that exist twice, import circles.

    python -m tools.structure            the figures
    python -m tools.structure --names    the figures, and what stands behind each
    python -m tools.structure --check    fails on a circle, and on any figure above its limit
    python -m tools.structure --tree DIR the figures of another checkout
    python -m tools.structure --lines 7  ten lines of code by the seed 7, without their places; `--where` shows those

An import circle counts wherever the import stands, also inside a function: a late import hides a circle, it does not
remove it. Imports for type checkers alone are left out.
"""

from __future__ import annotations

import argparse
import ast
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
MOST_PARAMETERS = 7
SMALL = 40
LARGE = 500
LIMITS = {
    "import circles": 0,
    "classes defined twice": 0,
    "functions over 7 parameters": 0,
    "modules over 500 lines": 0,
    "modules under 40 lines": 25,
}
"""What `--check` holds the tree to. Lower a limit when the tree allows it; never raise one."""


@dataclass
class Shape:
    modules: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    crowded: list[str] = field(default_factory=list)
    classes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    imports: dict[str, set[str]] = field(default_factory=dict)

    def behind(self) -> dict[str, list[str]]:
        """What each counted figure counts."""
        small = [name for name, lines in self.modules.items() if lines < SMALL and not name.endswith("__init__")]
        return {
            "import circles": [" <-> ".join(circle) for circle in circles(self.imports)],
            "classes defined twice": [f"{k}: {', '.join(v)}" for k, v in sorted(self.classes.items()) if len(v) > 1],
            "functions over 7 parameters": self.crowded,
            "modules under 40 lines": small,
            "modules over 500 lines": [name for name, lines in self.modules.items() if lines > LARGE],
        }

    def figures(self) -> dict[str, str]:
        lengths = list(self.functions.values())
        longest = max(self.functions, key=lambda name: self.functions[name])
        return {
            "modules": str(len(self.modules)),
            "lines": f"{sum(self.modules.values()):,}",
            "median module": f"{statistics.median(self.modules.values()):.0f} lines",
            "function, mean": f"{statistics.mean(lengths):.1f} lines",
            "function, longest": f"{max(lengths)} lines ({longest})",
            **{name: str(len(rows)) for name, rows in self.behind().items()},
        }


def measure(package: Path) -> Shape:
    shape = Shape()
    trees = {}
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        trees[name] = ast.parse(text)
        shape.modules[name] = len(text.splitlines())
    for name, tree in trees.items():
        _definitions(shape, name, tree)
        shape.imports[name] = set(_imported(name, tree, trees))
    return shape


def _definitions(shape: Shape, module: str, tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            shape.classes[node.name].append(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            where = f"{module}.{node.name}"
            shape.functions[f"{where}:{node.lineno}"] = (node.end_lineno or node.lineno) - node.lineno + 1
            names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            count = len([one for one in names if one not in ("self", "cls")])
            if count > MOST_PARAMETERS and not _is_command(node):
                shape.crowded.append(f"{where} ({count})")


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A command of click takes one parameter for each option: that is its form, not a choice."""
    return any("command" in ast.unparse(each) or "option" in ast.unparse(each) for each in node.decorator_list)


def _imported(name: str, tree: ast.Module, known: Mapping[str, ast.Module]) -> Iterator[str]:
    for node in _at_run_time(tree):
        if isinstance(node, ast.Import):
            wanted = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inside = [f"{node.module}.{each.name}" for each in node.names]
            wanted = [one if one in known else node.module for one in inside]
        else:
            continue
        yield from (one for one in wanted if one in known and one != name)


def _at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _at_run_time(child)


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other (strongly connected components of more than one module)."""
    reach = {name: _reachable(name, imports) for name in imports}
    found: list[list[str]] = []
    done: set[str] = set()
    for name in sorted(imports):
        group = sorted(other for other in reach[name] if name in reach[other])
        if len(group) > 1 and name not in done:
            found.append(group)
            done.update(group)
    return found


def _reachable(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for each in imports.get(waiting.pop(), ()):
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    return seen


def drawn(package: Path, seed: str, count: int = 10) -> list[tuple[str, str]]:
    """Statements inside functions, drawn by a seed: (module and line, source on one line)."""
    found = []
    for path in sorted(package.rglob("*.py")):
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                plain = [one for one in function.body if not isinstance(one, ast.Expr | ast.Import | ast.ImportFrom)]
                found += [(f"{name}:{one.lineno}", f"{function.name}: {ast.unparse(one)}") for one in plain]
    return [(place, " ".join(text.split())[:200]) for place, text in random.Random(seed).sample(found, count)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="also what stands behind each figure")
    parser.add_argument("--check", action="store_true", help="fail on a figure above its limit")
    parser.add_argument("--lines", metavar="SEED", help="ten statements chosen by this seed: say where each belongs")
    parser.add_argument("--where", action="store_true", help="with --lines: where each of them is")
    parser.add_argument("--tree", type=Path, default=PROJECT, help="another checkout")
    options = parser.parse_args()
    if options.lines is not None:
        for number, (place, text) in enumerate(drawn(options.tree / "src" / "rekindle", options.lines), 1):
            print(f"{number:>2}  {place if options.where else text}")
        return 0
    shape = measure(options.tree / "src" / "rekindle")
    for name, value in shape.figures().items():
        print(f"{name:28} {value}")
    over = {name: rows for name, rows in shape.behind().items() if len(rows) > LIMITS.get(name, len(rows))}
    shown = shape.behind() if options.names else over if options.check else {}
    for name, rows in shown.items():
        print(f"\n{name}", *(f"  {row}" for row in rows), sep="\n")
    return 1 if options.check and over else 0


if __name__ == "__main__":
    sys.exit(main())
