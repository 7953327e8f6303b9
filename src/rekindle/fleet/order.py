"""What travels between the fleet's machines: an order to build, and what came of it. Both are JSON."""

from __future__ import annotations

import msgspec

from rekindle.build.configure.request import BuildFile
from rekindle.core.untrusted import InsidePath, PlainFileName, Sha256
from rekindle.diagnose.answer import Diagnosis
from rekindle.fleet.job import FleetLock
from rekindle.stack.plan import Plan
from rekindle.wheels.shelf.provenance import BuildFacts


class JobOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a worker gets it. `source` and `torch_wheel` are files that were sent before, by their SHA-256."""

    schema: str = "rekindle.fleet-order/1"
    key: Sha256
    name: str
    lock: FleetLock
    cards: tuple[str, ...] = ()
    plan: Plan | None = None
    build: BuildFile | None = None
    source: Sha256 | None = None
    torch_wheel: Sha256 | None = None
    torch_wheel_name: PlainFileName | None = None
    cache: str | None = None
    """The address of the shared compile cache."""
    check: Sha256 | None = None
    """Build nothing: check this wheel, which was sent before, on a card. By its SHA-256."""
    check_name: PlainFileName | None = None


class MadeFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the result, below the job's folder."""

    name: InsidePath
    sha256: Sha256
    size: int


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """`wheel`, `report` and `signature` are there when it is done; `error` and `diagnosis` when it failed.

    A check makes no wheel.
    """

    schema: str = "rekindle.fleet-result/1"
    key: Sha256
    done: bool
    seconds: float
    wheel: MadeFile | None = None
    report: MadeFile | None = None
    signature: MadeFile | None = None
    facts: BuildFacts | None = None
    error: str | None = None
    code: int | None = None
    diagnosis: Diagnosis | None = None
    log: str = ""
    """The end of the log."""
    cache_hits: int | None = None
    cache_misses: int | None = None
    cancelled: bool = False
    full: bool = False
    """The disk was full: another machine may do."""


class JobStep(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running job is."""

    key: str
    step: str
    worker: str
