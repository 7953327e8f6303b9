"""`rekindle repair`: a wheel that loads on a machine that has only the driver."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from rekindle.errors import BadInput, NotFound, UsageError
from rekindle.findings import Finding, State
from rekindle.formats import binary, package
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.wheels import rewrite
from rekindle.wheels.rewrite import Contents


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was put in. `origin` says where it came from, as a person would look for it."""

    member: str
    size: int
    origin: str
    version: str | None = None
    licence: str | None = None
    replaced: bool = False


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What `repair` prints with `--json`. `output` is null on a dry run."""

    schema: str = "rekindle.repair/1"
    wheel: str
    output: Path | None = None
    size: int | None = None
    kept: int = 0
    added: tuple[Added, ...] = ()
    removed: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def repair(
    wheel: Path, folder: Path, *, add: Sequence[str] = (), remove: Sequence[str] = (), dry_run: bool = False
) -> Repair:
    """Write a repaired copy of `wheel` into `folder`. The original is never touched."""
    tags = wheel_tags(wheel)
    target = place_of(wheel.name, folder, wheel)
    with File(wheel) as file:
        archive = Archive(file)
        rewrite.info_folder(archive)
        new = dict(_additions(archive, tags, add))
        gone = _removals(archive, remove)
        contents: Mapping[str, Contents] = {member: path for member, (path, _) in new.items()}
        added = tuple(note for _, note in new.values())
        if dry_run:
            return Repair(wheel=wheel.name, added=added, removed=gone, kept=len(archive.members) - len(gone))
        done = rewrite.rewrite(archive, target, add=contents, remove=gone)
    return Repair(
        wheel=wheel.name,
        output=done.path,
        size=done.size,
        kept=done.kept,
        added=added,
        removed=done.removed,
        findings=tuple(_record_findings(done.hashed)),
    )


def pack(root: Path, folder: Path, *, dry_run: bool = False) -> Repair:
    """Make a wheel of an unpacked one, with the file name its own metadata asks for and a RECORD that is right."""
    if not root.is_dir():
        message = f"there is no folder `{root}`"
        raise NotFound(message, hint="name the folder into which the wheel was unpacked")
    found = package.Folder(root)
    info = package.dist_info(found)
    if info is None or f"{info}/WHEEL" not in found.files:
        message = f"`{root}` is not an unpacked wheel: it has no `.dist-info` folder with WHEEL in it"
        raise BadInput(message, hint="name the folder that holds both the package and its `.dist-info`")
    linked = [name for name in found.files if (root / name).is_symlink()]
    if linked:
        message = f"`{linked[0]}` is a link; a wheel cannot hold links"
        raise BadInput(message, hint="replace it by the file it points to")
    names = [name for name in found.files if "__pycache__" not in name.split("/")]
    target = place_of(file_name(found, info), folder, None)
    if dry_run:
        return Repair(wheel=target.name, kept=len(names))
    done = rewrite.pack(root, target, names, info=info)
    return Repair(wheel=target.name, output=done.path, size=done.size, kept=len(names))


def file_name(found: package.Package, info: str) -> str:
    """What a wheel must be called: its folder's name and version, its build number and its tags."""
    fields = package.headers(found, "WHEEL")
    tags = sorted(fields.get("Tag", []))
    if not tags or any(tag.count("-") != 2 for tag in tags):
        message = f"`{info}/WHEEL` names no tag such as `cp311-cp311-win_amd64`"
        raise BadInput(message, hint="add a line `Tag: cp311-cp311-win_amd64` that fits the libraries inside")
    parts = [".".join(dict.fromkeys(tag.split("-")[at] for tag in tags)) for at in range(3)]
    build = fields.get("Build", [])[:1]
    return "-".join([info.removesuffix(".dist-info"), *build, *parts]) + ".whl"


def wheel_tags(wheel: Path) -> frozenset[Tag]:
    try:
        if " " in wheel.name:
            raise InvalidWheelFilename("it has a space in it")
        return parse_wheel_filename(wheel.name)[3]
    except InvalidWheelFilename as error:
        message = f"`{wheel.name}` is not the name of a wheel: {error}"
        hint = "rename it to what it was when it was built, such as `torch-2.7.1-cp311-cp311-win_amd64.whl`"
        raise (UsageError if wheel.exists() else NotFound)(message, hint=hint) from error


def machine_of(tags: Collection[Tag]) -> tuple[str, str] | None:
    """The format and processor of the libraries that a wheel with these tags may hold; None for one of any."""
    for platform in sorted(tag.platform for tag in tags):
        kind = "pe" if platform.startswith("win") else "elf" if "linux" in platform else None
        for ending, machine in (
            ("amd64", "x86_64"), ("x86_64", "x86_64"), ("arm64", "aarch64"), ("aarch64", "aarch64"), ("win32", "x86"),
        ):  # fmt: skip
            if kind and platform.endswith(ending):
                return kind, machine
    return None


def library_folder(archive: Archive, tags: Collection[Tag]) -> str:
    """Where added libraries go: torch/lib, which torch itself looks in; for other wheels where their loader will."""
    if any(name.startswith("torch/lib/") for name in archive.members):
        return "torch/lib"
    made = machine_of(tags)
    if made and made[0] == "elf":
        return rewrite.info_folder(archive).split("-")[0] + ".libs"
    modules = sorted(name for name in archive.members if name.lower().endswith((".pyd", ".dll")))
    return modules[0].rpartition("/")[0] if modules else ""


def check_machine(found: binary.Binary, tags: Collection[Tag]) -> None:
    """Refuse a library of another system or processor: it would end as `WinError 193` or `wrong ELF class`."""
    made = machine_of(tags)
    if made and (found.format, found.machine) != made and found.format in ("pe", "elf"):
        message = (
            f"`{found.file}` is {found.format.upper()} for {found.machine}, the wheel {made[0].upper()} for {made[1]}"
        )
        raise BadInput(message, hint="take the file of the same name that is made for the wheel's platform")


def place_of(name: str, folder: Path, original: Path | None) -> Path:
    if folder.exists() and not folder.is_dir():
        message = f"`{folder}` is a file, not a folder"
        raise UsageError(message, hint="name a folder with `-o`; the wheel keeps its file name")
    target = folder / name
    if original is not None and target.exists() and target.samefile(original):
        message = f"`{target}` is the wheel itself"
        raise UsageError(message, hint="name another folder with `-o`: the original is never changed")
    return target


def _additions(archive: Archive, tags: Collection[Tag], words: Sequence[str]) -> list[tuple[str, tuple[Path, Added]]]:
    found = []
    for word in words:
        path, member = _split(word)
        if not member:
            folder = library_folder(archive, tags)
            member = f"{folder}/{path.name}" if folder else path.name
        version = None
        with File(path) as file:
            size = file.size
            if binary.is_binary(path.name):
                read = binary.read(file)
                if read.problem:
                    raise BadInput(read.problem, hint="download or build the file again")
                check_machine(read, tags)
                version = read.pe.file_version if read.pe else None
        note = Added(member=member, size=size, origin=str(path), version=version, replaced=member in archive.members)
        found.append((member, (path, note)))
    return found


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
        Finding(
            id="record",
            state=State.WARN,
            found=f"RECORD did not hold {len(hashed)} files as they are ({shown}); their lines were made anew",
            why="the wheel had been changed by hand",
        )
    ]
