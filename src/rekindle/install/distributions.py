"""What is installed in an environment, read from its folders; kept by hard links and put back byte for byte.

Nothing is imported and no pip is needed: a distribution is the files that its RECORD names.
"""

from __future__ import annotations

import csv
import glob
import io
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from rekindle.core import files
from rekindle.core.errors import BadInput, NotWritable
from rekindle.core.files import told
from rekindle.core.untrusted import leads_inside

_LARGEST = 64 << 20
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
            name = normalised(match["name"])
            found[name] = Distribution(name=name, version=match["version"], info=info.name)
    return found


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


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
    own = [path for path in (site / distribution.info).rglob("*") if path.is_file()]
    inside = [path for path in dict.fromkeys([*named, *own]) if path.is_relative_to(prefix)]
    folders = {folder for folder in {path.parent for path in inside} if leads_inside(folder, prefix)}
    return [path for path in inside if path.parent in folders and (path.is_file() or path.is_symlink())]


def keep(distributions: Iterable[Distribution], site: Path, prefix: Path, store: Path) -> None:
    """Link (or copy, where links cannot be made) every file into `store`, under its path from the prefix."""
    for distribution in distributions:
        for path in files_of(distribution, site, prefix):
            _link(path, store / path.relative_to(prefix))


def put_back(store: Path, prefix: Path) -> int:
    """Every kept file at its place again, exactly; the number of files."""
    count = 0
    for path in sorted(store.rglob("*")):
        if path.is_file() or path.is_symlink():
            target = prefix / path.relative_to(store)
            if not leads_inside(target.parent, prefix):
                message = f"`{target}` leads out of the environment through a link"
                raise BadInput(message, hint=f"replace the link by the folder itself; the files are in `{store}`")
            target.unlink(missing_ok=True)
            _link(path, target)
            count += 1
    return count


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
        message = f"cannot keep `{source}`: {told(error)}"
        raise NotWritable(message, hint="nothing was changed; free some space in the environment's disk") from error
