"""Intel oneAPI and MKL: installed system-wide, or as Python packages."""

from __future__ import annotations

import re

from rekindle.core.version import Version
from rekindle.machine.host import Run
from rekindle.machine.model import FoundIntel
from rekindle.machine.toolchain import toolkits

_RELEASE = re.compile(r"\d{4}(\.\d{1,3}){0,3}")


def probe(run: Run) -> tuple[FoundIntel, ...]:
    found: list[FoundIntel] = []
    root = run.env("MKLROOT")
    if root and run.exists(root):
        found.append(FoundIntel(root=root, version=_version_of(root), found_by=("MKLROOT",)))
    for base in _bases(run):
        folder = run.join(base, "mkl")
        found += [
            FoundIntel(root=run.join(folder, name), version=Version(name), found_by=("oneAPI",))
            for name in run.names(folder, _RELEASE)
        ]
    if not run.windows and run.exists("/usr/include/mkl/mkl.h"):
        found.append(FoundIntel(root="/usr", found_by=("distro",)))
    found += [
        FoundIntel(root=root, version=Version.find(run.paths.basename(root)), found_by=(toolkits.PRIVATE,))
        for root in toolkits.private_roots(run, "mkl")
    ]
    return tuple(found)


def _bases(run: Run) -> list[str]:
    named = run.env("ONEAPI_ROOT")
    if run.windows:
        usual = run.join(run.env("ProgramFiles(x86)") or "C:\\Program Files (x86)", "Intel", "oneAPI")
    else:
        usual = "/opt/intel/oneapi"
    return list(dict.fromkeys([base.rstrip("\\/") for base in (named, usual) if base]))


def _version_of(root: str) -> Version | None:
    name = re.split(r"[\\/]", root.rstrip("\\/"))[-1]
    return Version(name) if _RELEASE.fullmatch(name) else None
