"""torchvision and torchaudio: which version can be had for which torch, CUDA line, Python and platform.

A wheel of theirs is built with one torch. Most serve that release alone; those that keep to torch's stable interface
(`stable`) serve newer ones too. Both compare their CUDA with torch's at import: torchvision the major version,
torchaudio major and minor.
"""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.core.errors import UnknownName
from rekindle.core.untrusted import PipVersion
from rekindle.core.version import Range, Version
from rekindle.knowledge.tables import Row, cached, observed
from rekindle.knowledge.torch.releases import full_version
from rekindle.model.platform import Platform
from rekindle.model.torch_pin import CPU, TorchPin

PROJECTS = ("torchvision", "torchaudio")


class Companion(Row, frozen=True, kw_only=True):
    """The wheels of one version for one CUDA line (`cu126`, `cpu`) and platform."""

    project: str
    version: PipVersion
    torch: str
    """The release it was built with."""
    torch_floor: str | None
    """What its metadata asks for where it names no single release: `2.14.0` and later."""
    stable: bool
    line: str
    cuda_check: str
    system: str
    machine: str
    pythons: tuple[str, ...]

    def serves(self, torch: str) -> bool:
        """Whether it runs with this release. One built with a newer torch is not trusted with an older one."""
        if self.torch == torch:
            return True
        return self.stable and Version.parse(self.torch) < Version.parse(torch)


@cached
def _by_project() -> dict[str, tuple[Companion, ...]]:
    """Newest version first."""
    rows = observed("companions", dict[str, tuple[Companion, ...]])["companions"]
    newest = sorted(rows, key=lambda row: Version.parse(row.version), reverse=True)
    return {name: tuple(row for row in newest if row.project == name) for name in PROJECTS}


@cached
def companion(project: str, torch: str, place: Platform, *, line: str, python: str | None) -> Companion | None:
    """The wheel to install beside this torch; None: there is none for this line, Python and platform.

    `line` is torch's own CUDA line; the wheel must be of the same one, because an index of PyTorch's holds one line.
    """
    there = [
        row
        for row in _by_project()[project]
        if row.line == line and Platform(row.system, row.machine) == place and (python is None or python in row.pythons)
    ]
    return _belonging(there, full_version(torch))


def _belonging(rows: Sequence[Companion], wanted: str) -> Companion | None:
    """The newest that was built with this torch, else the newest that runs with it."""
    exact = next((row for row in rows if row.torch == wanted), None)
    return exact or next((row for row in rows if row.serves(wanted)), None)


def without_gpu_code(project: str, torch: str, place: Platform, *, python: str | None) -> Companion | None:
    """The package index's own wheel where that goes with every line: torchaudio had no GPU code before 0.10."""
    row = companion(project, torch, place, line=CPU, python=python)
    plain = row is not None and project == "torchaudio" and Version(row.version) < Version("0.10")
    return row if plain else None


def lines_for(project: str, torch: str, place: Platform) -> dict[str, Companion]:
    """The lines for which one can be had with this torch there."""
    wanted = full_version(torch)
    rows = (row for row in _by_project()[project] if Platform(row.system, row.machine) == place)
    return {row.line: row for row in rows if row.serves(wanted)}


def up_to(project: str, torch: str) -> tuple[Companion, ...]:
    """Every row that was built with this torch or an earlier one, newest first."""
    return tuple(row for row in _by_project()[project] if Version(row.torch) <= Version(full_version(torch)))


@cached
def made_with(project: str, wanted: str) -> frozenset[str]:
    """The releases of torch that this version or range of a companion (`0.15`, `>=0.20`) was built with."""
    asked = Range(wanted, f"`--{project}`", "0.21` or `>=0.20,<0.23")
    found = frozenset(row.torch for row in _by_project()[project] if asked.holds(row.version))
    if not found:
        newest = _by_project()[project][0].version
        raise UnknownName(f"no {project} {wanted} is in Rekindle's data", hint=f"its newest is {newest}")
    return found


@cached
def version_for(project: str, torch: str) -> str | None:
    """The version that belongs to a torch, whatever its CUDA line and Python; None: the tables know of none."""
    row = _belonging(_by_project().get(project, ()), full_version(torch))
    return row.version if row else None


def belongs(project: str, version: str, torch: str) -> bool | None:
    """Whether this version runs with this torch; None: the tables do not know the version."""
    plain = TorchPin.parse(version).release
    rows = [row for row in _by_project().get(project, ()) if row.version == plain]
    return any(row.serves(full_version(torch)) for row in rows) if rows else None
