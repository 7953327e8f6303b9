"""The calls that only Windows answers: registry, PnP, memory, processor, short paths. Elsewhere each answers nothing.

Everything here returns plain JSON data, so that `Run.ask` can record it.
"""

from __future__ import annotations

import sys
from typing import Any

if sys.platform == "win32":
    import ctypes
    import winreg

    _HIVES = {"HKLM": winreg.HKEY_LOCAL_MACHINE, "HKCU": winreg.HKEY_CURRENT_USER}
    # IsProcessorFeaturePresent's numbers (winnt.h).
    _FEATURES = {37: "sse4.1", 39: "avx", 40: "avx2", 41: "avx512", 19: "neon"}
    # CM_DRP_*: which property of a device (cfgmgr32.h).
    _DESCRIPTION, _COMPATIBLE, _CLASS, _DRIVER, _FRIENDLY = 0x01, 0x03, 0x08, 0x0A, 0x0D

    class _MemoryStatus(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            ("total", ctypes.c_ulonglong),
            ("available", ctypes.c_ulonglong),
            ("commit_total", ctypes.c_ulonglong),
            ("commit_free", ctypes.c_ulonglong),
            ("virtual_total", ctypes.c_ulonglong),
            ("virtual_free", ctypes.c_ulonglong),
            ("virtual_extended", ctypes.c_ulonglong),
        )

    def registry(key: str) -> dict[str, Any] | None:
        hive, _, rest = key.partition("\\")
        try:
            with winreg.OpenKey(_HIVES[hive], rest, 0, winreg.KEY_READ | winreg.KEY_WOW64_64KEY) as opened:
                children, values, _ = winreg.QueryInfoKey(opened)
                found: dict[str, Any] = {}
                for index in range(values):
                    name, value, _kind = winreg.EnumValue(opened, index)
                    found[name or "(default)"] = _plain(value)
                found[""] = [winreg.EnumKey(opened, index) for index in range(children)]
                return found
        except OSError:
            return None

    def memory() -> dict[str, int] | None:
        status = _MemoryStatus()
        status.length = ctypes.sizeof(_MemoryStatus)
        if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            return None
        return {name: getattr(status, name) for name in ("total", "available", "commit_total", "commit_free")}

    def processor() -> dict[str, Any] | None:
        present = ctypes.windll.kernel32.IsProcessorFeaturePresent
        key = registry("HKLM\\HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0") or {}
        name = key.get("ProcessorNameString")
        return {
            "flags": [label for number, label in _FEATURES.items() if present(number)],
            "name": str(name).strip() if name else None,
        }

    def short_path(path: str) -> str | None:
        """The 8.3 spelling, or None where the volume keeps none."""
        buffer = ctypes.create_unicode_buffer(1024)
        size = ctypes.windll.kernel32.GetShortPathNameW(path, buffer, 1024)
        return buffer.value if size and " " not in buffer.value else None

    def console_code_page() -> int | None:
        return ctypes.windll.kernel32.GetConsoleOutputCP() or None

    def nvidia_devices() -> list[dict[str, Any]]:
        """Every NVIDIA display device that is plugged in, with its name, problem code and driver version."""
        manager = ctypes.windll.cfgmgr32
        present_on_pci = 0x100 | 0x1
        size = ctypes.c_ulong()
        if manager.CM_Get_Device_ID_List_SizeW(ctypes.byref(size), "PCI", present_on_pci) or not size.value:
            return []
        buffer = ctypes.create_unicode_buffer(size.value)
        if manager.CM_Get_Device_ID_ListW("PCI", buffer, size, present_on_pci):
            return []
        instances = "".join(buffer[: size.value]).split("\0")
        found = [_device(manager, name) for name in instances if name.upper().startswith("PCI\\VEN_10DE")]
        return [device for device in found if device]

    def _device(manager: Any, instance: str) -> dict[str, Any] | None:
        node = ctypes.c_ulong()
        if manager.CM_Locate_DevNodeW(ctypes.byref(node), instance, 0):
            return None
        # A card is several devices. Its sound is no display; a card without a driver has no class yet, but its
        # compatible ids name PCI class 03, display.
        kind = _property(manager, node, _CLASS)
        if kind != "Display" and "CC_03" not in (_property(manager, node, _COMPATIBLE) or ""):
            return None
        status, problem = ctypes.c_ulong(), ctypes.c_ulong()
        known = not manager.CM_Get_DevNode_Status(ctypes.byref(status), ctypes.byref(problem), node, 0)
        driver = _property(manager, node, _DRIVER)
        key = registry(f"HKLM\\SYSTEM\\CurrentControlSet\\Control\\Class\\{driver}") if driver else None
        return {
            "instance": instance,
            "name": _property(manager, node, _FRIENDLY) or _property(manager, node, _DESCRIPTION),
            "problem": problem.value if known else None,
            "driver": (key or {}).get("DriverVersion"),
        }

    def _property(manager: Any, node: Any, which: int) -> str | None:
        buffer = ctypes.create_unicode_buffer(2048)
        size = ctypes.c_ulong(ctypes.sizeof(buffer))
        failed = manager.CM_Get_DevNode_Registry_PropertyW(node, which, None, buffer, ctypes.byref(size), 0)
        return None if failed else "".join(buffer[:2048]).rstrip("\0").replace("\0", ";")

    def _plain(value: Any) -> Any:
        if isinstance(value, list):
            return [str(item) for item in value]
        return value.hex() if isinstance(value, bytes) else value

else:

    def _nothing(*_: str) -> Any:
        return None

    registry = memory = processor = short_path = console_code_page = _nothing

    def nvidia_devices() -> list[dict[str, Any]]:
        return []
