"""Several threads that ask for the first time at once: `rekindle serve` and programs that use the library do so."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from benchmarks import serve

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "rekindle"
DECODING = re.compile(r"msgspec\.(convert|inspect|\w+\.(decode|Decoder))")

# msgspec's fault in small: the types are new in every round, and four threads decode the same one first. With
# `msgspec.convert(data, kind)` for DECODE it ends by signal 11 within the first rounds (msgspec 0.22.0).
REDUCED = """
import sys, threading
import msgspec
from rekindle.core import codec

def ask(ready, data, kind):
    ready.wait()
    DECODE

sys.setswitchinterval(1e-6)
for _ in range(200):
    fields = [(f"f{i}", "dict[str, tuple[int | None, ...]]", msgspec.field(default_factory=dict)) for i in range(20)]
    rows = [(f"row{i}", msgspec.defstruct(f"Row{i}", fields)) for i in range(5)]
    kind = msgspec.defstruct("Table", rows)
    ready = threading.Barrier(4)
    told = (ready, {name: {} for name, _ in rows}, kind)
    threads = [threading.Thread(target=ask, args=told) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("done")
"""

# Sixteen threads, each with a question of its own, and no table read before.
ASKING = """
import json, sys, threading
from pathlib import Path
import rekindle

log, machine = map(Path, sys.argv[1:])
questions = [
    lambda: rekindle.plan(gpus=["Tesla K80"], os="windows"),
    lambda: rekindle.plan(gpus=["GTX 1080 Ti"], os="linux", python="3.11"),
    lambda: rekindle.plan(gpus=["RTX 5070"], os="linux", driver="580.65.06"),
    lambda: rekindle.gpu("V100"),
    lambda: rekindle.gpu("3.5"),
    lambda: rekindle.diagnose(log),
    lambda: rekindle.doctor(machine),
    lambda: rekindle.needs(["sm_75"], (6, 1)),
]
ready, said = threading.Barrier(16), [None] * 16

def ask(number):
    ready.wait()
    said[number] = repr(questions[number % 8]())

sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
json.dump([said[:8] == said[8:], None not in said], sys.stdout)
"""


def run(program: str, *more: str) -> subprocess.CompletedProcess[str]:
    """A program in a new process, where no type is known yet. The development mode fills memory that nobody wrote."""
    command = [sys.executable, "-X", "dev", "-X", "faulthandler", "-c", program, *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")


def test_the_first_decoding_of_a_type_by_many_threads() -> None:
    for decode in ("codec.from_builtins(data, kind)", "codec.from_json(msgspec.json.encode(data), kind)"):
        done = run(REDUCED.replace("DECODE", decode))
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_the_library_in_sixteen_threads(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text("nvcc fatal   : Unsupported gpu architecture 'compute_35'\n", encoding="utf-8")
    for _ in range(200 if os.environ.get("REKINDLE_HEAVY") else 4):
        done = run(ASKING, str(log), str(ROOT / "tests" / "machines" / "k40c-windows.json"))
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout) == [True, True]


def test_types_are_decoded_in_one_place() -> None:
    """Whoever decodes past `core.codec` decodes past its lock."""
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and DECODING.fullmatch(ast.unparse(node)):
                found.add((path.relative_to(PACKAGE).as_posix(), ast.unparse(node)))
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "msgspec":
                assert [each.name for each in node.names] == ["structs"], path
    allowed = {"msgspec.convert", "msgspec.json.Decoder", "msgspec.inspect"}
    assert found == {("core/codec.py", name) for name in allowed}


def test_many_people_type_at_once() -> None:
    """A short one; `benchmarks/serve.py` has a hundred of them type for five minutes."""
    with serve.served() as (address, server):
        left = {number: iter(range(15)) for number in range(8)}
        answers, errors = serve.load(address, 8, lambda number: lambda: next(left[number], None) is not None, seed=1)
        assert (answers, errors) == (8 * 15, [])
        assert server.is_running() and server.status() != psutil.STATUS_ZOMBIE
