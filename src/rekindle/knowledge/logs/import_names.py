"""Which package pip installs for a name that Python imports. None: no package by that name can be installed."""

from __future__ import annotations

import re

import msgspec

from rekindle.knowledge.tables import Row, cached, decided

_INSTALLABLE = re.compile(r"[a-z][a-z0-9_]*")


class ImportName(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`package` empty: the module is a compiled part of another project and cannot be installed by itself."""

    name: str
    package: str


class _Names(msgspec.Struct, frozen=True):
    row: tuple[ImportName, ...]


@cached
def import_names() -> dict[str, str]:
    return {row.name: row.package for row in decided("import_names", _Names).row}


def distribution(module: str) -> str | None:
    """`cv2` is opencv-python; `mmcv._ext` and `flash_attn_2_cuda` are compiled parts that pip does not have."""
    top, _, rest = module.partition(".")
    if any(part.startswith("_") for part in (top, *rest.split("."))):
        return None
    if top in import_names():
        return import_names()[top] or None
    if not _INSTALLABLE.fullmatch(top) or top.endswith(("_cuda", "_ext", "_cpp", "_kernels", "_c")):
        return None
    return top.replace("_", "-")
