"""Rows of tables that no release of Rekindle has."""

from __future__ import annotations

NEW_CARD = {
    "name": "GeForce RTX 9090",
    "capability": "12.0",
    "architecture": "Blackwell",
    "chip": "GB202",
    "pci_ids": ["ffee"],
    "official": True,
    "source": "a test",
    "observed_at": "2026-11-15",
    "evidence": "notes",
}
