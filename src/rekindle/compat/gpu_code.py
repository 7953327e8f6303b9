"""How far the GPU code of a library serves a card. Decided once, for wheels, installed files and tables alike.

A library is made of containers, one per translation unit, each with the same kernels for several targets. A union of
all targets lies: torch 1.13.1 for Linux has sm_35 code in 50 of 271 containers of one library, and a card of 3.5 fails
at the first kernel of the other 221. So it is counted:

- Over the containers that hold code for at least two major architectures, n of m have an entry that runs on the card.
  Containers meant for one architecture only (sm_90a kernels) do not spoil the answer. A library in which no container
  spans two majors (an extension built for one card) is counted over all of its containers.
- SERVES is m of m, NO is 0 of m, PARTIAL is anything between and never counts as served.
- NVIDIA's libraries choose among kernels for each card at run time (cuDNN has 574 parts for other cards than an H200):
  there, and there only, some code that runs is all that is asked for.
- A container without kernels, which a linker leaves behind, is not counted; one with something else in the place of
  code is, and serves nobody.
- What runs only because the driver compiles PTX is counted too, and said apart (`jit`). Where the release of torch is
  known, PTX in which that card's kernels are empty is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.cuda.libraries import is_vendor_library
from rekindle.knowledge.gpu.capabilities import own_kernels
from rekindle.knowledge.gpu.capability import Coverage, Runs, runs
from rekindle.knowledge.gpu.gpu_code import GpuCode, Group
from rekindle.model.card import Capability, Target


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


def served(
    code: GpuCode, card: Capability, *, driver_ptx: Version | None = None, torch: Version | None = None
) -> Served:
    """How far the code of one file serves a card. `driver_ptx` is the newest PTX version its driver knows, `torch` the
    release that the file is a part of."""
    torch = None if _is_vendors(code) else torch
    native = jit = total = 0
    for group in counted(code):
        total += group.count
        isa = code.ptx_isa
        how = {
            runs(target, card, ptx_isa=isa.get(str(target)) if isa else None, driver_ptx=driver_ptx)
            for target in group.targets
            if not (target.ptx and _empty(target, card, torch))
        }
        if Runs.NATIVE in how:
            native += group.count
        elif how & {Runs.JIT, Runs.JIT_UNVERIFIED}:
            jit += group.count
    if native + jit and _is_vendors(code):
        return Served(coverage=Coverage.SERVES, native=native, jit=0 if native else jit, containers=total)
    grade = Coverage.NO if not native + jit else Coverage.SERVES if native + jit == total else Coverage.PARTIAL
    return Served(coverage=grade, native=native, jit=jit, containers=total)


def counted(code: GpuCode) -> list[Group]:
    """The containers on which the answer stands."""
    groups = code.groups or code.aside_groups
    wide = [group for group in groups if _spans(group) or not group.targets]
    return wide if any(map(_spans, wide)) else list(groups)


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
    mine = [code for code in codes if not _is_vendors(code)]
    return [code for code in mine if code.containers] or mine or list(codes)


def _is_vendors(code: GpuCode) -> bool:
    return is_vendor_library(code.file.rpartition("/")[2])


def _empty(target: Target, card: Capability, torch: Version | None) -> bool:
    if torch is None:
        return False
    return any(row.card == card and row.first <= torch and target.capability < row.least for row in own_kernels())


def _spans(group: Group) -> bool:
    return len({target.capability.major for target in group.targets}) > 1
