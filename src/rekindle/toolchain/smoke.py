"""One kernel per architecture, one call of cuBLAS and of cuDNN, compiled and linked with a kit; by whom, really.

What was used is read off what came out: the host compiler leaves its name in the object, the GPU code its architecture.
Nothing is run on a card.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rekindle.compat.host_compiler import takes_gcc
from rekindle.compat.judgement import Fits
from rekindle.core import files, run
from rekindle.core.errors import NotFound
from rekindle.core.findings import Finding, Fix, State
from rekindle.formats import fatbin
from rekindle.formats.access import File
from rekindle.knowledge.cuda.toolchains import install_gcc
from rekindle.knowledge.gpu.capability import Capability, Target
from rekindle.machine.host import Host
from rekindle.machine.model import FoundToolkit
from rekindle.machine.toolchain import gcc, toolkits
from rekindle.toolchain.model import Kit
from rekindle.toolchain.store import Store

KERNEL = """\
#include <vector>
__global__ void twice(float* values) { values[threadIdx.x] *= 2; }
extern "C" int launch(float* values) { twice<<<1, 4>>>(values); return (int)cudaGetLastError(); }
"""
CUBLAS = """\
#include <cublas_v2.h>
extern "C" int launch(float*);
int main() { cublasHandle_t handle; return cublasCreate(&handle) + launch(nullptr); }
"""
CUDNN = """\
#include <cudnn.h>
int main() { cudnnHandle_t handle; return cudnnCreate(&handle) + (int)(cudnnGetVersion() - CUDNN_VERSION); }
"""
_HIDDEN = ("CUDA_PATH", "CUDA_HOME", "CUDA_ROOT", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CUDACXX")
_GCC = re.compile(rb"GCC: \([^)\0]{0,80}\) (\d+\.\d+\.\d+)")


class Smoke(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle toolchain smoke`."""

    schema: str = "rekindle.toolchain-smoke/1"
    kit: str
    folder: str
    nvcc: str
    host_compiler: str | None
    ptxas: str | None
    architectures: tuple[str, ...]
    findings: tuple[Finding, ...]


def smoke(store: Store, kit: Kit, cards: Sequence[Capability]) -> Smoke:
    host = Host()
    root = store.folder(kit)
    toolkit = toolkits.at(host, str(root), "rekindle")
    if toolkit is None or toolkit.nvcc is None:
        raise NotFound(
            f"`{root}` has no nvcc that can be started", hint="`rekindle toolchain verify` says what is gone"
        )
    compiler = compiler_for(host, toolkit)
    targets = tuple(Target(card) for card in cards) or toolkit.targets[:1]
    with tempfile.TemporaryDirectory(prefix="rekindle-smoke-") as name:
        found = tuple(_steps(store, kit, toolkit, compiler, targets, Path(name)))
    ptxas = toolkit.ptxas
    return Smoke(
        kit=kit.id,
        folder=str(root),
        nvcc=toolkit.nvcc,
        host_compiler=compiler,
        ptxas=ptxas.path if ptxas else None,
        architectures=tuple(map(str, targets)),
        findings=(_ptxas(root, toolkit), *found),
    )


def compiler_for(host: Host, toolkit: FoundToolkit) -> str | None:
    """The newest GCC here that this CUDA takes; one of our own before the system's."""
    if host.windows or toolkit.version is None:
        return None
    known = toolkit.version
    fitting = [
        each
        for each in gcc.probe(host)
        if each.kind == "gcc" and isinstance(takes_gcc(known, each.version.major), Fits)
    ]
    home = str(Store().root)
    return max(fitting, key=lambda each: (each.path.startswith(home), each.version)).path if fitting else None


def _steps(
    store: Store,
    kit: Kit,
    toolkit: FoundToolkit,
    compiler: str | None,
    targets: tuple[Target, ...],
    folder: Path,
) -> Iterable[Finding]:
    bench = _Bench(toolkit=toolkit, compiler=compiler, folder=folder)
    if compiler is None and kit.place.system == "linux":
        text = f"no GCC here is one that CUDA {toolkit.version} takes"
        commands = (install_gcc(toolkit.version),) if toolkit.version else ()
        yield Finding(
            id="host-compiler", state=State.FAIL, found=text, fix=Fix(text="install one beside it", commands=commands)
        )
        return
    built, findings = _kernel(bench, targets)
    yield from findings
    if not built:
        return
    yield from _host(bench, folder / "kernel.o")
    yield _linked(bench, "cublas", CUBLAS, ["-lcublas"], ["kernel.o"])
    yield from _cudnn(store, bench, toolkit)


