"""What was changed in an environment, and the way back.

Nothing is imported and no pip is needed: a distribution is the files that its RECORD names. What is replaced is kept by
hard links and put back byte for byte.
"""

from __future__ import annotations

import csv
import glob
import io
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import msgspec

from rekindle.core import codec, files
from rekindle.core.errors import BadInput, NotFound, NotWritable, StepFailed
from rekindle.core.files import describe_error
from rekindle.core.untrusted import InsidePath, leads_inside
from rekindle.install import conda
from rekindle.model.environment import Environment
from rekindle.model.requirement import canonical_name
from rekindle.stack.rules import RouteKind

_LARGEST = 8 << 20
_MOST_FILES = 64
_INFO = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*?)-(?P<version>[^-]+)\.dist-info\Z")


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    info: str
    """Its `.dist-info` folder, inside the site folder."""


def installed(site: Path) -> dict[str, Distribution]:
    """Every distribution of a site folder, by its normalised name."""
    found: dict[str, Distribution] = {}
    for info in sorted(site.glob("*.dist-info")):
        match = _INFO.match(info.name)
        if match and info.is_dir():
            name = canonical_name(match["name"])
            found[name] = Distribution(name=name, version=match["version"], info=info.name)
    return found


def freeze(distributions: Mapping[str, Distribution]) -> tuple[str, ...]:
    """As `pip freeze` would say it."""
    return tuple(f"{each.name}=={each.version}" for _, each in sorted(distributions.items()))


def files_of(distribution: Distribution, site: Path, prefix: Path) -> list[Path]:
    """The files of a distribution that exist, and that lie inside the environment: a RECORD can say anything."""
    record = site / distribution.info / "RECORD"
    named: list[Path] = []
    if record.is_file():
        text = files.read_bytes(record, limit=_LARGEST).decode("utf-8", "surrogateescape")
        rows = csv.reader(io.StringIO(text.replace("\0", "")))
        try:
            named = [Path(os.path.normpath(site / row[0])) for row in rows if row and row[0]]
        except csv.Error as error:
            raise BadInput(f"`{record}` is not a list of files: {error}", hint="install the package again") from error
    own = [path for entry in files.below(site / distribution.info) if (path := Path(entry.path)).is_file()]
    inside = (path for path in dict.fromkeys([*named, *own]) if path.is_relative_to(prefix))
    # What is not there is left out first: to follow two thousand folders of a name costs as many questions.
    there = [path for path in inside if path.is_file() or path.is_symlink()]
    folders = {folder for folder in {path.parent for path in there} if leads_inside(folder, prefix)}
    return [path for path in there if path.parent in folders]


def keep(distributions: Iterable[Distribution], site: Path, prefix: Path, store: Path) -> None:
    """Link (or copy, where links cannot be made) every file into `store`, under its path from the prefix."""
    for distribution in distributions:
        for path in files_of(distribution, site, prefix):
            _link(path, store / path.relative_to(prefix))


def put_back(store: Path, prefix: Path) -> None:
    """Every kept file at its place again, exactly."""
    for path in sorted(Path(entry.path) for entry in files.below(store)):
        if path.is_file() or path.is_symlink():
            target = prefix / path.relative_to(store)
            if not leads_inside(target.parent, prefix):
                message = f"`{target}` leads out of the environment through a link"
                raise BadInput(message, hint=f"replace the link by the folder itself; the files are in `{store}`")
            target.unlink(missing_ok=True)
            _link(path, target)


def remove(distribution: Distribution, site: Path, prefix: Path) -> None:
    """Take a distribution out: its files, their compiled copies, and the folders that are empty then."""
    folders: set[Path] = set()
    for path in files_of(distribution, site, prefix):
        path.unlink(missing_ok=True)
        folders.add(path.parent)
        beside = path.parent / "__pycache__"
        kept = path.suffix == ".py" and not files.is_link(beside)
        for compiled in beside.glob(f"{glob.escape(path.stem)}.*.pyc") if kept else ():
            compiled.unlink(missing_ok=True)
            folders.add(compiled.parent)
    shutil.rmtree(site / distribution.info, ignore_errors=True)
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        _prune(folder, site, prefix)


