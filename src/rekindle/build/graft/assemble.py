"""The new wheel: the base's members byte for byte, but for the GPU half and what speaks of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rekindle.build.graft.base import Base, held, library_name
from rekindle.build.graft.ninja_file import Half, architectures, config_header
from rekindle.core import codec
from rekindle.core.errors import BadInput
from rekindle.core.findings import Finding
from rekindle.core.version import Version
from rekindle.formats import elf
from rekindle.model.wheel import tagged_glibc
from rekindle.stack.shorter import left_out
from rekindle.wheels.inspect.grafted import RECORD, GraftRecord, is_gpu_half
from rekindle.wheels.repair import rewrite
from rekindle.wheels.repair.rewrite import Contents

_ARCHITECTURES = re.compile(rb"(?<=\x00)sm_\d+[a-z]?(?: (?:sm|compute)_\d+[a-z]?)*(?=\x00)")
_CONFIG, _VERSION = "torch/include/ATen/cuda/CUDAConfig.h", "torch/version.py"
_TAG = re.compile(r"(?:many)?linux(?:\d+|_\d+_\d+)?_(x86_64|aarch64)")


def assemble(
    half: Half, base: Base, new: Mapping[str, Path], *, version: str, into: Path, proofs: Sequence[Finding]
) -> Path:
    """Appears under its name only when it is complete."""
    request = half.request
    members = {f"torch/lib/{library_name(name)}": path for name, path in new.items()}
    with held(Path(base.wheel), base.sha256) as (wheel, _):
        archive = wheel.archive
        old = rewrite.info_folder(archive)
        info = f"torch-{version}.dist-info"
        tag = platform_tag(old_tag(archive.read(f"{old}/WHEEL")), members.values())
        add: dict[str, Contents] = dict(members)
        add[_CONFIG] = config_header(half.base, request.gpu_targets).encode()
        add[_VERSION] = _versioned(archive.read(_VERSION), version)
        python = f"torch/lib/{library_name('torch_python')}"
        add[python] = relabelled(archive.read(python, limit=1 << 30), architectures(request.gpu_targets))
        record = GraftRecord(
            base=Path(base.wheel).name,
            base_sha256=base.sha256,
            commit=base.commit,
            replaced=tuple(sorted(add)),
            arch_list=request.arch_list,
            cuda=str(request.cuda.version) if request.cuda else "",
            compiler=f"{request.compiler.kind} {request.compiler.version or ''}".strip(),
            lost=(*left_out(target.capability for target in request.gpu_targets), *half.sources.left),
            proofs=tuple(proofs),
        )
        add[f"{info}/METADATA"] = _metadata(archive.read(f"{old}/METADATA"), version, record)
        add[f"{info}/WHEEL"] = _TAG.sub(tag, archive.read(f"{old}/WHEEL").decode()).encode()
        add[f"{info}/{RECORD}"] = (codec.to_json(record) + "\n").encode()
        parts = Path(base.wheel).stem.split("-")
        target = into / f"torch-{version}-{parts[2]}-{parts[3]}-{tag}.whl"
        rewrite.rewrite(archive, target, add=add, remove=(f"{old}/METADATA", f"{old}/WHEEL"), renamed={old: info})
    return target


def relabelled(library: bytes, architectures: str) -> bytes:
    """`torch.cuda.get_arch_list()` is one text inside the Python half; the new one takes its place."""
    found = _ARCHITECTURES.findall(library)
    if len(found) != 1:
        message = f"the list of architectures stands {len(found)} times in the base's Python half, not once"
        raise BadInput(message, hint="name an official wheel")
    new = architectures.encode()
    if len(new) > len(found[0]):
        message = f"`{architectures}` does not fit in the place of `{found[0].decode()}`"
        raise BadInput(message, hint="name fewer architectures")
    return library.replace(found[0] + b"\0", new.ljust(len(found[0]), b"\0") + b"\0", 1)


def old_tag(wheel: bytes) -> str:
    found = _TAG.search(wheel.decode("utf-8", "replace"))
    if found is None:
        raise BadInput("the base's platform tag is not one of Linux", hint="name an official wheel")
    return found[0]


def platform_tag(base: str, made: Iterable[Path]) -> str:
    """The base's, unless the new libraries want a newer glibc than it promises."""
    floors = [elf.of(path).floor("GLIBC") for path in made]
    floor = max((each for each in floors if each), default=Version("0"))
    if floor <= (tagged_glibc(base) or Version("2.17")):
        return base
    arch = "aarch64" if base.endswith("aarch64") else "x86_64"
    return f"manylinux_{floor.text.replace('.', '_')}_{arch}"


def _versioned(text: bytes, version: str) -> bytes:
    return re.sub(rb"(__version__(?:\s*:[^=\n]+)?\s*=\s*)['\"][^'\"\n]*['\"]", rb"\1'" + version.encode() + b"'", text)


def _metadata(data: bytes, version: str, record: GraftRecord) -> bytes:
    """Says in its first paragraph what it is: never to be taken for the official wheel."""
    head, _, body = data.decode("utf-8").partition("\n\n")
    head = re.sub(r"^Version: .*$", f"Version: {version}", head, count=1, flags=re.MULTILINE)
    made = ", ".join(name for each in record.replaced if is_gpu_half(name := each.rpartition("/")[2]))
    own = (
        f"This is not the official wheel. Rekindle made it from {record.base} (SHA-256 {record.base_sha256}) and "
        f"compiled {made} anew for {record.arch_list} with CUDA {record.cuda}. Lost: {', '.join(record.lost)}."
    )
    return f"{head}\n\n{own}\n\n{body}".encode()
