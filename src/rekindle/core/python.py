"""How Rekindle starts a Python: so that nothing in the current folder is taken for one of its modules.

`python -m pip` looks for `pip.py` in the current folder first, and `python -c` for every module that is imported. A
downloads folder with a `venv.py` in it would run that. `-I` leaves the current folder, the user's own packages and the
variables of another Python out; pip's settings (`PIP_…`, its files) hold all the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from rekindle.core import files, run
from rekindle.core.errors import FetchFailed
from rekindle.core.untrusted import PlainFileName, Sha256

_PIP = ("--disable-pip-version-check", "--no-input")
# Every one that a wheel was seen to ask for, the oldest first: pip takes a tag only if it is named.
_GLIBC = ("1", "2010", "2014", *(f"_2_{minor}" for minor in range(5, 41)))


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


class PipWheel(NamedTuple):
    """A wheel that pip would take. `direct`: it was named by its own address."""

    name: str
    version: str
    url: str
    file: PlainFileName
    direct: bool
    sha256: Sha256 | None


def pip_report(text: str) -> list[PipWheel]:
    """What `pip install --dry-run --report` says."""
    try:
        return [
            PipWheel(
                name=str(row["metadata"]["name"]),
                version=str(row["metadata"]["version"]),
                url=(url := str(row["download_info"]["url"])),
                file=PlainFileName(unquote(urlsplit(url).path.rpartition("/")[2])),
                direct=bool(row.get("is_direct")),
                sha256=Sha256(known) if known else None,
            )
            for row in json.loads(text[text.index("{") :])["install"]
            for known in [row["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FetchFailed(f"pip's report could not be read: {error}", hint="check its index; update pip") from error


def for_system(system: str, machine: str) -> list[str]:
    """The options by which pip takes the wheels of such a computer, on whatever computer it runs."""
    if system == "windows":
        return ["--platform", "win_amd64" if machine == "x86_64" else "win_arm64"]
    # PyTorch's own index held plain `linux` wheels up to 2.5.
    names = [f"linux_{machine}", *(f"manylinux{glibc}_{machine}" for glibc in _GLIBC)]
    return [word for name in names for word in ("--platform", name)]


def for_wheel(file: str) -> list[str]:
    """The options by which pip takes exactly this wheel, on whatever computer it runs."""
    *_, tag, _, platforms = file.removesuffix(".whl").split("-")
    words = [word for platform in platforms.split(".") for word in ("--platform", platform)]
    return words + (["--python-version", f"{tag[2]}.{tag[3:]}"] if tag.startswith("cp") else [])


def ask(program: str | os.PathLike[str], *words: str, env: Mapping[str, str], timeout: float) -> run.Result:
    """Run a script as a user of that Python would, with all that can be imported there: but in an empty folder.

    `words` must not name files by relative paths.
    """
    with files.scratch("empty") as empty:
        return run.call([os.path.abspath(program), *words], env=env, cwd=empty, timeout=timeout)  # noqa: PTH100 - a link to a Python is not followed
