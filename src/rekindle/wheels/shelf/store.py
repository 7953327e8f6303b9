"""What the shelf knows of a wheel; its files, how they come and go, and that nothing leads out of the folder."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.utils import InvalidName, canonicalize_name

from rekindle.core import codec, console, files
from rekindle.core.command import Command, pip, rekindle
from rekindle.core.errors import BadInput, ChecksFailed, Locked, NotFound, NotWritable, RekindleError, UsageError
from rekindle.core.findings import Finding, State
from rekindle.core.paths import sha256_of
from rekindle.core.untrusted import PipVersion, PlainFileName, ProjectName, Sha256
from rekindle.knowledge.gpu.gpu_code import GpuCode, sums
from rekindle.model.wheel import WheelIdentity

ENTRY, METADATA, REPORT, STATEMENT = ".shelf.json", ".metadata", ".verify.json", ".dsse.json"
_OWN_FOLDERS = ("wheels", "simple", "replaced")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl")


def names_of(file: str) -> tuple[str, ...]:
    """A wheel's files on the shelf. The entry first: what has none is not on the shelf."""
    return (f"{file}{ENTRY}", f"{file}{METADATA}", f"{file}{REPORT}", f"{file}{STATEMENT}", file)


def guard(folder: Path) -> None:
    """Refuse a shelf that leads elsewhere: whoever can put a link into it could have anything overwritten or served."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"`{folder}` is a file, not a shelf", hint="`--shelf` takes a folder")
    for name in _OWN_FOLDERS:
        files.no_links(folder / name, folder)
        if (folder / name).exists() and not (folder / name).is_dir():
            message = f"`{folder / name}` is not a folder of the shelf"
            raise BadInput(message, hint="remove it; `rekindle shelf mend` makes the index anew")


def existing(folder: Path) -> Path:
    """A shelf to read from: the folder is there, and is empty or a shelf. A mistyped path is no empty shelf."""
    guard(folder)
    if not folder.is_dir():
        raise NotFound.path(folder, hint="name a folder that `rekindle shelf add` made with `--shelf`")
    if any(folder.iterdir()) and not any((folder / name).is_dir() for name in _OWN_FOLDERS):
        message = f"`{folder}` is not a shelf: it has neither `wheels` nor `simple`"
        raise BadInput(message, hint="name a folder that `rekindle shelf add` made with `--shelf`")
    return folder


def file_name(file: str) -> str:
    """A wheel's file name, if it is nothing but that."""
    if not _FILE.fullmatch(file):
        raise BadInput(f"`{file[:80]}` is not the file name of a wheel", hint="rename it to what it was built as")
    return file


def check_project(stated: str, file_project: str) -> None:
    """An error unless the name that METADATA states is one by the packaging rules and the same as in the file name."""
    try:
        canonical = canonicalize_name(stated, validate=True)
    except InvalidName:
        raise BadInput(
            f"METADATA says `Name: {stated[:80]}`, which no project can be called", hint="build it again"
        ) from None
    if canonical != file_project:
        message = f"METADATA says `Name: {stated[:80]}`, the file name says `{file_project}`"
        raise BadInput(message, hint="build it again, or give it back its file name")


def read_entry(path: Path) -> ShelvedWheel:
    """One entry, which must be of the wheel whose name it carries."""
    files.no_links(path, path.parent)
    try:
        entry = codec.from_json(files.read_bytes(path), ShelvedWheel, name=f"`{path}`")
    except BadInput as error:
        mend = rekindle("shelf", "mend", "--shelf", str(path.parents[1]))
        raise BadInput(error.message, hint=f"`{mend}` makes it anew, or sets its wheel aside") from error
    if f"{file_name(entry.file)}{ENTRY}" != path.name:
        raise BadInput(f"`{path}` speaks of another wheel, `{entry.file}`", hint="`rekindle shelf mend` makes it anew")
    return entry


def there(folder: Path, entry: ShelvedWheel) -> bool:
    """Whether the wheel of an entry lies there, a plain file of its size; what is in it, `shelf verify` asks."""
    place = folder / "wheels" / entry.file
    return place.is_file() and not files.is_link(place) and place.stat().st_size == entry.size


def unchanged(place: Path | str | None) -> None:
    """A wheel of a shelf is the file that was added to it; one that lies elsewhere has no entry to be held against."""
    if place is None or not (wheel := Path(place)).is_file():
        return
    entry = wheel.with_name(wheel.name + ENTRY)
    if entry.is_file() and read_entry(entry).sha256 != sha256_of(wheel):
        message = f"`{wheel.name}` is not the file that was added to the shelf"
        raise ChecksFailed(message, hint="`rekindle shelf verify` says more; `rekindle shelf mend` sets it aside")


def entry_files(folder: Path) -> list[Path]:
    return sorted((folder / "wheels").glob(f"*.whl{ENTRY}"))


def copy(source: Path, target: Path) -> None:
    with source.open("rb") as stream, files.replacing(target) as out:
        shutil.copyfileobj(stream, out, 1 << 20)


