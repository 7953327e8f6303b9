"""Checks on the compilers that nvcc needs beside it, and on what leads builds to the wrong ones."""

from __future__ import annotations

from collections.abc import Iterator

from rekindle.compat.host_compiler import (
    newest_gcc,
    packaged_gcc,
    takes_compiler,
    toolset_of_compiler,
    toolset_range,
)
from rekindle.compat.judgement import Clash, Unknown, judged
from rekindle.core.command import Command, Shell, pip_install
from rekindle.core.findings import Finding, State
from rekindle.core.version import Version
from rekindle.doctor.check import judge, listed, say
from rekindle.doctor.cuda import compiles_for, serving, short
from rekindle.machine.model import FoundToolset, Machine
from rekindle.machine.toolchain import gcc, msvc
from rekindle.model.host_compiler import HostCompiler
from rekindle.model.toolkit import FoundToolkit

_COMPILER_VARIABLES = ("CC", "CXX", "CUDAHOSTCXX", "CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER", "ICX", "ICC")
_ROOT_VARIABLES = ("ONEAPI_ROOT", "MKLROOT")


@judge("msvc.present", "msvc.sdk")
def present(machine: Machine) -> Iterator[Finding]:
    if machine.os != "windows":
        return
    if machine.could_not_read("studios"):
        reason = machine.could_not_read("studios")
        yield say("msvc.present", State.UNVERIFIED, f"Visual Studio could not be asked: {reason}")
    elif not machine.studios:
        yield say("msvc.present", State.WARN, "no Visual Studio and no Build Tools")
    elif not machine.toolsets:
        names = listed(studio.name for studio in machine.studios)
        yield say("msvc.present", State.WARN, f"{names}, but without the C++ tools")
    else:
        found = "; ".join(
            f"{studio.name} {studio.version or ''} with toolsets {listed(t.version for t in studio.toolsets) or 'none'}"
            for studio in machine.studios
        )
        yield say("msvc.present", State.PASS, found)
    if machine.toolsets:
        if machine.sdks:
            yield say("msvc.sdk", State.PASS, f"Windows SDK {listed(machine.sdks)}")
        else:
            yield say("msvc.sdk", State.FAIL, "no Windows SDK")


@judge("msvc.accepted")
def accepted(machine: Machine) -> Iterator[Finding]:
    """Per toolkit: the toolset to use. A toolkit that cannot serve the cards anyway gets a warning only."""
    if machine.os != "windows" or not machine.toolsets:
        return
    for turn, toolkit in enumerate(machine.toolkits):
        if toolkit.version is None:
            continue
        fitting = msvc.taken_by(cuda_of(toolkit), machine.toolsets)
        if fitting:
            best = fitting[0]
            others = [t for t in machine.toolsets if t not in fitting]
            refused = f"; refused: {listed(_msvc(t) for t in others)}" if others else ""
            found = f"CUDA {short(toolkit)} takes toolset {best.version}: -vcvars_ver={best.version}{refused}"
            yield say("msvc.accepted", State.PASS, found)
            continue
        answers = {t: takes_compiler(cuda_of(toolkit), t.host) for t in machine.toolsets}
        refused_by = answers[machine.toolsets[0]]
        if not isinstance(refused_by, Clash) or any(isinstance(each, Unknown) for each in answers.values()):
            found = f"which toolsets CUDA {short(toolkit)} accepts is not in the tables"
            yield say("msvc.accepted", State.UNVERIFIED, found)
            continue
        needed = not machine.capabilities or any(compiles_for(toolkit, card) for card in machine.capabilities)
        newest = machine.toolsets[0]
        yield say(
            "msvc.accepted",
            State.FAIL if needed or turn == 0 else State.WARN,
            f"MSVC 19.{newest.version.minor} is refused by CUDA {short(toolkit)}: {refused_by.sentence}",
            fix=_bystander(machine, toolkit) or _toolset_fix(cuda_of(toolkit)),
        )


def _bystander(machine: Machine, toolkit: FoundToolkit) -> str | None:
    """A toolkit that does not serve the cards needs no compiler of its own, where another one does."""
    meant = serving(machine)
    if meant is None or meant.root == toolkit.root:
        return None
    return f"nothing for CUDA {short(toolkit)}, which does not serve the cards: put CUDA {short(meant)} first on PATH"


@judge("msvc.loaded", "msvc.x64", "msvc.prompt-toolset", "msvc.link")
def prompt(machine: Machine) -> Iterator[Finding]:
    if machine.os != "windows":
        return
    seen = machine.prompt
    if not seen.cl:
        if machine.toolsets:
            yield say(
                "msvc.loaded",
                State.WARN,
                "no `cl` on PATH: this is not a Visual Studio prompt",
                commands=_vcvars(machine),
            )
        return
    yield say("msvc.loaded", State.PASS, f"cl {seen.cl_version or '(version unread)'} ({seen.cl[0]})")
    host, target = seen.host, seen.target or seen.cl_target
    if target in ("x86", "arm") or host == "x86":
        what = f"compiles for {target}" if target != "x64" else "is a 32-bit compiler"
        yield say("msvc.x64", State.FAIL, f"this prompt {what} (host {host or 'unknown'})", commands=_vcvars(machine))
    elif target:
        yield say("msvc.x64", State.PASS, f"this prompt compiles for {target}")
    else:
        yield say("msvc.x64", State.UNVERIFIED, "what this prompt compiles for could not be read")
    if seen.cl_version and machine.toolkit and machine.toolkit.version:
        toolset = seen.toolset or toolset_of_compiler(seen.cl_version)
        cuda = cuda_of(machine.toolkit)
        state, reason = judged(
            takes_compiler(cuda, HostCompiler("msvc", toolset)), f"toolset {toolset} passes both gates of CUDA {cuda}"
        )
        other = _bystander(machine, machine.toolkit)
        yield say("msvc.prompt-toolset", state, reason, fix=other, commands=() if other else _vcvars(machine))
    if seen.link:
        first = seen.link[0]
        if "msvc" in first.lower():
            yield say("msvc.link", State.PASS, f"link.exe is MSVC's ({first})")
        else:
            yield say("msvc.link", State.FAIL, f"the link.exe that wins is not MSVC's: {first}")


