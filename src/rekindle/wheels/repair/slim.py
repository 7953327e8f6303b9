"""`repair --slim`: a Linux wheel that requires NVIDIA's packages instead of carrying their libraries.

pip then installs `nvidia-cublas-cu11` and its like beside it, once for all wheels that share them. Each library must be
in a package of the wheel's own CUDA, of the toolkit's version where there is one, and with code for the cards; what no
package has stays in the wheel. Run paths lead from each file to the packages' folders in site-packages.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from rekindle.core import codec, files
from rekindle.core.errors import UsageError
from rekindle.core.findings import Finding, passed, warned
from rekindle.formats import package
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.formats.binary import Binary
from rekindle.knowledge.cuda.libraries import is_vendor_library, owner_of
from rekindle.knowledge.cuda.library_packages import DllProvider, providers
from rekindle.knowledge.gpu import gpus
from rekindle.wheels.inspect import identity
from rekindle.wheels.inspect.identity import Identity, cuda_linked, read_binaries
from rekindle.wheels.repair import linux, rewrite
from rekindle.wheels.repair.closure import own_cards
from rekindle.wheels.repair.providers import WantedLibrary, choose
from rekindle.wheels.repair.repair import Repair
from rekindle.wheels.repair.rewrite import Contents, FromWheel
from rekindle.wheels.tags import machine_of, place_of, wheel_tags

# What auditwheel makes of a name: `libcudart-9335f6a2.so.11.0`, `libcudart.45e7f3ed.so.12`.
_HASHED = re.compile(r"(lib[\w+]+?)[-.][0-9a-f]{8}(\.so(?:\.[\w.]+)?)\Z")


class _Slimming(msgspec.Struct, frozen=True, kw_only=True):
    """`packages` are rows by library name; `gone` maps members to the name of the library that they are."""

    packages: dict[str, DllProvider]
    gone: dict[str, str]
    kept: tuple[str, ...]
    pinned: bool

    @property
    def requires(self) -> tuple[str, ...]:
        """Exact versions of a torch; of an extension only names, since the torch it is loaded with has its own pins."""
        pins = {row.package: f"=={row.version}" if self.pinned else "" for row in self.packages.values()}
        return tuple(f'{name}{version}; platform_system == "Linux"' for name, version in sorted(pins.items()))

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(sorted({posixpath.dirname(row.path) for row in self.packages.values()}))


def slim(wheel: Path, folder: Path, *, cards: Sequence[str] = (), dry_run: bool = False) -> Repair:
    """Write a copy of `wheel` that requires NVIDIA's packages into `folder`. The original is never touched."""
    made = machine_of(wheel_tags(wheel))
    if made is None or made[0] != "elf":
        message = f"`{wheel.name}` is not a Linux wheel: Windows does not search NVIDIA's packages for DLLs"
        raise UsageError(message, hint="`rekindle repair` without `--slim` adds the libraries to the wheel")
    target = place_of(wheel.name, folder, wheel)
    with File(wheel) as source, files.scratch("slim") as scratch:
        archive = Archive(source)
        whole = package.Wheel(archive)
        binaries = read_binaries(whole)
        known = identity.identify(whole, binaries)
        cuda = known.cuda or cuda_linked(binaries)
        if cuda is None:
            raise UsageError(f"`{wheel.name}` links no CUDA library", hint="there is nothing to make slim")
        wanted = WantedLibrary(
            system="linux",
            machine=made[1],
            python=known.python,
            cuda=cuda,
            cards=gpus.capabilities_of(cards) or own_cards(binaries),
        )
        plan = _planned(binaries, wanted, known)
        if not plan.packages:
            raise UsageError(
                f"no package provides the CUDA libraries of `{wheel.name}`", hint="leave the wheel as it is"
            )
        before = wheel.stat().st_size
        if dry_run:
            kept = len(archive.members) - len(plan.gone)
            return Repair(wheel=wheel.name, removed=tuple(plan.gone), kept=kept, requires=plan.requires,
                          findings=tuple(_findings(plan, before, None)))  # fmt: skip
        contents: dict[str, Contents] = dict(_led(archive, binaries, plan, scratch))
        info = rewrite.info_folder(archive)
        contents[f"{info}/METADATA"] = _metadata(archive.read(f"{info}/METADATA"), plan.requires)
        done = rewrite.rewrite(archive, target, add=contents, remove=tuple(plan.gone))
    findings = tuple(_findings(plan, before, done.size))
    return codec.like(
        Repair, done, wheel=wheel.name, output=done.path, added=(), requires=plan.requires, findings=findings
    )


