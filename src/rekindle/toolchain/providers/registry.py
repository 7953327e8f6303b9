"""The providers, in the order in which they are asked."""

from __future__ import annotations

import importlib

from rekindle.core.errors import UnknownName
from rekindle.toolchain.providers.contract import Provider

NAMES = ("index", "debian", "redistrib", "conda", "folder")


def providers() -> tuple[Provider, ...]:
    return tuple(provider(name) for name in NAMES)


def provider(name: str) -> Provider:
    if name not in NAMES:
        raise UnknownName(f"unknown provider `{name[:40]}`", hint=f"known are {', '.join(NAMES)}")
    found: Provider = importlib.import_module(f"rekindle.toolchain.providers.{name}")
    return found
