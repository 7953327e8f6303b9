"""What a build is asked for, in two forms.

A `BuildFile` is what a person or a plan writes: versions and wishes, most of them optional. `resolve` holds it against
a machine and gives a `BuildRequest`, in which everything is a path that exists there, or an error that says what is
missing. Paths are strings because a request for a Windows machine is computed and tested on Linux too.
"""

from __future__ import annotations

import ntpath
import posixpath
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from rekindle.build.graft import base as bases
from rekindle.build.graft.base import Base
from rekindle.compat.library_card import same_release
from rekindle.core import codec, files
from rekindle.core.command import Command, rekindle
from rekindle.core.errors import BadInput, MissingTool, UsageError
from rekindle.core.untrusted import Sha256
from rekindle.core.version import Version
from rekindle.inputs.versions import read_python, read_toolset
from rekindle.knowledge.cuda.toolchains import install_gcc
from rekindle.knowledge.torch import options
from rekindle.knowledge.torch.releases import full_version, parse_arch_list, torch_release
from rekindle.machine.model import FoundCompiler, FoundCudnn, FoundOpenblas, FoundToolset, Machine
from rekindle.machine.toolchain import gcc, msvc
from rekindle.model.card import Target
from rekindle.model.host_compiler import HostCompiler
from rekindle.model.platform import Platform
from rekindle.model.toolkit import FoundToolkit
from rekindle.stack import plan as plan_room
from rekindle.stack.plan import Plan
from rekindle.stack.rules import RouteKind

SCHEMA = "rekindle.build-file/1"
_FOR_GRAFT = ("cmake", "ninja", "numpy<2", "pyyaml", "setuptools<81", "typing-extensions")
"""Torchgen, Ninja, and what the base itself imports."""


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same in both forms."""

    name: str = "torch"
    torch: str | None = None
    """The PyTorch release. Left out for any other CMake project."""
    version: str | None = None
    """What the wheel calls itself; computed from release, stack and architectures when left out."""
    backend: str | None = None
    arch_list: str = ""
    profile: str = "fast"
    options: dict[str, str] = {}
    targets: tuple[str, ...] = ()
    patches: tuple[str, ...] | None = None
    requires: tuple[str, ...] = ()
    """What pip installs into the build's own environment; left out for a PyTorch, which has its list."""
    commit: str | None = None
    """The commit that the source must be at."""
    wheels: dict[str, str] = {}
    """The SHA-256 of each wheel of the plan's bundle, by its file name."""


