"""`repair --slim`: a Linux wheel that requires NVIDIA's packages instead of carrying their libraries.

pip then installs `nvidia-cublas-cu11` and its like beside it, once for all wheels that share them. Each library must be
in a package of the wheel's own CUDA, of the toolkit's version where there is one, and with code for the cards; what no
package has stays in the wheel. Run paths lead from each file to the packages' folders in site-packages.

`repair --only-for`: a wheel without the GPU code that the named cards cannot use. In each container the entries that
remain move together, byte for byte, its header says the smaller size, and zeros follow: nothing else in the file moves,
so no address in it changes. Zeros cost next to nothing in the wheel; on a disk they cost what the code did, until the
file is made sparse. What is not understood stays: code that is not registered, kinds of code without a name here,
containers that are not whole, and a container's smallest entry where none serves. NVIDIA's own libraries stay as they
are: its terms (CUDA EULA 1.2, 2) forbid to "modify" any portion of the SDK.

`repair --variant`: a label that asks NVIDIA's provider, which uv has built in: `sm_arch` and the oldest CUDA that a
driver must report.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import msgspec

from rekindle.compat.variant import ARCHITECTURE, NVIDIA, honest
from rekindle.core import codec, console, files
from rekindle.core.command import rekindle
from rekindle.core.errors import UsageError
from rekindle.core.findings import Finding, passed, unverified, warned
from rekindle.formats import binary, package
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.formats.binary import Binary
from rekindle.formats.fatbin import Container, GpuEntry
from rekindle.formats.gpu_payload import Content
from rekindle.knowledge.cuda.libraries import is_vendor_library, owner_of
from rekindle.knowledge.cuda.library_packages import DllProvider, providers
from rekindle.knowledge.gpu import gpus
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.model.card import Capability
from rekindle.model.platform import Platform
from rekindle.model.wheel import read_name
from rekindle.wheels.inspect import identity
from rekindle.wheels.inspect.identity import VARIANT_FILE as FILE
from rekindle.wheels.inspect.identity import Identity, VariantFile, cuda_linked, cuda_of, read_binaries
from rekindle.wheels.repair import closure, rewrite
from rekindle.wheels.repair.closure import own_cards
from rekindle.wheels.repair.providers import WantedLibrary, choose
from rekindle.wheels.repair.repair import Added, Repair
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
    while whole and not providers(whole, Platform("linux", wanted.machine)):
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
        closure.lead_to(copy, ways, {old: new for old, new in renamed.items() if old in found.elf.needed})
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


_HEAD = 16
_SIZE = struct.Struct("<Q")
_ALIGNED = 8


class Cut(NamedTuple):
    """A container and the entries of it that stay."""

    container: Container
    kept: tuple[GpuEntry, ...]

    @property
    def saved(self) -> int:
        return self.container.size - _HEAD - sum(entry.size for entry in self.kept)


def cuts(binary: Binary, cards: Sequence[Capability]) -> list[Cut]:
    """The containers of a library from which something can go."""
    if is_vendor_library(binary.file):
        return []
    found = (Cut(each, _kept(each, cards)) for each in binary.containers if _understood(each))
    return [cut for cut in found if len(cut.kept) < len(cut.container.entries)]


def _understood(container: Container) -> bool:
    return (
        container.whole
        and (container.section or "").startswith(".nv_fatb")
        and all(entry.size % _ALIGNED == 0 for entry in container.entries)
        and sum(entry.size for entry in container.entries) == container.size - _HEAD
    )


def _kept(container: Container, cards: Sequence[Capability]) -> tuple[GpuEntry, ...]:
    usable = [entry for entry in container.entries if _usable(entry, cards)]
    if not any(entry.runnable for entry in usable):
        code = [entry for entry in container.entries if entry.runnable]
        usable += [min(code, key=lambda entry: entry.size)] if code else []
    return tuple(sorted(usable, key=lambda entry: entry.offset))


def _usable(entry: GpuEntry, cards: Sequence[Capability]) -> bool:
    if not entry.runnable or entry.content is Content.NOT_CODE:
        return True
    return any(runs(entry.target, card) is not Runs.NO for card in cards)


def apply(path: Path, many: Sequence[Cut]) -> None:
    """Take the entries out of a copy of the library."""
    with path.open("r+b") as stream:
        for container, kept in many:
            pieces = []
            for entry in kept:
                stream.seek(entry.offset)
                pieces.append(stream.read(entry.size))
            code = b"".join(pieces)
            stream.seek(container.offset + 8)
            stream.write(_SIZE.pack(len(code)))
            stream.write(code)
            stream.write(bytes(container.size - _HEAD - len(code)))


def prune(wheel: Path, folder: Path, *, cards: Sequence[str], dry_run: bool = False) -> Repair:
    """Write a copy of `wheel` for `cards` alone into `folder`, under a version that says so."""
    wheel_tags(wheel)
    wanted = gpus.capabilities_of(cards)
    with File(wheel) as source, files.scratch("prune") as scratch:
        archive = Archive(source)
        whole = package.Wheel(archive)
        binaries = read_binaries(whole)
        planned = {found.name: many for found in binaries if (many := cuts(found, wanted))}
        if not planned:
            hint = f"`{rekindle('inspect', wheel.name)}` shows what is in it"
            raise UsageError(f"`{wheel.name}` has no GPU code that {', '.join(cards)} could do without", hint=hint)
        known = identity.identify(whole, binaries)
        version = _pruned_version(known.version or "0", wanted)
        name, member, metadata, renamed = rewrite.under_version(archive, wheel.name, version)
        target = place_of(name, folder, wheel)
        notes = tuple(_note(name, many) for name, many in planned.items())
        if dry_run:
            findings = tuple(_prune_findings(planned, binaries, wanted, wheel.stat().st_size, None))
            return Repair(wheel=wheel.name, added=notes, kept=len(archive.members) - len(notes), findings=findings)
        contents: dict[str, rewrite.Contents] = {member: metadata, **_copies(archive, planned, scratch)}
        remove = (f"{rewrite.info_folder(archive)}/METADATA",)
        done = rewrite.rewrite(archive, target, add=contents, remove=remove, renamed=renamed)
    findings = tuple(_prune_findings(planned, binaries, wanted, wheel.stat().st_size, done.size))
    return Repair(wheel=wheel.name, output=done.path, size=done.size, kept=done.kept, added=notes, findings=findings)


def _pruned_version(version: str, cards: Sequence[Capability]) -> str:
    public, _, local = version.partition("+")
    words = [*([local] if local else []), "only", *(card.sm.replace("_", "") for card in sorted(set(cards)))]
    return f"{public}+{'.'.join(words)}"


def _copies(archive: Archive, planned: dict[str, list[Cut]], scratch: Path) -> dict[str, Path]:
    made = {}
    for name, many in planned.items():
        made[name] = rewrite.unpacked(rewrite.FromWheel(archive=archive, member=archive.member(name)), name, scratch)
        apply(made[name], many)
    return made


def _note(name: str, many: Sequence[Cut]) -> Added:
    saved = console.size(sum(cut.saved for cut in many))
    size = sum(entry.size for cut in many for entry in cut.kept)
    return Added(member=name, size=size, origin=f"{saved} of GPU code for other cards taken out", replaced=True)


def _prune_findings(
    planned: dict[str, list[Cut]],
    binaries: Sequence[Binary],
    cards: Sequence[Capability],
    before: int,
    after: int | None,
) -> Iterator[Finding]:
    saved = sum(cut.saved for many in planned.values() for cut in many)
    size = f"to download {console.size(after)} instead of {console.size(before)}; " if after is not None else ""
    yield passed(
        "repair.only-for",
        f"{size}on a disk {console.size(saved)} less once its files are sparse (Linux: `fallocate --dig-holes FILE`)",
    )
    vendors = [found.file for found in binaries if found.containers and is_vendor_library(found.file)]
    if vendors:
        text = f"{len(vendors)} libraries of NVIDIA stay as they are: its terms forbid to change them"
        yield passed("repair.only-for", text)
    own = [each for found in binaries if not is_vendor_library(found.file) for each in found.containers if each.code]
    strange = sum(not any(_usable(entry, cards) for entry in each.code) for each in own)
    if strange:
        text = f"{console.plural(strange, 'part')} for other cards alone kept a piece: `inspect` counts it, as PARTIAL"
        yield warned("repair.only-for", text)
    yield unverified("repair.only-for", "not run on a card: `rekindle verify` tries it on yours")


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
            raise UsageError(message, hint=f"`{rekindle('inspect', wheel.name)}` shows what is in it")
        name = _label_name(properties[ARCHITECTURE], str(cuda.major_minor).replace(".", "") if cuda else "")
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
        planned = Repair(wheel=wheel.name, added=added, kept=len(archive.members), findings=tuple(findings))
        if dry_run:
            return planned
        done = rewrite.rewrite(archive, target, add={member: data})
    return msgspec.structs.replace(planned, output=done.path, size=done.size, kept=done.kept)


def _label_name(values: tuple[str, ...], line: str) -> str:
    """At most sixteen letters: the one card's number, or what the many come to."""
    many = hashlib.sha256(" ".join(values).encode()).hexdigest()[:8]
    what = f"sm{values[0].removesuffix('_real')}" if len(values) == 1 and values[0].endswith("real") else many
    return f"cu{line}.{what}" if line else what
