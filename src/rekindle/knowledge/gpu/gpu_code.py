"""What GPU code a library holds: values for wheels, DLLs and tables alike. `compat.gpu_code` judges them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rekindle.core.version import Version
from rekindle.model.card import Capability, Target


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """`count` containers that hold code for exactly these targets: for none where something else lies in its place."""

    targets: tuple[Target, ...]
    count: int


class GpuCode(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU code of one file. `targets` counts entries: how many cubins or PTX texts there are for each target.

    `aside` are entries that the program does not launch itself: input to the device linker that was left in the file,
    and code that a library inside loads on its own. They are shown, and counted only in a file that has nothing else.
    """

    file: str
    containers: int
    targets: dict[str, int]
    groups: tuple[Group, ...] = ()
    aside: dict[str, int] = {}
    aside_groups: tuple[Group, ...] = ()
    ptx_isa: dict[str, Version] = {}
    sizes: dict[str, int] = {}
    """Bytes in the file for each target, as they lie there: most are compressed. Empty where nobody measured."""

    @classmethod
    def of(
        cls,
        file: str,
        containers: Iterable[Sequence[tuple[Target, Version | None]]],
        *,
        aside: Iterable[Sequence[tuple[Target, Version | None]]] = (),
        sizes: dict[Target, int] | None = None,
    ) -> GpuCode:
        """From the entries (target, and for PTX its ISA version) of each container that ought to have code."""
        isa: dict[Target, Version] = {}
        counts, groups = _count(containers, isa)
        aside_counts, aside_groups = _count(aside, isa)
        return cls(
            file=file,
            containers=sum(group.count for group in groups),
            targets=counts,
            groups=groups,
            aside=aside_counts,
            aside_groups=aside_groups,
            ptx_isa={str(target): isa[target] for target in sorted(isa)},
            sizes={str(target): size for target, size in sorted((sizes or {}).items())},
        )

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """The capabilities that any code here was compiled for."""
        groups = self.groups or self.aside_groups
        return tuple(sorted({target.capability for group in groups for target in group.targets}))


def sums(codes: Iterable[GpuCode]) -> dict[str, int]:
    """The targets of several files, added up."""
    total: Counter[str] = Counter()
    for code in codes:
        total.update(code.targets)
    return in_order(total)


def in_order(targets: Mapping[str, int]) -> dict[str, int]:
    return {key: targets[key] for key in sorted(targets, key=Target.parse)}


def _count(
    containers: Iterable[Sequence[tuple[Target, Version | None]]], isa: dict[Target, Version]
) -> tuple[dict[str, int], tuple[Group, ...]]:
    """Entries per target and containers per set of targets; the newest PTX version of each target goes into `isa`."""
    groups: Counter[tuple[Target, ...]] = Counter()
    counts: Counter[Target] = Counter()
    for entries in containers:
        groups[tuple(sorted({target for target, _ in entries}))] += 1
        for target, version in entries:
            counts[target] += 1
            if version is not None:
                isa[target] = max(version, isa.get(target, version))
    return (
        {str(target): counts[target] for target in sorted(counts)},
        tuple(Group(targets=targets, count=count) for targets, count in sorted(groups.items())),
    )
