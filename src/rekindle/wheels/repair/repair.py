"""`rekindle repair`: a wheel that loads on a machine that has only the driver."""

from __future__ import annotations

import contextlib
import json
import platform
import posixpath
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.tags import Tag

from rekindle import __version__
from rekindle.core import codec, console, files
from rekindle.core.errors import BadInput, NotFound, UsageError
from rekindle.core.findings import Finding, warned
from rekindle.formats import binary, package
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.knowledge.cuda.libraries import owner_of
from rekindle.knowledge.gpu import gpus
from rekindle.model.platform import Platform
from rekindle.wheels.inspect import identity
from rekindle.wheels.inspect.identity import read_binaries
from rekindle.wheels.repair import closure, rewrite
from rekindle.wheels.repair.closure import Completion, complete
from rekindle.wheels.repair.providers import Providers, Supply
from rekindle.wheels.repair.rewrite import Contents
from rekindle.wheels.tags import check_machine, file_name, library_folder, machine_of, place_of, system_of, wheel_tags


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was put in. `origin` says where it came from, as a person would look for it."""

    member: str
    size: int
    origin: str
    version: str | None = None
    licence: str | None = None
    replaced: bool = False


class RepairWish(msgspec.Struct, frozen=True, kw_only=True):
    """What may be brought: `folders` are looked in first, `index` allows the package index, `cards` must be served."""

    folders: tuple[Path, ...] = ()
    exclude: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    index: bool = True


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What `repair` prints with `--json`. `output` is null on a dry run."""

    schema: str = "rekindle.repair/1"
    wheel: str
    output: Path | None = None
    size: int | None = None
    kept: int = 0
    added: tuple[Added, ...] = ()
    removed: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    """What a slim wheel requires instead of what was removed."""
    findings: tuple[Finding, ...] = ()


class Repairs(msgspec.Struct, frozen=True, kw_only=True):
    """What `repair` prints with `--json` for more than one."""

    schema: str = "rekindle.repairs/1"
    repairs: tuple[Repair, ...]


def repair(
    wheel: Path,
    folder: Path,
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    wish: RepairWish | None = None,
    dry_run: bool = False,
) -> Repair:
    """Write a repaired copy of `wheel` into `folder`. The original is never touched.

    With a `wish` what is missing is brought; without one only what `add` and `remove` say is done.
    """
    tags = wheel_tags(wheel)
    target = place_of(wheel.name, folder, wheel)
    with contextlib.ExitStack() as ending:
        archive = Archive(ending.enter_context(File(wheel)))
        info = rewrite.info_folder(archive)
        gone = _removals(archive, remove)
        given = _additions(archive, tags, add)
        place = library_folder(archive, tags)
        found = None
        if wish:
            here = machine_of(tags) == ("elf", platform.machine()) and sys.platform == "linux"
            sources = Providers(wish.folders, index=wish.index, fetch=not dry_run, linked_here=here)
            ending.callback(sources.close)
            found = _completed(archive, tags, gone, given, place, wish, sources)
        supplies = {**given, **(found.supplies if found else {})}
        added = tuple(
            codec.like(Added, one, member=member, replaced=member in given and member in archive.members)
            for member, one in supplies.items()
        )
        findings = found.findings if found else ()
        if dry_run:
            kept = len(archive.members) - len(gone)
            return Repair(wheel=wheel.name, added=added, removed=gone, kept=kept, findings=findings)
        contents = {member: one.contents for member, one in supplies.items() if one.contents is not None}
        if found and found.supplies and (machine_of(tags) or ("", ""))[0] == "elf":
            scratch = ending.enter_context(files.scratch("repair"))
            contents |= closure.run_paths(archive, place, contents, found.wanted_by, scratch)
        if contents:
            contents |= _papers(archive, info, contents, supplies)
        done = rewrite.rewrite(archive, target, add=contents, remove=gone)
    findings = (*_record_findings(done.hashed), *findings)
    return codec.like(Repair, done, wheel=wheel.name, output=done.path, added=added, findings=findings)


