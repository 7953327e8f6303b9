"""Who brings which library: Windows and glibc, the driver, Python, redistributables, index packages; what may
be put into a wheel; and what is loaded while running without any import table naming it."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from rekindle.core.pattern import late
from rekindle.knowledge.tables import NamedRow, Row, cached, rows

# Names of the C++ runtime: without a version where a library leaves it to another one to link libstdc++.
_STANDARD = late(
    r"_Z(?:T[ISVT]|GV|Th?n?\d+_|Tv\w+?_)*(?:N[KVRO]*)?(?:S[tabsiod]|9__gnu_cxx|10__cxxabiv1)|_Z(?:nw|na|dl|da)"
    r"|_ZT[ISV][PK]*[a-z]$|__cxa_|__gxx_|__dynamic_cast$"
)


class Owner(NamedRow, frozen=True, kw_only=True):
    """Who brings these libraries (None: nobody), and whether they may be put into a wheel: `bundle` is `yes`, `given`
    (only from a folder that was named), `no` (a copy is wrong) or None (nobody has looked)."""

    system: str
    names: tuple[str, ...]
    owner: str | None = None
    note: str = ""
    package: str | None = None
    bundle: str | None = None
    packages: tuple[str, ...] = ()
    licence: str | None = None
    where: str | None = None

    @property
    def on_every_machine(self) -> bool:
        """The system, the driver or Python brings it: nobody packs it."""
        return self.owner in ("system", "driver", "python")

    def allows(self, package: str) -> bool:
        """May it be taken from this package of the index?"""
        return any(fnmatchcase(package, pattern) for pattern in self.packages)


class Load(NamedRow, frozen=True, kw_only=True):
    """`by` loads `loads` while running; patterns both."""

    system: str
    by: str
    loads: tuple[str, ...]
    needed: bool
    why: str


class Place(NamedRow, frozen=True, kw_only=True):
    """A folder in which `import torch` looks on Windows. Not `sure`: it depends on the machine, not on the package."""

    order: int
    path: str
    label: str
    sure: bool
    only_without: str | None = None
    torch_from: str | None = None


class Named(NamedRow, frozen=True, kw_only=True):
    names: tuple[str, ...]
    system: str | None = None


class _Symbols(Row, frozen=True, kw_only=True):
    name: str
    symbols: str


class _Parts(Row, frozen=True, kw_only=True):
    major: int
    libraries: tuple[str, ...]


_symbols = rows("system_symbols.json", "libraries", _Symbols)
_cudnn_parts = rows("cudnn_parts.toml", "parts", _Parts)
_runtime_loads = rows("runtime_loads.toml", "load", Load)
_places = rows("torch_loader.toml", "place", Place)
_test_libraries = rows("test_libraries.toml", "library", Named)
_vendor_libraries = rows("vendor_libraries.toml", "library", Named)
_openmp_runtimes = rows("openmp_runtimes.toml", "runtime", Named)


def matches(name: str, pattern: str, system: str) -> bool:
    """Names on Windows are told apart without regard to case."""
    return _matches(name.lower(), pattern.lower()) if system == "windows" else _matches(name, pattern)


def _matches(name: str, pattern: str) -> bool:
    """`fnmatchcase` without a regular expression, for patterns that have nothing but stars: nearly all of them."""
    if "?" in pattern or "[" in pattern:
        return fnmatchcase(name, pattern)
    if "*" not in pattern:
        return name == pattern
    first, *between, last = pattern.split("*")
    if not (name.startswith(first) and name.endswith(last) and len(name) >= len(first) + len(last)):
        return False
    at, end = len(first), len(name) - len(last)
    for part in between:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def owner_of(name: str, system: str) -> Owner | None:
    """Who brings this library to a machine; None when the tables do not know."""
    named = (row for row in owners_on(system) if any(matches(name, pattern, system) for pattern in row.names))
    return next(named, None)


def owners_on(system: str) -> tuple[Owner, ...]:
    """Every row, for whoever has to take the table along as data; the first that matches counts."""
    return tuple(row for row in _owners() if row.system == system)


def loaded_by(name: str, system: str) -> list[Load]:
    """What this library loads while running."""
    return [row for row in _loads() if row.system == system and matches(name, row.by, system)]


def loaded_by_name(file: str, names: Sequence[str]) -> list[str]:
    """Of the DLLs that a file names in its data, those that somebody may have to bring: neither Windows', the driver's,
    Python's nor torch's own, not one that nobody knows, and none of which the tables say more."""
    known = [pattern for row in loaded_by(file, "windows") for pattern in row.loads]
    return [
        name
        for name in names
        if (owner := owner_of(name, "windows")) is not None
        and owner.bundle in ("yes", "given")
        and not any(matches(name, pattern, "windows") for pattern in known)
    ]


def loads_on(system: str) -> tuple[Load, ...]:
    """Everything that is loaded or tried while running, for whoever has to take it along as data."""
    return tuple(row for row in _loads() if row.system == system)


def cudnn_parts(major: int) -> tuple[str, ...]:
    """The libraries of a whole cuDNN of this major: `cudnn`, `cudnn_ops_infer`, …"""
    return next((row.libraries for row in _cudnn_parts() if row.major == major), ("cudnn",))


def is_test_library(name: str, system: str) -> bool:
    named = (pattern for row in _test_libraries() if row.system == system for pattern in row.names)
    return any(matches(name, pattern, system) for pattern in named)


def is_system_symbol(name: str) -> bool:
    """Does glibc, libgcc or the C++ runtime offer this name? C++ names of the standard library go by their spelling."""
    return name in _system_symbols() or _STANDARD.match(name) is not None


@cached
def is_vendor_library(name: str) -> bool:
    """Is this one of NVIDIA's own libraries, riding along in somebody's package?"""
    return any(matches(name, pattern, "windows") for row in _vendor_libraries() for pattern in row.names)


def openmp_family(name: str) -> str | None:
    """`gnu` or `intel-llvm` for an OpenMP runtime, else None."""
    return next((row.id for row in _openmp_runtimes() if any(matches(name, p, "windows") for p in row.names)), None)


def loader_places(torch: str | None) -> list[Place]:
    """Where `import torch` looks on Windows, in order, for a release."""
    return sorted((row for row in _places() if _since(torch, row.torch_from)), key=lambda row: row.order)


@cached
def _system_symbols() -> frozenset[str]:
    return frozenset(name for row in _symbols() for name in row.symbols.split())


_owners = rows("library_owners.toml", "owner", Owner)


@cached
def _loads() -> tuple[Load, ...]:
    return (*_runtime_loads(), *(load for parts in _cudnn_parts() for load in _cudnn_loads(parts)))


def _cudnn_loads(parts: _Parts) -> list[Load]:
    """From cuDNN 8 on the library that is linked is only the front of several."""
    if len(parts.libraries) < 2:
        return []
    spell = {"windows": "{0}64_{1}.dll", "linux": "lib{0}.so.{1}"}
    return [
        Load(
            id=f"cudnn{parts.major}-{system}",
            system=system,
            by=name.format(parts.libraries[0], parts.major),
            loads=tuple(name.format(part, parts.major) for part in parts.libraries[1:]),
            needed=True,
            why="the library that is linked is only the front: the first convolution loads the part that does the work",
            source=parts.source,
            observed_at=parts.observed_at,
            evidence=parts.evidence,
        )
        for system, name in spell.items()
    ]


def _since(torch: str | None, first: str | None) -> bool:
    if first is None or torch is None:
        return True
    numbers = [part for part in torch.split("+")[0].split(".")[:2] if part.isdigit()]
    return [int(part) for part in numbers] >= [int(part) for part in first.split(".")]
