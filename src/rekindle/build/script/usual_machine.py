"""A computer that is not here and was not recorded: everything that a plan needs, where its installers put it.

A script written for it names the usual places at its top; its first step says what is missing there and where to get
it, and a person corrects what is elsewhere.
"""

from __future__ import annotations

from rekindle.core.errors import UsageError
from rekindle.core.version import Version
from rekindle.machine.model import (
    FoundCompiler,
    FoundCudnn,
    FoundPython,
    FoundStudio,
    FoundToolkit,
    FoundToolset,
    Machine,
)
from rekindle.stack.plan import Plan

_USER = "C:\\Users\\<user>"


def usual(plan: Plan) -> Machine:
    """The machine of this plan, as it will be when everything is installed."""
    version = Version(plan.python or "3.12")
    if plan.system == "windows":
        return _windows(plan, version)
    if plan.system != "linux":
        message = f"no usual places are known for {plan.system}"
        raise UsageError(message, hint="record that computer with `rekindle doctor` and pass `--machine FILE`")
    return _linux(plan, version)


def _windows(plan: Plan, python: Version) -> Machine:
    toolset = Version(plan.toolset or "14.29")
    old = toolset < Version("14.30")
    edition = "2019" if old else "2022"
    # Visual Studio 2022 itself lies in `Program Files`, its Build Tools do not.
    studio = f"C:\\Program Files (x86)\\Microsoft Visual Studio\\{edition}\\BuildTools"
    root = f"C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v{plan.cuda}"
    folder = f"{_USER}\\AppData\\Local\\Programs\\Python\\Python{python.major}{python.minor}"
    return Machine(
        os="windows",
        arch=plan.machine,
        toolkits=_toolkits(plan, root, f"{root}\\bin\\nvcc.exe"),
        cudnns=_cudnns(plan, f"C:\\Program Files\\NVIDIA\\CUDNN\\v{_short(plan.cudnn)}", "\\", "cudnn.lib"),
        studios=(
            FoundStudio(
                name=f"Visual Studio Build Tools {edition}",
                root=studio,
                toolsets=(FoundToolset(version=toolset, root=f"{studio}\\VC\\Tools\\MSVC\\{toolset}", studio=studio),),
            ),
        ),
        pythons=(FoundPython(path=f"{folder}\\python.exe", version=python),),
        python=FoundPython(path=f"{folder}\\python.exe", version=python),
    )


def _linux(plan: Plan, python: Version) -> Machine:
    root = f"/usr/local/cuda-{plan.cuda}"
    gcc = Version("11") if plan.cuda and plan.cuda < Version("12") else Version("12")
    found = FoundPython(path=f"/usr/bin/python{python.major_minor}", version=python)
    return Machine(
        os="linux",
        arch=plan.machine,
        toolkits=_toolkits(plan, root, f"{root}/bin/nvcc"),
        cudnns=_cudnns(plan, f"/opt/cudnn-{_short(plan.cudnn)}", "/", "libcudnn.so"),
        compilers=(FoundCompiler(kind="gcc", path=f"/usr/bin/g++-{gcc}", version=gcc),),
        pythons=(found,),
        python=found,
    )


def _toolkits(plan: Plan, root: str, nvcc: str) -> tuple[FoundToolkit, ...]:
    return (FoundToolkit(root=root, version=plan.cuda, nvcc=nvcc),) if plan.cuda else ()


def _cudnns(plan: Plan, root: str, separator: str, library: str) -> tuple[FoundCudnn, ...]:
    if plan.cudnn is None:
        return ()
    folder = "lib\\x64" if separator == "\\" else "lib"
    return (
        FoundCudnn(
            root=root,
            version=plan.cudnn,
            header=separator.join((root, "include", "cudnn.h")),
            libraries=(separator.join((root, folder, library)),),
        ),
    )


def _short(version: Version | None) -> str:
    return ".".join(str(version or "").split(".")[:2])
