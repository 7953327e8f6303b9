"""How much there is to download, to store, and to wait for."""

from __future__ import annotations

import msgspec


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Rough on purpose. `minutes` is for the cores of this machine, or for eight when they are not known."""

    download_gb: float | None = None
    disk_gb: float | None = None
    memory_gb: float | None = None
    minutes: int | None = None
    basis: str = ""


def ready_made(route: object, system: str) -> Estimate | None:
    return None


def source_build(release: object, situation: object) -> Estimate | None:
    return None
