"""Which backend builds a source."""

from __future__ import annotations

from pathlib import Path

from rekindle.build.configure.backends import Backend, PlainCMake, ScikitBuildCore, SetupPy
from rekindle.build.graft.backend import Graft
from rekindle.core.errors import BadInput

KINDS: dict[str, Backend] = {
    "setup.py": SetupPy(),
    "scikit-build-core": ScikitBuildCore(),
    "cmake": PlainCMake(),
    "graft": Graft(),
}


def choose(named: str | None, source: Path) -> Backend:
    """By name, or by what lies in the source."""
    name = named or _detected(source)
    if name not in KINDS:
        raise BadInput(f"unknown build backend `{name}`", hint=f"use one of {', '.join(KINDS)}")
    return KINDS[name]


def _detected(source: Path) -> str:
    project = source / "pyproject.toml"
    text = project.read_text(encoding="utf-8", errors="replace") if project.is_file() else ""
    if "scikit_build_core" in text or "scikit-build-core" in text:
        return "scikit-build-core"
    return "setup.py" if (source / "setup.py").is_file() else "cmake"
