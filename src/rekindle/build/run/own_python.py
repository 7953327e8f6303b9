"""The build's own Python environment, with what the plan requires, in the versions that work for the release.

It is made before anything else is looked at, since CMake and Ninja come with it; a stamp inside says what it was made
from, and an environment without the right stamp is made anew. pip's own settings (index, proxy, certificates) hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from rekindle.build.configure.environment import MARK
from rekindle.build.configure.request import BuildRequest
from rekindle.build.run import journal as program
from rekindle.build.run.folders import Folders
from rekindle.build.run.journal import Journal
from rekindle.core import codec, files
from rekindle.core.errors import BadInput, NotFound, StepFailed
from rekindle.core.paths import sha256_of, venv_python

STEP = "python"
"""What its programs are filed under in the journal and the logs."""
_FOREIGN = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    python: str
    requirements: tuple[str, ...]


class _Listed(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sha256: str


class _Bundle(msgspec.Struct, frozen=True, kw_only=True):
    files: tuple[_Listed, ...]


def make(
    request: BuildRequest,
    folders: Folders,
    journal: Journal,
    *,
    bundle: Path | None,
    tell: Callable[[str], None],
) -> None:
    """The environment of this request, or nothing where the project requires none or it already exists."""
    if not request.requirements:
        return
    wanted = Stamp(python=request.python, requirements=request.requirements)
    stamp = folders.tools / "rekindle.json"
    if stamp.is_file() and codec.from_json(stamp.read_bytes(), Stamp) == wanted and venv_python(folders.tools).exists():
        return
    tell(f"{STEP:<10} installing {', '.join(request.requirements)}")
    log = folders.logs / f"00-{STEP}.log"
    log.unlink(missing_ok=True)
    kept = {name: value for name, value in os.environ.items() if name.upper() not in _FOREIGN}
    own = {**kept, "PYTHONUTF8": "1", "PYTHONNOUSERSITE": "1", MARK: str(folders.root)}
    record = program.StepLog(step=STEP, log=log, journal=journal)
    for words in commands(request, folders.tools, bundle):
        code = program.run_program(words, record, env=own, cwd=folders.root)
        if code:
            last = " ".join(_tail(log))
            message = f"cannot install what the build requires: {last or f'exited with code {code}'}"
            raise StepFailed(message, hint=f"see `{log}`; rerun the command to resume")
    program.compress_log(log)
    files.write_text(stamp, codec.to_json(wanted) + "\n")


def commands(request: BuildRequest, folder: Path, bundle: Path | None) -> list[list[str]]:
    """As they are run: `-I`, since a `venv.py` or `pip.py` in the current folder is nobody's wish."""
    pip = [str(venv_python(folder)), "-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    pip += ["--no-index", "--find-links", str(bundle / "wheels")] if bundle else []
    return [[request.python, "-I", "-m", "venv", "--clear", str(folder)], [*pip, *request.requirements]]


def check_bundle(folder: Path, pinned: Mapping[str, str]) -> None:
    """Every wheel of the bundle is the one that was bundled, and no other lies among them.

    `pinned` are the plan's hashes; a build file that has none takes those of the bundle itself.
    """
    wheels = folder / "wheels"
    if not wheels.is_dir():
        message = f"`{folder}` is not a bundle: it has no folder `wheels`"
        raise NotFound(message, hint="`rekindle plan --bundle DIR` collects one")
    if not pinned:
        listed = codec.from_json(files.read_bytes(folder / "bundle.json"), _Bundle, name=f"`{folder / 'bundle.json'}`")
        pinned = {each.name: each.sha256 for each in listed.files}
    found = {path.name: path for path in sorted(wheels.iterdir())}
    strange = [name for name in found if name not in pinned]
    missing = [name for name in pinned if name not in found]
    changed = [name for name, path in found.items() if name in pinned and sha256_of(path) != pinned[name]]
    for names, what in ((missing, "is missing"), (changed, "is not the file that was bundled"), (strange, "is new")):
        if names:
            message = f"the bundle `{folder}` is not the one of the plan: `{names[0]}` {what}"
            raise BadInput(
                message, hint="copy the bundle again, or collect a new one with `rekindle plan --bundle DIR`"
            )


def _tail(log: Path) -> list[str]:
    """pip's own last line of error, without our time stamp."""
    lines = log.read_bytes().decode("utf-8", "replace").splitlines()
    said = [line.partition(" ")[2].strip() for line in lines]
    return [line for line in said if line.startswith("ERROR:")][-1:]
