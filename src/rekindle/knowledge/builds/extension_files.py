"""Ready-made wheels of extensions: which file is for which torch, CUDA, Python and system."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial

import msgspec

from rekindle.core.pattern import late
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.knowledge.tables import NamedRow, cached, rows
from rekindle.knowledge.torch.releases import parse_arch_list
from rekindle.model.card import Capability, Target
from rekindle.model.cuda_line import CudaLine
from rekindle.model.platform import Platform
from rekindle.model.requirement import canonical_name
from rekindle.model.torch_pin import TorchPin

_BUILD = late(r"(?P<torch>\d{1,9}(?:\.\d{1,9}){1,7})?\+?(?P<line>cu\d{1,9})?")


class Span(msgspec.Struct, frozen=True, array_like=True):
    """A release, and the torches, CUDA lines and Pythons that it has files for."""

    version: str
    torches: str
    lines: str
    pythons: str
    tag: str = ""


class ExtensionFile(NamedRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files of one release for one system. The head of the table says what each field means."""

    package: str = ""
    packages: tuple[str, ...] = ()
    """The packages of a shelf that has the same builds of each: `gsplat==1.5.3`, or a name alone."""
    version: str = ""
    """A release, a range (`>=3.4,<3.5`), or nothing: whichever pip takes."""
    installs: str | None = None
    """The name that pip knows it by, where that is not the package's own."""
    builds: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    """Every release of a list, the newest last, in place of `version`, `builds` and `pythons`."""
    systems: tuple[str, ...]
    machines: tuple[str, ...] = ("x86_64",)
    name: str | None = None
    address: str | None = None
    switch: str | None = None
    by: str | None = None
    note: str | None = None
    """What has to be known of it besides."""
    needs: tuple[str, ...] = ()
    """Packages of this table that pip has to be told beside it."""
    glibc: Version | None = None
    """What it needs of the system, where its name is not made here."""
    toolkit: Version | None = None
    """The CUDA it was compiled with, where its name does not say."""
    targets: str = ""
    begins: Capability | None = None
    any_patch: bool = False
    and_later: bool = False
    pure: bool = False
    """There is no GPU code in it: it is compiled when it runs."""

    @property
    def requirement(self) -> str:
        exact = "==" if self.version[:1].isdigit() else ""
        return f"{self.installs or self.package}{exact}{self.version}"

    @property
    def read(self) -> bool:
        """The GPU code of exactly this release was read."""
        return self.evidence.confirmed and self.version[:1].isdigit() and bool(self.targets or self.begins)

    def is_for(self, place: Platform) -> bool:
        return place.system in self.systems and place.arch in self.machines

    def build_for(self, torch: TorchPin) -> str | None:
        """The newest of its builds that is for this torch and CUDA line."""
        return next((build for build in reversed(self.builds) if self._serves(build, torch)), None)

    def builds_for(self, torch: str | None) -> list[str]:
        """Its builds as a person reads them: those for this torch, of whichever CUDA, or all."""
        own = [
            each for each in self.builds if torch is None or self._serves(each, TorchPin(torch, self.parts(each)[1]))
        ]
        return [f"{each} and later" if self.and_later else each for each in own]

    def _serves(self, build: str, torch: TorchPin) -> bool:
        own, cuda = self.parts(build)
        have, line = Version.parse(torch.release), torch.variant or ""
        exact = own is not None and len(own.parts) > 2 and not self.any_patch
        same = own is None or (have == own if exact else have.major_minor == own.major_minor)
        later = self.and_later and own is not None and have > own
        # `cu12` is every line of CUDA 12.
        return (same or later) and (cuda is None or line == cuda or (len(cuda) == 4 and line.startswith(cuda)))

    @staticmethod
    @lru_cache(maxsize=2048)
    def parts(build: str) -> tuple[Version | None, str | None]:
        match = _BUILD.fullmatch(build)
        assert match is not None, build
        return Version.parse(match["torch"]) if match["torch"] else None, match["line"]

    def serves(self, card: Capability) -> bool | None:
        """By its own list of architectures or its oldest card; None where neither is known."""
        if self.begins is not None:
            return card >= self.begins
        code: tuple[Target, ...] = parse_arch_list(self.targets)
        return any(runs(target, card) is not Runs.NO for target in code) if code else None


_files = rows("extension_files.toml", "file", ExtensionFile)


@cached
def _each() -> tuple[ExtensionFile, ...]:
    """A row for each package and release."""
    every = [each for row in _files() for each in (_releases(row) if row.spans else (row,))]
    named = [(row, name.partition("==")) for row in every for name in row.packages]
    shelves = (msgspec.structs.replace(row, package=name, version=version) for row, (name, _, version) in named)
    return (*(row for row in every if row.package), *shelves)


def _releases(row: ExtensionFile) -> Iterator[ExtensionFile]:
    for span in row.spans:
        torches, lines = tuple(_between(span.torches)), tuple(span.lines.split())
        pairs = tuple(f"{torch}+{line}" for torch in torches for line in lines)
        yield msgspec.structs.replace(
            row,
            version=span.version,
            builds=pairs or torches or lines,
            pythons=tuple(_between(span.pythons)),
            address=row.address and row.address.replace("{tag}", span.tag or f"v{span.version}"),
        )


def _between(text: str) -> Iterator[str]:
    """`2.5-2.7 2.9.1` is 2.5, 2.6, 2.7 and 2.9.1."""
    for first, _, last in (word.partition("-") for word in text.split()):
        head, _, low = first.rpartition(".")
        yield from (f"{head}.{each}" for each in range(int(low), int(last.rpartition(".")[2] or low) + 1))


@partial(cached, most=4096)
def files(package: str) -> tuple[ExtensionFile, ...]:
    """Of the project first, then those that others built, shelves of many last; the newest release of each first."""
    plain = canonical_name(package)
    newest_first = [row for row in reversed(_each()) if row.package == plain]
    return tuple(sorted(newest_first, key=lambda row: (row.by is not None, bool(row.packages))))


@cached
def packages() -> frozenset[str]:
    return frozenset(row.package for row in _each())


class AskedFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a file must be for."""

    torch: TorchPin
    python: str
    platform: Platform


@partial(cached, most=4096)
def fitting(package: str, asked: AskedFile) -> tuple[ExtensionFile, ...]:
    return tuple(row for row in files(package) if not lacking(row, asked))


@partial(cached, most=4096)
def nearest(package: str, asked: AskedFile) -> AskedFile:
    """What is asked, with the nearest other line of its CUDA major where no file is for its own: an older one first."""
    own = asked.torch.line
    if own is None or fitting(package, asked):
        return asked
    built = {CudaLine.parse(row.parts(build)[1]) for row in files(package) for build in row.builds}
    same = [each for each in built if each and each.cuda.major == own.cuda.major]
    same.sort(key=lambda each: (each.cuda > own.cuda, abs(each.cuda.minor - own.cuda.minor)))
    others = (msgspec.structs.replace(asked, torch=TorchPin(asked.torch.release, each.name)) for each in same)
    return next((each for each in others if fitting(package, each)), asked)


def lacking(row: ExtensionFile, asked: AskedFile) -> str:
    """Which of the things that are asked a row is not for; empty: none."""
    if not row.is_for(asked.platform):
        return "system"
    if row.build_for(asked.torch) is None:
        return "torch"
    return "python" if asked.python not in row.pythons else ""
