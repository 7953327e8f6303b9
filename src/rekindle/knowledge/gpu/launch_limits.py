"""What a block of threads may take of a multiprocessor, by compute capability."""

from __future__ import annotations

from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.tables import Row, cached, decided

_WARP = 32
# Registers are given out per warp, 256 at a time, from compute capability 3.0 on.
_REGISTER_UNIT = 256


class LaunchLimits(Row, frozen=True, kw_only=True):
    """`card` is a real card of that capability with its number of multiprocessors; sizes are in bytes."""

    capability: Capability
    card: str
    multiprocessors: int
    threads_per_block: int
    registers_per_thread: int
    registers_per_block: int
    registers_per_multiprocessor: int
    shared_per_block: int
    shared_per_multiprocessor: int

    def largest_block(self, registers: int) -> int:
        """How many threads a block of a kernel with that many registers per thread may have."""
        per_warp = -(-registers * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
        warps = self.registers_per_block // per_warp if per_warp else self.threads_per_block // _WARP
        return min(self.threads_per_block, warps * _WARP)


@cached
def _rows() -> dict[Capability, LaunchLimits]:
    return {row.capability: row for row in decided("launch_limits", dict[str, tuple[LaunchLimits, ...]])["limits"]}


def limits(capability: Capability) -> LaunchLimits | None:
    """None: a capability that the table does not have."""
    return _rows().get(capability)
