"""A real CUDA toolkit for the tests: one whose nvcc compiles for Kepler, with a compiler that it takes."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rekindle.machine.model import Machine
from rekindle.machine.probe import look
from rekindle.model.toolkit import FoundToolkit
from support.artefacts import unverified


@lru_cache(maxsize=1)
def machine() -> Machine:
    return look()


def kepler_toolkit() -> FoundToolkit:
    for toolkit in machine().toolkits:
        if toolkit.nvcc and any(str(target) == "sm_35" for target in toolkit.targets):
            return toolkit
    unverified("no CUDA toolkit here compiles for sm_35 (Debian: nvidia-cuda-toolkit 11.8)")
    raise AssertionError


def project(name: str) -> Path:
    return Path(__file__).resolve().parents[1] / "projects" / name
