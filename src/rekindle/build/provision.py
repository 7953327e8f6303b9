"""`rekindle build --provision`: what a build needs and this machine lacks, assembled before the build begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from rekindle.build.configure import options
from rekindle.build.configure.request import BuildFile, BuildRequest, Compiler, fitting_cudnns, mkl_of
from rekindle.compat.host_compiler import takes_gcc
from rekindle.compat.judgement import Fits
from rekindle.core.version import Version
from rekindle.machine.model import Machine
from rekindle.toolchain import command as toolchain


class Lacking(msgspec.Struct, frozen=True, kw_only=True):
    """The tools to install, as `rekindle toolchain install` takes them, and the CUDA that they go with."""

    tools: tuple[str, ...] = ()
    cuda: Version | None = None


def lacking(wanted: BuildFile, machine: Machine, overrides: Mapping[str, str] | None = None) -> Lacking:
    """What is not here of what the build asks for. MSVC is not among it: only Microsoft's installer brings that."""
    tools: list[str] = []
    cuda = wanted.cuda
    if cuda is not None and wanted.cuda_root is None:
        here = [kit for kit in machine.toolkits if kit.nvcc and kit.version and kit.version.starts_with(cuda)]
        # One that lacks cuBLAS compiles a kernel, and then no PyTorch.
        if not any(not kit.missing for kit in here):
            tools.append(f"cuda=={cuda}")
        if machine.os == "linux" and wanted.compiler is None and not _compiler(cuda, machine):
            # Which one is decided where it is looked for: the newest that this CUDA takes and that starts here.
            tools.append("gcc")
    if wanted.cudnn is not None and not fitting_cudnns(wanted, machine):
        tools.append(f"cudnn=={wanted.cudnn}")
    if _lacks_openblas(wanted, machine, overrides or {}):
        tools.append("openblas")
    return Lacking(tools=tuple(tools), cuda=cuda)


def provision(
    wanted: BuildFile,
    machine: Machine,
    overrides: Mapping[str, str] | None = None,
    *,
    accept_licence: bool,
    say: Callable[[str], None],
    ask: Callable[[str], bool] | None,
) -> bool:
    """Install it: sizes, sources and licences are shown first. Whether anything was installed."""
    needs = lacking(wanted, machine, overrides)
    if not needs.tools:
        say("nothing to provision: everything that the build needs is here")
        return False
    command = toolchain.InstallCommand(
        tools=needs.tools, cuda=str(needs.cuda) if needs.cuda else None, accept_licence=accept_licence
    )
    done = toolchain.install(command, say=say, ask=ask or (lambda _: False))
    for kit in done.kits:
        say(f"installed {kit.id}")
    return True


def _compiler(cuda: Version, machine: Machine) -> bool:
    return any(
        each.kind == "gcc" and isinstance(takes_gcc(cuda, each.version.major), Fits) for each in machine.compilers
    )


def _lacks_openblas(wanted: BuildFile, machine: Machine, overrides: Mapping[str, str]) -> bool:
    """Which BLAS the build takes follows from its options; nothing else of the request matters to that."""
    if not wanted.torch or machine.os != "linux" or machine.openblas:
        return False
    request = BuildRequest(
        source="",
        system=machine.os,
        arch=machine.arch,
        python="python",
        compiler=Compiler(kind="gcc", cxx="g++", c="gcc", cuda_host="g++"),
        torch=wanted.torch,
        profile=wanted.profile,
        options=wanted.options,
        requires=wanted.requires,
        mkl=mkl_of(wanted, machine),
    )
    return options.uses_openblas(options.resolve(request, overrides, allow_unknown=True).resolved)
