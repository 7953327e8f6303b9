"""Newer tables without a release: a bundle is checked as a whole, then takes effect at once, and can be undone.

A bundle is a zip (or a folder) with `bundle.json`, which names the day it was made and the SHA-256 of each table in it.
Installed bundles lie in a folder of their own; the file `current` names the one in use, and replacing that file is the
only step that changes any answer. Nothing is fetched unless a person asks for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import shutil
import zipfile
import zlib
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core import codec, files
from rekindle.core.errors import BadInput, Locked, NotFound, UsageError
from rekindle.core.paths import knowledge_folder
from rekindle.core.untrusted import Sha256
from rekindle.knowledge import keys, refusal, tables

SCHEMA = "rekindle.knowledge-bundle/1"
MANIFEST = "bundle.json"
_LARGEST = 64 << 20
_MOST_MEMBERS = 1000
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class TableBundle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `bundle.json` says. `made_at` is a day (`2026-11-15`); `tables` are paths with their SHA-256."""

    schema: str
    made_at: date
    tables: dict[str, Sha256]


class UpdateInUse(msgspec.Struct, frozen=True, kw_only=True):
    """The bundle in use."""

    made_at: date
    tables: tuple[str, ...]
    folder: Path


def installed() -> UpdateInUse | None:
    """The bundle in use; None when there is none. One that is no longer whole is an error, not an older answer."""
    folder = tables.update_folder()
    if folder is None:
        return None
    bundle = _manifest(_read(folder / MANIFEST), str(folder))
    return UpdateInUse(made_at=bundle.made_at, tables=tuple(sorted(bundle.tables)), folder=folder)


def take(source: Path, sha256: str | None) -> UpdateInUse:
    """Check a bundle (a zip or a folder) and put it into use."""
    content, digest = _content(source, sha256)
    bundle = _manifest(content.get(MANIFEST, b""), str(source))
    _check_hashes(bundle, content, source)
    _check_rows(bundle, content)
    with _changing():
        _check_newer(bundle)
        return _install(bundle, content, digest)


def reset() -> bool:
    """Go back to the built-in tables. False: there was nothing to undo."""
    home = knowledge_folder()
    with _changing():
        there = (home / "current").exists()
        (home / "current").unlink(missing_ok=True)
        for folder in home.glob("bundle-*"):
            shutil.rmtree(folder, ignore_errors=True)
    tables.forget()
    return there


def _content(source: Path, sha256: str | None) -> tuple[dict[str, bytes], str]:
    """The files of a bundle by their paths, once the outer hash agrees."""
    if not source.exists():
        hint = "give a bundle (`.zip`), a folder with `bundle.json`, or an address"
        raise NotFound.path(source, "file or folder", hint=hint)
    outer = source / MANIFEST if source.is_dir() else source
    if not outer.is_file():
        message = f"`{source}` has no `{MANIFEST}`"
        raise BadInput(message, hint="a bundle is written by `python -m tools.observe bundle FILE`")
    # Read once: somebody else may write to where it lies.
    data = _read(outer)
    digest = hashlib.sha256(data).hexdigest()
    _check_outer(outer, digest, sha256 or _hash_beside(outer), needed=not source.is_dir())
    if source.is_dir():
        # Only what the manifest names, and only tables that exist: the folder may be anybody's.
        named = _manifest(data, str(source)).tables
        for name in named:
            kind_of(name)
        there = [name for name in named if (source / name).is_file()]
        return {MANIFEST: data} | {name: _read(source / name) for name in there}, digest
    return _unzipped(source, data), digest


def _unzipped(source: Path, data: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > _LARGEST or len(members) > _MOST_MEMBERS:
                message = f"`{source}` unpacks to more than {_LARGEST >> 20} MB"
                raise BadInput(message, hint="this is no bundle of tables")
            if any(member.compress_type not in _PACKED for member in members):
                raise BadInput(f"`{source}` is packed as no bundle of tables is", hint="download it again")
            return {member.filename: _member(archive, member) for member in members if not member.is_dir()}
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error, RuntimeError, ValueError) as error:
        raise BadInput(f"`{source}` is not a whole zip: {error}", hint="download it again") from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    with archive.open(member) as stream:
        # Without a size all that is there is unpacked, whatever the directory says of it.
        return stream.read(member.file_size + 1)


