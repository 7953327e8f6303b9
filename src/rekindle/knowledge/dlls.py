"""Which package of the index holds a Windows DLL: name → package, version, path, size, checksum."""

import msgspec

from rekindle.knowledge.tables import Row, cached, observed
from rekindle.version import Version


class DllWheel(Row, frozen=True, kw_only=True):
    """A win_amd64 wheel and the DLLs in it: path → (size, CRC-32)."""

    wheel: str
    package: str
    version: str
    size: int
    yanked: bool
    files: dict[str, tuple[int, str]]


class DllProvider(msgspec.Struct, frozen=True, kw_only=True):
    """One place a DLL can be had from."""

    dll: str
    package: str
    version: str
    path: str
    size: int
    crc32: str
    wheel: str
    wheel_size: int
    yanked: bool


@cached
def _by_name() -> dict[str, tuple[DllProvider, ...]]:
    found: dict[str, list[DllProvider]] = {}
    for row in observed("dlls", dict[str, tuple[DllWheel, ...]])["wheels"]:
        for path, (size, crc32) in row.files.items():
            name = path.rpartition("/")[2]
            provider = DllProvider(
                dll=name,
                package=row.package,
                version=row.version,
                path=path,
                size=size,
                crc32=crc32,
                wheel=row.wheel,
                wheel_size=row.size,
                yanked=row.yanked,
            )
            found.setdefault(name.lower(), []).append(provider)
    return {name: tuple(rows) for name, rows in found.items()}


def providers(dll: str) -> tuple[DllProvider, ...]:
    """Every known provider of a DLL, newest first; withdrawn (yanked) wheels last. Empty: no package has it."""
    rows = _by_name().get(dll.lower(), ())
    return tuple(
        sorted(rows, key=lambda row: (not row.yanked, Version.find(row.version) or Version("0")), reverse=True)
    )
