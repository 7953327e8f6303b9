"""The GPU code of the libraries in a wheel, for the tables of cuDNN and of the math libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rekindle.compat.gpu_code import overall, own, served
from rekindle.formats.package import Package
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.model.card import Capability, Target
from rekindle.wheels.inspect.identity import read_binaries


def codes(wheel: Package, wanted: Callable[[str], bool]) -> list[GpuCode]:
    """The code of the libraries of a wheel whose path is wanted, of those that have any."""
    return [binary.code for binary in read_binaries(wheel) if binary.containers and wanted(binary.code.file)]


def targets(wheel: Package, wanted: Callable[[str], bool]) -> dict[str, list[str]]:
    """Targets by library."""
    return {code.file: in_order({*code.targets, *code.aside}) for code in codes(wheel, wanted)}


def in_every(found: Sequence[GpuCode]) -> tuple[list[str], list[str]]:
    """The targets of libraries that work together, without those of a card that one of them has nothing for; and these.

    A union lies: cuDNN 9.19.0 has sm_70 code in 2 of 1,379 containers of one library and none in the others.
    """
    every = {target for code in found for target in (*code.targets, *code.aside)}
    stray = {
        name
        for name in every
        if not (target := Target.parse(name)).ptx
        and any(not served(code, target.capability).native for code in found if code.groups)
    }
    return in_order(every - stray), in_order(stray)


def covers(found: Sequence[GpuCode], card: Capability) -> Coverage:
    """How far a package serves a card, by the files whose code is its own."""
    return overall(served(code, card).coverage for code in own(found))


def in_order(names: Iterable[str]) -> list[str]:
    """Native code first, then PTX, each by capability."""
    return [str(target) for target in sorted((Target.parse(name) for name in names), key=lambda one: (one.ptx, one))]
