"""What the shelf knows of a wheel, and what its subcommands print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.core import console
from rekindle.core.command import Command, pip
from rekindle.core.findings import Finding, State
from rekindle.core.untrusted import PipVersion, PlainFileName, ProjectName, Sha256
from rekindle.knowledge.gpu.gpu_code import GpuCode, sums
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


def text(wheels: Sequence[ShelvedWheel], cards: Sequence[str] = ()) -> str:
    if not wheels and cards:
        return f"no wheel on the shelf serves {console.clean(' and '.join(cards))}"
    if not wheels:
        return "the shelf is empty; put a wheel on it with `rekindle shelf add WHEEL`"
    blocks = []
    for entry in wheels:
        rows = [
            ("GPU code", " ".join(sums(entry.code)) or "none"),
            ("CUDA", f"{entry.cuda or 'none'}, cuDNN {entry.cudnn or 'unknown'}" if entry.cuda else "none"),
            ("verified", entry.state.value + (f" on {', '.join(entry.checked_on)}" if entry.checked_on else "")),
            ("signed", "yes" if entry.signed_by else "no"),
            ("size", console.size(entry.size)),
        ]
        if entry.yanked is not None:
            rows.append(("yanked", entry.yanked or "yes"))
        table = console.table([(name, console.clean(value)) for name, value in rows], indent="  ")
        blocks.append(console.paint(console.clean(entry.file), "bold") + "\n" + table)
    return "\n\n".join(blocks)


def install_command(folder: Path, entry: ShelvedWheel) -> str:
    """How pip takes this very wheel from the shelf: its whole version, or a newer one from elsewhere would win."""
    index = (folder.resolve() / "simple").as_uri()
    if entry.variant is not None:
        choose = ("pip", "install", "--preview-features", "wheel-variants", "--index", index)
        return str(Command("uv", *choose, f"{entry.project}=={entry.version}"))
    return str(pip("install", "--extra-index-url", index, f"{entry.project}=={entry.version}"))
