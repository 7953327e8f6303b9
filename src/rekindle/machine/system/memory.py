"""Memory and cores: what there is, and what a container or Windows lets a build have of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rekindle.machine.host import CouldNotRead, Run
from rekindle.machine.model import Memory, Processor
from rekindle.machine.system import windows

_LINUX_FLAGS = {"sse4_1": "sse4.1", "avx": "avx", "avx2": "avx2", "avx512f": "avx512", "asimd": "neon", "sve": "sve"}
# cgroup v1 writes "no limit" as the largest number of pages; no machine has this much.
NO_LIMIT = 1 << 60


def probe(run: Run) -> Memory:
    if run.windows:
        return parse_windows(run.ask("GlobalMemoryStatusEx", windows.memory))
    text = run.text("/proc/meminfo")
    if text is None:
        raise CouldNotRead("/proc/meminfo is not there")
    found = parse_meminfo(text)
    return Memory(
        physical=found["MemTotal"],
        available=found.get("MemAvailable"),
        swap=found.get("SwapTotal"),
        limit=limit(run),
    )


def parse_meminfo(text: str) -> dict[str, int]:
    found = {name: int(size) * 1024 for name, size in re.findall(r"^(\w+):\s+(\d{1,15}) kB", text, re.MULTILINE)}
    if "MemTotal" not in found:
        raise CouldNotRead("/proc/meminfo has no MemTotal")
    return found


def parse_windows(said: Any) -> Memory:
    """Bytes, whole: 33,378,976 KB is the 32 GB of a machine whose firmware keeps a little for itself."""
    keys = ("total", "available", "commit_total")
    if not isinstance(said, dict) or not all(isinstance(said.get(key), int) for key in keys):
        raise CouldNotRead("Windows gave no account of its memory")
    return Memory(physical=said["total"], available=said["available"], commit=said["commit_total"])


def limit(run: Run) -> int | None:
    """The container's limit: cgroup v2's memory.max, else v1's, of this group and those above it."""
    groups = control_groups(run.text)
    unified = groups.get("", "/")
    own = next((path for names, path in groups.items() if "memory" in names.split(",")), "/")
    files = [f"/sys/fs/cgroup{part}/memory.max" for part in upwards(unified)]
    files += [f"/sys/fs/cgroup/memory{part}/memory.limit_in_bytes" for part in upwards(own)]
    found = []
    for path in files:
        text = (run.text(path) or "").strip()
        if text.isascii() and text.isdigit() and len(text) < 25 and int(text) < NO_LIMIT:
            found.append(int(text))
    return min(found) if found else None


def control_groups(read: Callable[[str], str | None]) -> dict[str, str]:
    """This process's control groups: of cgroup v2 under the name ``, of v1 under the names of what they account."""
    found: dict[str, str] = {}
    for line in (read("/proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        found[names] = path or "/"
    return found


def upwards(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    return ["/" + "/".join(parts[:count]) if count else "" for count in range(len(parts), -1, -1)]


def processor(run: Run) -> Processor:
    cores = run.told("cores", _ask_cores, int)
    physical = run.told("physical cores", _ask_physical, int)
    physical = physical if physical and physical > 0 else None
    if run.windows:
        said = run.told("processor features", windows.processor, dict) or {}
        names, name = said.get("flags"), said.get("name")
        return Processor(
            name=name if isinstance(name, str) else None,
            cores=cores,
            physical=physical,
            flags=tuple(str(flag) for flag in names) if isinstance(names, list) else (),
            flags_known=isinstance(names, list),
        )
    name, flags = parse_cpuinfo(run.text("/proc/cpuinfo") or "")
    quota = _quota(run)
    if cores is not None and quota is not None:
        cores = max(1, min(cores, quota))
    return Processor(name=name, cores=cores, physical=physical, flags=flags or (), flags_known=flags is not None)


def parse_cpuinfo(text: str) -> tuple[str | None, tuple[str, ...] | None]:
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    known = None
    if flags:
        words = set(flags[1].split())
        known = tuple(label for word, label in _LINUX_FLAGS.items() if word in words)
    return (name[1].strip() if name else None), known


def _quota(run: Run) -> int | None:
    """A container's share of processor time, in whole cores, rounded up."""
    words = (run.text("/sys/fs/cgroup/cpu.max") or "").split()
    if len(words) != 2:
        words = [(run.text(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us") or "").strip() for name in ("quota", "period")]
    if all(word.isascii() and word.isdigit() and len(word) < 15 for word in words) and int(words[1]):
        return -(-int(words[0]) // int(words[1]))
    return None


def _ask_physical() -> int | None:
    # What psutil reads on Linux, without its import.
    cores = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/core_cpus_list")
    if found := {core.read_bytes() for core in cores}:
        return len(found)
    import psutil

    return psutil.cpu_count(logical=False)


def _ask_cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()
