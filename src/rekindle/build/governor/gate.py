"""The gate as a program in the build's folder, made by the build's own compiler.

Its path is in every compile command and must not change between two runs, or Ninja would compile everything again:
on Linux it is the same whether the gate could be compiled or is a script. What lies there may change.
"""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import msgspec

from rekindle.build.configure.request import BuildRequest
from rekindle.core import files, run
from rekindle.core.errors import RekindleError

_LONGEST_INTERPRETER = 100


class Launcher(msgspec.Struct, frozen=True, kw_only=True):
    words: tuple[str, ...]
    """What stands before the compiler; `/` in paths, as CMake writes them."""
    compiled: bool
    """False: the script in its place, which costs every compile the start of a Python."""


def make(root: Path, request: BuildRequest, environ: Mapping[str, str]) -> Launcher:
    """The gate of the build in the folder `root`, made if it is not there yet."""
    windows = request.system == "windows"
    path = root / ("gate.exe" if windows else "gate")
    stamp = root / "gate.id"
    source = resources.files(__package__).joinpath("gate.c").read_bytes()
    wanted = hashlib.sha256(source + request.compiler.c.encode()).hexdigest()
    there = path.is_file() and stamp.is_file() and stamp.read_text(encoding="ascii") == wanted
    if there or _compiled(path, source, request, environ):
        files.write_text(stamp, wanted)
        return Launcher(words=(path.as_posix(),), compiled=True)
    stamp.unlink(missing_ok=True)
    return _script(path, windows=windows)


def _compiled(path: Path, source: bytes, request: BuildRequest, environ: Mapping[str, str]) -> bool:
    text = path.with_name("gate.c")
    fresh = path.with_name("gate-new.exe")
    files.write_bytes(text, source)
    compiler = request.compiler.c
    if request.compiler.kind in ("cl", "clang-cl", "icx") and request.system == "windows":
        words = [[compiler, "/nologo", "/O1", "/MT", str(text), f"/Fe{fresh}", f"/Fo{path.with_name('gate.obj')}"]]
    else:
        # Without shared libraries it starts in half the time; not every system has what that needs.
        plain = [compiler, "-O2", "-o", str(fresh), str(text)]
        words = [[*plain, "-static"], plain]
    for attempt in words:
        if run.call(attempt, env=environ, cwd=path.parent, timeout=120).ok and _works(fresh, environ):
            files.rename_over(fresh, path)
            return True
    return False


def _works(gate: Path, environ: Mapping[str, str]) -> bool:
    """A gate before a gate that is told no compiler hands on what that answers."""
    return gate.is_file() and run.call([gate, gate], env=environ, timeout=60).code == 2


def _script(path: Path, *, windows: bool) -> Launcher:
    script = resources.files(__package__).joinpath("gate_script.py").read_bytes()
    if windows:
        beside = path.with_name("gate.py")
        files.write_bytes(beside, script)
        return Launcher(words=(Path(sys.executable).as_posix(), "-ISE", beside.as_posix()), compiled=False)
    python = sys.executable
    if len(python) <= _LONGEST_INTERPRETER and not set(python) & set(" \t"):
        files.write_bytes(path, f"#!{python} -ISE\n".encode() + script)
    else:
        beside = path.with_name("gate.py")
        files.write_bytes(beside, script)
        line = f'exec {shlex.quote(python)} -ISE {shlex.quote(str(beside))} "$@"'
        files.write_text(path, f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return Launcher(words=(path.as_posix(),), compiled=False)


def make_or_do_without(root: Path, request: BuildRequest, environ: Mapping[str, str]) -> Launcher | None:
    """None where not even the script can be written: the build goes on without a gate."""
    try:
        return make(root, request, environ)
    except (OSError, RekindleError):
        return None
