"""The doctor's answer as a person reads it: what will work and what to do, the machine, then what is wrong.

And the block to paste into an issue: what is asked for first there, in under sixty lines, with names taken out.
"""

from __future__ import annotations

from rekindle import __version__
from rekindle.core import console
from rekindle.core.findings import State
from rekindle.core.redact import redact
from rekindle.doctor.graphics import describe
from rekindle.doctor.report import Comparison, DoctorReport
from rekindle.machine.model import Machine
from rekindle.stack.rules import RouteKind

_COLUMN = " " * 11


def text(answer: DoctorReport, *, everything: bool) -> str:
    lines = [*_verdict(answer), *_next(answer)]
    lines += ["", console.table(summary(answer.machine))]
    findings = _findings(answer, everything=everything)
    lines += ["", *findings] if findings else []
    return "\n".join([*lines, "", _count(answer, everything=everything)]).strip("\n")


def _verdict(answer: DoctorReport) -> list[str]:
    verdict = answer.verdict
    if verdict is None:
        return []
    works = verdict.route is not RouteKind.NONE
    lines = [console.wrap(verdict.summary, indent=_COLUMN, first="Will work  " if works else "Verdict    ")]
    lines += [console.wrap(verdict.known_from, indent=_COLUMN, first="Evidence   ")] if verdict.known_from else []
    lines += [console.wrap(f"without {loss}", indent=_COLUMN) for loss in verdict.loses]
    lines += [console.wrap(f"UNVERIFIED: {what}", indent=_COLUMN) for what in verdict.unverified]
    if answer.next is None or answer.next.commands != verdict.commands:
        lines += [f"{_COLUMN}by hand: {command}" for command in verdict.commands]
    return lines


def _next(answer: DoctorReport) -> list[str]:
    if answer.next is None:
        return []
    steps = answer.next.commands
    if not steps or answer.verdict is None or answer.next.text != answer.verdict.summary:
        lines = [console.wrap(answer.next.text, indent=_COLUMN, first="Next       ")]
        return [*lines, *(f"{_COLUMN}{step}" for step in steps)]
    return [f"Next       {steps[0]}", *(f"{_COLUMN}{step}" for step in steps[1:])]


def _findings(answer: DoctorReport, *, everything: bool) -> list[str]:
    """What is not well, worst first; what only a build would mind in one line."""
    lines: list[str] = []
    folded = set() if everything else set(answer.folded)
    for state in (State.FAIL, State.UNVERIFIED, State.WARN, *((State.PASS,) if everything else ())):
        for finding in answer.checks:
            if finding.state is state and finding.id not in folded:
                lines.append(console.finding(finding))
                lines.append(_COLUMN + console.paint(finding.id, "dim"))
    if folded:
        said = f"matters only for a build from source: {', '.join(sorted(folded))} (`--all` shows why)"
        lines.append(console.wrap(said, indent=_COLUMN, first=f"{'folded':<11}"))
    return lines


def _count(answer: DoctorReport, *, everything: bool) -> str:
    """Of what is shown: nothing is folded where everything is."""
    counted = [finding for finding in answer.checks if everything or finding.id not in answer.folded]
    counts = {state: sum(finding.state is state for finding in counted) for state in State}
    told = [f"{counts[State.PASS]} passed", f"{counts[State.WARN]} to know", f"{counts[State.UNVERIFIED]} unverified"]
    folded = len(answer.checks) - len(counted)
    told += [f"{counts[State.FAIL]} failed", *([f"{folded} folded"] if folded else [])]
    return console.wrap(f"{len(answer.checks)} checks: {', '.join(told)}")


def compared(answer: Comparison, first: str, second: str) -> str:
    """Checks that end differently, then the facts behind them."""
    lines: list[str] = []
    for changed in answer.checks:
        lines.append(changed.id)
        lines.append(console.wrap(changed.first, indent=" " * 6, first=f"  {first}: "))
        lines.append(console.wrap(changed.second, indent=" " * 6, first=f"  {second}: "))
    if answer.facts:
        lines += ["", "Facts that differ"] if lines else ["Facts that differ"]
    for fact in answer.facts:
        lines.append(f"  {fact.what}")
        lines.append(f"    {first}: {'-' if fact.first is None else fact.first}")
        lines.append(f"    {second}: {'-' if fact.second is None else fact.second}")
    return console.clean("\n".join(lines)) or f"{first} and {second} have the same facts and checks"


