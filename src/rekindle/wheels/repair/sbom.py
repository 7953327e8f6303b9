"""The bill of materials of what was put into a wheel: CycloneDX, under `.dist-info/sboms/` (PEP 770).

The same input gives the same bytes: no time, no serial number.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from rekindle import __version__


class MaterialPart(msgspec.Struct, frozen=True, kw_only=True):
    member: str
    sha256: str
    origin: str
    version: str | None = None
    licence: str | None = None
    package: str | None = None
    package_version: str | None = None


def render(project: str, version: str, parts: Sequence[MaterialPart]) -> bytes:
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "rekindle", "version": __version__}]},
            "component": {
                "type": "library",
                "bom-ref": f"pkg:pypi/{project}@{version}",
                "name": project,
                "version": version,
                "purl": f"pkg:pypi/{project}@{version}",
            },
        },
        "components": [_component(part) for part in sorted(parts, key=lambda part: part.member)],
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _component(part: MaterialPart) -> dict[str, object]:
    found: dict[str, object] = {
        "type": "library",
        "bom-ref": part.member,
        "name": part.member.rpartition("/")[2],
        "hashes": [{"alg": "SHA-256", "content": part.sha256}],
        "properties": [
            {"name": "rekindle:member", "value": part.member},
            {"name": "rekindle:origin", "value": part.origin},
        ],
    }
    if part.version:
        found["version"] = part.version
    if part.licence:
        found["licenses"] = [{"license": {"name": part.licence}}]
    if part.package and part.package_version:
        found["purl"] = f"pkg:pypi/{part.package}@{part.package_version}"
    return found
