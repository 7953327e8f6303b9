"""A machine as a plan wants it: this one, with what it lacks where that usually lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rekindle.build.configure.request import BuildFile, compiler_of, cuda_of, cudnn_of, python_of
from rekindle.compat.host_compiler import newest_gcc
from rekindle.core.errors import MissingTool, UsageError
from rekindle.core.version import Version
from rekindle.inputs.versions import read_toolset
from rekindle.machine.model import FoundCompiler, FoundCudnn, FoundPython, FoundStudio, FoundToolset, Machine
from rekindle.model.toolkit import FoundToolkit

_GCC = 12
"""What most systems have, where the CUDA takes it."""
_USER = "C:\\Users\\<user>"


def usual(wanted: BuildFile, system: str, arch: str) -> Machine:
    """The machine of this wanted, as it will be when everything is installed."""
    version = Version.find(wanted.python or "") or Version("3.12")
    if system == "windows":
        return _windows(wanted, version, arch)
    if system != "linux":
        message = f"no usual places are known for {system}"
        raise UsageError(message, hint="record that computer with `rekindle doctor` and pass `--machine FILE`")
    return _linux(wanted, version, arch)


def completed(wanted: BuildFile, machine: Machine) -> tuple[Machine, tuple[str, ...]]:
    """This machine, with what it lacks of the plan in its usual place; and what that is. Tools may come later."""
    later = usual(wanted, machine.os, machine.arch)
    lacks = []

    def compiler(wanted: BuildFile, machine: Machine) -> Any:
        cuda = cuda_of(wanted, machine)
        return compiler_of(wanted, machine, cuda.version if cuda else None)

    for ask, fields in (
        (cuda_of, ("toolkits",)),
        (python_of, ("pythons",)),
        (compiler, ("studios", "compilers")),
        (cudnn_of, ("cudnns",)),
    ):
        try:
            ask(wanted, machine)
        except MissingTool as error:
            lacks.append(error.message)
            more = {field: (*getattr(machine, field), *getattr(later, field)) for field in fields}
            machine = msgspec.structs.replace(machine, python=machine.python or later.python, **more)
    return machine, tuple(lacks)


def with_tools(wanted: BuildFile, machine: Machine, tools: Sequence[str]) -> Machine:
    """This machine as it will be once these (`cuda==11.8`, `gcc`) are installed, where nobody knows yet."""
    fields = {"cuda": "toolkits", "gcc": "compilers", "cudnn": "cudnns"}
    coming = [fields[name] for tool in tools if (name := tool.partition("==")[0]) in fields]
    later = usual(wanted, machine.os, machine.arch)
    more = {field: tuple(_unplaced(each) for each in getattr(later, field)) for field in coming}
    return msgspec.structs.replace(machine, **{field: (*getattr(machine, field), *more[field]) for field in coming})


def _unplaced(found: Any) -> Any:
    """Where it will lie is found out when it is installed."""
    if hasattr(found, "root"):
        return msgspec.structs.replace(found, root="a folder that is yet to be made")
    return msgspec.structs.replace(found, path="g++ (to be installed)")


def _windows(wanted: BuildFile, python: Version, arch: str) -> Machine:
    toolset = read_toolset(wanted.toolset or "14.29")
    old = toolset < Version("14.30")
    edition = "2019" if old else "2022"
    # Visual Studio 2022 itself lies in `Program Files`, its Build Tools do not.
    studio = f"C:\\Program Files (x86)\\Microsoft Visual Studio\\{edition}\\BuildTools"
    root = f"C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v{wanted.cuda}"
    folder = f"{_USER}\\AppData\\Local\\Programs\\Python\\Python{python.major}{python.minor}"
    return Machine(
        os="windows",
        arch=arch,
        toolkits=_toolkits(wanted, root, f"{root}\\bin\\nvcc.exe"),
        cudnns=_cudnns(wanted, f"C:\\Program Files\\NVIDIA\\CUDNN\\v{_short(wanted.cudnn)}", "\\", "cudnn.lib"),
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


def _linux(wanted: BuildFile, python: Version, arch: str) -> Machine:
    root = f"/usr/local/cuda-{wanted.cuda}"
    gcc = Version(str(min((wanted.cuda and newest_gcc(wanted.cuda)) or _GCC, _GCC)))
    found = FoundPython(path=f"/usr/bin/python{python.major_minor}", version=python)
    return Machine(
        os="linux",
        arch=arch,
        toolkits=_toolkits(wanted, root, f"{root}/bin/nvcc"),
        cudnns=_cudnns(wanted, f"/opt/cudnn-{_short(wanted.cudnn)}", "/", "libcudnn.so"),
        compilers=(FoundCompiler(kind="gcc", path=f"/usr/bin/g++-{gcc}", version=gcc),),
        pythons=(found,),
        python=found,
    )


def _toolkits(wanted: BuildFile, root: str, nvcc: str) -> tuple[FoundToolkit, ...]:
    return (FoundToolkit(root=root, version=wanted.cuda, nvcc=nvcc),) if wanted.cuda else ()


def _cudnns(wanted: BuildFile, root: str, separator: str, library: str) -> tuple[FoundCudnn, ...]:
    if wanted.cudnn is None:
        return ()
    folder = "lib\\x64" if separator == "\\" else "lib"
    return (
        FoundCudnn(
            root=root,
            version=wanted.cudnn,
            header=separator.join((root, "include", "cudnn.h")),
            libraries=(separator.join((root, folder, library)),),
        ),
    )


def _short(version: Version | None) -> str:
    return ".".join(str(version or "").split(".")[:2])
