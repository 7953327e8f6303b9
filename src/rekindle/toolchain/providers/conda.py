"""Archives of conda channels (nvidia, conda-forge), read without conda: `repodata.json` says what there is.

No account is needed, no environment is made, nothing of conda's is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from rekindle.core import codec, files, untrusted
from rekindle.core import fetch as fetching
from rekindle.core.errors import BadInput, FetchFailed, NotWritable, RekindleError
from rekindle.core.untrusted import PlainFileName, Sha256
from rekindle.core.version import Version
from rekindle.knowledge.cuda.toolchains import CondaSet, conda_sets
from rekindle.model.platform import Platform
from rekindle.toolchain.model import FoundOffering, Part, ProviderSettings, ToolSpec, offered

NAME = "conda"
GROUP = 1
_SUBDIR = {
    ("linux", "x86_64"): "linux-64",
    ("linux", "aarch64"): "linux-aarch64",
    ("windows", "x86_64"): "win-64",
}


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A package as the channel's list tells of it."""

    name: str
    version: str
    build_number: int = 0
    size: int = 0
    sha256: Sha256 | None = None


class _Channel(msgspec.Struct, frozen=True, kw_only=True):
    packages: dict[str, Record] | None = None
    conda: dict[str, Record] | None = msgspec.field(default=None, name="packages.conda")


def find(wanted: ToolSpec, place: Platform, settings: ProviderSettings) -> FoundOffering:
    subdir = _SUBDIR.get((place.system, place.arch))
    rows = [row for row in conda_sets() if row.tool == wanted.name and row.serves(wanted.version)]
    if not rows or wanted.version is None or subdir is None:
        return FoundOffering(why=f"no channel in the tables has {wanted} for {place.system} on {place.arch}")
    if settings.offline:
        return FoundOffering(why="it is asked over the network, and `--offline` was given")
    why = []
    silent = False
    for row in rows:
        try:
            found = _asked(row, wanted, place, subdir, settings)
        except NotWritable:
            # A full disk here is no answer about what the channel has.
            raise
        except RekindleError as error:
            why.append(error.message)
            silent |= isinstance(error, FetchFailed)
            continue
        if found is not None:
            return found
        why.append(f"the channel {row.channel} has no {row.main} {wanted.version} for {subdir}")
    return FoundOffering(why="; ".join(why), silent=silent)


def fetch(parts: Sequence[Part], folder: Path, settings: ProviderSettings) -> list[Path]:
    (part,) = parts
    path = part.origin.removeprefix("conda:")
    if not re.fullmatch(r"[\w.-]+(/[\w.+-]+)+", path) or ".." in path:
        raise FetchFailed(f"`{part.origin[:100]}` names no package of a channel", hint="the manifest was changed")
    address = f"{_base(settings)}/{path}"
    return [fetching.download(address, folder / part.file, sha256=part.sha256, most=part.size or None)]


def read(data: bytes, name: str) -> dict[str, Record]:
    """A channel's packages by file name, both formats."""
    found = codec.from_json(data, _Channel, name=f"`{name}`, the list of a conda channel,")
    if found.packages is None and found.conda is None:
        message = f"`{name}` is not the list of a conda channel: it lists no packages"
        raise BadInput(message, hint="check the address; `--mirror` must name the folder that holds the channels")
    return {**(found.packages or {}), **(found.conda or {})}


def choose(records: dict[str, Record], package: str, version: Version | None) -> str | None:
    """The file of the newest build of a package, the newer format first; only of `version` where that is given."""
    fitting = [
        (number, record.build_number, file.endswith(".conda"), file)
        for file, record in records.items()
        if record.name == package
        and (number := Version.find(record.version + ".0"))
        and (version is None or number.starts_with(version))
        and record.sha256
        and re.fullmatch(r"[\w.+-]+\.(conda|tar\.bz2)", file)
    ]
    return max(fitting)[3] if fitting else None


def _asked(
    row: CondaSet, wanted: ToolSpec, place: Platform, subdir: str, settings: ProviderSettings
) -> FoundOffering | None:
    assert wanted.version is not None
    label = row.label.format(cuda=".".join([*map(str, wanted.version.parts), "0", "0"][:3]))
    folders = [f"{row.channel}{f'/label/{label}' if label else ''}/{each}" for each in (subdir, "noarch")]
    records = {folder: _records(folder, settings) for folder in folders}
    parts: list[Part] = []
    gone: list[str] = []
    for package in row.packages:
        found = next(_found(records, package, wanted.version if package == row.main else None), None)
        if found is None and package in row.instead:
            found = next(_found(records, row.instead[package], None), None)
        if found is None:
            if package == row.main:
                return None
            gone.append(f"{package} (not in the channel {row.channel})")
        else:
            parts.append(_part(row, *found))
    leading = next(part for part in parts if part.name == row.main)
    return offered(
        NAME,
        wanted,
        place,
        settings,
        version=Version.find(leading.version) or wanted.version,
        layout="conda",
        parts=tuple(parts),
        gone=tuple(gone),
        unverified=() if settings.mirror else ("no real channel was reached in the tests of this provider",),
    )


def _found(
    records: dict[str, dict[str, Record]], package: str, version: Version | None
) -> Iterator[tuple[str, str, Record]]:
    for folder, known in records.items():
        file = choose(known, package, version)
        if file:
            yield folder, file, known[file]


def _part(row: CondaSet, folder: str, file: str, record: Record) -> Part:
    assert record.sha256 is not None
    return codec.like(
        Part,
        record,
        file=untrusted.checked(PlainFileName, file, "the list of the channel"),
        origin=f"conda:{folder}/{file}",
        licence=row.licence,
    )


def _records(folder: str, settings: ProviderSettings) -> dict[str, Record]:
    try:
        settings.state.mkdir(parents=True, exist_ok=True)
        # A folder of its own: another run at the same time asks for the same list.
        with files.scratch("conda", settings.state) as own:
            target = own / "repodata.json"
            data = fetching.download(f"{_base(settings)}/{folder}/repodata.json", target, most=512 << 20).read_bytes()
    except FetchFailed:
        if folder.endswith("noarch"):
            return {}
        raise
    except OSError as error:
        raise files.not_writable(settings.state, error) from error
    return read(data, f"{folder}/repodata.json")


def _base(settings: ProviderSettings) -> str:
    base = settings.mirror or next(iter(conda_sets())).address
    return base.rstrip("/")
