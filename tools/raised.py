"""Which messages of other packages `diagnose` does not know: `python -m tools.raised triton-3.9.0-*.whl FOLDER ...`

Every text that a package raises in our field is asked once, as the last line of a log. Most of what stays unknown is a
fault of a program's own arguments, and rightly so: look for the forms that many packages share.
"""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from rekindle.diagnose.diagnosis import diagnose_text

_FIELD = re.compile(
    r"(?i)\bcuda|\bgpu|driver|capabilit|nvcc|compil|triton|\bwheel|\bkernel|nvidia|cudnn|nccl|toolkit|bf16|bfloat16|fp8"
    r"|flash|pip install|not installed|requires? (?:torch|pytorch)|arch|cublas|\bptx"
)
# What stands for a value that only the running program knows.
_VALUES = {"version": "12.4", "capab": "(6, 1)", "arch": "sm_61", "path": "/usr/lib/x.so", "dtype": "torch.bfloat16"}


def sources(place: Path) -> Iterator[str]:
    if place.is_dir():
        for path in sorted(place.rglob("*.py")):
            yield path.read_text(encoding="utf-8", errors="replace")
    else:
        with zipfile.ZipFile(place) as archive:
            for name in archive.namelist():
                if name.endswith(".py"):
                    yield archive.read(name).decode("utf-8", "replace")


def raised(source: str) -> Iterator[str]:
    """`RuntimeError: …` for every `raise` and `assert` whose text stands in the source."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return
    for node in nodes:
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            name, said = ast.unparse(node.exc.func).rpartition(".")[2], _text(node.exc.args[0])
        elif isinstance(node, ast.Assert) and node.msg is not None:
            name, said = "AssertionError", _text(node.msg)
        else:
            continue
        said = " ".join(re.sub(r"%[sdr]|\{\}", "X", said).split())[:600]
        if len(said) > 14 and _FIELD.search(said):
            yield f"{name}: {said}"


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _text(each) if isinstance(each, ast.Constant) else _value(ast.unparse(each)) for each in node.values
        )
    if isinstance(node, ast.BinOp):
        return _text(node.left) + (_text(node.right) if isinstance(node.op, ast.Add) else "")
    called = node.func if isinstance(node, ast.Call) else None
    return _text(called.value) if isinstance(called, ast.Attribute) and called.attr == "format" else ""


def _value(expression: str) -> str:
    return next((value for name, value in _VALUES.items() if name in expression.lower()), "X")


def main() -> int:
    every = {line for name in sys.argv[1:] for source in sources(Path(name)) for line in raised(source)}
    unknown = [line for line in sorted(every) if not diagnose_text(line).causes]
    print("\n".join(unknown))
    print(f"{len(every)} messages, {len(every) - len(unknown)} with a cause", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
