"""The local version label that lets builds of one release lie side by side: `1.0+cu118.sm35.torch20`.

PyTorch's own wheels are told apart by such a label (`2.7.1+cu118`); here it is extended to everything with compiled
code for GPUs, by what pip and uv cannot see in the tags: CUDA, architectures, torch, CPU level.
"""

from __future__ import annotations

import re
from pathlib import Path

from packaging.version import Version as PackageVersion

from rekindle.core.version import Version
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.knowledge.gpu.capability import Target
from rekindle.model.wheel import WheelIdentity
from rekindle.wheels.repair import rewrite


def labelled(wheel: WheelIdentity, cuda: Version | None) -> str:
    """The version under which the wheel is shelved: its own, with what is missing in its label added."""
    version = wheel.version or "0"
    if wheel.machine is None or not (wheel.targets or cuda):
        return version
    public, _, local = version.partition("+")
    if wheel.is_torch and local:
        return version
    have = local.split(".") if local else []
    parts = [*have, *(part for part in _parts(wheel, cuda) if not _said(part, have))]
    return f"{public}+{'.'.join(parts)}"


def _parts(wheel: WheelIdentity, cuda: Version | None) -> list[str]:
    parts = [f"cu{cuda.major}{cuda.minor if len(cuda.parts) > 1 else ''}"] if cuda else []
    targets = sorted(Target.parse(name) for name in wheel.targets)
    native = list(dict.fromkeys(str(t).replace("_", "") for t in targets if not t.ptx))
    ptx = list(dict.fromkeys(str(t).replace("compute_", "ptx") for t in targets if t.ptx))
    parts += native or ptx
    if not wheel.is_torch and wheel.torch:
        numbers = wheel.torch.partition("+")[0].split(".")
        parts.append("torch" + "".join(numbers[:2]))
    if wheel.cpu:
        parts.append(f"x86{wheel.cpu}")
    return parts


def _said(part: str, have: list[str]) -> bool:
    """`cu118` says `cu11`, too; a label with any `sm…` has named its architectures."""
    kind = re.match(r"[a-z]+", part)
    return any(kind is not None and re.match(r"[a-z]+", word) and word.startswith(kind[0]) for word in have)


def relabel(wheel: Path, version: str, folder: Path) -> Path:
    """The same wheel under another version, written to `folder`: METADATA, RECORD and the names that hold it change."""
    with File(wheel) as source:
        archive = Archive(source)
        info = rewrite.info_folder(archive)
        project = info.removesuffix(".dist-info").rpartition("-")[0]
        text = archive.read(f"{info}/METADATA").decode("utf-8")
        new = f"{project}-{PackageVersion(version)}"
        head, gap, body = text.partition("\n\n")
        head = re.sub(r"(?m)^Version:.*$", f"Version: {version}", head, count=1)
        parts = wheel.name.split("-")
        target = folder / "-".join([parts[0], str(PackageVersion(version)), *parts[2:]])
        rewrite.rewrite(
            archive,
            target,
            add={f"{new}.dist-info/METADATA": (head + gap + body).encode("utf-8")},
            remove=(f"{info}/METADATA",),
            renamed={info: f"{new}.dist-info", info.replace(".dist-info", ".data"): f"{new}.data"},
        )
    return target
