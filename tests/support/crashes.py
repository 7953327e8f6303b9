"""A program that dies at a chosen write, without any clean-up: what a power cut leaves behind."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from rekindle.cli.main import run
from rekindle.core import files
from rekindle.knowledge import tables

TIME = re.compile(r'"seconds": [\d.e-]+|\d{8}T\d{6}(?:\d{6})?Z?(?:-\d+)?|\d{4}-\d\d-\d\dT[\d:]+Z')
MOMENTS = int(os.environ.get("REKINDLE_MOMENTS", "6"))


def crash(root: Path, arguments: list[str], limit: int, torn: bool) -> int:
    """Run in a child that dies, without any clean-up, at its `limit`-th change of the file system; 77 if it did."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    count = 0
    prefix = str(root)

    def die() -> None:
        nonlocal count
        count += 1
        if count == limit:
            os._exit(77)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        flags = arguments[2] if event == "open" else 0
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        changes = writes or event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod")
        if changes and any(str(one).startswith(prefix) for one in arguments):
            die()

    def fsync(handle: int) -> None:
        status = os.fstat(handle)
        if torn and count + 1 == limit and stat.S_ISREG(status.st_mode):
            os.ftruncate(handle, status.st_size // 2)  # what was written was not all on the disk yet
        die()

    try:
        os.fsync = fsync  # type: ignore[assignment]
        sys.addaudithook(watch)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        code = run(arguments)
    except BaseException:
        code = 99
    os._exit(code)


_DIES = """
import os, sys
from rekindle.cli.main import run
from rekindle.core import files

def rename_over(source, path, **_):
    if path.as_posix().endswith(sys.argv[1]):
        os._exit(77)
    source.replace(path)

files.rename_over = rename_over
sys.exit(run(sys.argv[2:]))
"""


def dies_before(ending: str, *words: str) -> int:
    """Run the command line in a process that ends, without any clean-up, when a file so called is about to get its
    name; 77 if it did."""
    return subprocess.run([sys.executable, "-c", _DIES, ending, *words], capture_output=True, check=False).returncode


def contents(root: Path) -> dict[str, str]:
    """Every file but locks, with what tells a time taken out of its name and its text."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name not in ("lock", ".lock"):
            text = "" if path.name.endswith(".dsse.json") else path.read_bytes().decode("latin-1")  # signed with a time
            data = TIME.sub("T", text).encode("latin-1")
            found[TIME.sub("T", path.relative_to(root).as_posix())] = hashlib.sha256(data).hexdigest()
    return found


def fresh(root: Path, prepare: Callable[[Path], list[str]]) -> list[str]:
    """As for a process that has just begun."""
    tables.forget()
    files._SWEPT.clear()
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    return prepare(root)


def ends_the_same(root: Path, prepare: Callable[[Path], list[str]], *, again: tuple[int, ...] = (0,)) -> None:
    """What a verb leaves after it was killed at seeded moments and run again is what it leaves undisturbed.

    `prepare` fills `root` and gives the words of the verb; `again` are the exit codes of the second run.
    """
    assert run(fresh(root, prepare)) == 0
    undisturbed = contents(root)
    most = 2
    while crash(root, fresh(root, prepare), most, torn=True) == 77:
        most *= 2
    dice = random.Random(prepare.__name__)
    died = 0
    for limit in sorted({1, *(dice.randrange(1, most) for _ in range(MOMENTS))}):
        words = fresh(root, prepare)
        died += crash(root, words, limit, torn=True) == 77
        files._SWEPT.clear()
        assert run(words) in again, limit
        assert contents(root) == undisturbed, limit
    assert died
    tables.forget()