def set_aside(folder: Path, file: str) -> Path:
    """Move a wheel and all that belongs to it to `replaced`, where it can be taken from again."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    number = 0
    while True:
        place = folder / "replaced" / (stamp if not number else f"{stamp}-{number}")
        try:
            place.mkdir(parents=True)
            break
        except FileExistsError:
            number += 1
        except OSError as error:
            raise NotWritable(f"cannot write `{place}`: {error.strerror}", hint="check the permissions") from error
    for name in names_of(file):
        with contextlib.suppress(FileNotFoundError):
            (folder / "wheels" / name).rename(place / name)
    return place


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        guard(folder)
        message = f"another run has held the shelf `{folder}` for two minutes"
        busy = Locked(message, hint="wait for it to end; if none runs, delete the file `.lock` in it")
        with contextlib.ExitStack() as held:
            with console.waiting(f"waiting for another run that changes the shelf `{folder}`"):
                held.enter_context(files.locked(folder / ".lock", busy, timeout=120))
            yield
    except RekindleError:
        raise
    except OSError as error:
        message = f"cannot write to the shelf `{folder}`: {error.strerror or error}"
        raise NotWritable(message, hint="check the permissions, or name another with `--shelf`") from error


@contextlib.contextmanager
def unmade(folder: Path) -> Iterator[None]:
    """A new shelf whose first wheel is refused leaves nothing behind."""
    new = not folder.exists()
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            if new and {each.name for each in folder.iterdir()} <= {".lock"}:
                (folder / ".lock").unlink(missing_ok=True)  # on Windows it is gone with the lock
                folder.rmdir()
        raise


class ShelvedWheel(WheelIdentity, frozen=True, kw_only=True):
    """A wheel on the shelf. `state` is that of the shelf's own checks and of a report that a trusted key signed.

    `checked_on` are the cards it has run on, `original` is the hash of the file that was added where the shelf gave it
    another version (its local label), `signed_by` the key of its statement.
    """

    project: ProjectName
    version: PipVersion
    file: PlainFileName
    sha256: Sha256
    size: int
    metadata_sha256: Sha256
    requires_python: str | None = None
    python: str | None = None
    platform: str | None = None
    state: State
    checked_on: tuple[str, ...] = ()
    code: tuple[GpuCode, ...] = ()
    added_at: str | None = None
    original: str | None = None
    signed_by: str | None = None
    yanked: str | None = None


class Shelf(msgspec.Struct, frozen=True, kw_only=True):
    """What the subcommands of `shelf` print with `--json`.

    `replaced` are the folders in which what left the shelf is kept.
    """

    schema: str = "rekindle.shelf/1"
    folder: Path
    wheels: tuple[ShelvedWheel, ...] = ()
    removed: tuple[str, ...] = ()
    replaced: tuple[Path, ...] = ()


class ShelfHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What `shelf verify` and `shelf mend` print with `--json`."""

    schema: str = "rekindle.shelf-health/1"
    folder: Path
    state: State
    findings: tuple[Finding, ...]


def shelf_text(
    wheels: Sequence[ShelvedWheel], cards: Sequence[str] = (), doubts: Mapping[str, str] | None = None
) -> str:
    """`doubts` by file: why what an entry says is nobody's word."""
    if not wheels and cards:
        return f"no wheel on the shelf serves {console.clean(' and '.join(cards))}"
    if not wheels:
        return console.wrap("the shelf is empty; put a wheel on it with `rekindle shelf add WHEEL`")
    blocks = []
    for entry in wheels:
        unsaid = "unknown" if entry.code else "none"
        rows = [
            ("GPU code", " ".join(sums(entry.code)) or "none"),
            ("CUDA", f"{entry.cuda}, cuDNN {entry.cudnn or 'unknown'}" if entry.cuda else unsaid),
            ("verified", entry.state.value + (f" on {', '.join(entry.checked_on)}" if entry.checked_on else "")),
            ("signed", "yes" if entry.signed_by else "no"),
            ("size", console.size(entry.size)),
        ]
        if doubt := (doubts or {}).get(entry.file):
            rows[2:4] = [("verified", f"{entry.state.value}, by its entry alone"), ("signed", f"no: {doubt}")]
        if entry.yanked is not None:
            rows.append(("yanked", entry.yanked or "yes"))
        table = console.table([(name, console.clean(value)) for name, value in rows], indent="  ")
        blocks.append(console.paint(console.clean(entry.file), "bold") + "\n" + table)
    return "\n\n".join(blocks)


def install_command(folder: Path, entry: ShelvedWheel) -> str:
    """How pip takes this very wheel from the shelf: its whole version, or a newer one from elsewhere would win."""
    index = (folder.resolve() / "simple").as_uri()
    if entry.variant is not None:
        choose = ("pip", "install", "--preview-features", "wheel-variants", "--index", index)
        return str(Command("uv", *choose, f"{entry.project}=={entry.version}"))
    return str(pip("install", "--extra-index-url", index, f"{entry.project}=={entry.version}"))
