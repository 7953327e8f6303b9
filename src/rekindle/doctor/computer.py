"""Checks on memory, cores, disks, paths, encodings, WSL: the computer around the toolchain."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.core.command import Command, ShellVariable, Word
from rekindle.core.findings import Finding, State
from rekindle.doctor.check import judge, listed, say
from rekindle.knowledge.builds import checks, costs
from rekindle.knowledge.builds.profiles import for_processor
from rekindle.machine.model import PARTS, Machine

_GB = 1024**3


@judge("memory.enough", "memory.container")
def memory(machine: Machine) -> Iterator[Finding]:
    seen, limits = machine.memory, checks.limits()
    if seen.physical is None:
        yield say("memory.enough", State.UNVERIFIED, "the memory could not be read")
        return
    usable = seen.usable or seen.physical
    found = f"{sold_as(usable)} GB of memory ({usable / _GB:.1f} usable)"
    if seen.commit is not None:
        found += f", {seen.commit / _GB:.0f} GB with the page file"
    elif seen.swap:
        found += f", {seen.swap / _GB:.0f} GB of swap"
    if at_least(usable, limits.memory_good_gb):
        yield say("memory.enough", State.PASS, found)
    elif at_least(usable, limits.memory_least_gb):
        yield say("memory.enough", State.WARN, f"{found}: a build runs a job or two at a time")
    else:
        yield say("memory.enough", State.FAIL, f"{found}: too little to build PyTorch")
    if seen.limit is not None and seen.limit < seen.physical:
        state = State.PASS if at_least(seen.limit, limits.memory_good_gb) else State.WARN
        found = f"this container may use {seen.limit / _GB:.1f} of {seen.physical / _GB:.1f} GB"
        yield say("memory.container", state, found)


def at_least(size: int, gigabytes: int) -> bool:
    """Does a machine sold with that many GB have this much? Bytes are compared whole: nothing is rounded down first."""
    return size >= gigabytes * _GB * checks.limits().memory_tolerance


def sold_as(size: int) -> int:
    """The GB a machine was sold with: the next size that memory comes in, if it is nearly reached."""
    exact = -(-size // _GB)
    for step in (8, 4, 2):
        rounded = -(-exact // step) * step
        if at_least(size, rounded):
            return rounded
    return exact


@judge("cpu.cores", "cpu.instructions")
def processor(machine: Machine) -> Iterator[Finding]:
    seen = machine.processor
    if seen.cores is None:
        yield say("cpu.cores", State.UNVERIFIED, "the number of cores could not be read")
    elif seen.cores < 4:
        found = f"{seen.cores} core{'s' if seen.cores > 1 else ''}: {_hours(seen.cores)}"
        yield say("cpu.cores", State.WARN, found)
    else:
        yield say("cpu.cores", State.PASS, f"{seen.cores} cores")
    name = seen.name or machine.arch
    if not seen.flags_known:
        yield say("cpu.instructions", State.UNVERIFIED, f"{name}: its instructions could not be read")
    elif machine.arch != "x86_64" or "avx2" in seen.flags:
        yield say("cpu.instructions", State.PASS, f"{name}: {listed(seen.flags) or 'none of note'}")
    else:
        has = listed(seen.flags) or "neither SSE4.1 nor AVX"
        profile = for_processor(seen.flags)
        fix = f"nothing to do: a plan for this machine takes the profile `{profile}`"
        yield say("cpu.instructions", State.WARN, f"{name} has {has}, but no AVX2", fix=fix)


def _hours(cores: int) -> str:
    """What a build for one card takes, of the oldest and of the newest release whose work is known."""
    rows = costs.source_builds()
    oldest, newest = (round((row.cpp_seconds + row.cuda_seconds) / cores / 3600) for row in (rows[0], rows[-1]))
    return f"a build takes about {oldest} hours for torch {rows[0].last_torch}, {newest} for {rows[-1].last_torch}"


@judge("disk.space")
def disks(machine: Machine) -> Iterator[Finding]:
    limits = checks.limits()
    shown: set[tuple[int | None, int | None]] = set()
    for disk in machine.disks:
        if disk.role == "home" or (disk.total, disk.free) in shown:
            continue
        shown.add((disk.total, disk.free))
        if disk.free is None:
            yield say("disk.space", State.UNVERIFIED, f"the space at {disk.path} could not be read")
            continue
        found = f"{disk.free / _GB:.0f} GB free at {disk.path}"
        if disk.role != "here" or disk.free >= limits.disk_good_gb * _GB:
            state = State.PASS if disk.free >= 5 * _GB else State.WARN
        elif disk.free >= limits.disk_least_gb * _GB:
            state = State.WARN
        else:
            state = State.WARN if disk.free >= 10 * _GB else State.FAIL
        yield say("disk.space", state, found)


@judge("paths.long", "paths.root", "paths.temp")
def paths(machine: Machine) -> Iterator[Finding]:
    seen, limits = machine.surroundings, checks.limits()
    if machine.os == "windows":
        yield from _long(machine)
    # TEMP and TMP of Windows, or another folder below the user's own.
    short: dict[str, Word] = {"TEMP": r"C:\rk\tmp", "TMP": r"C:\rk\tmp"}
    elsewhere = short if machine.os == "windows" else {"TMPDIR": (ShellVariable("HOME"), "/tmp")}
    shorter = Command(environment=elsewhere, system=machine.os)
    for name, path, longest, commands in (
        ("paths.root", seen.here, limits.root_length, ()),
        ("paths.temp", seen.temp, limits.temp_length, (shorter,)),
    ):
        faults = plainness(path or "")
        if machine.os == "windows" and len(path or "") > longest:
            faults.append(f"it is {len(path or '')} characters long")
        if path and faults:
            yield say(name, State.WARN, f"{path}: {listed(faults)}", commands=commands)
        elif path:
            yield say(name, State.PASS, path)


def _long(machine: Machine) -> Iterator[Finding]:
    seen = machine.surroundings
    wanting: list[str] = []
    commands: list[Command] = []
    if seen.long_paths is False:
        wanting.append("Windows does not allow long paths")
        key = "HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem"
        value = ("/v", "LongPathsEnabled", "/t", "REG_DWORD", "/d", "1", "/f")
        commands.append(Command("reg", "add", key, *value, system="windows"))
    if seen.git_long_paths is False:
        wanting.append("git does not use long paths")
        commands.append(Command("git", "config", "--global", "core.longpaths", "true", system="windows"))
    if wanting:
        yield say("paths.long", State.WARN, listed(wanting), commands=commands)
    elif seen.long_paths is None:
        yield say("paths.long", State.UNVERIFIED, "whether Windows allows long paths could not be read")
    else:
        yield say("paths.long", State.PASS, "Windows and git use long paths")


def plainness(path: str) -> list[str]:
    """What about a path breaks tools that quote badly."""
    faults = []
    if " " in path:
        faults.append("it has spaces")
    if re.search(r"[()&^!%;,']", path):
        faults.append("it has characters that batch files act on")
    if not path.isascii():
        faults.append("it has letters outside ASCII")
    return faults


@judge("console.encoding")
def console(machine: Machine) -> Iterator[Finding]:
    seen = machine.surroundings
    if machine.os != "windows":
        return
    encoding, page = seen.console_encoding, seen.console_code_page
    if seen.utf8_mode or page == 65001 or (encoding or "").lower().replace("-", "") == "utf8":
        yield say("console.encoding", State.PASS, f"the console is {encoding or f'code page {page}'}")
    elif encoding is None and page is None:
        yield say("console.encoding", State.UNVERIFIED, "the console's encoding could not be read")
    else:
        found = f"the console is {encoding or 'unknown'} (code page {page or 'unknown'}), not UTF-8"
        utf8 = Command("chcp", "65001", system="windows"), Command(environment={"PYTHONUTF8": "1"}, system="windows")
        yield say("console.encoding", State.WARN, found, commands=utf8)


@judge("wsl.driver")
def wsl(machine: Machine) -> Iterator[Finding]:
    kind = machine.surroundings.wsl
    if kind is None:
        return
    if kind == "1":
        fix = "convert the distribution to WSL 2 from Windows"
        yield say(
            "wsl.driver",
            State.FAIL,
            "this is WSL 1, which has no GPU",
            fix=fix,
            commands=(Command("wsl", "--set-version", "NAME", "2", system="windows"),),
        )
    elif machine.driver and machine.driver.version:
        yield say("wsl.driver", State.PASS, f"WSL 2 with the Windows driver {machine.driver.version}")
    else:
        yield say("wsl.driver", State.FAIL, "WSL 2, but no driver comes through from Windows")


@judge("antivirus.exclusions")
def antivirus(machine: Machine) -> Iterator[Finding]:
    excluded = machine.surroundings.defender_exclusions
    here = machine.surroundings.here
    if excluded is None or here is None:
        return
    if any(here.lower().startswith(path.lower()) for path in excluded):
        yield say("antivirus.exclusions", State.PASS, f"{here} is excluded from Defender's scans")
    else:
        commands = (Command("powershell", "Add-MpPreference", "-ExclusionPath", here, system="windows"),)
        yield say("antivirus.exclusions", State.WARN, f"Defender scans {here}", commands=commands)


@judge("disk.dev-drive")
def dev_drive(machine: Machine) -> Iterator[Finding]:
    here = next((disk for disk in machine.disks if disk.role == "here"), None)
    build = re.search(r"10\.0\.(\d{5})", machine.surroundings.release or "")
    if here is None or here.dev_drive is None or not (build and int(build[1]) >= checks.limits().dev_drive_build):
        return
    if here.dev_drive:
        yield say("disk.dev-drive", State.PASS, f"{here.path} is on a Dev Drive")
    else:
        yield say("disk.dev-drive", State.WARN, f"{here.path} is not on a Dev Drive")


@judge("probes.read")
def unread(machine: Machine) -> Iterator[Finding]:
    """What a probe could not read and no other check speaks of."""
    quiet = ("Driver Not Loaded", "cuInit gave", "NVIDIA-SMI has failed", "No devices were found", "mismatch")
    for item in machine.unread:
        left_out = item.probe in PARTS and item.reason.endswith("does not say")
        if not left_out and not any(word in item.reason for word in quiet):
            yield say("probes.read", State.UNVERIFIED, f"{item.probe}: {item.reason}")
