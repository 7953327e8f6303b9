"""NVIDIA cards as the bus shows them, with or without a driver: sysfs on Linux, PnP on Windows.

Without a driver Windows calls every card "Microsoft Basic Display Adapter": only its `PCI\\VEN_10DE` id tells.
"""

from __future__ import annotations

import ctypes
import re
import sys
from typing import Any

from rekindle.machine.run import Run

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
    devices: list[dict[str, Any]] | None = run.ask("pnp display devices", _ask_pnp)
    cards = []
    for device in devices or []:
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


def _ask_pnp() -> list[dict[str, Any]]:
    """Every display device that is plugged in, with its name, problem code and driver version."""
    if sys.platform != "win32":
        return []
    manager = ctypes.windll.cfgmgr32
    present, by_enumerator = 0x100, 0x1
    size = ctypes.c_ulong()
    if manager.CM_Get_Device_ID_List_SizeW(ctypes.byref(size), "PCI", present | by_enumerator):
        return []
    buffer = ctypes.create_unicode_buffer(size.value)
    if manager.CM_Get_Device_ID_ListW("PCI", buffer, size, present | by_enumerator):
        return []
    found = []
    for instance in buffer[: size.value].split("\0"):
        if not instance.upper().startswith("PCI\\VEN_10DE"):
            continue
        node = ctypes.c_ulong()
        if manager.CM_Locate_DevNodeW(ctypes.byref(node), instance, 0):
            continue
        # An NVIDIA card is several devices: its sound output is no display.
        if (_pnp_text(manager, node, 0x08) or "Display").lower() not in ("display", "") and not _is_vga(manager, node):
            continue
        status, problem = ctypes.c_ulong(), ctypes.c_ulong()
        known = not manager.CM_Get_DevNode_Status(ctypes.byref(status), ctypes.byref(problem), node, 0)
        found.append(
            {
                "instance": instance,
                "name": _pnp_text(manager, node, 0x0D) or _pnp_text(manager, node, 0x01),
                "problem": problem.value if known else None,
                "driver": _driver_version(_pnp_text(manager, node, 0x0A)),
            }
        )
    return found


def _is_vga(manager: Any, node: Any) -> bool:
    """A card with no driver has no class yet; its compatible ids still name class 03, display."""
    return "CC_03" in (_pnp_text(manager, node, 0x03) or "")


def _pnp_text(manager: Any, node: Any, which: int) -> str | None:
    buffer = ctypes.create_unicode_buffer(2048)
    size = ctypes.c_ulong(ctypes.sizeof(buffer))
    failed = manager.CM_Get_DevNode_Registry_PropertyW(node, which, None, buffer, ctypes.byref(size), 0)
    return None if failed else buffer[:2048].rstrip("\0").replace("\0", ";")


def _driver_version(class_key: str | None) -> str | None:
    if sys.platform != "win32" or not class_key:
        return None
    import winreg

    try:
        with winreg.OpenKey(
            winreg.HKEY_LOCAL_MACHINE, f"SYSTEM\\CurrentControlSet\\Control\\Class\\{class_key}"
        ) as key:
            return str(winreg.QueryValueEx(key, "DriverVersion")[0])
    except OSError:
        return None