def summary(machine: Machine) -> list[tuple[str, str]]:
    """The machine in a few lines."""
    seen = machine.surroundings
    system = [seen.release or machine.os, machine.arch]
    if seen.wsl:
        system.append(f"WSL {seen.wsl}")
    rows = [("System", ", ".join(system))]
    rows += [("GPU", describe(gpu)) for gpu in machine.gpus] or [("GPU", "no NVIDIA card")]
    if machine.driver and machine.driver.version:
        cuda = f", runs CUDA up to {machine.driver.cuda}" if machine.driver.cuda else ""
        rows.append(("Driver", f"{machine.driver.version}{cuda}"))
    for toolkit in machine.toolkits:
        wins = " (first on PATH)" if "PATH" in toolkit.found_by else ""
        rows.append(("CUDA", f"{toolkit.version or '?'} in {toolkit.root}{wins}"))
    rows += [("cuDNN", f"{one.version or '?'} in {one.root}") for one in machine.cudnns]
    for studio in machine.studios:
        rows.append(("MSVC", f"{studio.name}: {', '.join(str(t.version) for t in studio.toolsets) or 'no C++ tools'}"))
    gccs = [f"{c.kind} {c.version}" for c in machine.compilers]
    if gccs:
        rows.append(("Compilers", ", ".join(gccs)))
    if machine.python:
        rows.append(("Python", f"{machine.python.version or '?'} ({machine.python.kind}) {machine.python.path}"))
    if machine.torch:
        cuda = f"CUDA {machine.torch.cuda}" if machine.torch.cuda else "CPU only"
        rows.append(("torch", f"{machine.torch.version} ({cuda})"))
    return [(label, console.clean(value)) for label, value in rows]


_MOST_LINES = 58
_MOST_COLUMNS = 200


def paste(answer: DoctorReport) -> str:
    """Markdown. Never longer than sixty lines: the least telling go first."""
    machine = answer.machine
    facts = [f"{label:<11}{value}" for label, value in _facts(machine)]
    troubles = [finding for finding in answer.checks if finding.state is not State.PASS]
    troubles.sort(key=lambda finding: -finding.state.rank)
    room = _MOST_LINES - len(facts) - 6
    told = [f"{finding.state.value:<10} {finding.id}: {finding.found}" for finding in troubles[: max(room, 5)]]
    if len(troubles) > len(told):
        told.append(f"... and {len(troubles) - len(told)} more")
    lines = [
        f"<!-- rekindle {__version__} doctor --paste -->",
        "```text",
        *facts,
        "",
        *(told or ["no trouble found"]),
        "```",
    ]
    return redact("\n".join(console.clean(line)[:_MOST_COLUMNS].rstrip() for line in lines))


def _facts(machine: Machine) -> list[tuple[str, str]]:
    seen = machine.surroundings
    rows = [("platform", f"{seen.release or machine.os} {machine.arch}" + (f" WSL{seen.wsl}" if seen.wsl else ""))]
    rows += [("gpu", describe(gpu)) for gpu in machine.gpus[:4]] or [("gpu", "none found")]
    if machine.driver:
        rows.append(("driver", f"{machine.driver.version or 'none'}, runs CUDA {machine.driver.cuda or 'unknown'}"))
    rows += [
        ("python", f"{python.version or python.trouble} {python.kind} {python.path}") for python in machine.pythons[:3]
    ]
    torch = machine.torch
    rows.append(("torch", f"{torch.version} cuda {torch.cuda or 'none'}" if torch else "not installed"))
    packages = machine.python.packages if machine.python else {}
    named = [
        f"{name} {packages[name]}" for name in ("numpy", "setuptools", "pip", "ninja", "cmake") if name in packages
    ]
    rows.append(("packages", ", ".join(named) or "none"))
    for toolkit in machine.toolkits[:5]:
        ptxas = f", ptxas {toolkit.ptxas.version}" if toolkit.ptxas else ""
        rows.append(("nvcc", f"{toolkit.version}{ptxas} {toolkit.nvcc} ({', '.join(dict.fromkeys(toolkit.found_by))})"))
    if not machine.toolkits:
        rows.append(("nvcc", "not found"))
    rows += [("cudnn", f"{one.version} {one.root}") for one in machine.cudnns[:3]]
    if machine.os == "windows":
        rows += [("where cl", path) for path in machine.prompt.cl[:3]] or [("where cl", "not found")]
        if machine.prompt.cl_version:
            rows.append(("cl", f"{machine.prompt.cl_version} for {machine.prompt.cl_target or '?'}"))
        rows.append(("toolsets", ", ".join(str(toolset.version) for toolset in machine.toolsets[:6]) or "none"))
    else:
        rows.append(("compilers", ", ".join(f"{c.kind} {c.version}" for c in machine.compilers) or "none"))
    rows += [(program.name, f"{program.version or '?'} {program.path}") for program in machine.programs[:4]]
    size, cores = machine.memory.usable, machine.processor.cores
    rows.append(("memory", f"{size / 1024**3:.1f} GB, {cores or '?'} cores" if size else "unknown"))
    telling = ("CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX", "VIRTUAL_ENV", "TORCH_CUDA_ARCH_LIST", "CC", "CXX")
    rows += [("env", f"{name}={machine.environment[name]}") for name in telling if machine.environment.get(name)]
    return rows
