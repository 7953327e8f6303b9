"""The GPU code of the libraries in a wheel, for the tables of cuDNN and of the math libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rekindle.formats.package import Package
from rekindle.knowledge.gpu.capability import Target
from rekindle.wheels.inspect.identity import read_binaries


def targets(wheel: Package, wanted: Callable[[str], bool]) -> dict[str, list[str]]:
    """Targets by library, for the libraries of a wheel whose path is wanted."""
    found: dict[str, list[str]] = {}
    for binary in read_binaries(wheel):
        code = binary.code
        if binary.containers and wanted(code.file):
            found[code.file] = in_order({*code.targets, *code.aside})
    return found


def in_order(names: Iterable[str]) -> list[str]:
    """Native code first, then PTX, each by capability."""
    return [str(target) for target in sorted((Target.parse(name) for name in names), key=lambda one: (one.ptx, one))]
