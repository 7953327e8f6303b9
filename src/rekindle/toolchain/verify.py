"""A kit against its own record: every file there, none changed, none more; and whether its nvcc still answers.

`smoke`: one kernel per architecture, one call of cuBLAS and of cuDNN, compiled and linked with a kit. What was used is
read off what came out: the host compiler leaves its name in the object, the GPU code its architecture. Nothing is run
on a card.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rekindle.core import files, run
from rekindle.core.command import rekindle
from rekindle.core.errors import NotFound
from rekindle.core.findings import Finding, Fix, failed, passed, unverified, warned
from rekindle.core.paths import STATE_FOLDER, sha256_of
from rekindle.formats import fatbin
from rekindle.formats.access import File
from rekindle.knowledge.cuda.toolchains import install_gcc
from rekindle.machine.host import Host
from rekindle.machine.toolchain import gcc, toolkits
from rekindle.model.card import Capability, Target
from rekindle.model.platform import Platform
from rekindle.model.toolkit import FoundToolkit
from rekindle.toolchain.model import Kit
from rekindle.toolchain.store import Store

_NAMED = 3


def verify(store: Store, kit: Kit) -> tuple[Finding, ...]:
    root = store.folder(kit)
    again = Fix(
        text="make it anew", commands=(rekindle("toolchain", "install", f"{kit.name}=={kit.version}", "--again"),)
    )
    if not root.is_dir():
        return (failed(f"{kit.id}-files", f"`{root}` is gone", fix=again),)
    found = []
    if kit.adopted:
        text = f"{kit.id} is a folder of yours, `{root}`: which files belong to it is not known"
        found.append(unverified(f"{kit.id}-files", text))
    else:
        wrong = [*_changed(root, kit), *_more(root, kit)]
        if wrong:
            count = "1 file is not as it was" if len(wrong) == 1 else f"{len(wrong):,} files are not as they were"
            text = f"{kit.id}: {count}: {', '.join(wrong[:_NAMED])}"
            # What was changed is not run to be asked.
            return (failed(f"{kit.id}-files", text, fix=again),)
        text = f"{kit.id}: {len(kit.files):,} files are as they were"
        found.append(passed(f"{kit.id}-files", text))
    if kit.name == "cuda" and kit.place == Platform.here():
        found.append(_answers(Host(), root, kit, again))
    if (fault := does_not_start(root, kit)) is not None:
        text = f"the compiler of {kit.id} does not start here: {fault}"
        found.append(failed(f"{kit.id}-gcc", text))
    return tuple(found)


def does_not_start(root: Path, kit: Kit) -> str | None:
    """Why a private compiler made for this kind of computer does not run on it; None when nothing speaks against it.

    Packages of a newer release than the system's ask its C library for what it does not have yet.
    """
    if kit.name != "gcc" or kit.place != Platform.here():
        return None
    said = run.call([str(root / "bin" / "g++"), "--version"], timeout=60)
    needs = None if said.ok else re.search(r"version `(GLIBC(?:XX)?_[\d.]+)' not found", said.err)
    return f"it needs {needs[1]}, which this system's C library does not have" if needs else None


def _changed(root: Path, kit: Kit) -> list[str]:
    wrong = []
    for file in kit.files:
        path = root / file.path
        if file.link is not None:
            if not path.is_symlink() or os.readlink(path) != file.link:  # noqa: PTH115 - as it is written
                wrong.append(file.path)
        elif (
            path.is_symlink()
            or not path.is_file()
            or path.stat().st_size != file.size
            or sha256_of(path) != file.sha256
        ):
            wrong.append(file.path)
    return wrong


def _more(root: Path, kit: Kit) -> list[str]:
    known = {file.path for file in kit.files}
    found = []
    for folder, folders, names in os.walk(root):
        here = Path(folder).relative_to(root)
        for name in [*names, *(one for one in folders if (Path(folder) / one).is_symlink())]:
            path = (here / name).as_posix()
            if path not in known and path.split("/")[0] != STATE_FOLDER:
                found.append(f"{path} (not ours)")
    return found


def _answers(host: Host, root: Path, kit: Kit, again: Fix) -> Finding:
    toolkit = toolkits.at(host, str(root), "rekindle")
    if toolkit is None or toolkit.version is None:
        return failed(f"{kit.id}-nvcc", f"the nvcc of {kit.id} does not start", fix=again)
    if toolkit.missing:
        text = f"nvcc {toolkit.version} answers; missing: {', '.join(toolkit.missing)}"
        return warned(f"{kit.id}-nvcc", text)
    return passed(f"{kit.id}-nvcc", f"nvcc {toolkit.version} answers, and nothing is missing")


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
_GCC = re.compile(rb"GCC: \([^)\0]{0,80}\) (\d{1,9}\.\d{1,9}\.\d{1,9})")


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
    with files.scratch("smoke") as folder:
        bench = _Bench(toolkit=toolkit, compiler=compiler, folder=folder)
        found = tuple(_steps(store, bench, kit.place, targets))
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
    fitting = gcc.taken_by(toolkit.version, gcc.probe(host))
    home = str(Store().root)
    return max(fitting, key=lambda each: (each.path.startswith(home), each.version)).path if fitting else None


def _steps(store: Store, bench: _Bench, place: Platform, targets: tuple[Target, ...]) -> Iterable[Finding]:
    version = bench.toolkit.version
    if bench.compiler is None and place.system == "linux":
        text = f"no GCC here is one that CUDA {version} takes"
        commands = (install_gcc(version),) if version else ()
        yield failed("host-compiler", text, fix=Fix(text="install one beside it", commands=commands))
        return
    built, findings = _kernel(bench, targets)
    yield from findings
    if not built:
        return
    yield from _host(bench, bench.folder / "kernel.o")
    yield _linked(bench, "cublas", CUBLAS, ["-lcublas"], ["kernel.o"])
    yield from _cudnn(store, bench)


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
    codes = [f"-gencode={target.gencode}" for target in targets]
    names = ", ".join(map(str, targets))
    said = bench.nvcc("-Wno-deprecated-gpu-targets", *codes, "-c", "kernel.cu", "-o", "kernel.o")
    if not said.ok or not (bench.folder / "kernel.o").is_file():
        return False, [_failed("kernel", f"a kernel does not compile for {names}", said)]
    with File(bench.folder / "kernel.o") as file:
        held = sorted({target for container in fatbin.scan(file) for target in container.targets})
    if set(held) != set(targets):
        text = f"the kernel was compiled for {', '.join(map(str, held)) or 'nothing'} instead of {names}"
        return False, [failed("kernel", text)]
    return True, [passed("kernel", f"a kernel compiles for {names}")]


def _ptxas(root: Path, toolkit: FoundToolkit) -> Finding:
    ptxas = toolkit.ptxas
    if ptxas is None or ptxas.version is None:
        return unverified("ptxas", "which ptxas this nvcc calls could not be found out")
    if toolkit.own_ptxas and Path(ptxas.path).resolve().is_relative_to(root.resolve()):
        return passed("ptxas", f"nvcc {toolkit.version} calls its own ptxas, {ptxas.path}")
    text = f"nvcc {toolkit.version} calls the ptxas of CUDA {ptxas.version}, {ptxas.path}"
    return failed("ptxas", text, fix="install this toolchain again")


def _host(bench: _Bench, built: Path) -> Iterable[Finding]:
    """GCC writes its version into every object."""
    if bench.compiler is None:
        return
    versions = sorted({match[1].decode() for match in _GCC.finditer(built.read_bytes())})
    asked = gcc.parse_version(run.call([bench.compiler, "--version"]).out)
    if versions == [str(asked)]:
        yield passed("host-compiler", f"GCC {asked} compiled the host's half, {bench.compiler}")
    else:
        text = (
            f"the host's half was compiled by GCC {', '.join(versions) or 'unknown'}, not {asked} of {bench.compiler}"
        )
        yield failed("host-compiler", text)


def _linked(bench: _Bench, name: str, code: str, libraries: list[str], objects: list[str]) -> Finding:
    files.write_text(bench.folder / f"{name}.cu", code)
    said = bench.nvcc(f"{name}.cu", *objects, *libraries, "-Wno-deprecated-gpu-targets", "-o", f"{name}.program")
    if not said.ok or not (bench.folder / f"{name}.program").is_file():
        return _failed(name, f"a call of {name} does not link", said)
    return passed(name, f"a call of {name} links")


def _cudnn(store: Store, bench: _Bench) -> Iterable[Finding]:
    if bench.toolkit.version is None:
        return
    made_for = f"cu{bench.toolkit.version.major}"
    here = [each for each in store.kits() if each.name == "cudnn" and each.variant in ("", made_for)]
    kit = max(here, key=lambda each: each.version, default=None)
    if kit is None:
        return
    root = store.folder(kit)
    words = [f"-I{root / 'include'}", f"-L{root / 'lib'}", "-lcudnn", "-Xlinker", "--allow-shlib-undefined"]
    yield _linked(bench, "cudnn", CUDNN, words, [])


def _failed(id: str, text: str, said: run.Result) -> Finding:
    tail = "\n".join((said.err.strip() or said.out.strip()).splitlines()[-6:]) or "it said nothing"
    return failed(id, text, why=tail)
