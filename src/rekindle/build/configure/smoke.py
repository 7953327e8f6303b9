"""One small CUDA file with this compiler, toolkit and architecture, before hours are spent on 200 large ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rekindle.build.configure.request import BuildRequest
from rekindle.core import files
from rekindle.core import run as programs
from rekindle.core.findings import Finding, Fix, failed, passed, unverified
from rekindle.formats import fatbin
from rekindle.knowledge.gpu.capability import Capability, Runs, Target, runs

_LIMIT = 900
"""Seconds for one small file. On an idle machine it takes two; a busy one has been seen to take minutes."""

CODE = """\
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


def smoke(request: BuildRequest, folder: Path, environ: Mapping[str, str], *, gpu: bool) -> tuple[Finding, ...]:
    """Compile, look at what came out, and run it where there is a card."""
    if request.cuda is None:
        return ()
    source, built = folder / "smoke.cu", folder / "smoke.o"
    files.write_text(source, CODE)
    built.unlink(missing_ok=True)
    common = command(request)
    said = programs.call([*common, "-c", str(source), "-o", str(built)], env=environ, cwd=folder, timeout=_LIMIT)
    names = ", ".join(map(str, request.gpu_targets))
    if said.timed_out:
        text = f"a small CUDA file was not compiled for {names} within {_LIMIT // 60} minutes"
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


def command(request: BuildRequest) -> list[str]:
    """nvcc with its host compiler and the architectures of the plan."""
    assert request.cuda is not None
    host = ["-ccbin", request.compiler.cuda_host] if request.system == "linux" else []
    gencode = [f"-gencode=arch={_virtual(target)},code={target}" for target in request.gpu_targets]
    return [request.cuda.nvcc, *host, *gencode]


def _ran(common: list[str], source: Path, folder: Path, environ: Mapping[str, str]) -> Finding:
    program = folder / "smoke.exe"
    linked = programs.call([*common, str(source), "-o", str(program)], env=environ, cwd=folder, timeout=_LIMIT)
    if not linked.ok:
        tail = linked.err.strip()[-400:]
        return failed("smoke-run", "a small CUDA program does not link", why=tail)
    said = programs.call([str(program)], env=environ, cwd=folder, timeout=60)
    if said.ok:
        return passed("smoke-run", "it runs on the card here")
    if said.code == 3:
        return unverified("smoke-run", "no card here can be used to run it")
    return failed("smoke-run", f"it does not run on the card here: {said.out.strip() or said.code}")


def _virtual(target: Target) -> str:
    return f"compute_{target.capability.major}{target.capability.minor}{target.suffix}"
