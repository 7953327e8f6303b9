"""The backend `graft`: compiles the GPU half of a base wheel and puts it in the place of the old one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path, PurePath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rekindle.build.configure.backends import BackendCall, BackendJob, NinjaBackend
from rekindle.build.graft import assemble, border
from rekindle.build.graft import base as bases
from rekindle.build.graft.base import Base
from rekindle.build.graft.ninja_file import Half, write
from rekindle.build.graft.sources import GENERATED, sources
from rekindle.core import codec, files
from rekindle.core.errors import BadInput, ChecksFailed, RekindleError
from rekindle.core.findings import Finding, State
from rekindle.core.python import own
from rekindle.wheels.inspect.grafted import GPU_HALF

_JOB = "graft.json"


class Graft(NinjaBackend):
    """PyTorch's GPU half alone. It works on our copy of the source: torchgen writes into it, and patches may."""

    name = "graft"
    copies = True

    def configure(self, job: BackendJob) -> Sequence[BackendCall]:
        """Torchgen's sources, then the Ninja file, by this program: only then the names of the sources are known."""
        build = Path(job.build)
        files.write_text(build / _JOB, codec.to_json(job) + "\n")
        generated = build / GENERATED
        generated.mkdir(parents=True, exist_ok=True)
        made = (job.python, "-m", "torchgen.gen", "--source-path", "aten/src/ATen", "--install_dir", str(generated),
                "--per-operator-headers", "--generate", "sources")  # fmt: skip
        return [
            BackendCall(args=made, cwd=job.source),
            BackendCall(args=tuple(own("rekindle.build.graft.backend", job.build)), cwd=job.build),
        ]

    def configured(self, build: Path) -> tuple[Path, ...]:
        return (build / "build.ninja",)

    def check(self, job: BackendJob, log: str) -> tuple[Finding, ...]:
        return border.layouts(half_of(job))

    def package(self, job: BackendJob, into: PurePath) -> Sequence[BackendCall]:
        return []

    def collect(self, job: BackendJob, into: Path) -> Path:
        half = half_of(job)
        new = {name: made for name in GPU_HALF if (made := half.build / "lib" / bases.library_name(name)).is_file()}
        found = [*border.check(half, new), *border.registrations(half, new, job.python)]
        if bad := [finding.found for finding in found if finding.state is not State.PASS]:
            message = f"the new GPU half is not proven to fit the base: {'; '.join(bad)}"
            hint = "the wheel was not written, what was compiled is kept; see the log of the step `compile`"
            raise ChecksFailed(message, hint=hint)
        return assemble.assemble(half, base_of(job), new, version=job.version, into=into, proofs=found)


def base_of(job: BackendJob) -> Base:
    if job.request.base is None:
        raise BadInput("the plan names no base wheel", hint="add `--graft FILE` with the official wheel")
    return job.request.base


def half_of(job: BackendJob) -> Half:
    """The base is unpacked at the first call."""
    build, base = Path(job.build), base_of(job)
    unpacked = bases.unpack(base, build / "base")
    packages = packages_of(Path(job.python), base.requires)
    tree, cards = Path(job.source), [target.capability for target in job.request.gpu_targets]
    return Half(
        request=job.request,
        tree=tree,
        build=build,
        base=build / "base",
        unpacked=unpacked,
        packages=packages,
        sources=sources(tree, build, cards, linux=job.request.system == "linux"),
    )


def packages_of(python: Path, pinned: Sequence[str]) -> Path:
    """Where pip has put NVIDIA's packages: those that the base pins, or nothing is compiled against them."""
    home = python.parent.parent
    found = [*home.glob("lib/python3*/site-packages/nvidia"), *home.glob("Lib/site-packages/nvidia")]
    if not found:
        raise BadInput("NVIDIA's packages, which the base requires, are not installed", hint="add `--clean`")
    there = {canonicalize_name(each.name): each.version for each in distributions(path=[str(found[0].parent)])}
    for asked in map(Requirement, pinned):
        version = there.get(canonicalize_name(asked.name))
        if asked.name.startswith("nvidia-") and (version is None or version not in asked.specifier):
            message = f"the base pins {asked}, and {version or 'nothing'} is installed for the build"
            raise BadInput(message, hint="add `--clean`: the packages of the base are installed anew")
    return found[0]


def main(build: Path, environ: Mapping[str, str]) -> None:
    job = codec.from_json(files.read_bytes(build / _JOB), BackendJob)
    half = half_of(job)
    write(half, environ)
    for library, names in half.sources.files.items():
        print(f"{library}: {len(names)} files")
    for why in half.sources.left:
        print(f"left out: {why}")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), os.environ)
    except RekindleError as failed:
        sys.exit(f"error: {failed.message}\nhint: {failed.hint}")
