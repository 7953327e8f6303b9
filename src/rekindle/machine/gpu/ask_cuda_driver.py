"""Asks the CUDA driver (`nvcuda.dll`, `libcuda.so.1`) about its cards and prints JSON.

Runs as a program of its own, without any package: a driver that crashes or hangs costs this answer and nothing else.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

MAJOR, MINOR, BUS, DEVICE, DOMAIN, TCC = 75, 76, 33, 34, 50, 35


def main() -> dict[str, Any]:
    names = ["nvcuda.dll"] if sys.platform == "win32" else ["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"]
    cuda = None
    for name in names:
        try:
            cuda = ctypes.CDLL(name)
            break
        except OSError:
            continue
    if cuda is None:
        return {"error": "no driver library"}
    code = cuda.cuInit(0)
    if code:
        return {"error": f"cuInit gave {code}", "code": code}
    number = ctypes.c_int()
    version = 0 if cuda.cuDriverGetVersion(ctypes.byref(number)) else number.value
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    gpus = [card(cuda, index) for index in range(count.value)]
    return {"cuda": f"{version // 1000}.{version % 1000 // 10}" if version else None, "gpus": gpus}


def card(cuda: Any, index: int) -> dict[str, Any]:
    device = ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(device), index):
        return {}
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, 256, device)
    memory = ctypes.c_size_t()
    total = getattr(cuda, "cuDeviceTotalMem_v2", None)
    known = total is not None and not total(ctypes.byref(memory), device)

    def attribute(which: int) -> int | None:
        value = ctypes.c_int()
        return None if cuda.cuDeviceGetAttribute(ctypes.byref(value), which, device) else value.value

    major, minor, bus, slot, domain = [attribute(which) for which in (MAJOR, MINOR, BUS, DEVICE, DOMAIN)]
    return {
        "name": name.value.decode("utf-8", "replace"),
        "capability": None if major is None else f"{major}.{minor}",
        "bus": None if bus is None else f"{domain or 0:04x}:{bus:02x}:{slot:02x}.0",
        "memory": memory.value if known else None,
        "driver_model": "TCC" if sys.platform == "win32" and attribute(TCC) == 1 else None,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main()))
