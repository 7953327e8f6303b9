"""How a project is configured, compiled and packed: PyTorch's setup.py, scikit-build-core, or plain CMake."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, Protocol

import msgspec

from rekindle.build.configure import check, cmake_result
from rekindle.build.configure.options import Options
from rekindle.build.configure.request import BuildRequest
from rekindle.build.configure.tools import Tools
from rekindle.build.run.folders import Folders
from rekindle.core import codec, files
from rekindle.core.errors import StepFailed
from rekindle.core.findings import Finding
from rekindle.core.version import Version


class BackendCall(msgspec.Struct, frozen=True, kw_only=True):
    args: tuple[str, ...]
    cwd: str


class BackendJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend needs to know to say its commands."""

    request: BuildRequest
    options: Options
    tools: Tools
    source: str
    build: str
    stage: str
    python: str
    """The one that runs the build: of an environment of its own where the release needs one."""
    version: str
    jobs: int | None = None
    """A fixed number. None leaves it to the job tokens, which an explicit one would make Ninja ignore."""
    keep_going: bool = False
    """After a failure everything that does not depend on it."""


class Backend(Protocol):
    name: str
    copies: bool
    """It writes into the source, so that it works on our copy."""
    configures_again: bool
    """Packing runs CMake once more, so that what it decided has to be looked at once more."""

    def python_for(self, source: Path, python: str | None) -> str | None:
        """The Python that a wheel for `python` is built with; None: one wheel is for every Python."""

    def build_folder(self, folders: Folders) -> Path: ...
    def configure(self, job: BackendJob) -> Sequence[BackendCall]: ...
    def configured(self, build: Path) -> tuple[Path, ...]:
        """The files that configuring leaves."""

    def check(self, job: BackendJob, log: str) -> tuple[Finding, ...]:
        """Is what was configured what the plan says? `log` is what configuring printed."""

    def targets(self, job: BackendJob) -> tuple[str, ...]: ...
    def compile(self, job: BackendJob) -> Sequence[BackendCall]: ...
    def package(self, job: BackendJob, into: PurePath) -> Sequence[BackendCall]: ...
    def collect(self, job: BackendJob, into: Path) -> Path: ...


class NinjaBackend:
    """What everything has in common that Ninja compiles."""

    configures_again = False

    def python_for(self, source: Path, python: str | None) -> str | None:
        return python

    def build_folder(self, folders: Folders) -> Path:
        return folders.build

    def targets(self, job: BackendJob) -> tuple[str, ...]:
        return job.request.targets

    def compile(self, job: BackendJob) -> Sequence[BackendCall]:
        return [ninja(job, self.targets(job))]


class _CMake(NinjaBackend):
    """What CMake configures."""

    def configure(self, job: BackendJob) -> Sequence[BackendCall]:
        args = [job.tools.cmake.path, "-S", job.source, "-B", job.build, "-G", "Ninja", *cmake_arguments(job)]
        return [BackendCall(args=tuple(args), cwd=job.source)]

    def collect(self, job: BackendJob, into: Path) -> Path:
        return only_wheel(into)

    def configured(self, build: Path) -> tuple[Path, ...]:
        return (build / "CMakeCache.txt", build / "build.ninja")

    def check(self, job: BackendJob, log: str) -> tuple[Finding, ...]:
        return check.check(job.request, job.options, cmake_result.configured_in(Path(job.build), log))


class PlainCMake(_CMake):
    """Any CMake project: its install tree becomes the wheel."""

    name = "cmake"
    copies = False

    def python_for(self, source: Path, python: str | None) -> str | None:
        return None

    def package(self, job: BackendJob, into: PurePath) -> Sequence[BackendCall]:
        args = (job.tools.cmake.path, "--install", job.build, "--prefix", job.stage)
        return [BackendCall(args=args, cwd=job.build)]

    def collect(self, job: BackendJob, into: Path) -> Path:
        from rekindle import __version__
        from rekindle.build.script.standalone_steps import wheel_of_tree

        made_by = f"rekindle {__version__}"
        return wheel_of_tree(Path(job.stage), name=job.request.name, version=job.version, into=into, generator=made_by)


