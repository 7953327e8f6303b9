"""A wheel whose GPU half was replaced, against the wheel that it was made from: what is kept, and whether both fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from rekindle.core import codec
from rekindle.core.errors import BadInput
from rekindle.core.findings import Finding, Fix, failed, passed, unverified
from rekindle.core.paths import sha256_of
from rekindle.core.untrusted import Sha256
from rekindle.formats import package
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.formats.binary import Binary
from rekindle.formats.elf import Symbols
from rekindle.formats.pe import Pe
from rekindle.wheels.repair.rewrite import info_folder

GPU_HALF = ("c10_cuda", "torch_cuda", "torch_cuda_linalg", "caffe2_nvrtc", "torch_cuda_bridge")
"""Windows has the third inside torch_cuda.dll. The last two are new only in a half of another CUDA major."""
RECORD = "rekindle-graft.json"


class GraftRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Lies in the wheel: what it is made of, and what was proven before it was written."""

    schema: str = "rekindle.graft/1"
    base: str
    base_sha256: Sha256
    commit: str
    replaced: tuple[str, ...]
    arch_list: str
    cuda: str
    compiler: str
    lost: tuple[str, ...]
    proofs: tuple[Finding, ...]


def compare(base: Path, new: Path) -> list[Finding]:
    """Fail closed: what is not the base's byte for byte is named in the record, and every name is found."""
    with File(base) as one, File(new) as other:
        old, made = Archive(one), Archive(other)
        record = read_record(made)
        return [_origin(record, base), *_members(record, old, made), *_names(package.Wheel(old), package.Wheel(made))]


def read_record(archive: Archive) -> GraftRecord:
    path = f"{info_folder(archive)}/{RECORD}"
    if path not in archive.members:
        message = f"`{archive.name}` does not say that its GPU half was replaced"
        raise BadInput(message, hint="name a wheel of `rekindle build --graft`")
    return codec.from_json(archive.read(path, limit=4 << 20), GraftRecord, name=f"`{path}`")


def _origin(record: GraftRecord, base: Path) -> Finding:
    if (found := sha256_of(base)) != record.base_sha256:
        text = f"`{base.name}` (SHA-256 {found[:12]}…) is not the base that it names ({record.base_sha256[:12]}…)"
        return failed("graft-base", text, fix=Fix(text=f"compare it with `{record.base}`"))
    return passed("graft-base", f"it was made from `{record.base}`, and this is that file")


def _members(record: GraftRecord, old: Archive, made: Archive) -> Iterable[Finding]:
    before, now = info_folder(old), info_folder(made)
    first = {name: member for name, member in old.members.items() if not name.startswith(f"{before}/")}
    second = {name: member for name, member in made.members.items() if not name.startswith(f"{now}/")}
    changed = {name for name in {*first, *second} if name not in first or name not in second
               or (first[name].crc, first[name].size) != (second[name].crc, second[name].size)}  # fmt: skip
    if strange := sorted(changed - set(record.replaced)):
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        text = f"`{strange[0]}`{more} is not the base's, and the record does not name it"
        yield failed("graft-members", text)
        return
    text = f"{len(first) - len(changed)} files are the base's; {len(changed)} were replaced, all named in the record"
    yield passed("graft-members", text)


def _names(old: package.Wheel, made: package.Wheel) -> list[Finding]:
    halves = []
    for found in (old, made):
        read = {name: found.binary(name, symbols=True) for name in found.files if _is_library(name)}
        halves.append({name.rpartition("/")[2]: _symbols(each) for name, each in read.items()})
    before, now = halves
    gone = {name: each for name, each in before.items() if is_gpu_half(name)}
    new = {name: each for name, each in now.items() if is_gpu_half(name)}
    kept = {name: each for name, each in now.items() if name not in new}
    return [taken(kept, gone, new), wanted(kept, gone, new, None)]


