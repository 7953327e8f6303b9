"""Which builds a torch release has: the CUDA lines of PyTorch's indexes, and what an index takes for a request."""

from __future__ import annotations

import re
from collections.abc import Callable

from rekindle.compat.judgement import Alternative, Clash, Fits, Judgement, Unknown
from rekindle.compat.toolkit_card import able_toolkits
from rekindle.compat.torch_python import takes
from rekindle.core.errors import UnknownName
from rekindle.core.pattern import late
from rekindle.core.version import Version
from rekindle.knowledge.builds.limits import since
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.knowledge.torch import wheel_platforms
from rekindle.knowledge.torch.releases import (
    TorchRelease,
    early_cudas,
    early_line,
    newest_cuda,
    parse_arch_list,
    torch_release,
    torch_releases,
)
from rekindle.knowledge.torch.torch_wheels import old_wheels
from rekindle.model.card import Capability
from rekindle.model.cuda_line import CudaLine
from rekindle.model.platform import Platform
from rekindle.model.torch_pin import CPU, TorchPin


def package_line(torch: str, place: Platform) -> str | None:
    """The line that `pip install torch==1.13.1` brings; None where the tables do not say."""
    try:
        return ordinary_line(torch_release(torch), place)
    except UnknownName:
        return CPU if place.system == "windows" and Version(torch) >= since("cpu-on-windows-index") else None


def ordinary_line(release: TorchRelease, place: Platform) -> str:
    """The line that the Python package index itself has of a release: a CPU build on Windows."""
    if place.system == "windows":
        return CPU
    usual = next((each.name for each in release.variants if each.index_default_linux), CPU)
    if place.arch == "x86_64":
        return usual
    built = wheel_platforms.of(release.minor, place.arch)
    return usual if built is not None and built.cuda else CPU


def taken(
    admits: Callable[[str], bool],
    *,
    line: str | None = None,
    python: str | None = None,
    system: str = "linux",
    until: str | None = None,
) -> str | None:
    """The release that an index takes: the newest one that is admitted, with this line and for this Python.

    `until`: a day, as uv's `--exclude-newer` names it.
    """
    for release in reversed(torch_releases()):
        if python is not None and isinstance(takes(release.newest, python, system), Clash):
            continue
        if line not in (None, CPU) and release.variant(line or "") is None:
            continue
        days = release.patches.items()
        found = [patch for patch, day in days if admits(patch) and not (until and day[:10] >= until[:10])]
        if found:
            return max(found, key=Version)
    old = (row for row in reversed(old_wheels()) if python is None or python in row.pythons)
    return next((row.version for row in old if line is None and admits(row.version)), None)


def published(torch: str) -> Judgement:
    """Is there such a release? Of the newest minor one there may be more than the tables have."""
    try:
        torch_release(torch)
    except UnknownName as unknown:
        row = next((row for row in torch_releases()[:-1] if Version(row.minor) == Version(torch).major_minor), None)
        if row is None:
            return Unknown(missing=unknown.message)
        return Clash(sentence=f"{unknown.message}: {row.minor} has {', '.join(row.patches)}", source=row.source)
    return Fits()


def has_line(torch: str, line: str) -> Judgement:
    """Was this release published for this line? Those of AMD and Intel are not in the tables."""
    if line != CPU and CudaLine.parse(line) is None:
        return Unknown(missing=f"which releases were published for {line} is not in the tables")
    try:
        release = torch_release(torch)
    except UnknownName as unknown:
        return Unknown(missing=unknown.message)
    if line == CPU or release.variant(line) is not None:
        return Fits()
    own = [index for index, each in enumerate(torch_releases()) if each.variant(line) is not None]
    if own and own[0] < torch_releases().index(release) < own[-1]:
        return Unknown(missing=f"whether torch {torch} was published for {line}, as releases before and after it were")
    names = tuple(each.name for each in release.variants)
    change = Alternative(what="cuda", value=names[-1], text=f"take {' or '.join(names)}")
    return Clash(sentence=f"there is no torch {torch} for {line}", source="PyTorch release matrix", changes=(change,))


_INDEX = late(r"https?://download\.pytorch\.org/whl/((?:nightly/|test/)?)((?:cu|\d)[\w.-]*)(?:/|\Z)")


