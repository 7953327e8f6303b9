"""Variables that steer a build and name something that is not there."""

from __future__ import annotations

import re

from rekindle.machine.host import Run

_PROGRAMS = ("CC", "CXX", "CUDAHOSTCXX", "CUDACXX", "CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER", "ICX", "ICC")
_FOLDERS = ("ONEAPI_ROOT", "MKLROOT", "CUDNN_ROOT", "CUDNN_PATH", "NVTOOLSEXT_PATH")


def stale(run: Run) -> tuple[str, ...]:
    """The names of those variables, in the order above."""
    found = [name for name in _PROGRAMS if (value := run.env(name)) and not _starts(run, value)]
    found += [
        name for name in _FOLDERS if (value := run.env(name)) and not run.exists(value.strip().strip('"').rstrip("\\/"))
    ]
    return tuple(found)


def _starts(run: Run, value: str) -> bool:
    """Is there such a program? `CC` may carry options or a cache in front: `ccache gcc -m64`."""
    value = value.strip()
    quoted = re.match(r'"([^"]+)"', value)
    whole = quoted[1] if quoted else value
    word = whole if run.exists(whole) else whole.split()[0]
    if re.search(r"[\\/]", word):
        return run.exists(word) or run.exists(f"{word}.exe")
    return bool(run.which(word))
