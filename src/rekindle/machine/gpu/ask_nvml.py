"""Asks NVML, the library under nvidia-smi, about driver and cards and prints JSON.

Runs as a program of its own: a driver that crashes or hangs costs this answer and nothing else. The folder of `pynvml`
comes as the first argument, so that no other package has to be found.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}


def main() -> dict[str, Any]:
    sys.path.append(sys.argv[1])
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        missing = getattr(error, "value", None) == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        return {"error": "no NVML" if missing else str(error)}
    try:
        return {
            "driver": text(or_none(pynvml.nvmlSystemGetDriverVersion)),
            "cuda": cuda(or_none(pynvml.nvmlSystemGetCudaDriverVersion_v2)),
            "gpus": [card(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())],
        }
    except pynvml.NVMLError as error:
        return {"error": str(error)}


def card(nvml: Any, index: int) -> dict[str, Any]:
    """One card. A card that has fallen off the bus answers nothing, and says so."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return {"error": str(error)}
    pci = or_none(lambda: nvml.nvmlDeviceGetPciInfo(handle))
    capability = or_none(lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    memory = or_none(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    model = or_none(lambda: nvml.nvmlDeviceGetCurrentDriverModel(handle))
    return {
        "name": text(or_none(lambda: nvml.nvmlDeviceGetName(handle))),
        "bus": text(pci.busId) if pci else None,
        "pci_id": f"{pci.pciDeviceId & 0xFFFF:04x}:{pci.pciDeviceId >> 16:04x}" if pci else None,
        "capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "memory": int(memory.total) if memory else None,
        "driver_model": MODELS.get(model) if model is not None else None,
    }


def or_none(question: Callable[[], Any]) -> Any:
    """Old drivers lack functions and some cards do not answer some questions: that is an unknown, not a failure."""
    import pynvml

    try:
        return question()
    except (pynvml.NVMLError, AttributeError, OSError):
        return None


def text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def cuda(number: int | None) -> str | None:
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main()))
