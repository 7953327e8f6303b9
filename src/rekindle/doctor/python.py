"""Checks on Python, its environment, and the tools a build takes from there; and on the torch that is installed."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator

from rekindle.compat import driver_cuda
from rekindle.compat.gpu_code import overall, own, served
from rekindle.compat.judgement import Clash, Unknown
from rekindle.compat.torch_python import releases_for, takes_numpy
from rekindle.core.command import Command, ShellVariable, Word, pip_install, rekindle
from rekindle.core.findings import Finding, State
from rekindle.core.version import Version
from rekindle.doctor.check import judge, listed, say
from rekindle.doctor.cuda import driven, short
from rekindle.knowledge.builds import checks
from rekindle.knowledge.builds import limits as building
from rekindle.knowledge.builds.limits import since
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.torch import releases
from rekindle.knowledge.torch.wheel_platforms import needed_by
from rekindle.machine.model import FoundTorch, Machine
from rekindle.model.card import Capability

_TO_BUILD = ("pip", "setuptools", "wheel", "numpy", "pyyaml", "typing-extensions")


@judge("python.version", "python.64-bit", "python.embedded", "python.home")
def the_python(machine: Machine) -> Iterator[Finding]:
    python = machine.python
    if python is None or python.version is None:
        reason = machine.could_not_read("pythons") or (python.trouble if python else None) or "none was found"
        yield say("python.version", State.UNVERIFIED, f"no Python could be asked: {reason}")
        return
    minor = str(python.version.major_minor)
    fitting = releases_for(minor, machine.os)
    where = f"Python {python.version} ({python.kind}, {python.path})"
    if python.tag and python.tag.endswith("t"):
        yield say("python.version", State.WARN, f"{where} is the free-threaded build, which few wheels are made for")
    elif fitting:
        found = f"{where}: torch {fitting[0].minor} to {fitting[-1].newest} have wheels for it"
        yield say("python.version", State.PASS, found)
    else:
        newest = releases.torch_releases()[-1]
        beyond = python.version.major_minor > max(Version(p) for p in newest.pythons(machine.os))
        more = (
            "newer than any in Rekindle's data"
            if beyond
            else f"no torch since {releases.torch_releases()[0].minor} has wheels for it"
        )
        yield say("python.version", State.FAIL, f"{where}: {more}", commands=_new_environment(machine))
    if python.bits == 32:
        yield say("python.64-bit", State.FAIL, f"{python.path} is a 32-bit Python")
    elif python.bits:
        yield say("python.64-bit", State.PASS, f"Python is {python.bits}-bit")
    if python.kind == "embedded":
        yield say("python.embedded", State.WARN, f"{python.prefix} is the embeddable Python")
    set_here = [
        f"{name}={machine.environment[name]}" for name in ("PYTHONHOME", "PYTHONPATH") if name in machine.environment
    ]
    if set_here:
        clear = [Command(environment=dict.fromkeys(e.partition("=")[0] for e in set_here), system=machine.os)]
        state = State.FAIL if "PYTHONHOME" in machine.environment else State.WARN
        yield say(
            "python.home", state, f"{listed(set_here)} {'is' if len(set_here) == 1 else 'are'} set", commands=clear
        )
    else:
        yield say("python.home", State.PASS, "neither PYTHONHOME nor PYTHONPATH is set")


@judge("python.one-environment")
def one_environment(machine: Machine) -> Iterator[Finding]:
    """Which environments claim to be active, and whose `python` really runs."""
    paths = machine.paths
    conda, venv = machine.environment.get("CONDA_PREFIX"), machine.environment.get("VIRTUAL_ENV")
    on_path = machine.python_on_path
    claims = [("conda environment", conda)] if conda else []
    claims += [("virtual environment", venv)] if venv else []
    if not claims:
        found = "no environment is active"
        if machine.python and machine.python.kind == "system":
            yield say(
                "python.one-environment",
                State.WARN,
                f"{found}: packages would go into {machine.python.path}",
                fix="make an environment for this work and activate it",
                commands=_new_environment(machine),
            )
        else:
            yield say("python.one-environment", State.PASS, found)
        return
    if on_path is None:
        names = listed(f"{kind} {prefix}" for kind, prefix in claims)
        yield say("python.one-environment", State.FAIL, f"{names} is active, but no python is on PATH")
        return
    normal = paths.normcase
    outside = [
        (kind, prefix)
        for kind, prefix in claims
        if prefix and not normal(on_path).startswith(normal(prefix.rstrip("\\/")) + paths.sep)
    ]
    if len(claims) == 2 and len(outside) < 2:
        found = (
            f"a conda environment ({conda}) and a virtual environment ({venv}) are active at once; python is {on_path}"
        )
        yield say(
            "python.one-environment", State.WARN, found, fix="leave one of them: `deactivate`, or `conda deactivate`"
        )
    elif outside:
        kind, prefix = outside[0]
        found = f"half-activated: the {kind} {prefix} is active, but python is {on_path}"
        yield say("python.one-environment", State.FAIL, found)
    else:
        kind, prefix = claims[0]
        yield say("python.one-environment", State.PASS, f"the {kind} {prefix} is active and its python wins")


@judge("python.build-tools", "tools.setuptools")
def build_tools(machine: Machine) -> Iterator[Finding]:
    python = machine.python
    if python is None or python.version is None:
        return
    absent = [name for name in _TO_BUILD if name not in python.packages]
    if absent:
        yield say(
            "python.build-tools",
            State.WARN,
            f"not in this environment: {listed(absent)} (only a build needs them)",
            commands=(pip_install(absent, python=python.path, system=machine.os),),
        )
    else:
        yield say("python.build-tools", State.PASS, f"{listed(_TO_BUILD)} are there")
    setuptools = python.packages.get("setuptools")
    if setuptools is None:
        return
    bad = checks.known_bad("setuptools", setuptools, machine.os)
    if bad:
        yield say(
            "tools.setuptools",
            State.FAIL,
            f"setuptools {setuptools}: {bad.why}",
            fix="install another",
            commands=(pip_install([bad.instead], system=machine.os),),
        )
        return
    rows = releases_for(str(python.version.major_minor), machine.os)
    unfit = [row.minor for row in rows if not _within(setuptools, row.setuptools)]
    if not unfit:
        yield say("tools.setuptools", State.PASS, f"setuptools {setuptools} fits every torch of this Python")
    else:
        found = f"setuptools {setuptools} does not fit a build of torch {listed(unfit)}"
        state = State.WARN if machine.os == "windows" or len(unfit) == len(rows) else State.PASS
        ranges = sorted({row.setuptools for row in rows if row.minor in unfit})
        if state is State.PASS:
            fit = [row.minor for row in rows if row.minor not in unfit]
            found = f"setuptools {setuptools} fits a build of torch {listed(fit)}"
        yield say("tools.setuptools", state, found, fix=f"for those, install setuptools{' or '.join(ranges)}")


@judge("tools.git", "tools.cmake", "tools.ninja", of="programs")
def programs(machine: Machine) -> Iterator[Finding]:
    git = machine.program("git")
    if git:
        yield say("tools.git", State.PASS, f"git {git.version or ''} ({git.path})")
    else:
        yield say("tools.git", State.WARN, "no git on PATH (only a build needs it)")
    yield from _cmake(machine)
    yield from _ninja(machine)


def _cmake(machine: Machine) -> Iterator[Finding]:
    cmake = machine.program("cmake")
    if cmake is None:
        yield say(
            "tools.cmake",
            State.WARN,
            "no cmake on PATH (only a build needs it)",
            commands=(pip_install(["cmake<4"], system=machine.os),),
        )
        return
    version = cmake.version
    if version is None:
        yield say("tools.cmake", State.UNVERIFIED, f"{cmake.path} did not say its version")
        return
    rows = releases.torch_releases()
    old = [row.minor for row in rows if version < row.min_cmake]
    patched = [row.minor for row in rows if version.major >= 4 and not row.cmake4_unpatched]
    where = f"CMake {version} ({cmake.path})"
    if patched:
        found = f"{where} refuses the sources of torch {patched[0]} to {patched[-1]} as they are"
        fix = "nothing for `rekindle build`, which patches them; by hand set CMAKE_POLICY_VERSION_MINIMUM=3.5, or"
        yield say("tools.cmake", State.WARN, found, fix=fix, commands=(pip_install(["cmake<4"], system=machine.os),))
    elif old:
        found = f"{where} is too old for torch {old[0]} and later"
        yield say("tools.cmake", State.WARN, found, commands=(pip_install(["cmake>=3.27,<4"], system=machine.os),))
    else:
        yield say("tools.cmake", State.PASS, where)


def _ninja(machine: Machine) -> Iterator[Finding]:
    ninja = machine.program("ninja")
    packaged = machine.python.packages.get("ninja") if machine.python else None
    if ninja is None:
        yield say(
            "tools.ninja",
            State.WARN,
            "no ninja on PATH (only a build needs it)",
            commands=(pip_install([f"ninja>={building.tool('ninja').least}"], system=machine.os),),
        )
        return
    spelled = [str(ninja.version)] if ninja.version else []
    spelled += [packaged] if packaged else []
    bad = next((row for version in spelled if (row := checks.known_bad("ninja", version, machine.os))), None)
    if bad:
        yield say(
            "tools.ninja",
            State.FAIL,
            f"ninja {spelled[0]}: {bad.why}",
            commands=(pip_install([bad.instead], system=machine.os),),
        )
    elif ninja.version is None:
        yield say("tools.ninja", State.UNVERIFIED, f"{ninja.path} did not say its version")
    elif ninja.version < since("ninja-shares-jobs"):
        found = f"ninja {ninja.version} ({ninja.path}) works, but cannot share jobs over a jobserver"
        yield say("tools.ninja", State.PASS, found)
    else:
        yield say("tools.ninja", State.PASS, f"ninja {ninja.version} ({ninja.path})")


_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def _within(version: str, spec: str) -> bool:
    """Does a version lie in a range such as `>=62.3.0,<80.0`? Importing `packaging` would take longer."""
    number = Version.find(version) or Version.find(f"{version}.0")
    if number is None:
        return True
    for part in spec.split(","):
        match = re.match(r"\s*([<>=!]+)\s*([\d.]+)", part)
        if match and not _COMPARE[match[1]](number, Version(match[2])):
            return False
    return True


def _new_environment(machine: Machine) -> tuple[Command, ...]:
    """By the Python that is here if PyTorch has wheels for it, else by uv, which brings one that it has."""
    folder: Word = r"C:\rk\env" if machine.os == "windows" else (ShellVariable("HOME"), "/rk/env")
    python = machine.python
    if python is not None and python.version is not None and releases_for(str(python.version.major_minor), machine.os):
        made = Command(python.path, "-m", "venv", folder, system=machine.os)
    else:
        wanted = building.preferred_python(releases.torch_releases()[-1].pythons(machine.os))
        made = Command("uv", "venv", "--seed", "--python", str(wanted), folder, system=machine.os)
    return (made, rekindle("install", folder, system=machine.os))


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