def _prune(folder: Path, site: Path, prefix: Path) -> None:
    while folder not in (site, prefix) and folder.is_relative_to(prefix):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _link(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:
            shutil.copy2(source, target, follow_symlinks=False)
    except OSError as error:
        message = f"cannot keep `{source}`: {describe_error(error)}"
        raise NotWritable(message, hint="nothing was changed; free some space in the environment's disk") from error


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """One distribution before and after. None: it was not there."""

    name: str
    before: str | None
    after: str | None


class InstallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One install. `files` are configuration files with their former text; None: they did not exist."""

    schema: str = "rekindle.install-record/1"
    when: str
    route: RouteKind
    freeze: tuple[str, ...]
    kept: tuple[Distribution, ...]
    changes: tuple[Replaced, ...] = ()
    conda_revision: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """For conda's own way back."""
    files: dict[InsidePath, str | None] = {}
    entries: tuple[str, ...] = ()
    """What lay in site-packages and beside the Python: an installer that is stopped leaves files without a name."""


def begin(
    environment: Environment,
    route: RouteKind,
    replaced: list[Distribution],
    configuration: list[Path],
    conda_revision: int | None = None,
) -> Path:
    """Keep everything that will be replaced, and write down what there was. The folder of the record."""
    site, prefix = environment.site, Path(environment.root)
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%f")
    folder = environment.folder / f"undo-{stamp}"
    try:
        keep(replaced, site, prefix, folder / "files")
        record = InstallRecord(
            when=stamp,
            route=route,
            freeze=freeze(installed(site)),
            kept=tuple(replaced),
            conda_revision=conda_revision,
            entries=tuple(sorted(_entries(environment))),
            files={InsidePath(path.relative_to(prefix).as_posix()): _text(path) for path in configuration},
        )
        _write(folder, record)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def finish(environment: Environment, folder: Path, changes: tuple[Replaced, ...]) -> InstallRecord:
    record = msgspec.structs.replace(read(environment, folder), changes=changes)
    _write(folder, record)
    return record


def latest(environment: Environment) -> Path:
    found = sorted(environment.folder.glob("undo-*")) if environment.folder.is_dir() else []
    if not found:
        raise NotFound(f"nothing was installed by Rekindle in `{environment.root}`", hint="there is nothing to undo")
    files.no_links(found[-1], environment.folder)
    return found[-1]


def restore(environment: Environment, folder: Path) -> tuple[Replaced, ...]:
    """The environment as the record says it was: for undo, and after an install that failed half-way.

    Only what the install touched is put back; what a person has added since stays.
    """
    try:
        return _restored(environment, folder)
    except OSError as error:
        message = f"`{environment.root}` could not be restored: {describe_error(error)}"
        raise StepFailed(message, hint=f"what is kept of it is in `{folder}`") from error


def _restored(environment: Environment, folder: Path) -> tuple[Replaced, ...]:
    site, prefix = environment.site, Path(environment.root)
    record = read(environment, folder)
    if record.conda_revision is not None and environment.kind == "conda":
        return _restore_conda(environment, folder, record)
    before = {name: version for name, _, version in (line.partition("==") for line in record.freeze)}
    touched = {each.name for each in record.changes} | {each.name for each in record.kept}
    now = installed(site)
    if not record.changes:  # it failed before it could say what changed: everything new is its own
        touched |= {name for name, each in now.items() if before.get(name) != each.version}
    undone: list[Replaced] = []
    for name in sorted(touched):
        have = now.get(name)
        if have is not None and before.get(name) != have.version:
            remove(have, site, prefix)
        if (have.version if have else None) != before.get(name):
            undone.append(Replaced(name=name, before=have.version if have else None, after=before.get(name)))
    if not record.changes:
        _remove_new(environment, record)
    if (folder / "files").is_dir() and leads_inside(folder / "files", folder):
        put_back(folder / "files", prefix)
    _put_back_files(prefix, record)
    again = installed(site)
    wrong = [name for name in touched if (again[name].version if name in again else None) != before.get(name)]
    if wrong:
        message = f"could not be restored: {', '.join(sorted(wrong))}"
        raise StepFailed(message, hint=f"their files are kept in `{folder}`")
    shutil.rmtree(folder, ignore_errors=True)
    return tuple(undone)


def check_links(environment: Environment) -> None:
    """What is removed and put back must be the environment's own; one that was handed over may lead anywhere."""
    for place in (environment.site, environment.folder, Path(environment.program).parent):
        if not leads_inside(place, Path(environment.root)):
            message = f"`{place}` leads out of the environment through a link"
            raise BadInput(message, hint="replace the link by the folder itself")


def _text(path: Path) -> str | None:
    return files.plain_text(path) if path.is_file() else None


def _entries(environment: Environment) -> set[str]:
    """The files and folders of site-packages, two levels deep, and the programs beside the Python."""
    prefix = Path(environment.root)
    programs = Path(environment.program).parent
    tops = [*_inside(environment.site), *(_inside(programs) if programs != prefix else ())]
    below = [path for top in tops if top.is_dir() and not files.is_link(top) for path in _inside(top)]
    return {str(path) for path in (*tops, *below)}


def _inside(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.name != "__pycache__"]
    except OSError:
        return []


def _remove_new(environment: Environment, record: InstallRecord) -> None:
    """What a stopped installer has written and not yet recorded as anybody's. Nobody else writes here: it is locked."""
    if not record.entries:
        return
    for spelled in sorted(_entries(environment) - set(record.entries)):
        path = Path(spelled)
        if path.is_dir() and not files.is_link(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _restore_conda(environment: Environment, folder: Path, record: InstallRecord) -> tuple[Replaced, ...]:
    """conda undoes its own work; only its file of pins is ours to put back, before it looks at that."""
    _put_back_files(Path(environment.root), record)
    conda.go_back(environment, record.conda_revision or 0)
    shutil.rmtree(folder, ignore_errors=True)
    return tuple(Replaced(name=each.name, before=each.after, after=each.before) for each in record.changes)


def _put_back_files(prefix: Path, record: InstallRecord) -> None:
    for path, text in record.files.items():
        place = path.below(prefix)
        if text is None:
            place.unlink(missing_ok=True)
        else:
            files.write_text(place, text)


def read(environment: Environment, folder: Path) -> InstallRecord:
    """The record in a folder. The environment may be a stranger's: what it names lies inside, or it is refused."""
    name = f"`{folder}`"
    table = codec.from_json(files.read_bytes(folder / "record.json"), dict[str, Any], name=name)
    if isinstance(table.get("files"), dict):  # 0.1 wrote full paths
        whole = [key for key in table["files"] if Path(key).is_absolute()]
        named = {key: Path(os.path.relpath(key, environment.root)).as_posix() for key in whole}
        table["files"] = {named.get(key, key): text for key, text in table["files"].items()}
    found = codec.from_json(codec.to_json(table), InstallRecord, name=name)
    if len(found.files) > _MOST_FILES:
        message = f"{name} names {len(found.files):,} files of configuration; Rekindle writes fewer than ten"
        raise BadInput(message, hint="do not undo it: this record was not written by Rekindle")
    return found


def _write(folder: Path, record: InstallRecord) -> None:
    files.write_text(folder / "record.json", codec.to_json(record))
