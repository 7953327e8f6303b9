"""How fast a card is by its data sheet: multiply-adds per clock and multiprocessor, and the rate that makes."""

from __future__ import annotations

from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.tables import Row, cached, decided


class Throughput(Row, frozen=True, kw_only=True):
    """`fp16` None: no faster than single precision, or not said."""

    capability: Capability
    fp32: int
    fp16: int | None = None

    def nominal(self, multiprocessors: int, megahertz: float) -> tuple[float, float | None]:
        """TFLOPS in single and in half precision; one multiply-add is two operations."""
        unit = 2 * multiprocessors * megahertz * 1e6 / 1e12
        return self.fp32 * unit, self.fp16 * unit if self.fp16 else None


@cached
def _rows() -> dict[Capability, Throughput]:
    return {row.capability: row for row in decided("throughput", dict[str, tuple[Throughput, ...]])["rates"]}


def throughput(capability: Capability) -> Throughput | None:
    """None: a capability that the table does not have."""
    return _rows().get(capability)
