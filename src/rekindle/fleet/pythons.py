"""The Pythons a worker can build for: those of its probe, and every other one on its PATH that answers."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rekindle.core import processes, python
from rekindle.core.errors import RekindleError
from rekindle.machine.model import Machine

_MINORS = range(8, 21)
_ASK = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
_ANSWER = re.compile(r"3\.\d+")


def here(machine: Machine) -> dict[str, str]:
    """By version, `3.12`, the one that is used for it: the probe looks at the first on PATH only, a fleet at all."""
    found: dict[str, str] = {}
    for each in machine.pythons:
        if each.version and not each.trouble:
            found.setdefault(str(each.version.major_minor), each.path)
    with ThreadPoolExecutor(4) as pool:
        others = _on_path(machine.os)
        for path, version in zip(others, pool.map(_version, others), strict=True):
            if version is not None:
                found.setdefault(version, path)
    return found


def _on_path(system: str) -> list[str]:
    folders = processes.absolute_entries(os.environ.get("PATH", ""), windows=system == "windows")
    if system == "windows":
        # Store stubs are no Pythons; each version has a folder of its own there.
        names = [str(Path(each, "python.exe")) for each in folders if "windowsapps" not in each.lower()]
        return [name for name in dict.fromkeys(names) if Path(name).is_file()]
    hits = [processes.which(f"python3.{minor}", each) for minor in _MINORS for each in folders]
    return list(dict.fromkeys(hit for hit in hits if hit))


def _version(path: str) -> str | None:
    """What it says it is; None for one that does not run, or cannot make environments."""
    try:
        said = python.ask(path, "-I", "-c", _ASK, env=os.environ, timeout=20)
    except (RekindleError, OSError):
        return None
    text = said.out.strip()
    return text if said.code == 0 and _ANSWER.fullmatch(text) else None
