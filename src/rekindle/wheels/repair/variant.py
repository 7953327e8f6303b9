"""`repair --variant`: a wheel with a label that says which cards and drivers it is for, by what was read from it.

The label asks NVIDIA's provider, which uv has built in: `sm_arch` and the oldest CUDA that a driver must report.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from rekindle.compat.variant import ARCHITECTURE, NVIDIA, honest
from rekindle.core import codec
from rekindle.core.errors import UsageError
from rekindle.core.findings import passed, warned
from rekindle.formats import binary, package
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.model.wheel import read_name
from rekindle.wheels.inspect import identity
from rekindle.wheels.inspect.against import cuda_of
from rekindle.wheels.inspect.identity import VARIANT_FILE as FILE
from rekindle.wheels.inspect.identity import VariantFile, cuda_linked, read_binaries
from rekindle.wheels.repair import rewrite
from rekindle.wheels.repair.repair import Added, Repair
from rekindle.wheels.tags import place_of, wheel_tags

_PROVIDER = {
    "requires": ["nvidia-variant-provider>=0.0.1,<1.0.0"],
    "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
}


def label(wheel: Path, folder: Path, *, dry_run: bool = False) -> Repair:
    """Write a copy of `wheel` with its variant's label into `folder`. The original is never touched."""
    wheel_tags(wheel)
    with File(wheel) as source:
        archive = Archive(source)
        whole = package.Wheel(archive)
        binaries = read_binaries(whole)
        cuda = cuda_of(identity.identify(whole, binaries)) or cuda_linked(binaries)
        properties = honest(binary.codes(binaries), cuda)
        if not properties:
            message = f"`{wheel.name}` has no GPU code that a label could promise for any card"
            raise UsageError(message, hint=f"`rekindle inspect {wheel.name}` shows what is in it")
        name = _name(properties[ARCHITECTURE], str(cuda.major_minor).replace(".", "") if cuda else "")
        member = f"{rewrite.info_folder(archive)}/{FILE}"
        said = VariantFile(
            default_priorities={"namespace": (NVIDIA,)},
            providers={NVIDIA: _PROVIDER},
            variants={name: {NVIDIA: properties}},
        )
        data = (codec.to_json(said) + "\n").encode("utf-8")
        target = place_of(f"{read_name(wheel.name).plain.removesuffix('.whl')}-{name}.whl", folder, wheel)
        text = ", ".join(f"{feature} :: {' '.join(values)}" for feature, values in properties.items())
        findings = [passed("repair.variant", f"{target.name} promises {text}")]
        if cuda is None:
            lacks = "which CUDA it was built with is not known, so its label asks for no driver"
            findings.append(warned("repair.variant", lacks))
        added = (Added(member=member, size=len(data), origin="its own GPU code", replaced=member in archive.members),)
        if dry_run:
            return Repair(wheel=wheel.name, added=added, kept=len(archive.members), findings=tuple(findings))
        done = rewrite.rewrite(archive, target, add={member: data})
    return Repair(
        wheel=wheel.name, output=done.path, size=done.size, kept=done.kept, added=added, findings=tuple(findings)
    )


def _name(values: tuple[str, ...], line: str) -> str:
    """At most sixteen letters: the one card's number, or what the many come to."""
    many = hashlib.sha256(" ".join(values).encode()).hexdigest()[:8]
    what = f"sm{values[0].removesuffix('_real')}" if len(values) == 1 and values[0].endswith("real") else many
    return f"cu{line}.{what}" if line else what
