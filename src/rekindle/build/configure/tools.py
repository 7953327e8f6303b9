"""The programs a build really uses, found along the PATH it will have, with their versions."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rekindle.build.configure.request import BuildRequest
from rekindle.core import processes, run
from rekindle.core.errors import MissingTool
from rekindle.core.version import Version
from rekindle.knowledge.builds import costs
from rekindle.machine.host import CouldNotRead
from rekindle.machine.model import Machine
from rekindle.machine.toolchain import nvcc


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    path: str
    version: Version | None = None


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    cmake: Tool
    ninja: Tool
    python: Tool
    cxx: Tool
    nvcc: Tool | None = None
    ptxas: Tool | None = None
    """The one that this nvcc calls in this environment, by its own word."""


def find(request: BuildRequest, environ: Mapping[str, str]) -> Tools:
    """All of them, or an error that names the one that is missing. The build's Python may bring cmake and ninja."""
    cmake = _on_path("cmake", environ, "install CMake, for example `pip install cmake`")
    ninja = _on_path("ninja", environ, "install Ninja, for example `pip install ninja`")
    cxx = request.compiler.cxx
    if not {"/", "\\"} & set(cxx):
        cxx = _on_path(cxx, environ, "`rekindle doctor` says which compiler to install")
    return Tools(
        cmake=Tool(name="cmake", path=cmake, version=_version([cmake, "--version"], environ)),
        ninja=Tool(name="ninja", path=ninja, version=_version([ninja, "--version"], environ)),
        python=Tool(name="python", path=request.python, version=_version([request.python, "--version"], environ)),
        cxx=Tool(name=request.compiler.kind, path=cxx, version=_compiler_version(request, cxx, environ)),
        nvcc=_nvcc(request, environ),
        ptxas=_ptxas(request, environ),
    )


def which(name: str, environ: Mapping[str, str]) -> str | None:
    """The program of that name along the PATH of `environ`."""
    path = next((value for key, value in environ.items() if key.upper() == "PATH"), "")
    return processes.which(name, path)


def _on_path(name: str, environ: Mapping[str, str], hint: str) -> str:
    found = which(name, environ)
    if found is None:
        raise MissingTool(f"`{name}` is not on the PATH that the build will have", hint=hint)
    return found


def _version(args: list[str], environ: Mapping[str, str]) -> Version | None:
    said = run.call(args, env=environ, timeout=60)
    return Version.find(said.out) if said.ok else None


def _compiler_version(request: BuildRequest, cxx: str, environ: Mapping[str, str]) -> Version | None:
    if request.compiler.kind == "cl":
        said = run.call([cxx], env=environ, timeout=60)
        return Version.find(said.err or said.out)
    return _version([cxx, "-dumpfullversion" if request.compiler.kind == "gcc" else "--version"], environ)


def _nvcc(request: BuildRequest, environ: Mapping[str, str]) -> Tool | None:
    if request.cuda is None:
        return None
    return Tool(name="nvcc", path=request.cuda.nvcc, version=_cuda_version(request.cuda.nvcc, environ))


def _ptxas(request: BuildRequest, environ: Mapping[str, str]) -> Tool | None:
    """nvcc looks for ptxas along PATH, as its profile changes it: only a dry run tells which one it calls."""
    if request.cuda is None:
        return None
    # Without a compiler nvcc says nothing, and the build's own need not be on PATH. On Windows `cl` always is.
    host = [] if request.compiler.kind == "cl" else ["-ccbin", request.compiler.cuda_host]
    words = [request.cuda.nvcc, *host, "--dryrun", "-cubin", "-o", "x.cubin", "x.cu"]
    said = run.call(words, env=environ, timeout=60)
    try:
        dry = nvcc.parse_dry_run(said.err + said.out, separator=os.pathsep)
    except CouldNotRead:
        return None
    ending = ".exe" if sys.platform == "win32" else ""
    path = nvcc.resolve(
        dry.called["ptxas"], dry.search, join=os.path.join, exists=lambda name: Path(name).is_file(), ending=ending
    )
    return Tool(name="ptxas", path=path, version=_cuda_version(path, environ)) if path else None


def _cuda_version(path: str, environ: Mapping[str, str]) -> Version | None:
    said = run.call([path, "--version"], env=environ, timeout=60)
    try:
        return nvcc.parse_version(said.out)
    except CouldNotRead:
        return None


def jobs_for(machine: Machine, *, cuda: bool) -> int | None:
    """How many compiles at a time, as one number for the whole build; the floor below a governor that knows each file.

    The heaviest files of PyTorch take 3 to 4 GB each: a machine with many cores and little memory must not start one
    per core. As many as there are cores and room in memory for; None when neither is known, which leaves it to Ninja.
    """
    return costs.jobs(machine.processor.cores, machine.memory.usable, cuda=cuda)
