"""Several threads that ask for the first time at once: `rekindle serve` and programs that use the library do so."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
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

# Sixteen threads, each with a question of its own, and no table read before: every verb of the library. Behind the word
# `asyncio` the threads are those of an event loop.
ASKING = """
import asyncio, json, sys, threading
from pathlib import Path
import rekindle

place, how = Path(sys.argv[1]), sys.argv[2]
questions = [
    lambda: rekindle.plan(gpus=["Tesla K80"], os="windows"),
    lambda: rekindle.plan(gpus=["RTX 5070"], os="linux", driver="580.65.06"),
    lambda: rekindle.gpu("V100"),
    lambda: rekindle.diagnose(place / "build.log"),
    lambda: rekindle.doctor(place / "machine.json"),
    lambda: rekindle.review(place / "install.sh", gpus=["GTX 1080 Ti"]),
    lambda: rekindle.inspect(place / "some-1.0-py3-none-any.whl"),
    lambda: (rekindle.audit(place / "env", gpus=["sm_61"]), rekindle.needs(["sm_75"], (6, 1))),
]
ready, said = threading.Barrier(16), [None] * 16

def ask(number):
    ready.wait()
    said[number] = repr(questions[number % 8]())

async def in_a_loop():
    from concurrent.futures import ThreadPoolExecutor
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(16))
    await asyncio.gather(*(asyncio.to_thread(ask, number) for number in range(16)))

sys.setswitchinterval(1e-5)
if how == "asyncio":
    asyncio.run(in_a_loop(), debug=False)  # whose dev mode says how long a task took
threads = [threading.Thread(target=ask, args=(number,)) for number in range(16) if how == "threads"]
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


@pytest.mark.parametrize("how", ["threads", "asyncio"])
def test_the_library_in_sixteen_threads(how: str, tmp_path: Path) -> None:
    (tmp_path / "build.log").write_text("nvcc fatal   : Unsupported gpu architecture 'compute_35'\n", encoding="utf-8")
    (tmp_path / "install.sh").write_text("pip install torch==2.9.1 torchvision\n", encoding="utf-8")
    shutil.copy(ROOT / "tests" / "machines" / "k40c-windows.json", tmp_path / "machine.json")
    with zipfile.ZipFile(tmp_path / "some-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("some-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: some\nVersion: 1.0\n")
        wheel.writestr("some-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("some-1.0.dist-info/RECORD", "")
    (tmp_path / "env" / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").write_text("version = 3.12.4\n", encoding="utf-8")
    for _ in range(100 if os.environ.get("REKINDLE_HEAVY") else 2):
        done = run(ASKING, str(tmp_path), how)
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