def is_index(address: str) -> Judgement:
    """Has PyTorch an index of that name? Its nightly ones come and go; a CUDA newer than the tables may have one."""
    unknown = Unknown(missing=f"what the index {address[:60]} has is not known")
    match = _INDEX.match(address)
    if match is None:
        return unknown
    line = CudaLine.parse(match[2])
    every = {each.cuda.major_minor for release in torch_releases() for each in release.variants} | early_cudas()
    if line and (match[1] or line.cuda in every or line.cuda > max(every)):
        return unknown
    digits = re.sub(r"\D", "", match[2])
    meant = CudaLine.parse(f"cu{digits[:3]}")
    older = [each for each in every if str(each.major) == digits[:2] and not (meant and each > meant.cuda)]
    near = CudaLine(max(older or every))
    change = Alternative(what="cuda", value=near.name, text=f"take {near.name}")
    return Clash(sentence=f"there is no index {address}", source="download.pytorch.org", changes=(change,))


def any_code(torch: str | None, line: str | None, card: Capability) -> Judgement:
    """Whether any build of a release, or of a line, can have code for a card: not if none of its CUDAs makes any."""
    row = capabilities.facts(card)
    if row and row.torch.startswith("never: "):
        text = f"no PyTorch has code for a GPU of capability {card}: {row.torch.removeprefix('never: ')}"
        return Clash(sentence=text, source=row.source)
    said = CudaLine.parse(line)
    cudas = [said.cuda] if said else cudas_of(torch)
    able = able_toolkits(card)
    known = max(cudas, default=None)
    # The tables of toolkits begin at 9.0: what compiles for a card there may have been older.
    first = toolkits.toolkits()[0].version
    apart = known is not None and bool(able) and (known < able[0] != first or min(cudas) > able[-1])
    if known is None or not apart:
        named = f"what {_spoken(torch, line)} holds is not in the tables"
        return Unknown(missing=named if torch or line else "which torch it is, is not said")
    which = f"{able[0]} is the first" if known < able[0] else f"{able[-1]} was the last"
    older = (
        "" if said or (len(cudas) == 1 and torch_is_known(torch)) else " or older" if known < able[0] else " or newer"
    )
    return Clash(
        sentence=f"{_spoken(torch, line)} has no code for a GPU of capability {card}: it is of CUDA "
        f"{known if known < able[0] else min(cudas)}{older}, and {which} that compiles for {card.sm}",
        source="ptxas --help and nvcc --list-gpu-arch of the toolkits; PyTorch release matrix",
    )


def nightly_code(line: str | None, system: str, card: Capability) -> Clash | None:
    """A nightly build is newer than every release of its line: a card that the newest of them left out is out."""
    row = next((each for one in reversed(torch_releases()) if (each := one.variant(line or ""))), None)
    first = min((each.capability for each in (row.targets(system) if row else None) or ()), default=None)
    if row is None or first is None or card >= first:
        return None
    text = (
        f"a nightly torch of {line} has no code for a GPU of capability {card}: the newest release begins with {first}"
    )
    return Clash(sentence=text, source=row.source)


def early_code(torch: str | None, line: str | None, card: Capability) -> Judgement | None:
    """Whether every build of an early release and a line has code for a card; None for what the tables have not."""
    said = CudaLine.parse(line)
    row = early_line(Version(torch), said.cuda) if torch and said else None
    if row is None:
        return None
    if any(runs(target, card) is not Runs.NO for target in parse_arch_list(row.arch_list)):
        return Fits()
    text = f"{_spoken(torch, line)} has no code for a GPU of capability {card}: it was built for {row.arch_list}"
    return Clash(sentence=text, source=row.source)


def torch_is_known(torch: str | None) -> bool:
    try:
        return torch is not None and bool(torch_release(torch))
    except UnknownName:
        return False


def cudas_of(torch: str | None) -> list[Version]:
    """Every CUDA that a release was published with; of an early one the newest, which the others are older than."""
    if torch is None:
        return []
    if torch_is_known(torch):
        return [each.cuda for each in torch_release(torch).variants]
    early = newest_cuda(Version(torch))
    return [early] if early else []


def _spoken(torch: str | None, line: str | None) -> str:
    spoken = TorchPin(torch or "", line).spoken
    return spoken if torch else f"this {spoken}"