def pack(root: Path, folder: Path, *, dry_run: bool = False) -> Repair:
    """Make a wheel of an unpacked one, with the file name its own metadata asks for and a RECORD that is right."""
    if not root.is_dir():
        raise NotFound.path(root, "folder", hint="name the folder into which the wheel was unpacked")
    found = package.Folder(root)
    info = package.dist_info(found)
    if info is None or f"{info}/WHEEL" not in found.files:
        message = f"`{root}` is not an unpacked wheel: it has no `.dist-info` folder with WHEEL in it"
        raise BadInput(message, hint="name the folder that holds both the package and its `.dist-info`")
    linked = [name for name in found.files if (root / name).is_symlink()]
    if linked:
        message = f"`{linked[0]}` is a link; a wheel cannot hold links"
        raise BadInput(message, hint="replace it with the file it points to")
    names = [name for name in found.files if "__pycache__" not in name.split("/")]
    target = place_of(file_name(found, info), folder, None)
    if dry_run:
        return Repair(wheel=target.name, kept=len(names))
    done = rewrite.pack(root, target, names, info=info)
    return Repair(wheel=target.name, output=done.path, size=done.size, kept=len(names))


def _additions(archive: Archive, tags: Collection[Tag], words: Sequence[str]) -> dict[str, Supply]:
    """The files that were named, by their members."""
    found = {}
    for word in words:
        path, member = _split(word)
        member = member or posixpath.join(library_folder(archive, tags), path.name)
        read = None
        with File(path) as file:
            size = file.size
            if binary.is_binary(path.name) or binary.is_binary(member):
                read = msgspec.structs.replace(binary.read(file, symbols=True), name=member)
                if read.problem:
                    raise BadInput(read.problem, hint="download or build the file again")
                check_machine(read, tags)
        owner = owner_of(member.rpartition("/")[2], system_of(tags))
        if owner and owner.bundle == "no":
            raise UsageError(f"`{path.name}` is {owner.note}: it is never bundled", hint=owner.where)
        found[member] = Supply(
            library=path.name,
            origin=str(path),
            size=size,
            contents=path,
            binary=read,
            version=read.pe.file_version if read and read.pe else None,
            licence=owner.licence if owner else None,
        )
    return found


def _completed(
    archive: Archive,
    tags: Collection[Tag],
    gone: Collection[str],
    given: Mapping[str, Supply],
    folder: str,
    wish: RepairWish,
    sources: Providers,
) -> Completion:
    made = machine_of(tags)
    whole = package.Wheel(archive)
    binaries = read_binaries(whole)
    known = identity.identify(whole, binaries)
    binaries = [found for found in binaries if found.name not in gone and found.name not in given]
    binaries += [one.binary for one in given.values() if one.binary]
    cards = gpus.capabilities_of(wish.cards)
    where = Platform(system_of(tags), made[1] if made else "x86_64")
    found = complete(binaries, known, folder, where, sources, exclude=wish.exclude, cards=cards)
    if made and made[0] == "elf":
        every = [*binaries, *(one.binary for one in found.supplies.values() if one.binary)]
        found = msgspec.structs.replace(found, findings=(*found.findings, *closure.floor_findings(every, tags)))
    return found


def _papers(
    archive: Archive, info: str, contents: Mapping[str, Contents], supplies: Mapping[str, Supply]
) -> dict[str, Contents]:
    """The bill of materials, and the licences of what came from other packages."""
    fields = package.headers(package.Wheel(archive), "METADATA")
    project, version = (fields.get(key, ["?"])[0] for key in ("Name", "Version"))
    papers: dict[str, Contents] = {}
    for supply in supplies.values():
        for name, text in supply.licences.items() if supply.package else ():
            papers[f"{info}/licenses/bundled/{supply.package}/{name}"] = text
    components = [_component(member, contents[member], supplies[member]) for member in sorted(supplies)]
    papers[f"{info}/sboms/rekindle.cdx.json"] = render_sbom(project, version, components)
    return papers


