"""Variables that steer a build and name something that is not there."""

from __future__ import annotations

import re

from rekindle.knowledge.builds.limits import steering_variables
from rekindle.machine.host import Run


def stale(run: Run) -> tuple[str, ...]:
    """The names of those variables, programs first."""
    found = [name for name in steering_variables("programs") if (value := run.env(name)) and not _starts(run, value)]
    for name in steering_variables("folders"):
        value = run.env(name)
        if value and not run.exists(value.strip().strip('"').rstrip("\\/")):
            found.append(name)
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
