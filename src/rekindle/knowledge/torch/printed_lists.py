"""What people printed on real machines: the architectures of official wheels, as the wheels themselves name them."""

from __future__ import annotations

from rekindle.knowledge.gpu.capability import Target
from rekindle.knowledge.tables import Row, cached, decided


class PrintedList(Row, frozen=True, kw_only=True):
    """`torch.cuda.get_arch_list()` of one wheel; `source` says where it was printed, `observed_at` when."""

    torch: str
    variant: str
    system: str
    targets: tuple[Target, ...]


@cached
def printed_lists() -> tuple[PrintedList, ...]:
    return decided("printed_lists", dict[str, tuple[PrintedList, ...]])["report"]


def printed_list(torch: str, variant: str | None, system: str) -> PrintedList | None:
    """The report on a wheel; None: nobody's is in the tables."""
    wanted = (torch, variant, system)
    return next((row for row in printed_lists() if (row.torch, row.variant, row.system) == wanted), None)
