"""What the shelf knows of a wheel, and what its subcommands print."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rekindle.core.findings import Finding, State
from rekindle.core.untrusted import PipVersion, PlainFileName, ProjectName, Sha256
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.model.wheel import WheelIdentity


class ShelvedWheel(WheelIdentity, frozen=True, kw_only=True):
    """A wheel on the shelf. `state` is that of the shelf's own checks and of a report that a trusted key signed.

    `checked_on` are the cards it has run on, `original` is the hash of the file that was added where the shelf gave it
    another version (its local label), `signed_by` the key of its statement.
    """

    project: ProjectName
    version: PipVersion
    file: PlainFileName
    sha256: Sha256
    size: int
    metadata_sha256: Sha256
    requires_python: str | None = None
    python: str | None = None
    platform: str | None = None
    state: State
    checked_on: tuple[str, ...] = ()
    code: tuple[GpuCode, ...] = ()
    added_at: str | None = None
    original: str | None = None
    signed_by: str | None = None
    yanked: str | None = None


class Shelf(msgspec.Struct, frozen=True, kw_only=True):
    """What the subcommands of `shelf` print with `--json`.

    `replaced` are the folders in which what left the shelf is kept.
    """

    schema: str = "rekindle.shelf/1"
    folder: Path
    wheels: tuple[ShelvedWheel, ...] = ()
    removed: tuple[str, ...] = ()
    replaced: tuple[Path, ...] = ()


class ShelfHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What `shelf verify` and `shelf mend` print with `--json`."""

    schema: str = "rekindle.shelf-health/1"
    folder: Path
    state: State
    findings: tuple[Finding, ...]