def _split(word: str) -> tuple[Path, str]:
    """`FILE` or `FILE=torch/bin/name.dll`. A file may have an equals sign in its own name."""
    name, sign, member = word.rpartition("=")
    return (Path(word), "") if not sign or Path(word).exists() else (Path(name), member)


def _removals(archive: Archive, words: Sequence[str]) -> tuple[str, ...]:
    info = rewrite.info_folder(archive)
    gone: list[str] = []
    for word in words:
        wanted = word.replace("\\", "/").lower()
        found = [
            name
            for name in archive.members
            if name.lower() == wanted or ("/" not in wanted and name.lower().rpartition("/")[2] == wanted)
        ]
        if not found:
            import difflib

            near = difflib.get_close_matches(wanted, {name.rpartition("/")[2].lower() for name in archive.members}, n=1)
            message = f"`{archive.name}` has no file `{word}` to remove"
            hint = f"did you mean `{near[0]}`?" if near else "name a file or its path in the wheel"
            raise NotFound(message, hint=hint)
        if any(name.startswith(f"{info}/") for name in found):
            message = f"`{word}` is part of the wheel's metadata; without it nothing can install the wheel"
            raise UsageError(message, hint="remove files of the package only")
        gone += found
    return tuple(dict.fromkeys(gone))


def _record_findings(hashed: Sequence[str]) -> list[Finding]:
    if not hashed:
        return []
    shown = ", ".join(f"`{name}`" for name in hashed[:3]) + (", …" if len(hashed) > 3 else "")
    return [
        warned(
            "record",
            f"RECORD did not match {len(hashed)} files ({shown}); their entries were rewritten",
            why="the wheel had been changed by hand",
        )
    ]


def render_sbom(project: str, version: str, components: Sequence[Mapping[str, object]]) -> bytes:
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
        "components": components,
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _component(member: str, contents: Contents, supply: Supply) -> dict[str, object]:
    named = contents.name if isinstance(contents, Path) else "given"
    found: dict[str, object] = {
        "type": "library",
        "bom-ref": member,
        "name": member.rpartition("/")[2],
        "hashes": [{"alg": "SHA-256", "content": rewrite.sha256(contents).hexdigest()}],
        "properties": [
            {"name": "rekindle:member", "value": member},
            {"name": "rekindle:origin", "value": supply.origin if supply.package else named},
        ],
    }
    if supply.version:
        found["version"] = supply.version
    if supply.licence:
        found["licenses"] = [{"license": {"name": supply.licence}}]
    if supply.package and supply.package_version:
        found["purl"] = f"pkg:pypi/{supply.package}@{supply.package_version}"
    return found


def text(done: Repair) -> str:
    would = "would be " if done.output is None else ""
    blocks = [console.paint(console.clean(done.wheel), "bold")]
    if done.added:
        rows = [
            (console.clean(item.member), console.size(item.size), item.version or "", _origin(item))
            for item in done.added
        ]
        blocks.append(f"{would}added\n".capitalize() + console.table(rows, indent="  "))
    if done.removed:
        blocks.append(f"{would}removed\n".capitalize() + "\n".join(f"  {console.clean(name)}" for name in done.removed))
    if done.requires:
        blocks.append("Requires\n" + "\n".join(f"  {console.clean(line)}" for line in done.requires))
    blocks.append("\n".join(console.finding(item) for item in done.findings))
    if done.output is not None:
        blocks.append(f"{done.kept} files unchanged\nwritten to {console.clean(str(done.output))}")
    return "\n\n".join(block for block in blocks if block)


def _origin(item: Added) -> str:
    return console.clean(item.origin) + (" (replaces the one inside)" if item.replaced else "")
