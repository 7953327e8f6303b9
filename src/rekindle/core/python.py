"""How Rekindle starts a Python: so that nothing in the current folder is taken for one of its modules.

`python -m pip` looks for `pip.py` in the current folder first, and `python -c` for every module that is imported. A
downloads folder with a `venv.py` in it would run that. `-I` leaves the current folder, the user's own packages and the
variables of another Python out; pip's settings (`PIP_…`, its files) hold all the same.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rekindle.core import run

_PIP = ("--disable-pip-version-check", "--no-input")


def isolated(program: str | os.PathLike[str], *words: str) -> list[str]:
    """The command of a Python that takes nothing from the current folder: `-m venv DIR`, `-c TEXT` or a script."""
    return [os.fspath(program), "-I", *words]


def pip(program: str | os.PathLike[str], *words: str) -> list[str]:
    return isolated(program, "-m", "pip", *_PIP, *words)


def ask(program: str | os.PathLike[str], *words: str, env: Mapping[str, str], timeout: float) -> run.Result:
    """Run a script as a user of that Python would, with all that can be imported there: but in an empty folder.

    `words` must not name files by relative paths.
    """
    with contextlib.ExitStack() as ending:
        empty = ending.enter_context(tempfile.TemporaryDirectory(prefix="rekindle-empty-", ignore_cleanup_errors=True))
        return run.call([os.path.abspath(program), *words], env=env, cwd=Path(empty), timeout=timeout)  # noqa: PTH100 - a link to a Python is not followed
