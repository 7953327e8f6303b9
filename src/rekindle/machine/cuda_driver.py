"""The CUDA driver's own answer, through a child program (see `ask_cuda_driver`)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rekindle.machine.run import CouldNotRead, Run


def probe(run: Run) -> dict[str, Any] | None:
    """`cuda` and `gpus` as the driver tells them; `error` when it will not; None when there is no driver library."""
    script = str(Path(__file__).with_name("ask_cuda_driver.py"))
    said = run.command(sys.executable, "-I", "-S", script, timeout=30.0, label="ask_cuda_driver.py")
    if not said.started:
        return None
    if not said.ok:
        return {"error": f"the driver library ended the program that asked it (code {said.code})"}
    found = parse(said.out)
    return None if found.get("error") == "no driver library" else found


def parse(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CouldNotRead("the driver's answer is not JSON") from error
    if not isinstance(found, dict):
        raise CouldNotRead("the driver's answer is not an object")
    return found
