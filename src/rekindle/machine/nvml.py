"""Asks NVML, the library under nvidia-smi: the first and best source about cards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rekindle.machine.run import Run

_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}


def probe(run: Run) -> dict[str, Any] | None:
    """`driver`, `cuda`, `gpus`; or `error` when the library is there but will not talk. None: no library."""
    found: dict[str, Any] | None = run.ask("nvml", _ask)
    return found


def _ask() -> dict[str, Any] | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        missing = getattr(error, "value", None) == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        return None if missing else {"error": str(error)}
    try:
        return {
            "driver": _text(_or_none(pynvml.nvmlSystemGetDriverVersion)),
            "cuda": _cuda(_or_none(pynvml.nvmlSystemGetCudaDriverVersion_v2)),
            "gpus": [_card(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())],
        }
    except pynvml.NVMLError as error:
        return {"error": str(error)}
    finally:
        _or_none(pynvml.nvmlShutdown)


def _card(nvml: Any, index: int) -> dict[str, Any]:
    """One card. A card that has fallen off the bus answers nothing, and says so."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return {"error": str(error)}
    pci = _or_none(lambda: nvml.nvmlDeviceGetPciInfo(handle))
    capability = _or_none(lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    memory = _or_none(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    model = _or_none(lambda: nvml.nvmlDeviceGetCurrentDriverModel(handle))
    return {
        "name": _text(_or_none(lambda: nvml.nvmlDeviceGetName(handle))),
        "bus": _text(pci.busId) if pci else None,
        "pci_id": f"{pci.pciDeviceId & 0xFFFF:04x}:{pci.pciDeviceId >> 16:04x}" if pci else None,
        "capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "memory": int(memory.total) if memory else None,
        "driver_model": _MODELS.get(model) if model is not None else None,
    }


def _or_none(question: Callable[[], Any]) -> Any:
    """Old drivers lack functions and some cards do not answer some questions: that is an unknown, not a failure."""
    import pynvml

    try:
        return question()
    except (pynvml.NVMLError, AttributeError, OSError):
        return None


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _cuda(number: int | None) -> str | None:
    return f"{number // 1000}.{number % 1000 // 10}" if number else None
