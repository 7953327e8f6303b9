"""The governor of one compile step: who hands out the tokens, what is expected of each file, what is kept of it."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path

from rekindle.build.configure.request import BuildRequest
from rekindle.build.configure.tools import Tool
from rekindle.build.governor import record
from rekindle.build.governor.memory import Expectation
from rekindle.build.governor.record import GovernorUse
from rekindle.build.governor.server import Governor
from rekindle.build.run.folders import Folders
from rekindle.core import console, files, run
from rekindle.core.errors import RekindleError
from rekindle.core.paths import cache_folder
from rekindle.knowledge.builds.costs import compile_memory
from rekindle.knowledge.builds.limits import tool


def takes_tokens(ninja: Tool) -> bool:
    return ninja.version is not None and ninja.version >= tool("ninja").least


def no_tokens(ninja: Tool) -> str:
    """Why a fixed number has to do."""
    version = ninja.version or "of unknown version"
    return f"Ninja {version} takes no job tokens, {tool('ninja').least} does"


@contextlib.contextmanager
def governed(
    request: BuildRequest,
    folders: Folders,
    *,
    jobs: int,
    tokens: bool,
    cache: str | None,
    tell: Callable[[str], None],
) -> Iterator[Governor]:
    """A governor for as long as the block lasts. What it has measured is kept for the next build, however it ends."""
    kept = peaks_of(request)
    before = record.read_peaks(kept)
    shipped = compile_memory() if request.torch else None
    expectation = Expectation(before, shipped=shipped, cached=cache is not None)
    # sccache compiles in a server of its own: what its client takes says nothing about the compiler.
    measured = cache is None or "sccache" not in Path(cache).name
    try:
        with Governor(
            jobs, expectation=expectation, compiles=folders.compiles, tokens=tokens, measured=measured, tell=tell
        ) as governor:
            yield governor
    finally:
        if expectation.measured:
            with contextlib.suppress(RekindleError):
                record.write_peaks(kept, before, expectation.measured)


def peaks_of(request: BuildRequest) -> Path:
    """Where the memory of every file is kept, for this project, release and toolkit, in whatever folder it is built."""
    cuda = f"cuda{request.cuda.version.major_minor}" if request.cuda else "cpu"
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{request.name}-{request.torch or request.version or '0'}-{cuda}")
    return cache_folder() / "peaks" / f"{name}.json"


def summary(use: GovernorUse) -> str | None:
    """One line for the end of a build."""
    if not use.compiles:
        return None
    parts = [f"the largest compile took {console.memory(use.peak_kb * 1024)}"] if use.peak_kb else []
    if use.waits:
        parts.append(f"{use.waits} waited for memory ({use.waited:.0f} s in all)")
    if use.taken_back:
        parts.append(f"{use.taken_back} sent back to wait")
    if use.retries:
        parts.append(f"{use.retries} killed for memory and compiled again")
    return "; ".join(parts) or None


def make_gate(root: Path, request: BuildRequest, environ: Mapping[str, str]) -> str | None:
    """What stands before the compilers of the build in the folder `root`, with `/` as CMake writes paths; made if it is
    not there yet. None where it cannot be made: the build goes on without.

    Its path is in every compile command and must not change between two runs, or Ninja would compile everything again.
    """
    path = root / ("gate.exe" if request.system == "windows" else "gate")
    stamp = root / "gate.id"
    source = resources.files(__package__).joinpath("gate.c").read_bytes()
    wanted = hashlib.sha256(source + request.compiler.c.encode()).hexdigest()
    try:
        there = path.is_file() and stamp.is_file() and stamp.read_text(encoding="ascii") == wanted
        if there or _compiled(path, source, request, environ):
            files.write_text(stamp, wanted)
            return path.as_posix()
    except (OSError, RekindleError):
        pass
    return None


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