@judge("gcc.accepted")
def accepted_gcc(machine: Machine) -> Iterator[Finding]:
    if machine.os == "windows":
        return
    gccs = [compiler for compiler in machine.compilers if compiler.kind == "gcc"]
    for toolkit in machine.toolkits:
        if toolkit.version is None:
            continue
        cuda = cuda_of(toolkit)
        if not gccs:
            yield say("gcc.accepted", State.WARN, f"no g++ for CUDA {cuda}", fix="install g++")
            continue
        default = next((compiler for compiler in gccs if compiler.default), gccs[0])
        state, reason = judged(takes_compiler(cuda, default.host), f"CUDA {cuda} takes g++ {default.version}")
        other = next(iter(gcc.taken_by(cuda, gccs)), None)
        if state is not State.FAIL:
            yield say("gcc.accepted", state, reason)
        elif other:
            found = f"{reason}; {other.path} ({other.version}) is accepted"
            fix = "name the older one to nvcc and to CMake"
            yield say("gcc.accepted", State.WARN, found, fix=fix, commands=(_host_compiler(other.path),))
        else:
            newest = newest_gcc(cuda)
            yield say(
                "gcc.accepted",
                State.FAIL,
                reason,
                fix=f"install g++-{newest} beside it" if newest else None,
                commands=(
                    *packaged_gcc(newest, machine.surroundings.distribution),
                    _host_compiler(f"g++-{newest}"),
                )
                if newest
                else (),
            )


def _host_compiler(path: str) -> Command:
    return Command(environment={"CUDAHOSTCXX": path}, system="linux")


@judge("intel.stale")
def stale(machine: Machine) -> Iterator[Finding]:
    found = [f"{name}={machine.environment[name]}" for name in machine.stale]
    if found:
        clear = [Command(environment=dict.fromkeys(machine.stale), system=machine.os)]
        yield say("intel.stale", State.FAIL, f"{listed(found)} names nothing that exists", commands=clear)
        return
    set_here = [
        f"{name}={machine.environment[name]}"
        for name in (*_COMPILER_VARIABLES, *_ROOT_VARIABLES)
        if machine.environment.get(name)
    ]
    foreign = [entry for entry in set_here if machine.os == "windows" and _is_intel(entry)]
    if foreign:
        yield say(
            "intel.stale",
            State.WARN,
            f"{listed(foreign)}: the Intel compiler would be used instead of MSVC",
            commands=(Command(environment={"CC": "cl", "CXX": "cl"}, system=machine.os),),
        )
    elif set_here:
        yield say("intel.stale", State.PASS, f"{listed(set_here)} is set and exists")
    else:
        yield say("intel.stale", State.PASS, "no compiler is forced by a variable")


@judge("intel.mkl")
def mkl(machine: Machine) -> Iterator[Finding]:
    if machine.arch != "x86_64":
        return
    packages = machine.python.packages if machine.python else {}
    named = [
        f"{name} {packages[name]}" for name in ("mkl", "mkl-include", "mkl-static", "mkl-devel") if name in packages
    ]
    system = [f"MKL {one.version or ''} in {one.root}" for one in machine.intel]
    if named or system:
        yield say("intel.mkl", State.PASS, listed([*system, *named]))
    elif reason := machine.could_not_read("intel"):
        yield say("intel.mkl", State.UNVERIFIED, f"MKL was not looked for: {reason}")
    else:
        commands = (pip_install(["mkl-include", "mkl-static"], system=machine.os),)
        yield say("intel.mkl", State.WARN, "no MKL; only a build would use it", commands=commands)


def cuda_of(toolkit: FoundToolkit) -> Version:
    return toolkit.version.major_minor if toolkit.version else Version("0")


def _msvc(toolset: FoundToolset) -> str:
    return f"{toolset.version} (MSVC 19.{toolset.version.minor})"


def _toolset_fix(cuda: Version) -> str | None:
    span = toolset_range(cuda)
    if span is None:
        return None
    return (
        f"in the Visual Studio installer, under Individual components, add the MSVC v14.{span[1].minor} build tools "
        f"(CUDA {cuda} takes {span[0]} to {span[1]}), then load it with -vcvars_ver={span[1]}"
    )


def _vcvars(machine: Machine) -> tuple[Command, ...]:
    """The command that loads a toolset which the CUDA on PATH accepts; the newest when none is on PATH."""
    toolkit = machine.toolkit
    fitting = msvc.taken_by(cuda_of(toolkit) if toolkit and toolkit.version else None, machine.toolsets)
    if not fitting:
        return ()
    best = fitting[0]
    newest_there = max(t.version for t in machine.toolsets if t.studio == best.studio)
    ask = () if best.version == newest_there else (f"-vcvars_ver={best.version}",)
    script = rf"{best.studio}\VC\Auxiliary\Build\vcvars64.bat"
    # PowerShell runs a batch file in a process of its own, where what it sets is lost.
    return (Command("call", script, *ask, system="windows", shell=Shell.CMD),)


def _is_intel(entry: str) -> bool:
    value = entry.partition("=")[2].lower().replace(".exe", "")
    return value.endswith(("icx", "icl", "icpx", "icc", "dpcpp"))
