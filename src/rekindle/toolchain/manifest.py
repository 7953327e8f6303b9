"""The same toolchain elsewhere: every archive by its hash, and what came out of them by one digest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.core import codec, files
from rekindle.core.errors import BadInput, ChecksFailed
from rekindle.toolchain.layout import rules
from rekindle.toolchain.model import Kit, Offering
from rekindle.toolchain.providers.registry import provider

SCHEMA = "rekindle.toolchain-manifest/1"


class ManifestEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`digest` is that of the kit on the machine that wrote it."""

    offering: Offering
    digest: str


class ToolchainManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: str = SCHEMA
    kits: tuple[ManifestEntry, ...]


def of(kits: Sequence[Kit]) -> ToolchainManifest:
    return ToolchainManifest(kits=tuple(ManifestEntry(offering=_offering(kit), digest=kit.digest) for kit in kits))


def write(path: Path, manifest: ToolchainManifest) -> None:
    files.write_text(path, codec.to_json(manifest) + "\n")


def read(path: Path) -> ToolchainManifest:
    found = codec.from_json(files.read_bytes(path, limit=16 << 20), ToolchainManifest, name=f"`{path}`")
    if found.schema != SCHEMA:
        message = f"`{path}` is not a manifest of a toolchain"
        raise BadInput(message, hint="`rekindle toolchain manifest -o FILE` writes one")
    for entry in found.kits:
        rules(entry.offering.layout)
        provider(entry.offering.provider)
    return found


def compare(manifest: ToolchainManifest, kits: Sequence[Kit]) -> None:
    """An error where a kit came out otherwise than on the machine of the manifest."""
    for entry, kit in zip(manifest.kits, kits, strict=True):
        if kit.digest != entry.digest:
            message = f"{kit.id} is not the same as on the machine that wrote the manifest"
            raise ChecksFailed(
                message, hint="use the same version of Rekindle on both; `rekindle toolchain verify` checks the files"
            )


def _offering(kit: Kit) -> Offering:
    if kit.adopted or kit.layout is None:
        message = f"{kit.id} is a folder of yours: a manifest cannot name its parts"
        raise BadInput(message, hint="install it by `rekindle toolchain install`")
    return Offering(
        provider=kit.provider,
        name=kit.name,
        version=kit.version,
        release=kit.release,
        variant=kit.variant,
        place=kit.place,
        layout=kit.layout,
        parts=kit.parts,
        full=kit.full,
        unverified=kit.unverified,
        gone=kit.gone,
    )
