"""The GPU code of the official Linux wheels of the package index, read off the wheels themselves.

One wheel per minor release. The tool that wrote the table also compared every file with NVIDIA's `cuobjdump`.
What people printed on real machines stands beside it.
"""

from __future__ import annotations

from collections.abc import Collection

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.knowledge.tables import Row, cached, observed, rows
from rekindle.model.card import Capability, Target
from rekindle.model.torch_pin import TorchPin


class TorchWheel(Row, frozen=True, kw_only=True):
    """One official wheel. `coverage` is that of its files together, by capability."""

    version: str
    wheel: str
    sha256: str
    size: int
    system: str
    machine: str
    cuda: Version | None
    cudnn: str | None
    glibc: Version | None
    gpu_code: tuple[GpuCode, ...]
    coverage: dict[str, Coverage]


torch_wheels = rows("torch_wheels.json", "wheels", TorchWheel)


class PrintedList(Row, frozen=True, kw_only=True):
    """`torch.cuda.get_arch_list()` of one wheel; `source` says where it was printed, `observed_at` when."""

    torch: str
    variant: str
    system: str
    targets: tuple[Target, ...]


printed_lists = rows("printed_lists.toml", "report", PrintedList)


def printed_list(torch: str, variant: str | None, system: str) -> PrintedList | None:
    """The report on a wheel; None: nobody's is in the tables."""
    wanted = (torch, variant, system)
    return next((row for row in printed_lists() if (row.torch, row.variant, row.system) == wanted), None)


class OldWheel(Row, frozen=True, kw_only=True):
    """A Linux wheel of torch 1.0 to 1.9: the last patch of a minor release, which is no route of a plan.

    `pythons` are all that this release has a Linux wheel for.
    """

    version: str
    wheel: str
    system: str
    machine: str
    pythons: tuple[str, ...]
    cuda: Version | None
    glibc: Version | None
    gpu_code: tuple[GpuCode, ...]
    coverage: dict[str, Coverage]


@cached
def old_wheels() -> tuple[OldWheel, ...]:
    """Oldest first."""
    rows = observed("old_wheels", dict[str, tuple[OldWheel, ...]])["wheels"]
    return tuple(sorted(rows, key=lambda row: Version(row.version)))


@cached
def opened_wheels() -> tuple[TorchWheel, ...]:
    """The wheels that were opened, for both kinds of machine."""
    return (*torch_wheels(), *observed("torch_wheels_aarch64", dict[str, tuple[TorchWheel, ...]])["wheels"])


@cached
def least_glibc() -> Version:
    """What every wheel that was opened needs: those tagged `manylinux1` promise to load on much older systems."""
    every = [*(row.glibc for row in opened_wheels()), *(row.glibc for row in old_wheels())]
    return min(filter(None, every))


class FieldRow(Row, frozen=True, kw_only=True):
    """One wheel on one card. `state` is that of the checks on the card: PASS, WARN, UNVERIFIED or FAIL."""

    report: str
    """SHA-256 of the owner's whole report."""
    wheel: str
    wheel_sha256: str
    torch: str
    system: str
    machine: str
    card: str
    capability: Capability
    driver: Version | None = None
    cuda: Version | None = None
    passed: int
    failed: tuple[str, ...] = ()
    state: str


_rows = rows("field_reports.json", "reports", FieldRow)


def field_reports(torch: str, capabilities: Collection[Capability], system: str) -> tuple[FieldRow, ...]:
    """What was seen of this release on such a card, the newest first. A local part (`+cu118`) is disregarded."""
    wanted = TorchPin.parse(torch).release
    found = [
        row
        for row in _rows()
        if TorchPin.parse(row.torch).release == wanted and row.capability in capabilities and row.system == system
    ]
    return tuple(sorted(found, key=lambda row: row.observed_at, reverse=True))


def describe(row: FieldRow) -> str:
    """`ran on Tesla K40c with driver 470.256.02: 26 checks passed (2026-11-20)`."""
    driver = f" with driver {row.driver}" if row.driver else ""
    what = f"{row.passed} checks passed" + (f", failed: {', '.join(row.failed)}" if row.failed else "")
    return f"{row.wheel} on {row.card}{driver}: {what} ({row.observed_at})"
