"""An extension against the torch that it would be loaded with: version, platform, CUDA and C++ ABI.

Symbols and libraries are compared where links are followed; here is what the two packages say of themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version as PackageVersion

from rekindle.compat.extension_torch import same_abi, same_cuda
from rekindle.compat.judgement import Clash
from rekindle.core.errors import BadInput
from rekindle.core.findings import Finding, failed
from rekindle.core.processes import reads_only
from rekindle.core.version import Version
from rekindle.formats import package
from rekindle.formats.binary import Binary
from rekindle.machine.python.environment import find, torch_of
from rekindle.model.cuda_line import CudaLine
from rekindle.model.requirement import requirement
from rekindle.model.wheel import WheelIdentity
from rekindle.wheels.closure.walk import TorchLibraries, requirement_name, torch_libraries
from rekindle.wheels.inspect import identity
from rekindle.wheels.inspect.identity import Identity, read_binaries


@reads_only()
def read_torch(where: Path) -> TorchLibraries:
    """The torch of a wheel, of a `torch` folder, or of an environment (its folder or its python)."""
    named = where.suffix == ".whl" or where.name == "torch"
    place = where if named else torch_of(find(where))
    if place is None:
        raise _no_torch(where)
    with package.open_package(place) as found:
        binaries = read_binaries(found)
        known = identity.identify(found, binaries)
    if known.torch is None or not known.is_torch_package:
        raise _no_torch(where)
    return torch_libraries(
        f"torch {known.torch}",
        binaries,
        version=known.torch,
        cuda=known.cuda,
        cxx_abi=known.cxx_abi,
        requires=known.requires,
    )


def _no_torch(where: Path) -> BadInput:
    message = f"`{where}` has no torch to check against"
    return BadInput(message, hint="name a torch wheel, or an environment that has torch")


def wheel_beside(wheel: Path, requires: Sequence[str], tags: Sequence[str]) -> Path | None:
    """A torch wheel in the same folder that this extension's requirement and platform admit."""
    platforms = {tag.split("-")[-1] for tag in tags}
    for path in sorted(wheel.parent.glob("torch-*.whl"), reverse=True):
        parts = path.stem.split("-")
        if len(parts) >= 5 and admits(requires, parts[1]) and platforms & set(parts[-1].split(".")):
            return path
    return None


def fit_findings(known: Identity, torch: TorchLibraries, binaries: Sequence[Binary]) -> list[Finding]:
    """What the two say of themselves and does not go together. Nothing: as far as that goes, they fit."""
    found: list[str] = []
    wanted = torch_line(known.requires)
    if not admits(known.requires, torch.version):
        found.append(f"it requires `{wanted}`, and this is {torch.version}")
    machine = next((each.machine for each in binaries if each.machine), None)
    system = "windows" if any(each.pe for each in binaries) else "linux"
    if (system, machine) != (torch.system, torch.machine) and machine is not None:
        found.append(f"it is for {system} on {machine}, torch for {torch.system} on {torch.machine}")
    stated = cuda_of(known)
    judged = [same_abi("it", known.cxx_abi, torch.cxx_abi), *([same_cuda("it", stated, torch.cuda)] if stated else [])]
    found += [answer.sentence for answer in judged if isinstance(answer, Clash)]
    return [
        failed(
            "closure.fit",
            f"it does not fit {torch.label}: {text}",
            why="an extension works only with the torch, the CUDA and the C++ ABI that it was built for",
            fix="install its build for this torch, or build it: `rekindle extension find`, `build`",
        )
        for text in found
    ]


def cuda_of(known: WheelIdentity) -> Version | None:
    """The CUDA that a package says it was built with: in its version (`+cu118`), or as torch says it."""
    if known.cuda is not None:
        return known.cuda
    words = (known.version or "").partition("+")[2].replace("-", ".").split(".")
    return next((line.cuda for line in map(CudaLine.parse, words) if line), None)


def torch_line(requires: Sequence[str]) -> str | None:
    """What it says of the torch that it needs."""
    return next((line for line in requires if requirement_name(line) == "torch"), None)


def admits(requires: Sequence[str], version: str) -> bool:
    """May it be installed beside this torch, by its own requirement?"""
    asked = requirement(torch_line(requires) or "")
    try:
        return asked is None or asked.specifier.contains(PackageVersion(version), prereleases=True)
    except ValueError:
        return True
