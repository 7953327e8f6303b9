"""Which package of the index holds a library: name → package, version, path, size, checksum. Windows and Linux."""

from fnmatch import fnmatchcase

import msgspec

from rekindle.core import codec
from rekindle.core.untrusted import PipRequirement, PipVersion, PlainFileName, ProjectName
from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, observed, rows
from rekindle.model.platform import Platform


class DllWheel(Row, frozen=True, kw_only=True):
    """A wheel and the libraries in it: path → (size, CRC-32).

    `pythons` are the tags for which this version has a wheel; none where one wheel is for every Python.
    """

    wheel: PlainFileName
    package: ProjectName
    version: PipVersion
    size: int
    yanked: bool
    files: dict[str, tuple[int, str]]
    pythons: tuple[str, ...] = ()


class DllProvider(msgspec.Struct, frozen=True, kw_only=True):
    """One place a library is available from."""

    dll: str
    package: str
    version: str
    path: str
    size: int
    crc32: str
    wheel: str
    wheel_size: int
    yanked: bool
    pythons: tuple[str, ...] = ()

    def installs_on(self, python: str | None) -> bool:
        """Does pip find it for this Python (`cp311`)? None: which one it is to be is not known."""
        return python is None or not self.pythons or python in self.pythons


class _Hash(Row, frozen=True, kw_only=True):
    wheel: str
    sha256: str


class ToolkitPackages(Row, frozen=True, kw_only=True):
    version: PipVersion
    components: dict[str, tuple[PipRequirement, ...]]


def providers(library: str, place: Platform) -> tuple[DllProvider, ...]:
    """Every known provider of a library, newest first; withdrawn (yanked) wheels last. Empty: no package has it.

    A `*` in the name stands for anything: NVRTC asks for its builtins by a version that only its own package knows.
    """
    windows = place.system == "windows"
    table, name = (_windows(), library.lower()) if windows else (_linux(), library)
    names = [one for one in table if fnmatchcase(one, name)] if "*" in name else [name]
    rows = [row for one in names for row in table.get(one, ()) if windows or f"_{place.arch}." in row.wheel]
    return tuple(
        sorted(rows, key=lambda row: (not row.yanked, Version.find(row.version) or Version("0")), reverse=True)
    )


def sha256_of_wheel(wheel: str) -> str | None:
    """The hash under which the index lists a wheel; None where it is not known, and the wheel is not to be taken."""
    return _hashes().get(wheel)


@cached
def _hashes() -> dict[str, str]:
    return {row.wheel: row.sha256 for row in observed("library_hashes", dict[str, tuple[_Hash, ...]])["wheels"]}


toolkit_releases = rows("toolkit_packages.json", "toolkits", ToolkitPackages)


@cached
def of_toolkit(cuda: Version) -> dict[str, frozenset[str]]:
    """The packages of NVIDIA that make up a toolkit (`11.8`), each with its versions over the toolkit's updates."""
    found: dict[str, set[str]] = {}
    for row in toolkit_releases():
        if (Version.find(row.version) or Version("0")).major_minor == cuda.major_minor:
            for pin in (pin for pins in row.components.values() for pin in pins):
                package, _, version = pin.partition("==")
                found.setdefault(package, set()).add(version.removesuffix(".*"))
    return {package: frozenset(versions) for package, versions in found.items()}


@cached
def _windows() -> dict[str, tuple[DllProvider, ...]]:
    return _by_name(observed("dlls", dict[str, tuple[DllWheel, ...]])["wheels"], fold=True)


@cached
def _linux() -> dict[str, tuple[DllProvider, ...]]:
    return _by_name(observed("linux_libraries", dict[str, tuple[DllWheel, ...]])["wheels"], fold=False)


def _by_name(wheels: tuple[DllWheel, ...], *, fold: bool) -> dict[str, tuple[DllProvider, ...]]:
    found: dict[str, list[DllProvider]] = {}
    for row in wheels:
        for path, (size, crc32) in row.files.items():
            name = path.rpartition("/")[2]
            provider = codec.like(DllProvider, row, dll=name, path=path, size=size, crc32=crc32, wheel_size=row.size)
            found.setdefault(name.lower() if fold else name, []).append(provider)
    return {name: tuple(rows) for name, rows in found.items()}
