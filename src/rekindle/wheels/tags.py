"""What a wheel is called, what its tags allow inside, and where in it a library belongs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename

from rekindle.core import files
from rekindle.core.errors import BadInput, NotFound, UsageError
from rekindle.formats import binary, package
from rekindle.formats.archive import Archive
from rekindle.model import wheel
from rekindle.wheels.repair import rewrite


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


def wheel_tags(path: Path) -> frozenset[Tag]:
    try:
        if " " in path.name:
            raise InvalidWheelFilename("it has a space in it")
        return wheel.read_name(path.name).tags
    except InvalidWheelFilename as error:
        if not path.exists():
            raise NotFound.path(path) from error
        wheel_like = path.suffix == ".whl"
        message = f"`{path.name}` is not the name of a wheel: {error}" if wheel_like else files.not_a(path, "a wheel")
        known = "such as `torch-2.7.1-cp311-cp311-win_amd64.whl`"
        hint = f"rename it to what it was when it was built, {known}" if wheel_like else f"name a wheel, {known}"
        raise BadInput(message, hint=hint) from error


def machine_of(tags: Collection[Tag]) -> tuple[str, str] | None:
    """The format and processor of the libraries that a wheel with these tags may hold; None for one of any."""
    words = tuple(map(str, tags))
    system, machine = wheel.system_of(words), wheel.machine_of(words)
    return ("pe" if system == "windows" else "elf", machine) if system and machine else None


def system_of(tags: Collection[Tag]) -> str:
    return wheel.system_of(tuple(map(str, tags))) or "windows"


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


def wheels_in(given: Path) -> list[Path]:
    """The wheel itself, or every wheel of a folder."""
    if not given.is_dir():
        return [given]
    found = sorted(given.glob("*.whl"))
    if not found:
        raise NotFound(f"there is no wheel in `{given}`", hint="name a folder with `.whl` files, or a wheel")
    return found


def _matching(path: Path) -> list[Path]:
    """The wheels of `dist/*.whl`, where no shell has written them out: on Windows, and in the settings of a CI job."""
    wanted = "*" in path.name and path.name.endswith(".whl") and not path.exists()
    found = sorted(path.parent.glob(path.name)) if wanted else []
    if wanted and not found:
        raise NotFound(f"no wheel matches `{path}`", hint="name the folder, or a wheel")
    return found


def subjects(given: Sequence[str]) -> list[str]:
    """What `inspect` and `verify` look at: a folder of wheels stands for each of them, any other for itself."""
    found: list[str] = []
    for text in given:
        path = Path(text)
        wheels = sorted(path.glob("*.whl")) if "://" not in text and path.is_dir() else _matching(path)
        found += [str(wheel) for wheel in wheels] if wheels else [text]
    return found
