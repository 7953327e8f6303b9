"""Reads what `nvidia-smi` prints; and asks NVML and the CUDA driver, which can crash or hang, by a child program.

R470, the last driver for Kepler, has no `compute_cap` query (it answers on stdout, with exit code 2); the table cuts
long names short; the CUDA version can be N/A; before R410 it is not printed at all.
"""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

from rekindle.core import codec
from rekindle.core.errors import BadInput
from rekindle.core.pattern import late
from rekindle.core.run import Result
from rekindle.core.version import Version
from rekindle.machine.host import CouldNotRead, Run, each

FIELDS = ("name", "pci.bus_id", "pci.device_id", "memory.total", "driver_version", "driver_model.current")

_HEADER = r"Driver Version:\s*([\d.]+)"
_CUDA = r"(?:CUDA Version|CUDA UMD Version)\s*:\s*([\d.]+)"
_ROW = (
    r"(?m)^\| +(?P<index>\d{1,3}) +(?P<name>\S[^|\n]{0,60}?) +(?P<model>On|Off|WDDM|TCC|MCDM|N/A) *\|"
    r" *(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
)
_TABLE_MEMORY = r"\d{1,9}MiB {0,9}/ {0,9}(\d{1,9})MiB"
_NOT_A_FIELD = r'Field "([^"]*)" is not a valid field'


def probe(run: Run) -> dict[str, Any] | None:
    """Cards and driver as nvidia-smi tells them; None when there is no nvidia-smi."""
    program = find(run)
    if program is None:
        return None
    fields = list(FIELDS) if run.windows else list(FIELDS[:-1])
    asked = [*fields, "compute_cap"]
    # Each call can take a second on a large machine: the table and the list are asked for at the same time.
    table, answer = each(
        lambda wanted: _query(run, program, wanted) if wanted else run.command(program, timeout=20.0), [[], asked]
    )
    if not table.started:
        return None
    found = parse_table(table)
    found["program"] = program
    refused = re.search(_NOT_A_FIELD, answer.out)
    if refused:
        asked = [field for field in asked if field != refused[1]]
        answer = _query(run, program, asked)
    if answer.ok:
        # Either of the two still tells which cards there are, if not as well.
        with contextlib.suppress(CouldNotRead):
            found["gpus"] = parse_query(answer.out, asked)
    return found


def find(run: Run) -> str | None:
    """Where the driver puts it (System32, the older NVSMI folder, WSL's own), or on PATH."""
    if run.windows:
        root = run.env("SystemRoot") or "C:\\Windows"
        files = run.env("ProgramW6432") or run.env("ProgramFiles") or "C:\\Program Files"
        hits = [
            run.join(root, "System32", "nvidia-smi.exe"),
            run.join(files, "NVIDIA Corporation", "NVSMI", "nvidia-smi.exe"),
        ]
    else:
        hits = ["/usr/lib/wsl/lib/nvidia-smi", "/usr/bin/nvidia-smi"]
    return next((hit for hit in [*hits, *run.which("nvidia-smi")] if run.exists(hit)), None)


def parse_table(result: Result) -> dict[str, Any]:
    """Driver, CUDA and cards from the plain table. What it says instead (no devices, no driver) is kept as `says`."""
    text = result.out
    header = re.search(_HEADER, text)
    if header is None:
        said = (text.strip() or result.err.strip()).splitlines()
        return {"driver": None, "cuda": None, "gpus": [], "says": said[0][:200] if said else f"code {result.code}"}
    cuda = re.search(_CUDA, text)
    memory = [int(size) for size in re.findall(_TABLE_MEMORY, text)]
    rows = list(re.finditer(_ROW, text))
    gpus = [
        {
            "name": row["name"],
            "bus": row["bus"],
            "memory": memory[position] * 1024**2 if len(memory) == len(rows) else None,
            "driver_model": row["model"] if row["model"] in ("WDDM", "TCC", "MCDM") else None,
        }
        for position, row in enumerate(rows)
    ]
    return {
        "driver": str(_version(header[1])),
        "cuda": str(_version(cuda[1])) if cuda else None,
        "gpus": gpus,
        "says": None,
    }


def parse_query(text: str, fields: list[str]) -> list[dict[str, Any]]:
    """One card a line, `--format=csv,noheader,nounits`."""
    gpus = []
    for row in ([cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()):
        if len(row) != len(fields):
            raise CouldNotRead(f"nvidia-smi gave {len(row)} values where {len(fields)} were asked for")
        cells = {field: value for field, value in zip(fields, row, strict=True) if not value.startswith("[") and value}
        device = cells.get("pci.device_id", "")
        gpus.append(
            {
                "name": cells.get("name"),
                "bus": cells.get("pci.bus_id"),
                "pci_id": f"10de:{device[2:6].lower()}"
                if re.fullmatch(r"0x[0-9A-Fa-f]{4}10DE", device, re.I)
                else None,
                "memory": _mebibytes(cells.get("memory.total")),
                "capability": cells.get("compute_cap")
                if re.fullmatch(r"\d{1,2}\.\d", cells.get("compute_cap", ""))
                else None,
                "driver_model": cells.get("driver_model.current")
                if cells.get("driver_model.current") in ("WDDM", "TCC", "MCDM")
                else None,
            }
        )
    return gpus


def _query(run: Run, program: str, fields: list[str]) -> Result:
    return run.command(program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", timeout=20.0)


def _mebibytes(text: str | None) -> int | None:
    return int(text) * 1024**2 if text and text.isascii() and text.isdigit() and len(text) < 12 else None


def _version(text: str) -> Version:
    try:
        return Version(text.rstrip("."))
    except ValueError as error:
        raise CouldNotRead(f"nvidia-smi's version `{text[:40]}` is not one") from error


_CARD = late(r"nvidia\d+")
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
    found = parse_answer(said.out)
    return None if found.get("error") in NOTHING_THERE else found


def parse_answer(text: str) -> dict[str, Any]:
    try:
        found: Any = codec.from_json(text, Any)
    except BadInput as error:
        raise CouldNotRead("the answer is not JSON") from error
    if not isinstance(found, dict):
        raise CouldNotRead("the answer is not an object")
    return found
