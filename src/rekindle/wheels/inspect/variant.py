"""The label of a wheel variant (PEP 817): read from `variant.json`, and held against the file name and the GPU code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rekindle.compat.judgement import Clash
from rekindle.compat.variant import judged
from rekindle.core import codec
from rekindle.core.errors import BadInput
from rekindle.core.findings import Finding, failed, passed, unverified
from rekindle.core.version import Version
from rekindle.formats import package
from rekindle.formats.package import Package
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.model.wheel import WheelVariant, read_name

SCHEMA = "https://variants-schema.wheelnext.dev/v0.2.0.json"
FILE = "variant.json"
_LARGEST = 1 << 20
_WHY = "an installer takes a variant by its label alone: it would take this one where it cannot run"
_FIX = "`rekindle repair --variant` labels it by what is in it"


class VariantFile(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """`variant.json` of one wheel, and `NAME-VERSION-variants.json` of an index, which has several `variants`."""

    schema: str = msgspec.field(name="$schema", default=SCHEMA)
    default_priorities: dict[str, tuple[str, ...]] = {}
    providers: dict[str, dict[str, Any]] = {}
    variants: dict[str, dict[str, dict[str, tuple[str, ...]]]]


def read(found: Package) -> WheelVariant | None:
    """None where there is no label, or none that can be read."""
    try:
        return _read(found)
    except BadInput:
        return None


def _read(found: Package) -> WheelVariant | None:
    path = f"{package.dist_info(found)}/{FILE}"
    if path not in found.files:
        return None
    said = codec.from_json(found.read(path, limit=_LARGEST), VariantFile, name=path)
    if len(said.variants) != 1:
        raise BadInput(f"`{path}` describes {len(said.variants)} variants, not one", hint=_FIX)
    label, properties = next(iter(said.variants.items()))
    spaces = said.default_priorities.get("namespace", ())
    return WheelVariant(label=label, properties=properties, providers=said.providers, namespaces=spaces)


def findings(
    found: Package, variant: WheelVariant | None, codes: Sequence[GpuCode], cuda: Version | None
) -> list[Finding]:
    stated = _label(found)
    if variant is None and stated is None:
        try:
            _read(found)
        except BadInput as error:
            return [failed("variant", str(error), why=_WHY, fix=_FIX)]
        return []
    if variant is None or (found.kind == "wheel" and stated != variant.label):
        inside = f"`{variant.label}`" if variant else "no variant that can be read"
        text = f"the file name says the variant `{stated}`, {FILE} says {inside}"
        return [failed("variant", text, why=_WHY, fix=_FIX)]
    wrong = [
        failed("variant", answer.sentence, why=_WHY, fix=_FIX)
        if isinstance(answer, Clash)
        else unverified("variant", str(getattr(answer, "missing", "")))
        for answer in judged(variant, codes, cuda)
    ]
    return wrong or [passed("variant", f"what the label `{variant.label}` promises is in it")]


def _label(found: Package) -> str | None:
    from packaging.utils import InvalidWheelFilename

    try:
        return read_name(found.name.rpartition("/")[2]).label if found.kind == "wheel" else None
    except InvalidWheelFilename:
        return None