class SetupPy(_CMake):
    """PyTorch through 2.13: setup.py runs CMake in `build`, with what the environment says."""

    name = "setup.py"
    copies = True

    def build_folder(self, folders: Folders) -> Path:
        return folders.source / "build"

    def configure(self, job: BackendJob) -> Sequence[BackendCall]:
        first = (job.python, "setup.py", "build", "--cmake-only")
        commands = [BackendCall(args=first, cwd=job.source)]
        # setup.py hands on only USE_*, BUILD_*, CMAKE_* and a fixed list; the rest is told to CMake itself.
        extra = [f"-D{each.name}={each.cmake_value}" for each in job.options.resolved if each.via == "cmake"]
        if extra:
            commands.append(BackendCall(args=(job.tools.cmake.path, *extra, job.build), cwd=job.source))
        return commands

    def targets(self, job: BackendJob) -> tuple[str, ...]:
        return job.request.targets or ("install",)

    def package(self, job: BackendJob, into: PurePath) -> Sequence[BackendCall]:
        args = (job.python, "setup.py", "bdist_wheel", "--dist-dir", str(into))
        return [BackendCall(args=args, cwd=job.source)]


class ScikitBuildCore(_CMake):
    """PyTorch from 2.14: the build folder is ours, so that configure, check and compile can be told apart."""

    name = "scikit-build-core"
    copies = True
    configures_again = True

    def python_for(self, source: Path, python: str | None) -> str | None:
        """`wheel.py-api` makes it one for all (`py3`), or for that Python and newer (`cp311`), with its stable ABI."""
        said = python_api(source)
        if said.startswith("py"):
            return None
        stable = re.fullmatch(r"cp3(\d+)", said)
        if stable is None or python is None or python.endswith("t") or Version(python) < Version(f"3.{stable[1]}"):
            return python
        return f"3.{stable[1]}"

    def configure(self, job: BackendJob) -> Sequence[BackendCall]:
        (plain,) = super().configure(job)
        return [BackendCall(args=(*plain.args, f"-DPython_EXECUTABLE={job.python}"), cwd=job.source)]

    def package(self, job: BackendJob, into: PurePath) -> Sequence[BackendCall]:
        args = [job.python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(into)]
        told = [f"build-dir={job.build}", "cmake.build-type=Release"]
        # What git ignores is left out of the wheel, and torch/lib is ignored.
        told += ["sdist.include=torch/lib/**"] if job.request.torch else []
        told += [f"cmake.define.{each.name}={each.cmake_value}" for each in job.options.resolved]
        # Its short form came with pip 23.1; Python 3.10 and 3.11 bring an older one.
        args += [f"--config-settings={each}" for each in told]
        return [BackendCall(args=(*args, job.source), cwd=job.source)]


def cmake_arguments(job: BackendJob) -> list[str]:
    """What a plain CMake call is told. PyTorch's own architecture variable is in the environment."""
    args = ["-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_MAKE_PROGRAM={job.tools.ninja.path}"]
    if job.request.cuda and not job.request.torch:
        targets = job.request.gpu_targets
        listed = ";".join(f"{each.capability.sm[3:]}-{'virtual' if each.ptx else 'real'}" for each in targets)
        args.append(f"-DCMAKE_CUDA_ARCHITECTURES={listed}")
    return [*args, *(f"-D{each.name}={each.cmake_value}" for each in job.options.resolved)]


def ninja(job: BackendJob, targets: Sequence[str]) -> BackendCall:
    args = [job.tools.ninja.path, "-C", job.build]
    if job.jobs:
        args += ["-j", str(job.jobs)]
    if job.keep_going:
        args += ["-k", "0"]
    return BackendCall(args=(*args, *targets), cwd=job.build)


def only_wheel(into: Path) -> Path:
    found = sorted(into.glob("*.whl"))
    if len(found) != 1:
        message = f"packing left {len(found)} wheels in `{into}` instead of one"
        raise StepFailed(message, hint="read the log of the step; `rekindle diagnose` may know the cause")
    return found[0]


def python_api(source: Path) -> str:
    """What scikit-build-core is told of the Pythons that a wheel is for."""
    project = source / "pyproject.toml"
    if not project.is_file():
        return ""
    found: Any = codec.from_toml(files.read_bytes(project), dict[str, Any], name=f"`{project}`")
    for name in ("tool", "scikit-build", "wheel", "py-api"):
        found = found.get(name, "") if isinstance(found, dict) else ""
    return str(found)