class BuildFile(_Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`rekindle build FILE` reads this from TOML. What is left out comes from the machine.

    Without a `source` PyTorch's is brought into Rekindle's own folder.
    """

    schema: str = SCHEMA
    source: str = ""
    cuda: Version | None = None
    cuda_root: str | None = None
    cudnn: Version | None = None
    python: str | None = None
    """A path, or `3.11`."""
    compiler: str | None = None
    """Linux: a C++ compiler, `g++-11`. Windows: `cl`, `clang-cl` or `icx`."""
    toolset: str | None = None
    toolsets: str | None = None
    """Of a plan: any toolset that the CUDA takes will do; the one above is the first choice."""
    system: str | None = None
    """`windows` or `linux`: it is built nowhere else."""
    arch: str | None = None
    base: str | None = None
    """The official wheel whose GPU half alone is built anew."""
    base_sha256: Sha256 | None = None


class Cuda(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    nvcc: str
    version: Version
    targets: tuple[Target, ...] = ()
    rivals: tuple[str, ...] = ()
    """Folders with the programs of other toolkits."""


class BuildCudnn(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    version: Version | None = None
    include: str | None = None
    library: str | None = None
    """The folder of its library."""


class Compiler(msgspec.Struct, frozen=True, kw_only=True):
    """`cxx` compiles the project; `cuda_host` is what nvcc calls for the host's half, which must be `cl` on Windows."""

    kind: str
    cxx: str
    c: str
    cuda_host: str
    version: Version | None = None
    studio: str | None = None
    toolset: Version | None = None

    @property
    def host(self) -> HostCompiler | None:
        version = self.toolset or self.version
        return HostCompiler("msvc" if self.toolset else self.kind, version) if version else None


class BuildRequest(_Asked, frozen=True, kw_only=True):
    """Everything the build needs, named exactly."""

    source: str
    system: str
    arch: str
    python: str
    compiler: Compiler
    python_version: Version | None = None
    cmake_version: Version | None = None
    cuda: Cuda | None = None
    cudnn: BuildCudnn | None = None
    openmp: str | None = None
    """Where Intel's OpenMP lies, for an MKL that does not bring it: oneAPI's `compiler` of a version."""
    mkl: str | None = None
    """Where MKL lies: oneAPI's folder, or pip's `Library` (Windows) or prefix (Linux)."""
    openblas: FoundOpenblas | None = None
    """The OpenBLAS that this machine has."""
    base: Base | None = None

    @property
    def own_cuda(self) -> Version | None:
        """The CUDA that the wheel says it has: a graft's packages are those of its base's, whatever toolkit compiled
        the GPU half, unless that is of another major."""
        if self.base is not None and self.base.exchange is None:
            return self.base.cuda
        return self.cuda.version.major_minor if self.cuda else None

    @property
    def gpu_targets(self) -> tuple[Target, ...]:
        return parse_arch_list(self.arch_list)

    @property
    def cards(self) -> tuple[str, ...]:
        """What it is built for, as `sm_35`, each once."""
        return tuple(dict.fromkeys(target.capability.sm for target in self.gpu_targets))

    @property
    def paths(self) -> ModuleType:
        """How that machine spells paths."""
        return ntpath if self.system == "windows" else posixpath

    @property
    def pip_mkl(self) -> bool:
        """The build wants MKL and the machine has none: pip brings it into the build's own environment."""
        wanted = options.with_mkl(self.profile, Platform(self.system, self.arch))
        return bool(self.torch) and wanted and self.mkl is None

    @property
    def openmp_libraries(self) -> tuple[str, ...]:
        """Folders of `libiomp5md.lib`: oneAPI moved it in 2024."""
        if not self.openmp or self.system != "windows":
            return ()
        inside = (("lib",), ("lib", "intel64_win"), ("windows", "compiler", "lib", "intel64_win"))
        return tuple(ntpath.join(self.openmp, *part) for part in inside)

    @property
    def mkl_binaries(self) -> tuple[str, ...]:
        """Folders of the DLLs of the machine's own MKL and OpenMP, old and new layouts."""
        if self.system != "windows":
            return ()
        found = [ntpath.join(self.mkl, part) for part in ("bin", "redist\\intel64") if self.mkl]
        inside = ("bin", "redist\\intel64_win\\compiler", "windows\\redist\\intel64_win\\compiler")
        found += [ntpath.join(self.openmp, part) for part in inside if self.openmp]
        return tuple(found)

    def library_folders(self, tools: str = "") -> tuple[str, ...]:
        """Where the build's own libraries lie: the cuDNN, toolkit and MKL that it is linked with, and no other.

        `tools` is the build's own environment, into which pip brings MKL.
        """
        join, windows = self.paths.join, self.system == "windows"
        parts = ("bin",) if windows else ("lib64", "lib")
        roots = [each.root for each in (self.cudnn, self.cuda) if each]
        found = [join(root, part) for root in roots for part in parts]
        if self.cuda:
            found.append(join(self.cuda.root, "extras", "CUPTI", "lib64"))
            if windows:
                # NVTX has a folder of its own beside the toolkits.
                programs = self.paths.dirname(self.paths.dirname(self.paths.dirname(self.cuda.root)))
                found.append(join(programs, "NVIDIA Corporation", "NvToolsExt", "bin", "x64"))
        if tools and self.pip_mkl:
            found.append(join(tools, "Library", "bin") if windows else join(tools, "lib"))
        return tuple(dict.fromkeys([*found, *self.mkl_binaries]))

    @property
    def requirements(self) -> tuple[str, ...]:
        """What pip installs into the build's own environment; nothing means that there is none."""
        if self.base is not None:
            return (*self.base.installed, *(self.requires or _FOR_GRAFT))
        if self.requires or not self.torch:
            return self.requires
        return options.requirements(self.torch, mkl=self.pip_mkl)

    @property
    def release(self) -> Version | None:
        return Version(full_version(self.torch)) if self.torch else None


def read(path: Path, *, unlocked: bool = False) -> BuildFile:
    """A build file, or a plan of `rekindle plan -o`; `unlocked`: also one that was edited."""
    data = files.read_bytes(path, limit=4 * 1024 * 1024)
    head = codec.from_toml(data, dict[str, Any], name=f"`{path}`")
    if not data.strip():
        raise codec.empty(f"`{path}`")
    if str(head.get("schema")).startswith(plan_room.SCHEMA[:-1]):
        plan = plan_room.read(path)
        wanted = from_plan(plan, path)
        plan_room.check_seal(plan, unlocked=unlocked)
        return wanted
    hint = "`rekindle plan -o plan.toml` writes a plan; docs/guides/build.md shows a build file"
    codec.expect(head.get("schema", SCHEMA), SCHEMA, "a build file", name=f"`{path}`", hint=hint)
    return codec.from_toml(data, BuildFile, name=f"`{path}`")


def is_plan(path: Path) -> bool:
    """Whether the file is a plan of `rekindle plan -o`, and not a build file."""
    data = files.read_bytes(path, limit=4 * 1024 * 1024)
    return codec.from_toml(data, dict[str, Any], name=f"`{path}`").get("schema") == plan_room.SCHEMA


def from_plan(plan: Plan, path: Path) -> BuildFile:
    """What the plan at `path` asks for. A plan that installs a ready wheel has nothing to build."""
    if plan.route is not RouteKind.SOURCE_BUILD:
        message = (
            f"this plan installs PyTorch {plan.torch} by the route `{plan.route.value}`: there is nothing to build"
        )
        carry = rekindle("install", "--plan", str(path))
        hint = f"`{carry}` carries it out; with `--prefer newest`, `rekindle plan` may plan a build instead"
        raise UsageError(message, hint=hint)
    plan_room.check_patches(plan)
    plan_room.check_commit(plan)
    plan_room.check_cards(plan)
    return codec.like(
        BuildFile,
        plan,
        arch_list=plan.arch_list or "",
        toolset=plan.toolset if plan.system == "windows" else None,
        patches=tuple(patch.id for patch in plan.patches),
        wheels={wheel.name: wheel.sha256 for wheel in plan.wheels},
        arch=plan.machine,
    )


def _check_place(wanted: BuildFile, machine: Machine) -> None:
    """Another system comes before anything that it lacks: nothing that could be installed here would help."""
    asked, here = (wanted.system or machine.os, wanted.arch or machine.arch), (machine.os, machine.arch)
    if asked != here:
        message = f"this plan is for {asked[0].capitalize()} on {asked[1]}; this is {here[0].capitalize()} on {here[1]}"
        script = "build.cmd" if asked[0] == "windows" else "build.sh"
        hint = f"build it there, or with a script for there: `--script {script}`; `rekindle plan` is for this one"
        raise UsageError(message, hint=hint)


def resolve(wanted: BuildFile, machine: Machine, *, here: Path | None = None) -> BuildRequest:
    """The request on this machine. `here` is the folder that a relative source is meant from."""
    base = None
    if wanted.base is not None:
        base = bases.read((here or Path()) / wanted.base, sha256=wanted.base_sha256)
        wanted = bases.on_base(wanted, base)
    source = wanted.source
    if not source and not wanted.torch:
        message = "the build file names neither a source nor a PyTorch release"
        raise BadInput(message, hint='add `source = "DIR"` or `torch = "X.Y.Z"`')
    if source and here is not None:
        source = str((here / source).resolve())
    try:
        parse_arch_list(wanted.arch_list)
    except (ValueError, IndexError) as error:
        message = f"`{wanted.arch_list[:60]}` is not a list of architectures"
        raise BadInput(message, hint="write it like `3.5;5.0;8.6+PTX`") from error
    _check_place(wanted, machine)
    _check_tools(wanted, machine)
    cuda = cuda_of(wanted, machine)
    return codec.like(
        BuildRequest,
        wanted,
        source=source,
        system=machine.os,
        arch=machine.arch,
        python=(python := python_of(wanted, machine))[0],
        python_version=python[1],
        cmake_version=cmake.version if (cmake := machine.program("cmake")) else None,
        compiler=compiler_of(wanted, machine, cuda.version if cuda else None),
        cuda=cuda,
        cudnn=cudnn_of(wanted, machine),
        mkl=(mkl := mkl_of(wanted, machine)),
        openmp=_openmp(mkl, machine),
        openblas=next(iter(machine.openblas), None),
        base=bases.for_toolkit(base, cuda.version, wanted.arch_list) if base and cuda else base,
    )


def _check_tools(wanted: BuildFile, machine: Machine) -> None:
    """All that the machine lacks at once: whoever is told of one thing after the other installs for an evening."""
    lacking = []
    for ask in (cuda_of, cudnn_of, python_of, lambda wanted, machine: compiler_of(wanted, machine, wanted.cuda)):
        try:
            ask(wanted, machine)
        except MissingTool as error:
            lacking.append(error)
    if lacking:
        hints = dict.fromkeys(each.hint for each in lacking if each.hint)
        raise MissingTool("\n".join(each.message for each in lacking), hint="\n".join(hints)) from lacking[0]


def mkl_of(wanted: BuildFile, machine: Machine) -> str | None:
    """The machine's own MKL, unless the list of a plan brings one: the same plan gives the same library anywhere."""
    if any(requirement.startswith("mkl-") for requirement in wanted.requires):
        return None
    return next((found.root for found in machine.intel if found.kind == "mkl"), None)


def _openmp(mkl: str | None, machine: Machine) -> str | None:
    """oneAPI keeps Intel's OpenMP with its compiler: `oneAPI\\mkl\\2024.2` goes with `oneAPI\\compiler\\2024.2`."""
    if mkl is None or machine.os != "windows":
        return None
    known = next((found.root for found in machine.intel if found.kind == "openmp"), None)
    folder, version = ntpath.split(mkl.rstrip("\\/"))
    top, name = ntpath.split(folder)
    return known or (ntpath.join(top, "compiler", version) if name.lower() == "mkl" else None)


def cuda_of(wanted: BuildFile, machine: Machine) -> Cuda | None:
    if wanted.cuda is None and wanted.cuda_root is None:
        if not wanted.arch_list:
            return None
        chosen = machine.toolkit
        if chosen is None:
            message = "the build wants GPU code, but there is no CUDA toolkit on this machine"
            raise MissingTool(message, hint="`rekindle doctor` says which one to install")
    else:
        # Of two of one version the one that lacks nothing: a toolkit without cuBLAS builds no PyTorch.
        fitting = [toolkit for toolkit in machine.toolkits if _is(toolkit, wanted)]
        chosen = min(fitting, key=lambda toolkit: bool(toolkit.missing), default=None)
    if chosen is None or chosen.nvcc is None or chosen.version is None:
        have = ", ".join(f"{kit.version} in {kit.root}" for kit in machine.toolkits if kit.version) or "none"
        message = f"CUDA {wanted.cuda or wanted.cuda_root} is not on this machine (found: {have})"
        raise MissingTool(message, hint=_how_to_have(wanted))
    paths = machine.paths
    rivals = {paths.dirname(kit.nvcc) for kit in machine.toolkits if kit.nvcc and kit.root != chosen.root} | {
        paths.join(kit.root, part) for kit in machine.toolkits if kit.root != chosen.root for part in ("bin", "libnvvp")
    }
    # nvcc cannot read letters outside ASCII: the 8.3 name of the same folder serves, where the volume has one.
    root, nvcc = chosen.root, chosen.nvcc
    if not root.isascii() and chosen.short_root and nvcc.startswith(root):
        root, nvcc = chosen.short_root, chosen.short_root + nvcc[len(chosen.root) :]
    return Cuda(
        root=root,
        nvcc=nvcc,
        version=chosen.version,
        targets=chosen.targets,
        rivals=tuple(sorted(rivals)),
    )


def _how_to_have(wanted: BuildFile) -> str:
    if wanted.cuda is None:
        return "install that toolkit, without its driver, beside the others"
    return f"`rekindle toolchain install cuda=={wanted.cuda}`, or add `--provision` to `rekindle build`"


def _is(toolkit: FoundToolkit, wanted: BuildFile) -> bool:
    if wanted.cuda_root is not None and toolkit.root.rstrip("/\\").lower() != wanted.cuda_root.rstrip("/\\").lower():
        return False
    return wanted.cuda is None or (toolkit.version is not None and toolkit.version.starts_with(wanted.cuda))


def fitting_cudnns(wanted: BuildFile, machine: Machine) -> list[FoundCudnn]:
    """The cuDNN on this machine that are the one asked for."""
    asked = wanted.cudnn
    return [each for each in machine.cudnns if asked and each.version and same_release(each.version, asked)]


def cudnn_of(wanted: BuildFile, machine: Machine) -> BuildCudnn | None:
    if wanted.cudnn is None:
        return None
    fitting = fitting_cudnns(wanted, machine)
    if not fitting:
        have = ", ".join(f"{found.version} in {found.root}" for found in machine.cudnns) or "none"
        message = f"cuDNN {wanted.cudnn} is not on this machine (found: {have})"
        beside = ("--cuda", str(wanted.cuda.major_minor)) if wanted.cuda else ()
        install = rekindle("toolchain", "install", f"cudnn=={wanted.cudnn}", *beside)
        raise MissingTool(message, hint=f"`{install}`, or build with `--no-cudnn`")
    found: FoundCudnn = next((each for each in fitting if not each.missing), fitting[0])
    paths = machine.paths
    link = [name for name in found.libraries if paths.basename(name).lower() in ("cudnn.lib", "libcudnn.so")]
    return BuildCudnn(
        root=found.root,
        version=found.version,
        include=paths.dirname(found.header) if found.header else None,
        library=paths.dirname(link[0]) or None if link else None,
    )


def python_of(wanted: BuildFile, machine: Machine) -> tuple[str, Version | None]:
    if wanted.python is None:
        if machine.python is None:
            raise MissingTool("no Python was found to build with", hint='name one with `python = "…"` in the plan')
        return machine.python.path, machine.python.version
    if "/" in wanted.python or "\\" in wanted.python:
        return wanted.python, next((each.version for each in machine.pythons if each.path == wanted.python), None)
    minor = read_python(wanted.python).version
    for found in machine.pythons:
        if found.minor == minor:
            return found.path, found.version
    have = ", ".join(str(found.version) for found in machine.pythons if found.version) or "none"
    message = f"Python {wanted.python} is not on this machine (found: {have})"
    here = machine.python.minor if machine.python else None
    hint = f'`{Command("uv", "python", "install", minor)}` brings it, or name another with `python = "PATH"`'
    if wanted.torch and here in torch_release(wanted.torch).pythons(machine.os):
        hint = f"plan for the Python that is here (`rekindle plan` with `--python {here}`); {hint}"
    raise MissingTool(message, hint=hint)


def compiler_of(wanted: BuildFile, machine: Machine, cuda: Version | None) -> Compiler:
    return _msvc(wanted, machine, cuda) if machine.os == "windows" else _gcc(wanted, machine, cuda)


def _gcc(wanted: BuildFile, machine: Machine, cuda: Version | None) -> Compiler:
    found = list(machine.compilers)
    if wanted.compiler:
        found = [one for each in found if (one := _called(each, wanted.compiler))]
    elif cuda:
        # The newest that this CUDA takes; the default one first among equals.
        fitting = gcc.taken_by(cuda, found)
        found = sorted(fitting, key=lambda each: (each.version.major, each.default), reverse=True)
    if not found:
        any_that = f"a C++ compiler that CUDA {cuda} takes" if cuda else "a C++ compiler"
        asked = f"`{wanted.compiler}`" if wanted.compiler else any_that
        have = ", ".join(f"{each.path} ({each.version})" for each in machine.compilers) or "none"
        message = f"{asked} is not on this machine (found: {have})"
        command = install_gcc(cuda) if cuda else "rekindle toolchain install gcc"
        raise MissingTool(message, hint=f"`{command}`, or add `--provision` to `rekindle build`")
    best = found[0]
    folder, name = posixpath.split(best.path)
    plain = posixpath.join(folder, name.replace("clang++", "clang").replace("g++", "gcc").replace("c++", "cc"))
    return Compiler(kind=best.kind, cxx=best.path, c=plain, cuda_host=best.path, version=best.version)


def _called(compiler: FoundCompiler, name: str) -> FoundCompiler | None:
    """The compiler by the name that was asked for, which may be another name of the same file."""
    every = (compiler.path, *compiler.also)
    path = next((path for path in every if name in (path, posixpath.basename(path))), None)
    return msgspec.structs.replace(compiler, path=path) if path else None


def _msvc(wanted: BuildFile, machine: Machine, cuda: Version | None) -> Compiler:
    kind = wanted.compiler or "cl"
    if kind not in ("cl", "clang-cl", "icx"):
        message = f"`{kind}` cannot compile PyTorch on Windows"
        raise BadInput(message, hint="use `cl`, or `clang-cl` or `icx` with `cl` as nvcc's host compiler")
    fitting = [each for each in machine.toolsets if each.x64]
    taken = msvc.taken_by(cuda, fitting)
    if wanted.toolset:
        asked_for = read_toolset(wanted.toolset)
        named = [each for each in fitting if each.version.starts_with(asked_for)]
        fitting = named or (taken if wanted.toolsets else [])
    else:
        fitting = taken
    if not fitting:
        have = ", ".join(str(each.version) for each in machine.toolsets) or "none"
        any_that = f"an MSVC toolset that CUDA {cuda or ''} takes"
        asked = f"MSVC toolset {wanted.toolsets or wanted.toolset}" if wanted.toolset else any_that
        message = f"{asked} is not on this machine (found: {have})"
        raise MissingTool(message, hint="add it in the Visual Studio Installer under individual components")
    best: FoundToolset = fitting[0]
    cl = ntpath.join(best.root, "bin", "Hostx64", "x64", "cl.exe")
    driver = "cl" if kind == "cl" else kind
    return Compiler(kind=kind, cxx=driver, c=driver, cuda_host=cl, studio=best.studio, toolset=best.version)
