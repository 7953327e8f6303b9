"""The block to paste into an issue: what a helper asks for first, in under sixty lines, with names taken out."""

from __future__ import annotations

from rekindle import __version__
from rekindle.core import console
from rekindle.core.findings import State
from rekindle.core.redact import redact
from rekindle.doctor.graphics import describe
from rekindle.doctor.report import DoctorReport
from rekindle.machine.model import Machine

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
