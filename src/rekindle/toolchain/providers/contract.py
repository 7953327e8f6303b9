"""What a provider is: it finds the parts of a tool, and fetches parts. That is all it does.

    find(wanted, place, settings)      parts with size and SHA-256, or why there are none
    fetch(parts, folder, settings)     archives into an empty or half-filled folder, going on there
    GROUP                              how many small parts are best fetched by one call

The hash is checked by the caller, before anything is unpacked.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rekindle.core.errors import UnknownName
from rekindle.core.version import Version
from rekindle.toolchain.model import KitPlatform, Offering, Part, ToolSpec


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every provider."""

    state: Path
    """Where a provider may keep lists and the like."""
    full: bool = False
    offline: bool = False
    source: Path | None = None
    """A folder of archives, or an archive, that the user has."""
    mirror: str | None = None
    """An address to ask instead of the provider's own."""
    cuda: Version | None = None
    """The CUDA that a cuDNN or NCCL must be made for."""


class FoundOffering(msgspec.Struct, frozen=True, kw_only=True):
    """An offering, or the reason why there is none."""

    offering: Offering | None = None
    why: str = ""
    silent: bool = False
    """Nobody answered: asking for another version would not help."""


def offered(
    provider: str, wanted: ToolSpec, place: KitPlatform, settings: ProviderSettings, **more: Any
) -> FoundOffering:
    """What a provider has of what was wanted."""
    made = Offering(provider=provider, name=wanted.name, place=place, full=settings.full, **more)
    return FoundOffering(offering=made)


class Provider(Protocol):
    NAME: str
    GROUP: int

    def find(self, wanted: ToolSpec, place: KitPlatform, settings: ProviderSettings) -> FoundOffering: ...

    def fetch(self, parts: Sequence[Part], folder: Path, settings: ProviderSettings) -> list[Path]: ...


NAMES = ("index", "debian", "redistrib", "conda", "folder")


def providers() -> tuple[Provider, ...]:
    return tuple(provider(name) for name in NAMES)


def provider(name: str) -> Provider:
    if name not in NAMES:
        raise UnknownName(f"unknown provider `{name[:40]}`", hint=f"known are {', '.join(NAMES)}")
    found: Provider = importlib.import_module(f"rekindle.toolchain.providers.{name}")
    return found
