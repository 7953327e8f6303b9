"""NVIDIA's redistributable archives, as `redistrib_<release>.json` lists them: components, sizes, SHA-256.

Published lists are known by their digest, and one that differs is said to. Any other is believed because of the
connection it came over (HTTPS with the system's certificates). Every archive is held against the list.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core import codec, untrusted
from rekindle.core import fetch as fetching
from rekindle.core.errors import BadInput, FetchFailed, RekindleError
from rekindle.core.untrusted import InsidePath, PlainFileName, Sha256
from rekindle.core.version import Version
from rekindle.knowledge.cuda.toolchains import RedistribSet, redistrib_list, redistrib_sets
from rekindle.model.platform import Platform
from rekindle.toolchain.model import FoundOffering, Part, ProviderSettings, ToolSpec, offered

NAME = "redistrib"
GROUP = 1
_DIGITS = 16
_ABOUT = ("release_date", "release_label", "release_product")


class RedistribArchive(msgspec.Struct, frozen=True, kw_only=True):
    """One archive of one component. `variant` is the CUDA that a cuDNN is made for."""

    component: str
    version: str
    platform: str
    variant: str | None
    path: InsidePath
    file: PlainFileName
    sha256: Sha256
    size: int
    licence: str


class Redistrib(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    date: str = ""
    archives: tuple[RedistribArchive, ...]

    @property
    def digest(self) -> str:
        """Over platform, path and hash of every archive, however the list is indented and ordered."""
        lines = sorted(f"{one.platform} {one.path} {one.sha256}" for one in self.archives)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def of(self, platform: str, variant: str | None = None) -> dict[str, RedistribArchive]:
        return {
            one.component: one for one in self.archives if one.platform == platform and one.variant in (None, variant)
        }


def find(wanted: ToolSpec, place: Platform, settings: ProviderSettings) -> FoundOffering:
    row = next((row for row in redistrib_sets() if row.tool == wanted.name), None)
    if row is None or wanted.version is None:
        return FoundOffering(why=f"NVIDIA has no list of archives for {wanted}")
    label = row.label_of(wanted.version)
    if label is None:
        if row.labels and wanted.version > Version(row.first):
            return FoundOffering(why=f"NVIDIA has no list of {wanted.version}")
        return FoundOffering(why=f"NVIDIA's lists begin with {row.first}")
    if settings.offline:
        return FoundOffering(why="it is asked over the network, and `--offline` was given")
    try:
        listed = read(_listed(row, label, settings), f"redistrib_{label}.json")
    except RekindleError as error:
        return FoundOffering(why=error.message, silent=isinstance(error, FetchFailed))
    variant = f"cuda{settings.cuda.major}" if settings.cuda else None
    have = listed.of(place.word, variant)
    if row.main not in have:
        return FoundOffering(why=f"its list of {label} has no {row.main} for {place.word}")
    names = sorted(have) if settings.full else row.chosen(have)
    parts = tuple(
        codec.like(Part, one, name=one.component, origin=f"redistrib:{row.tool}/{one.path}", licence=row.licence)
        for one in (have[name] for name in names)
    )
    leading = next(part for part in parts if part.name == row.main)
    gone = row.lacks({part.name for part in parts})
    return offered(
        NAME,
        wanted,
        place,
        settings,
        version=Version.find(leading.version) or Version(listed.label),
        release=Version.find(listed.label),
        variant=f"cu{settings.cuda.major}" if settings.cuda and wanted.name == "cudnn" else "",
        layout="redistrib",
        parts=parts,
        gone=tuple(f"{name} (not in NVIDIA's list for {place.word})" for name in gone),
        unverified=_unverified(row, listed, settings),
    )


def fetch(parts: Sequence[Part], folder: Path, settings: ProviderSettings) -> list[Path]:
    """Download one archive, going on where an earlier try stopped."""
    (part,) = parts
    tool, _, path = part.origin.removeprefix("redistrib:").partition("/")
    row = next((row for row in redistrib_sets() if row.tool == tool), None)
    if row is None or untrusted.problem(path) is not None:
        raise FetchFailed(f"`{part.origin[:100]}` names no archive of NVIDIA's", hint="the manifest was changed")
    address = f"{settings.mirror or row.address}/{path}"
    return [fetching.download(address, folder / part.file, sha256=part.sha256, most=part.size or None)]


def read(data: bytes, name: str) -> Redistrib:
    """The whole of a list. What is not understood is an error: a part left out silently would be a broken toolkit."""
    try:
        table = json.loads(data)
        label = str(table.get("release_label") or re.sub(r"redistrib_|\.json", "", name))
        archives = tuple(
            archive
            for component, about in table.items()
            if component not in _ABOUT
            for archive in _archives(component, about)
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = f"`{name}` is not one of NVIDIA's lists of archives: {type(error).__name__}: {error}"
        raise BadInput(message, hint="check the address; `--mirror` must name the folder that holds it") from error
    return Redistrib(label=label, date=str(table.get("release_date", "")), archives=archives)


def _archives(component: str, about: dict[str, Any]) -> Iterator[RedistribArchive]:
    common = {"component": component, "version": about["version"], "licence": about.get("license", "")}
    known = {"name", "license", "license_path", "version", "cuda_variant"}
    for platform, value in about.items():
        if platform in known:
            continue
        if "relative_path" in value:
            yield _archive(common, platform, None, value)
        else:
            # cuDNN: one archive for each CUDA. A platform may also have none, `{}`.
            for variant, inner in value.items():
                yield _archive(common, platform, variant, inner)


def _archive(common: dict[str, str], platform: str, variant: str | None, value: dict[str, str]) -> RedistribArchive:
    path = InsidePath(value["relative_path"])
    told = {"platform": platform, "variant": variant, "path": path, "file": path.name, "sha256": value["sha256"]}
    size = str(value["size"])
    if not (size.isascii() and size.isdigit() and len(size) < _DIGITS):
        raise ValueError(f"`{size[:40]}` is no size")
    return codec.from_builtins({**common, **told, "size": int(size)}, RedistribArchive, name="an archive")


def _listed(row: RedistribSet, label: str, settings: ProviderSettings) -> bytes:
    """The list, fetched anew: a release's list is sometimes corrected. No file: two runs at once would share it."""
    return fetching.fetch_small(f"{settings.mirror or row.address}/redistrib_{label}.json", most=16 << 20)


def _unverified(row: RedistribSet, listed: Redistrib, settings: ProviderSettings) -> tuple[str, ...]:
    found = [] if settings.mirror else ["NVIDIA's own server was never reached in the tests of this provider"]
    known = redistrib_list(row.tool, listed.label)
    if known is not None and known.digest != listed.digest:
        found.append(f"this list of {listed.label} names other archives than the one published on {known.released}")
    return tuple(found)
