"""NVIDIA cards as the bus shows them, with or without a driver: sysfs on Linux, PnP on Windows.

Without a driver Windows calls every card "Microsoft Basic Display Adapter": only its `PCI\\VEN_10DE` id tells.
"""

from __future__ import annotations

import re
from typing import Any

from rekindle.machine.host import Run
from rekindle.machine.system import windows

_DEVICES = "/sys/bus/pci/devices"
_DISPLAY = ("0x0300", "0x0302", "0x0380")
_INSTANCE = re.compile(r"PCI\\VEN_10DE&DEV_([0-9A-F]{4})", re.IGNORECASE)


def probe(run: Run) -> list[dict[str, Any]]:
    return _windows(run) if run.windows else _linux(run)


def _linux(run: Run) -> list[dict[str, Any]]:
    cards = []
    for slot in run.names(_DEVICES):
        folder = f"{_DEVICES}/{slot}"
        # Almost every device on the bus is not a card: its class alone says so, and nothing more of it is read.
        kind = (run.text(f"{folder}/class") or "").strip()
        if not kind.startswith(_DISPLAY) or (run.text(f"{folder}/vendor") or "").strip() != "0x10de":
            continue
        device = (run.text(f"{folder}/device") or "").strip().removeprefix("0x")
        module = run.real(f"{folder}/driver").rsplit("/", 1)[-1] if run.exists(f"{folder}/driver") else None
        cards.append({"bus": slot, "pci_id": f"10de:{device.lower()}", "module": module})
    return cards


def _windows(run: Run) -> list[dict[str, Any]]:
    devices = run.ask("pnp display devices", windows.nvidia_devices)
    cards = []
    for device in devices if isinstance(devices, list) else []:
        if not isinstance(device, dict):
            continue
        match = _INSTANCE.match(str(device.get("instance", "")))
        if match:
            cards.append(
                {
                    "pci_id": f"10de:{match[1].lower()}",
                    "name": device.get("name"),
                    "problem": device.get("problem"),
                    "driver": device.get("driver"),
                }
            )
    return cards


def windows_driver(four_parts: str) -> str | None:
    """Windows numbers a driver `27.21.14.7250`: the last five digits are NVIDIA's 472.50."""
    digits = "".join(part.rjust(4, "0") for part in four_parts.split(".")[-2:]) if four_parts.count(".") == 3 else ""
    return f"{int(digits[-5:-2])}.{digits[-2:]}" if digits.isdigit() and len(digits) >= 5 else None
