"""Checks on the torch that is installed."""

from __future__ import annotations

from collections.abc import Iterator

from rekindle.compat import driver_cuda
from rekindle.compat.gpu_code import overall, own, served
from rekindle.compat.judgement import Clash, Unknown
from rekindle.compat.package import takes_numpy
from rekindle.core.command import pip_install, rekindle
from rekindle.core.findings import Finding, State
from rekindle.core.version import Version
from rekindle.doctor.check import judge, listed, say
from rekindle.doctor.cuda import driven, short
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.torch.wheel_platforms import needed_by
from rekindle.machine.model import FoundTorch, Machine
from rekindle.model.card import Capability

_PLAN = (rekindle("plan"),)


@judge("torch.serves-card")
def serves_card(machine: Machine) -> Iterator[Finding]:
    torch = machine.torch
    if torch is None:
        return
    if torch.cuda is None:
        if machine.gpus:
            found = f"torch {torch.version} is a CPU build: it uses no card"
            yield say("torch.serves-card", State.WARN, found, commands=_PLAN)
        return
    if not torch.code:
        yield say("torch.serves-card", State.UNVERIFIED, f"the GPU code of torch {torch.version} could not be read")
        return
    ptx = driver_cuda.newest_ptx(machine.driven_by) if machine.driven_by else None
    for card in machine.capabilities:
        yield _served(torch, card, ptx)


def _served(torch: FoundTorch, card: Capability, driver_ptx: Version | None) -> Finding:
    name = f"torch {torch.version}"
    release, codes = Version.find(torch.version), own(torch.code)
    each = {code.file: served(code, card, driver_ptx=driver_ptx, torch=release) for code in codes}
    coverage = overall(one.coverage for one in each.values())
    if coverage is Coverage.SERVES:
        if any(one.by_jit for one in each.values()):
            found = f"{name} serves {card.sm} by compiling PTX at first use, which is slow to start"
            return say("torch.serves-card", State.WARN, found, commands=_PLAN)
        return say("torch.serves-card", State.PASS, f"{name} has code for {card.sm}")
    if coverage is Coverage.PARTIAL:
        parts = listed(
            f"{one.native + one.jit} of {one.containers} in {file}"
            for file, one in each.items()
            if one.coverage is not Coverage.SERVES
        )
        found = f"{name} has code for {card.sm} in a part of its kernels only: {parts}"
        return say("torch.serves-card", State.FAIL, found, commands=_PLAN)
    found = f"{name} has no code for {card.sm} (it has {listed(torch.targets)})"
    if any(served(code, card, driver_ptx=driver_ptx).by_jit for code in codes):
        found += "; its PTX would run there and compute nonsense in half precision, without an error"
    return say("torch.serves-card", State.FAIL, found, commands=_PLAN)


@judge("torch.driver-runs")
def driver_runs(machine: Machine) -> Iterator[Finding]:
    torch = machine.torch
    if torch is None or torch.cuda is None or machine.driven_by is None:
        return
    yield driven("torch.driver-runs", machine.driven_by, torch.cuda, f"torch {torch.version}")


@judge("torch.matches-nvcc")
def matches_nvcc(machine: Machine) -> Iterator[Finding]:
    torch, winner = machine.torch, machine.toolkit
    if torch is None or torch.cuda is None or winner is None or winner.version is None:
        return
    both = f"torch {torch.version} is of CUDA {torch.cuda}, nvcc is {winner.version}"
    if winner.version.major != torch.cuda.major:
        fitting = next((t for t in machine.toolkits if t.version and t.version.major == torch.cuda.major), None)
        fix = f"put CUDA {short(fitting)} ({fitting.root}) first on PATH" if fitting else None
        yield say("torch.matches-nvcc", State.FAIL, f"{both}: extensions will be refused", fix=fix)
    elif winner.version.major_minor != torch.cuda.major_minor:
        yield say("torch.matches-nvcc", State.WARN, f"{both}: extensions build, with a warning")
    else:
        yield say("torch.matches-nvcc", State.PASS, both)


@judge("torch.numpy")
def numpy(machine: Machine) -> Iterator[Finding]:
    torch, python = machine.torch, machine.python
    installed = python.packages.get("numpy") if python else None
    if torch is None or installed is None:
        return
    answer = takes_numpy(torch.version, installed, machine.os)
    if isinstance(answer, Unknown):
        yield say("torch.numpy", State.UNVERIFIED, answer.missing)
    elif isinstance(answer, Clash):
        hold = (pip_install(["numpy<2"], system=machine.os),)
        yield say("torch.numpy", State.FAIL, answer.sentence, commands=hold, mechanical=True)
    else:
        yield say("torch.numpy", State.PASS, f"NumPy {installed} fits torch {torch.version}")


@judge("torch.visual-runtime")
def visual_runtime(machine: Machine) -> Iterator[Finding]:
    """The libraries that Windows does not bring and no wheel of torch has inside."""
    if machine.os != "windows":
        return
    torch, there = machine.torch, machine.surroundings.visual_runtime
    version = Version.find(torch.version) if torch else None
    who = f"torch {torch.version}" if torch else "torch"
    if there is None:
        if torch is not None:
            found = "the libraries of the Visual C++ Redistributable were not looked for"
            yield say("torch.visual-runtime", State.UNVERIFIED, found)
        return
    lacking = [row for row in needed_by(version) if row.name not in there]
    if not lacking:
        yield say("torch.visual-runtime", State.PASS, f"the Visual C++ libraries that {who} imports are there")
        return
    names = listed(row.name for row in lacking)
    first = max(row.from_torch for row in lacking) if torch is None else None
    since = f" (torch {first} and newer)" if first and all(row.from_torch == first for row in lacking) else ""
    found = f"{names} {'is' if len(lacking) == 1 else 'are'} not in System32: {who}{since} cannot be imported"
    yield say("torch.visual-runtime", State.FAIL if torch else State.WARN, found)