def _symbols(found: Binary) -> Symbols:
    if found.problem is not None:
        raise BadInput(found.problem, hint="its names cannot be compared; bring the wheel again")
    return of_pe(found.pe) if found.pe else found.symbols or Symbols()


def of_pe(found: Pe) -> Symbols:
    """Windows looks for a name in one DLL only, so that DLL is part of the name: `c10.dll!?name`."""
    own = found.name.replace("\\", "/").rpartition("/")[2].lower()
    numbers = (f"#{number}" for number in found.ordinals)
    taken = {
        f"{dll.lower()}!{name}"
        for table in (found.imports, found.delayed)
        for dll, names in table.items()
        for name in names
    }
    return Symbols(
        defined=frozenset(f"{own}!{name}" for name in (*found.exports, *numbers)),
        undefined=frozenset(taken),
        unversioned=frozenset(taken),
    )


def is_gpu_half(name: str) -> bool:
    return name.removeprefix("lib").partition(".")[0] in GPU_HALF


def taken(kept: Mapping[str, Symbols], old: Mapping[str, Symbols], made: Mapping[str, Symbols]) -> Finding:
    """What the kept libraries took from the old GPU half they find in the new one."""
    elsewhere = _defined(kept.values())
    before, now = _defined(old.values()), _defined(made.values())
    names = {name for each in kept.values() for name in each.undefined & before if name not in elsewhere}
    if lost := sorted(names - now):
        text = f"{len(lost)} names that the kept libraries take are missing, `{lost[0]}` among them"
        if _new_abi(before) != _new_abi(now):
            text += ": the halves were compiled with different C++ ABIs (_GLIBCXX_USE_CXX11_ABI)"
        return failed("graft-names", text, why="`import torch` would stop there")
    text = f"all {len(names)} names that the kept libraries take from the GPU half are in the new one"
    return passed("graft-names", text)


def wanted(
    kept: Mapping[str, Symbols],
    old: Mapping[str, Symbols],
    made: Mapping[str, Symbols],
    packages: frozenset[str] | None,
) -> Finding:
    """What the new half takes is somewhere: in the kept libraries, in itself, or in NVIDIA's packages.

    Names with a version are glibc's, libstdc++'s and NVIDIA's: the linker has found them. `packages` are the names
    that NVIDIA's packages define; None where they are not here.
    """
    have = _defined([*kept.values(), *made.values()])
    if packages is None:
        have |= frozenset().union(*(each.undefined for each in old.values()))
    else:
        have |= packages
    outside = _outside({**kept, **old})
    names = {name for each in made.values() for name in each.unversioned - each.weak if _library(name) not in outside}
    count = len({name for each in made.values() for name in each.undefined})
    lost = sorted(names - have)
    if lost and packages is None:
        text = f"{len(lost)} names of the new GPU half are new, `{lost[0]}` among them: they may be in its packages"
        return unverified("graft-wanted", text)
    if lost:
        text = f"{len(lost)} names that the new GPU half takes are nowhere, `{lost[0]}` among them"
        return failed("graft-wanted", text, why="`import torch` would stop there")
    return passed("graft-wanted", f"none of the {count} names that the new GPU half takes is missing")


def _outside(base: Mapping[str, Symbols]) -> set[str]:
    """DLLs that the base takes names of and has not inside: those of Windows and of Visual C++."""
    taken = {_library(name) for each in base.values() for name in each.undefined}
    return taken - {"", *(name.lower() for name in base)}


def _library(name: str) -> str:
    """The DLL of a name; a name of an ELF library has none."""
    library, found, _ = name.partition("!")
    return library if found else ""


def _new_abi(names: Iterable[str]) -> bool:
    return any("__cxx11" in name for name in names)


def _defined(many: Iterable[Symbols]) -> frozenset[str]:
    return frozenset().union(*(each.defined for each in many))


def _is_library(name: str) -> bool:
    last = name.rpartition("/")[2]
    known = ".so" in last or last.endswith((".dll", ".pyd"))
    return known and (name.startswith("torch/") or "/_C" in name)
