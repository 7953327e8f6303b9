"""Questions to libraries that can crash or hang (NVML, the CUDA driver): asked by a child program, answered in JSON."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from rekindle.core import codec
from rekindle.core.errors import BadInput
from rekindle.machine.host import CouldNotRead, Run

_CARD = re.compile(r"nvidia\d+")
_TRACES = ("/proc/driver/nvidia", "/dev/dxg", "/dev/nvmap")
NOTHING_THERE = ("no NVML", "no driver library")


def driver_is_there(run: Run) -> bool:
    """Is there any trace of a running driver? Without one its libraries can only say so, and starting them costs time.

    Linux: a card's device, the proc folder, WSL's bridge, or an embedded board's memory device (the control device
    alone says nothing: asking makes it). Windows: the libraries themselves, which only the driver installs.
    """
    if run.windows:
        system = run.join(run.env("SystemRoot") or "C:\\Windows", "System32")
        return any(run.exists(run.join(system, name)) for name in ("nvml.dll", "nvcuda.dll", "nvidia-smi.exe"))
    return bool(run.names("/dev", _CARD)) or any(run.exists(path) for path in _TRACES)


def nvml(run: Run) -> dict[str, Any] | None:
    """`driver`, `cuda`, `gpus`; or `error` when the library is there but will not talk. None: no library."""
    if not driver_is_there(run):
        return None
    from importlib.util import find_spec

    spec = find_spec("pynvml")
    folder = str(Path(spec.origin).parent) if spec and spec.origin else ""
    return _ask(run, "ask_nvml.py", folder)


def cuda_driver(run: Run) -> dict[str, Any] | None:
    """`cuda` and `gpus` as the driver tells them; `error` when it will not; None when there is no driver library."""
    if not driver_is_there(run):
        return None
    return _ask(run, "ask_cuda_driver.py")


def _ask(run: Run, script: str, *args: str) -> dict[str, Any] | None:
    program = [sys.executable, "-I", "-S", str(Path(__file__).with_name(script)), *args]
    said = run.command(*program, timeout=20.0, label=script)
    if not said.started:
        return None
    if said.timed_out:
        return {"error": "no answer in 20 s"}
    if not said.ok:
        return {"error": f"it ended the program that asked it (code {said.code})"}
    found = parse(said.out)
    return None if found.get("error") in NOTHING_THERE else found


def parse(text: str) -> dict[str, Any]:
    try:
        found: Any = codec.from_json(text, Any)
    except BadInput as error:
        raise CouldNotRead("the answer is not JSON") from error
    if not isinstance(found, dict):
        raise CouldNotRead("the answer is not an object")
    return found
