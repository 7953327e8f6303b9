"""Which package brings a name: pip's for what Python imports, the system's for a header or a library that is missed."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from rekindle.knowledge.tables import Row, cached, rows

_INSTALLABLE = re.compile(r"[a-z][a-z0-9_]*")


class ImportName(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`package` empty: the module is a compiled part of another project and cannot be installed by itself."""

    name: str
    package: str


class SystemPackage(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`files` are patterns (`*` matches anything) of the name as a compiler or the loader prints it."""

    package: str
    kind: str
    files: tuple[str, ...]


_import_names = rows("import_names.toml", "row", ImportName)
system_packages = rows("system_packages.toml", "row", SystemPackage)


@cached
def import_names() -> dict[str, str]:
    return {row.name: row.package for row in _import_names()}


def distribution(module: str) -> str | None:
    """`cv2` is opencv-python; `mmcv._ext` and `flash_attn_2_cuda` are compiled parts that pip does not have."""
    top, _, rest = module.partition(".")
    if any(part.startswith("_") for part in (top, *rest.split("."))):
        return None
    if top in import_names():
        return import_names()[top] or None
    if not _INSTALLABLE.fullmatch(top) or top.endswith(("_cuda", "_ext", "_cpp", "_kernels", "_bindings", "_c")):
        return None
    return top.replace("_", "-")


def package_of(name: str, *, kind: str) -> str | None:
    """`kind`: `header`, `cmake` and `system` (a library) are Debian's, `library` is of NVIDIA's CUDA repository."""
    rows = (row for row in system_packages() if row.kind == kind)
    return next((row.package for row in rows if any(fnmatchcase(name, pattern) for pattern in row.files)), None)
