"""The programs a build really uses, found along the PATH it will have, with their versions; and one small CUDA file
with this compiler, toolkit and architecture, before hours are spent on 200 large ones.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from rekindle.build.configure.request import BuildRequest
from rekindle.core import codec, files, programs, run
from rekindle.core.errors import MissingTool
from rekindle.core.findings import Finding, Fix, failed, passed, unverified
from rekindle.core.version import Version
from rekindle.formats import fatbin
from rekindle.knowledge.builds import costs
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.machine.host import CouldNotRead, Host
from rekindle.machine.model import Machine
from rekindle.machine.toolchain import toolkits
from rekindle.model.card import Capability, Target


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
    return programs.which(name, programs.path_of(environ))


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
    said = run.call([request.cuda.nvcc, "--version"], env=environ, timeout=60)
    version = None
    with contextlib.suppress(CouldNotRead):
        version = toolkits.parse_nvcc_version(said.out)
    return Tool(name="nvcc", path=request.cuda.nvcc, version=version)


def _ptxas(request: BuildRequest, environ: Mapping[str, str]) -> Tool | None:
    """nvcc looks for ptxas along PATH, as its profile changes it: only a dry run tells which one it calls."""
    if request.cuda is None:
        return None
    # Without a compiler nvcc says nothing, and the build's own need not be on PATH. On Windows `cl` always is.
    compiler = [] if request.compiler.kind == "cl" else ["-ccbin", request.compiler.cuda_host]
    words = [request.cuda.nvcc, *compiler, "--dryrun", "-cubin", "-o", "x.cubin", "x.cu"]
    host = Host(environ)
    said = host.command(*words, timeout=60)
    try:
        found = toolkits.called(host, toolkits.parse_dry_run(said.err + said.out, separator=os.pathsep), "ptxas")
    except CouldNotRead:
        return None
    return codec.like(Tool, found, name="ptxas") if found else None


def jobs_for(machine: Machine, *, cuda: bool) -> int | None:
    """How many compiles at a time, as one number for the whole build; the floor below a governor that knows each file.

    The heaviest files of PyTorch take 3 to 4 GB each: a machine with many cores and little memory must not start one
    per core. As many as there are cores and room in memory for; None when neither is known, which leaves it to Ninja.
    """
    return costs.jobs(machine.processor.cores, machine.memory.usable, cuda=cuda)


_SMOKE_LIMIT = 900
"""Seconds for one small file. On an idle machine it takes two; a busy one has been seen to take minutes."""

SMOKE_CODE = """\
#include <cstdio>
#include <vector>
__global__ void twice(int* values) { values[threadIdx.x] *= 2; }
int main() {
  int* device = nullptr;
  int host[4] = {1, 2, 3, 4};
  if (cudaMalloc(&device, sizeof host) != cudaSuccess) { std::printf("no device\\n"); return 3; }
  cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice);
  twice<<<1, 4>>>(device);
  cudaError_t error = cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) { std::printf("%s\\n", cudaGetErrorString(error)); return 4; }
  std::printf("%d %d %d %d\\n", host[0], host[1], host[2], host[3]);
  return host[3] == 8 ? 0 : 5;
}
"""


def smoke_test(request: BuildRequest, folder: Path, environ: Mapping[str, str], *, gpu: bool) -> tuple[Finding, ...]:
    """Compile, look at what came out, and run it where there is a card."""
    if request.cuda is None:
        return ()
    source, built = folder / "smoke.cu", folder / "smoke.o"
    files.write_text(source, SMOKE_CODE)
    built.unlink(missing_ok=True)
    common = smoke_command(request)
    said = run.call([*common, "-c", str(source), "-o", str(built)], env=environ, cwd=folder, timeout=_SMOKE_LIMIT)
    names = ", ".join(map(str, request.gpu_targets))
    if said.timed_out:
        text = f"a small CUDA file was not compiled for {names} within {_SMOKE_LIMIT // 60} minutes"
        fix = Fix(text="this machine is too busy to build on: rerun the command when it is not")
        return (failed("smoke-compile", text, fix=fix),)
    if not said.ok or not built.exists():
        tail = "\n".join((said.err.strip() or said.out.strip()).splitlines()[-6:]) or "it said nothing"
        why = f"nvcc {request.cuda.version} with `{request.compiler.cuda_host}` says: {tail}"
        fix = Fix(text="`rekindle plan --why-not` and `rekindle doctor` know which compiler and toolkit go together")
        return (failed("smoke-compile", f"a small CUDA file does not compile for {names}", why=why, fix=fix),)
    held = sorted({target for container in fatbin.scan(built.read_bytes()) for target in container.targets})
    if set(held) != set(request.gpu_targets):
        text = f"a small CUDA file was compiled for {', '.join(map(str, held)) or 'nothing'} instead of {names}"
        return (failed("smoke-compile", text),)
    found = [passed("smoke-compile", f"a small CUDA file compiles for {names}")]
    if gpu:
        found.append(_ran(common, source, folder, environ))
    return tuple(found)


def can_run(targets: Iterable[Target], cards: Iterable[Capability | None]) -> bool:
    """Does code for these targets run on a card of this machine? Who builds for another card has one here, too."""
    here = [card for card in cards if card is not None]
    return any(runs(target, card) is not Runs.NO for target in targets for card in here)


def smoke_command(request: BuildRequest) -> list[str]:
    """nvcc with its host compiler and the architectures of the plan."""
    assert request.cuda is not None
    host = ["-ccbin", request.compiler.cuda_host] if request.system == "linux" else []
    return [request.cuda.nvcc, *host, *(f"-gencode={target.gencode}" for target in request.gpu_targets)]


def _ran(common: list[str], source: Path, folder: Path, environ: Mapping[str, str]) -> Finding:
    program = folder / "smoke.exe"
    linked = run.call([*common, str(source), "-o", str(program)], env=environ, cwd=folder, timeout=_SMOKE_LIMIT)
    if not linked.ok:
        tail = linked.err.strip()[-400:]
        return failed("smoke-run", "a small CUDA program does not link", why=tail)
    said = run.call([str(program)], env=environ, cwd=folder, timeout=60)
    if said.ok:
        return passed("smoke-run", "it runs on the card here")
    if said.code == 3:
        return unverified("smoke-run", "no card here can be used to run it")
    return failed("smoke-run", f"it does not run on the card here: {said.out.strip() or said.code}")