class _Bench(msgspec.Struct, frozen=True, kw_only=True):
    toolkit: FoundToolkit
    compiler: str | None
    folder: Path

    def nvcc(self, *words: str) -> run.Result:
        assert self.toolkit.nvcc is not None
        environ = {name: value for name, value in os.environ.items() if name.upper() not in _HIDDEN}
        host = ["-ccbin", self.compiler] if self.compiler else []
        return run.call([self.toolkit.nvcc, *host, *words], env=environ, cwd=self.folder, timeout=600)


def _kernel(bench: _Bench, targets: tuple[Target, ...]) -> tuple[bool, list[Finding]]:
    files.write_text(bench.folder / "kernel.cu", KERNEL)
    codes = [f"-gencode=arch=compute_{t.capability.major}{t.capability.minor}{t.suffix},code={t}" for t in targets]
    names = ", ".join(map(str, targets))
    said = bench.nvcc("-Wno-deprecated-gpu-targets", *codes, "-c", "kernel.cu", "-o", "kernel.o")
    if not said.ok or not (bench.folder / "kernel.o").is_file():
        return False, [_failed("kernel", f"a kernel does not compile for {names}", said)]
    with File(bench.folder / "kernel.o") as file:
        held = sorted({target for container in fatbin.scan(file) for target in container.targets})
    if set(held) != set(targets):
        text = f"the kernel was compiled for {', '.join(map(str, held)) or 'nothing'} instead of {names}"
        return False, [Finding(id="kernel", state=State.FAIL, found=text)]
    return True, [Finding(id="kernel", state=State.PASS, found=f"a kernel compiles for {names}")]


def _ptxas(root: Path, toolkit: FoundToolkit) -> Finding:
    ptxas = toolkit.ptxas
    if ptxas is None or ptxas.version is None:
        return Finding(id="ptxas", state=State.UNVERIFIED, found="which ptxas this nvcc calls could not be found out")
    if toolkit.own_ptxas and Path(ptxas.path).resolve().is_relative_to(root.resolve()):
        return Finding(id="ptxas", state=State.PASS, found=f"nvcc {toolkit.version} calls its own ptxas, {ptxas.path}")
    text = f"nvcc {toolkit.version} calls the ptxas of CUDA {ptxas.version}, {ptxas.path}"
    return Finding(id="ptxas", state=State.FAIL, found=text, fix=Fix(text="install this toolchain again"))


def _host(bench: _Bench, built: Path) -> Iterable[Finding]:
    """GCC writes its version into every object."""
    if bench.compiler is None:
        return
    versions = sorted({match[1].decode() for match in _GCC.finditer(built.read_bytes())})
    asked = gcc.parse_version(run.call([bench.compiler, "--version"]).out)
    if versions == [str(asked)]:
        yield Finding(
            id="host-compiler", state=State.PASS, found=f"GCC {asked} compiled the host's half, {bench.compiler}"
        )
    else:
        text = (
            f"the host's half was compiled by GCC {', '.join(versions) or 'unknown'}, not {asked} of {bench.compiler}"
        )
        yield Finding(id="host-compiler", state=State.FAIL, found=text)


def _linked(bench: _Bench, name: str, code: str, libraries: list[str], objects: list[str]) -> Finding:
    files.write_text(bench.folder / f"{name}.cu", code)
    said = bench.nvcc(f"{name}.cu", *objects, *libraries, "-Wno-deprecated-gpu-targets", "-o", f"{name}.program")
    if not said.ok or not (bench.folder / f"{name}.program").is_file():
        return _failed(name, f"a call of {name} does not link", said)
    return Finding(id=name, state=State.PASS, found=f"a call of {name} links")


def _cudnn(store: Store, bench: _Bench, toolkit: FoundToolkit) -> Iterable[Finding]:
    if toolkit.version is None:
        return
    made_for = f"cu{toolkit.version.major}"
    here = [each for each in store.kits() if each.name == "cudnn" and each.variant in ("", made_for)]
    kit = max(here, key=lambda each: each.version, default=None)
    if kit is None:
        return
    root = store.folder(kit)
    words = [f"-I{root / 'include'}", f"-L{root / 'lib'}", "-lcudnn", "-Xlinker", "--allow-shlib-undefined"]
    yield _linked(bench, "cudnn", CUDNN, words, [])


def _failed(id: str, text: str, said: run.Result) -> Finding:
    tail = "\n".join((said.err.strip() or said.out.strip()).splitlines()[-6:]) or "it said nothing"
    return Finding(id=id, state=State.FAIL, found=text, why=tail)