def _check_outer(path: Path, found: str, wanted: str | None, *, needed: bool) -> None:
    if wanted is None:
        if needed:
            message = f"nothing says what `{path.name}` should hash to"
            raise UsageError(message, hint="pass `--sha256` with the published hash, or put it beside as `.sha256`")
        return
    if not re.fullmatch(r"[0-9a-fA-F]{64}", wanted):
        raise UsageError(f"`{wanted[:80]}` is not a SHA-256", hint="it has 64 hexadecimal digits")
    if found != wanted.lower():
        message = f"`{path}` has another hash than expected: {found}"
        raise BadInput(message, hint="do not use it; download it again from a place you trust")


def _hash_beside(path: Path) -> str | None:
    beside = path.with_name(path.name + ".sha256")
    words = files.read_bytes(beside, limit=4096).decode("ascii", "replace").split() if beside.is_file() else []
    return words[0] if words else None


def _manifest(data: bytes, where: str) -> TableBundle:
    if not data:
        message = f"`{where}` has no `{MANIFEST}`"
        raise BadInput(message, hint="`rekindle knowledge reset` goes back to the built-in tables")
    name, hint = f"`{MANIFEST}` of `{where}`", "take the bundle that was made for this version of Rekindle"
    schema = codec.from_json(data, dict[str, Any], name=name).get("schema")
    codec.expect(schema, SCHEMA, "a bundle that this Rekindle reads", name=name, hint=hint)
    return codec.from_json(data, TableBundle, name=name)


def _check_hashes(bundle: TableBundle, content: Mapping[str, bytes], source: Path) -> None:
    extra = sorted(set(content) - set(bundle.tables) - {MANIFEST})
    if extra:
        message = f"`{source}` holds `{extra[0]}`, which its `{MANIFEST}` does not name"
        raise BadInput(message, hint="download it again")
    for name, wanted in bundle.tables.items():
        if name not in content:
            raise BadInput(f"`{source}` lacks `{name}`", hint="it is incomplete; download it again")
        if hashlib.sha256(content[name]).hexdigest() != wanted:
            message = f"`{name}` of `{source}` was changed: its hash does not agree"
            raise BadInput(message, hint="do not use it; download it again from a place you trust")


def _check_rows(bundle: TableBundle, content: Mapping[str, bytes]) -> None:
    """Every table must be readable once it is merged into the built-in one."""
    for name in sorted(bundle.tables):
        kind = kind_of(name)
        read = codec.from_json if name.endswith(".json") else codec.from_toml
        own = read(content[name], dict[str, Any], name=f"`{name}`")
        base = tables.built_in(name)
        try:
            codec.from_builtins(tables.merge(base, own, keys.of_table(name, base)), kind, name=f"`{name}`")
        except BadInput as error:
            raise refusal.of(own, base, kind, Path(name), error) from error


def _today() -> date:
    return date.today()


def _check_newer(bundle: TableBundle) -> None:
    if bundle.made_at > _today() + timedelta(days=1):
        message = f"this bundle says it is of {bundle.made_at}, which has not come yet: no later one could replace it"
        raise BadInput(message, hint="ask who made it; check the clock of this computer")
    now = installed()
    if now is not None and bundle.made_at < now.made_at:
        message = f"this bundle is of {bundle.made_at}; the one in use is newer ({now.made_at})"
        raise BadInput(message, hint="`rekindle knowledge reset` first, if you really want older data")
    shipped = date.fromisoformat(tables.built_in_date())
    if bundle.made_at < shipped:
        message = f"this bundle is of {bundle.made_at}; the built-in data is newer ({shipped})"
        raise BadInput(message, hint="nothing to do: your Rekindle already knows more")


