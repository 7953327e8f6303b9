"""What GPU code a library holds, and how far that serves a card. Defined once, for wheels, DLLs and tables alike.

A library is made of containers, one per translation unit, each with the same kernels for several targets. A union of
all targets lies: torch 1.13.1 for Linux has sm_35 code in 50 of 271 containers of one library, and a card of 3.5 fails
at the first kernel of the other 221. So it is counted:

- Over the containers that hold code for at least two major architectures, n of m have an entry that runs on the card.
  Containers meant for one architecture only (sm_90a kernels) do not spoil the answer. A library in which no container
  spans two majors (an extension built for one card) is counted over all of its containers.
- SERVES is m of m, NO is 0 of m, PARTIAL is anything between and never counts as served.
- What runs only because the driver compiles PTX is counted too, and said apart (`jit`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.cuda.libraries import is_vendor_library
from rekindle.knowledge.gpu.capability import Capability, Coverage, Runs, Target, runs


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """`count` containers that hold code for exactly these targets."""

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
        """From the entries (target, and for PTX its ISA version) of each container that has any that can run."""
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


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """How far one library serves one card: of `containers` that count, `native` run as they are, `jit` by JIT.

    `jit` are the containers that run only if the driver compiles their PTX; without a known driver that is not certain.
    """

    coverage: Coverage
    native: int
    jit: int
    containers: int

    @property
    def by_jit(self) -> bool:
        return self.jit > 0 and self.coverage is not Coverage.NO


def served(code: GpuCode, card: Capability, *, driver_ptx: Version | None = None) -> Served:
    """How far the code of one file serves a card. `driver_ptx` is the newest PTX version its driver knows."""
    groups = code.groups or code.aside_groups
    counted = [group for group in groups if _spans(group)] or groups
    native = jit = total = 0
    for group in counted:
        total += group.count
        isa = code.ptx_isa
        how = {
            runs(target, card, ptx_isa=isa.get(str(target)) if isa else None, driver_ptx=driver_ptx)
            for target in group.targets
        }
        if Runs.NATIVE in how:
            native += group.count
        elif how & {Runs.JIT, Runs.JIT_UNVERIFIED}:
            jit += group.count
    return Served(coverage=_grade(native + jit, total), native=native, jit=jit, containers=total)


def overall(parts: Iterable[Coverage]) -> Coverage:
    """Of several libraries together: SERVES if all do, NO if none does, else PARTIAL."""
    seen = set(parts)
    if not seen or seen == {Coverage.NO}:
        return Coverage.NO
    return Coverage.SERVES if seen == {Coverage.SERVES} else Coverage.PARTIAL


def own(codes: Sequence[GpuCode]) -> list[GpuCode]:
    """Of a package's files, those whose code is its own, on which the answer for the whole stands.

    Not NVIDIA's libraries that ride along, nor files in which a library inside keeps code for itself; unless there is
    nothing else (cuDNN's package has only NVIDIA's).
    """
    mine = [code for code in codes if not is_vendor_library(code.file.rpartition("/")[2])]
    return [code for code in mine if code.containers] or mine or list(codes)


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
        if not entries:
            continue
        groups[tuple(sorted({target for target, _ in entries}))] += 1
        for target, version in entries:
            counts[target] += 1
            if version is not None:
                isa[target] = max(version, isa.get(target, version))
    return (
        {str(target): counts[target] for target in sorted(counts)},
        tuple(Group(targets=targets, count=count) for targets, count in sorted(groups.items())),
    )


def _spans(group: Group) -> bool:
    return len({target.capability.major for target in group.targets}) > 1


def _grade(runnable: int, total: int) -> Coverage:
    if runnable == 0:
        return Coverage.NO
    return Coverage.SERVES if runnable == total else Coverage.PARTIAL
