"""How Rekindle starts a Python: so that nothing in the current folder is taken for one of its modules.

`python -m pip` looks for `pip.py` in the current folder first, and `python -c` for every module that is imported. A
downloads folder with a `venv.py` in it would run that. `-I` leaves the current folder, the user's own packages and the
variables of another Python out; pip's settings (`PIP_…`, its files) hold all the same.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rekindle.core import run

_PIP = ("--disable-pip-version-check", "--no-input")


def isolated(program: str | os.PathLike[str], *words: str) -> list[str]:
    """The command of a Python that takes nothing from the current folder: `-m venv DIR`, `-c TEXT` or a script."""
    return [os.fspath(program), "-I", *words]


def own(module: str, *words: str) -> list[str]:
    """The command that runs a module of Rekindle in a process of its own, from where this one was imported.

    `python -m rekindle.x` would take a `rekindle` folder, or a `json.py`, of the current folder first. `-P` would
    prevent that, but Python 3.10 has none.
    """
    root = str(Path(__file__).parents[2])
    here = os.path.abspath(os.curdir)  # noqa: PTH100 - the folder may be a link
    path = [each for each in sys.path if Path(each).is_absolute() and each != here]
    script = f"import sys; sys.path[:] = {list(dict.fromkeys([root, *path]))!r}; import runpy; "
    script += f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return isolated(sys.executable, "-c", script, *words)


def pip(program: str | os.PathLike[str], *words: str) -> list[str]:
    return isolated(program, "-m", "pip", *_PIP, *words)


def ask(program: str | os.PathLike[str], *words: str, env: Mapping[str, str], timeout: float) -> run.Result:
    """Run a script as a user of that Python would, with all that can be imported there: but in an empty folder.

    `words` must not name files by relative paths.
    """
    with contextlib.ExitStack() as ending:
        empty = ending.enter_context(tempfile.TemporaryDirectory(prefix="rekindle-empty-", ignore_cleanup_errors=True))
        return run.call([os.path.abspath(program), *words], env=env, cwd=Path(empty), timeout=timeout)  # noqa: PTH100 - a link to a Python is not followed