def _install(bundle: TableBundle, content: Mapping[str, bytes], digest: str) -> UpdateInUse:
    home, before = knowledge_folder(), tables.update_folder()
    folder = home / f"bundle-{bundle.made_at}-{digest[:12]}"
    if folder == before:
        return UpdateInUse(made_at=bundle.made_at, tables=tuple(sorted(bundle.tables)), folder=folder)
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        files.write_bytes(folder / name, data)
    files.write_text(home / "current", folder.name + "\n")
    # A process that has just read the old name may still be reading the old tables.
    for old in home.glob("bundle-*"):
        if old not in (folder, before):
            shutil.rmtree(old, ignore_errors=True)
    tables.forget()
    return UpdateInUse(made_at=bundle.made_at, tables=tuple(sorted(bundle.tables)), folder=folder)


def _changing() -> contextlib.AbstractContextManager[None]:
    """One process at a time changes the tables; a second one is told so at once."""
    home = knowledge_folder()
    home.mkdir(parents=True, exist_ok=True)
    message = "another `rekindle knowledge` is changing the tables"
    return files.locked(home / "lock", Locked(message, hint="wait for it to end, then run this again"))


def _read(path: Path) -> bytes:
    try:
        return files.read_bytes(path, limit=_LARGEST)
    except NotFound as error:
        message = f"the tables of an update are damaged: {error}"
        raise BadInput(message, hint="`rekindle knowledge reset` goes back to the built-in tables") from error


def kind_of(relative: str) -> Any:
    """The type that `gpu/gpus.json` is read as; an error for a table that no update may change."""
    found = updatable().get(relative)
    if found is None:
        message = f"`{relative}` is not a table that an update may bring"
        raise BadInput(message, hint="updates bring " + ", ".join(sorted(updatable())))
    return found


def updatable() -> dict[str, Any]:
    from rekindle.knowledge.builds import costs, sweeps
    from rekindle.knowledge.cuda import cudnn, host_compilers, libraries, library_packages, toolchains, toolkits
    from rekindle.knowledge.gpu import drivers, gpus, names
    from rekindle.knowledge.torch import companions, options, releases, torch_wheels, wheel_platforms
    from rekindle.knowledge.torch.projects import CommunityWheel, CondaBuild, CondaExtension

    cuda, toolsets, stl = host_compilers.HostLimits, host_compilers.Toolset, host_compilers.StlGate
    rows: dict[str, Any] = {
        "builds/compile_memory.json": costs.MeasuredBuild,
        "builds/compile_times.json": costs.MeasuredBuild,
        "builds/sweeps.json": sweeps.Sweep,
        "cuda/dlls.json": library_packages.DllWheel,
        "cuda/linux_libraries.json": library_packages.DllWheel,
        "cuda/mathlibs.json": cudnn.MathLibrary,
        "cuda/redistrib_lists.json": toolchains.RedistribList,
        "cuda/system_symbols.json": libraries._Symbols,
        "cuda/toolkit_packages.json": library_packages.ToolkitPackages,
        "cuda/toolkits.json": toolkits.Toolkit,
        "gpu/chips.json": names.Chip,
        "gpu/driver_lists.json": drivers.ListedCard,
        "gpu/gpus.json": gpus.Gpu,
        "torch/community_wheels.toml": CommunityWheel,
        "torch/companions.json": companions.Companion,
        "torch/conda_extensions.json": CondaExtension,
        "torch/conda_forge.json": CondaBuild,
        "torch/torch_options.json": options.Option,
        "torch/torch_releases.json": releases.TorchRelease,
        "torch/torch_wheels.json": torch_wheels.TorchWheel,
        "torch/torch_wheels_aarch64.json": torch_wheels.TorchWheel,
        "torch/upstream_builds.json": releases.UpstreamBuild,
        "torch/wheel_platforms.json": wheel_platforms.WheelPlatform,
    }
    return {name: dict.__class_getitem__((str, tuple.__class_getitem__((row, ...)))) for name, row in rows.items()} | {
        "cuda/cudnn.json": tables.table_of(releases=cudnn.Cudnn, families=cudnn.CudnnFamily),
        "cuda/host_compilers.json": tables.table_of(cuda=cuda, toolsets=toolsets, stl=stl),
    }
