"""What tests share in their cache is made by one of them: a cold cache and several workers are what CI begins with."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

TESTS = Path(__file__).parents[1]

# Who reads only, and who has a lock of its own: Wine's bench; the toolchain's store, which locks itself.
OTHERWISE = {"real/test_toolchain_lists.py", "real/test_toolchain.py", "support/wine.py", "support/windows_python.py"}

_MAKES = """
import sys
from pathlib import Path
from support.artefacts import made_once

def make(folder):
    folder.mkdir()
    (folder / "half").touch()
    (folder / "half").rename(folder / "file")
    print("made")

sys.stdin.readline()
assert (made_once(Path(sys.argv[1]) / "deep" / "folder", make) / "file").exists()
"""


def test_many_that_begin_at_once_make_it_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _MAKES, str(tmp_path)]
    search = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    workers = [subprocess.Popen(command, env={**os.environ, "PYTHONPATH": search}, **pipes) for _ in range(6)]  # type: ignore[call-overload]
    said = [worker.communicate("go\n") for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 6, said
    assert sorted(out for out, _ in said) == [""] * 5 + ["made\n"]


def test_whatever_lies_in_the_cache_is_made_by_one() -> None:
    found = set()
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        calls = [ast.unparse(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        shares = "support.artefacts" in text and {"cache", "artefacts.cache"} & set(calls)
        if shares and "made_once" not in calls:
            found.add(path.relative_to(TESTS).as_posix())
    assert found == OTHERWISE
