"""What people write into build scripts and should not: the rules with their words, and the tables behind them."""

from __future__ import annotations

import re

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.tables import NamedRow, Row, cached, decided
from rekindle.knowledge.torch.releases import torch_release
from rekindle.model.card import Capability, Target
from rekindle.model.requirement import canonical_name


class ScriptRule(NamedRow, frozen=True, kw_only=True):
    """One rule: `severity` is wrong, careful or note. Words in braces are filled in with what was found."""

    severity: str
    found: str
    why: str
    asks: str = ""
    """What stays open where this was found: a script is not accepted for a card with it."""


class Pin(Row, frozen=True, kw_only=True):
    """A pinned version that does harm. `versions` is a specifier as pip writes them."""

    package: str
    versions: str
    why: str
    instead: str
    system: str | None = None
    works: str = ""
    """The one release of a dead name that is none."""
    pip_from: Version | None = None
    """It is the metadata that this pip and newer ones no longer read."""


class LeastPython(Row, frozen=True, kw_only=True):
    """Releases of a package from which on it needs a newer Python, each with that Python.

    `until`: the first releases that take a newer Python, each with the newest one that those before it take.
    """

    package: str
    releases: tuple[tuple[Version, Version], ...] = ()
    until: tuple[tuple[Version, Version], ...] = ()


class Switch(Row, frozen=True, kw_only=True):
    """A compiler switch with the values that exist."""

    name: str
    values: tuple[str, ...]
    why: str


class Renamed(Row, frozen=True, kw_only=True):
    """A variable that changed its name; between the two releases it was not looked at."""

    old: str
    new: str
    old_until: Version
    new_from: Version


class ExtensionRow(Row, frozen=True, kw_only=True):
    """Packages whose build imports torch. `from_source`: pip compiles them; `heavy`: that takes much memory.

    `plain`: those of them that the package index has without a compiled part.
    """

    name: str
    packages: tuple[str, ...]
    from_source: bool
    heavy: bool
    plain: tuple[str, ...] = ()


class Outside(Row, frozen=True, kw_only=True):
    """Variables that a system or a tool sets; a script may use them without setting them."""

    name: str
    variables: tuple[str, ...]


class ImageInstaller(Row, frozen=True, kw_only=True):
    """A family of systems: how the names of its images show it, and the programs that install packages there."""

    name: str
    pattern: str
    programs: tuple[str, ...]


class ImageLacks(Row, frozen=True, kw_only=True):
    """Programs that images of such a name do not have; what looks like `brought` may bring them."""

    image: str
    programs: tuple[str, ...]
    brought: str
    instead: str


class Submodules(Row, frozen=True, kw_only=True):
    """A repository that does not build while `folder` is empty, as a clone without its submodules leaves it."""

    repository: str
    folder: str


class PinsTorch(Row, frozen=True, kw_only=True):
    """Packages that ask for torch: for one release (then pip replaces the torch that is there), or for any."""

    packages: tuple[str, ...]


class AsksTorch(Row, frozen=True, kw_only=True):
    """The torch that a package asks for, from each of these releases on; the last is its newest.

    `brings`: it asks for a torch itself. Without, a torch asks for one release of it, and it goes with that torch only.
    """

    package: str
    releases: tuple[tuple[str, str], ...]
    brings: bool = True


class CudaDefault(Row, frozen=True, kw_only=True):
    """What a program compiles its CUDA code for where nobody says: with the toolkits `from_cuda` to below `to_cuda`.

    `programs` are its names, also those of packages; `switches` are the options of CMake that turn CUDA on in it.
    """

    programs: tuple[str, ...]
    targets: tuple[Target, ...]
    switches: tuple[str, ...] = ()
    from_cuda: Version
    to_cuda: Version | None = None

    def holds(self, cuda: Version) -> bool:
        return cuda >= self.from_cuda and (self.to_cuda is None or cuda < self.to_cuda)


class CogTorch(Row, frozen=True, kw_only=True):
    """Releases for which Cog takes the newest line of PyTorch's that the CUDA it is told allows."""

    first: Version
    last: Version


class OnIndex(Row, frozen=True, kw_only=True):
    """What PyTorch's own index has beside torch; `torch-*` stands for every name that begins so.

    Of `numpy_one`: releases that ask for NumPy 1, as requirements. Of `numpy_two`: what asks for NumPy 2 today. Of
    `numpy_any`: what asks for any. Of `torch_alone`: what asks for torch and none of its companions.
    """

    packages: tuple[str, ...]
    conda: bool = False
    """Of conda's builds alone."""