def _planned(binaries: Sequence[Binary], wanted: WantedLibrary, known: Identity) -> _Slimming:
    inside = {found.name: _plain(found, wanted) for found in binaries if is_vendor_library(found.file)}
    names = {*inside.values(), *_linked(binaries, inside)}
    packages: dict[str, DllProvider] = {}
    versions: dict[str, str] = {}
    for name in sorted(names):
        owner = owner_of(name, "linux")
        rows = choose(name, msgspec.structs.replace(wanted, versions=dict(versions)), owner) if owner else []
        if rows and not any(line.lower().startswith(rows[0].package) for line in known.requires):
            packages[name] = rows[0]
            versions.setdefault(rows[0].package, rows[0].version)
    gone = {member: name for member, name in inside.items() if name in packages}
    kept = tuple(sorted(set(inside) - set(gone)))
    return _Slimming(packages=packages, gone=gone, kept=kept, pinned=known.is_torch_package)


def _linked(binaries: Sequence[Binary], inside: Mapping[str, str]) -> set[str]:
    """NVIDIA's libraries that files of the wheel link and the wheel does not carry."""
    have = {found.file for found in binaries} | {
        found.elf.soname for found in binaries if found.elf and found.elf.soname
    }
    found = set()
    for one in binaries:
        for name in one.elf.needed if one.elf and one.name not in inside else ():
            owner = owner_of(name, "linux")
            if name not in have and owner is not None and owner.package == "nvidia-*":
                found.add(name)
    return found


def _plain(found: Binary, wanted: WantedLibrary) -> str:
    """The name by which NVIDIA's packages know a library that may carry a hash in its own."""
    name = (found.elf.soname if found.elf and found.elf.soname else None) or found.file
    match = _HASHED.match(name)
    if match is None:
        return name
    whole = f"{match[1]}{match[2]}"
    while whole and not providers(whole, "linux", wanted.machine):
        shorter = whole.rpartition(".")[0]
        if not fnmatchcase(shorter, "*.so.*"):
            return f"{match[1]}{match[2]}"
        whole = shorter
    return whole


def _led(archive: Archive, binaries: Sequence[Binary], plan: _Slimming, scratch: Path) -> dict[str, Path]:
    """The files that link what now lies in packages, with run paths to these and with the libraries' own names."""
    renamed = {}
    for found in binaries:
        if found.name in plan.gone:
            for old in {found.file, found.elf.soname if found.elf else None} - {None, plan.gone[found.name]}:
                renamed[str(old)] = plan.gone[found.name]
    names = {*plan.packages, *renamed}
    changed = {}
    for found in binaries:
        if found.elf is None or found.name in plan.gone or not names & set(found.elf.needed):
            continue
        copy = rewrite.unpacked(FromWheel(archive=archive, member=archive.member(found.name)), found.name, scratch)
        here = posixpath.dirname(found.name) or "."
        ways = [posixpath.relpath(folder, here) for folder in plan.folders]
        linux.lead_to(copy, ways, {old: new for old, new in renamed.items() if old in found.elf.needed})
        changed[found.name] = copy
    return changed


def _metadata(data: bytes, requires: Sequence[str]) -> bytes:
    head, gap, body = data.decode("utf-8").partition("\n\n")
    lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
    return f"{head.rstrip(chr(10))}\n{lines}{gap[1:] if gap else ''}{body}".encode()


def _findings(plan: _Slimming, before: int, after: int | None) -> list[Finding]:
    packages = {row.wheel: row.wheel_size for row in plan.packages.values()}
    beside = f"{len(packages)} packages of {sum(packages.values()) / 1e6:.0f} MB, which other wheels share"
    size = f"{after / 1e6:.1f} MB instead of {before / 1e6:.1f} MB" if after is not None else "it would be smaller"
    found = [passed("repair.slim", f"{size}; pip installs {beside}")]
    if plan.kept:
        names = ", ".join(f"`{name}`" for name in plan.kept[:3]) + (", …" if len(plan.kept) > 3 else "")
        text = f"{names} stay in the wheel: no package for this CUDA has them with code for the GPUs"
        found.append(warned("repair.slim", text))
    return found
