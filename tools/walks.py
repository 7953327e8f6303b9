"""Follows three questions through the tree: which rooms each visits, in which order, and what it reads twice.

    python -m tools.walks             the three walks
    python -m tools.walks gpu         one of them: gpu, wheel or build
    python -m tools.walks --check     fails when a walk reads a file a second time

A walk runs the command line in this process with a profiler that notes every call into `rekindle` and every file that
is opened. A room is a package of the tree (`stack`, `wheels.repair`). A file counts as read twice when it is opened for
reading again after it was closed, wherever that happens; tables count by their own name.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "src" / "rekindle"
ON_PURPOSE = {
    "notes.txt": "judged, then hashed for the bill of materials that lies in the same archive, then packed",
}
"""What is read more than once, and why."""
TWO_DEEP = ("knowledge", "machine", "wheels", "build", "review")
"""Rooms that are divided further."""


@dataclass
class Walk:
    """What was seen on the way."""

    code: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)
    read: Counter[str] = field(default_factory=Counter)
    wheels: int = 0
    """How often a wheel was opened, whichever step made it."""

    @property
    def twice(self) -> dict[str, int]:
        return {name: count for name, count in sorted(self.read.items()) if count > 1 and name not in ON_PURPOSE}


def room(path: str) -> str | None:
    """The package that a file of the tree is in; None: it is not ours."""
    try:
        parts = Path(path).relative_to(PACKAGE).parts
    except ValueError:
        return None
    if len(parts) == 1:
        return None
    return ".".join(parts[:2]) if parts[0] in TWO_DEEP and len(parts) > 2 else parts[0]


class _Tracer:
    def __init__(self) -> None:
        self.walk = Walk()
        self.watching = False
        self._rooms: dict[str, str | None] = {}
        self._inputs: set[str] = set()

    def call(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        file = frame.f_code.co_filename
        if file not in self._rooms:
            self._rooms[file] = room(file)
        found = self._rooms[file]
        caller = frame.f_back.f_code if frame.f_back else None
        # A module or a class that is being made, or what that calls, is no visit.
        if found is None or not _is_function(frame.f_code) or (caller and _of_ours(caller)):
            return
        if found not in self.walk.calls:
            self.walk.first.append(found)
        self.walk.calls[found] += 1

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python tells every `open`; what is imported, written, or part of no question is left out."""
        if not self.watching or event != "open" or not isinstance(arguments[0], (str, bytes)):
            return
        path, mode, flags = os.fsdecode(arguments[0]), arguments[1], arguments[2]
        writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (flags or 0) & (os.O_WRONLY | os.O_RDWR)
        self.walk.wheels += not writes and path.endswith(".whl")
        own = path.startswith(str(PACKAGE)) and path.endswith((".json", ".toml"))
        named = any(path.startswith(folder) for folder in self._inputs)
        if not writes and (own or named) and not path.endswith((".py", ".pyc")) and not Path(path).is_dir():
            self.walk.read[_short(path)] += 1

    def run(self, words: list[str], inputs: Path) -> Walk:
        from rekindle.cli.main import run

        self._inputs = {str(inputs)}
        out = io.StringIO()
        self.watching = True
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            sys.setprofile(self.call)
            try:
                self.walk.code = run(words)
            finally:
                sys.setprofile(None)
                self.watching = False
        return self.walk


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def _of_ours(caller: CodeType) -> bool:
    """The body of a module or class of the tree."""
    return not _is_function(caller) and caller.co_filename.startswith(str(PACKAGE))


def _short(path: str) -> str:
    if path.startswith(str(PACKAGE)):
        return Path(path).relative_to(PACKAGE).as_posix()
    return Path(path).name


_TRACERS: list[_Tracer] = []


@lru_cache(maxsize=1)
def _listen() -> None:
    """Once: a hook cannot be taken away again."""
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    for tracer in _TRACERS:
        tracer.audit(event, arguments)


def follow(words: list[str], inputs: Path) -> Walk:
    _listen()
    tracer = _Tracer()
    _TRACERS.append(tracer)
    try:
        return tracer.run(words, inputs)
    finally:
        _TRACERS.remove(tracer)


def gpu_to_plan(folder: Path) -> Walk:
    """A GPU name from the command line to the plan."""
    words = ["plan", "--gpu", "Tesla K40c", "--os", "linux", "--arch", "x86_64", "-o", str(folder / "plan.toml")]
    return follow(words, folder)


def wheel_to_repair(folder: Path) -> Walk:
    """A wheel path to what `repair` wrote."""
    wheel = _wheel(folder)
    extra = folder / "notes.txt"
    extra.write_text("a file to add", encoding="utf-8")
    return follow(["repair", str(wheel), "--add", f"{extra}=demo/notes.txt", "-o", str(folder / "out")], folder)


def build_to_shelf(folder: Path) -> Walk:
    """A build request to the shelf: a small C++ project, really compiled, packed, verified and shelved."""
    import shutil

    project = folder / "spark"
    shutil.copytree(PROJECT / "tests" / "projects" / "spark", project)
    plan = project / "build.toml"
    kept = [line for line in plan.read_text("utf-8").splitlines() if not line.startswith(("cuda", "arch_list"))]
    plan.write_text("\n".join([*kept, "[options]", 'USE_CUDA = "OFF"', ""]), "utf-8")
    os.environ["REKINDLE_SHELF"] = str(folder / "shelf")
    # What the build itself makes and reads in its own folder is its work, not a question about the request.
    return follow(["build", str(plan), "--work", str(folder / "w"), "--jobs", "2", "--cache", "none"], project)


def _wheel(folder: Path) -> Path:
    import zipfile

    path = folder / "demo-1.0-py3-none-any.whl"
    info = "demo-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("demo/__init__.py", "")
        made.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        made.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{info}/RECORD", f"demo/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


WALKS: dict[str, Callable[[Path], Walk]] = {"gpu": gpu_to_plan, "wheel": wheel_to_repair, "build": build_to_shelf}


def walks(names: list[str]) -> Iterator[tuple[str, Walk]]:
    for name in names or WALKS:
        with tempfile.TemporaryDirectory(prefix="rekindle-walk-") as folder:
            yield name, WALKS[name](Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*WALKS, []], help="which walks; all unless named")
    parser.add_argument("--check", action="store_true", help="fail when something is read twice")
    options = parser.parse_args()
    again = 0
    for name, walk in walks(options.names):
        print(f"{name}: {WALKS[name].__doc__} (exit code {walk.code})")
        print(f"  rooms  {' -> '.join(walk.first)}")
        print(f"  calls  {', '.join(f'{each} {count}' for each, count in walk.calls.most_common())}")
        print(f"  wheels opened {walk.wheels} times")
        print(f"  files  {len(walk.read)} read; twice: {walk.twice or 'none'}\n")
        again += len(walk.twice)
    return 1 if options.check and again else 0


if __name__ == "__main__":
    sys.exit(main())
