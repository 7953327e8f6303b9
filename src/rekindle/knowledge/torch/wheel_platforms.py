"""The platform tags of the official Linux wheels: the oldest glibc that pip lets them onto, and their machines."""

from __future__ import annotations

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, decided, observed


class WheelPlatform(Row, frozen=True, kw_only=True):
    """The wheel of one minor release for one machine. `cuda`: it is a CUDA build, not a CPU one."""

    minor: str
    torch: str
    machine: str
    tag: str
    glibc: Version
    cuda: bool


@cached
def wheel_platforms() -> tuple[WheelPlatform, ...]:
    return observed("wheel_platforms", dict[str, tuple[WheelPlatform, ...]])["wheels"]


def of(minor: str, machine: str) -> WheelPlatform | None:
    """The row of a minor release; None when the index has no wheel of it for that machine."""
    return next((row for row in wheel_platforms() if row.minor == minor and row.machine == machine), None)


class Aarch64Line(Row, frozen=True, kw_only=True):
    """A CUDA line for aarch64 on PyTorch's own index."""

    minor: str
    variant: str
    cuda: Version
    arch_list: str


@cached
def aarch64_lines(minor: str) -> tuple[Aarch64Line, ...]:
    rows = decided("aarch64_lines", dict[str, tuple[Aarch64Line, ...]])["line"]
    return tuple(row for row in rows if row.minor == minor)