class ScriptLine(Row, frozen=True, kw_only=True):
    """A fault that one line shows: `rule` says it, with what the first group of `pattern` (RE2) found."""

    rule: str
    dialects: tuple[str, ...]
    pattern: str
    why: str = ""
    instead: str = ""
    unless: str = ""
    """Where this is anywhere in the script, the line is right."""
    needs: str = ""
    """The line counts only where this is in the script."""
    below: Capability | None = None
    """It is wrong for cards older than this."""


class ScriptRules(msgspec.Struct, frozen=True, kw_only=True):
    pin: tuple[Pin, ...]
    least_python: tuple[LeastPython, ...]
    switch: tuple[Switch, ...]
    renamed: tuple[Renamed, ...]
    extension: tuple[ExtensionRow, ...]
    outside: tuple[Outside, ...]
    pins_torch: tuple[PinsTorch, ...]
    needs_torch: tuple[PinsTorch, ...]
    asks_torch: tuple[AsksTorch, ...]
    on_index: tuple[OnIndex, ...]
    numpy_one: tuple[OnIndex, ...]
    numpy_two: tuple[OnIndex, ...]
    numpy_any: tuple[OnIndex, ...]
    torch_alone: tuple[OnIndex, ...]
    cuda_default: tuple[CudaDefault, ...]
    cog_torch: tuple[CogTorch, ...]
    image_installer: tuple[ImageInstaller, ...]
    image_lacks: tuple[ImageLacks, ...]
    submodules: tuple[Submodules, ...]
    line: tuple[ScriptLine, ...]


@cached
def script_rules() -> ScriptRules:
    return decided("review", ScriptRules)


@cached
def rules() -> dict[str, ScriptRule]:
    """The rules by their id. They are read only when one of them has something to say."""
    return {row.id: row for row in decided("review_rules", dict[str, tuple[ScriptRule, ...]])["rule"]}


def rule(id: str) -> ScriptRule:
    return rules()[id]


def needs_python(package: str, version: Version, python: Version) -> tuple[Version, Version] | None:
    """The Python that a release needs, and the first release that needs more than this one; None where it is taken."""
    every = [each for row in script_rules().least_python if row.package == package for each in row.releases]
    needs = max((least for first, least in every if first <= version), default=python)
    return (needs, min(first for first, least in every if least > python)) if needs > python else None


def last_python(package: str, version: Version, python: Version) -> tuple[Version, Version] | None:
    """The newest Python that a release takes, and the first release that takes this one; None where it is taken."""
    rows = (row for row in script_rules().least_python if row.package == package)
    old = [each for row in rows for each in row.until if version < each[0] and each[1] < python]
    return (min(last for _, last in old), max(first for first, _ in old)) if old else None


def cog_line(torch: str, cuda: str | None) -> str | None:
    """The line of PyTorch's that Cog takes for a pinned torch on a GPU; None where nobody has looked."""
    most, minor = Version.find(cuda or "99.0"), Version(torch).major_minor
    if most is None or not any(row.first <= minor <= row.last for row in script_rules().cog_torch):
        return None
    lines = [each for each in torch_release(torch).variants if each.cuda <= most]
    return max(lines, key=lambda each: each.cuda).name if lines else None


@cached
def _extensions() -> dict[str, ExtensionRow]:
    return {name: row for row in script_rules().extension for name in row.packages}


def extension(name: str) -> ExtensionRow | None:
    """The row of a package, a repository or a folder by its name."""
    row = _extensions().get(canonical_name(name.partition("#")[0]))
    if row is None and "#" in name:
        row = _extensions().get(re.sub(r"[-_./]+", "-", name.lower().rpartition("/")[2]))
    return row


def submodules(repository: str) -> Submodules | None:
    """What a repository (`owner/name`, lower case) has in submodules and cannot be built without."""
    return next((row for row in script_rules().submodules if row.repository == repository), None)


@cached
def outside() -> frozenset[str]:
    return frozenset(name.upper() for row in script_rules().outside for name in row.variables)


def pins_torch(name: str) -> bool:
    """Whether each release of a package asks for one torch."""
    return any(name in row.packages for row in script_rules().pins_torch)


def on_pytorchs_index(name: str) -> bool:
    every = [each for row in script_rules().on_index for each in row.packages]
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in every)


def needs_torch(name: str) -> bool:
    """Whether a package brings a torch where there is none."""
    listed = any(name in row.packages for row in script_rules().needs_torch) or pins_torch(name)
    return listed or any(row.package == name and row.brings for row in script_rules().asks_torch)


def asks_torch(name: str) -> tuple[tuple[str, str], ...]:
    """Releases of a package, each with the torch that is asked for from there on; empty: not known."""
    return next((row.releases for row in script_rules().asks_torch if row.package == name), ())
