"""A tool from nothing to a kit: find its parts, bring them side by side, check every hash, assemble, publish."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from rekindle.core import codec, console, files, paths
from rekindle.core.console import plural
from rekindle.core.disk import size_of
from rekindle.core.errors import BadInput, FetchFailed, NoRoute, NotFound, NotWritable, RekindleError
from rekindle.core.version import Version
from rekindle.model.platform import Platform
from rekindle.toolchain.assemble import Pulse, assemble, fetching
from rekindle.toolchain.model import (
    Kit,
    Offering,
    Part,
    Provider,
    ProviderSettings,
    ToolSpec,
    kit_id,
    provider,
    providers,
)
from rekindle.toolchain.providers import folder
from rekindle.toolchain.store import Store
from rekindle.toolchain.verify import does_not_start

_AT_ONCE = 4
_LARGE = 10_000_000


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """How to install. `provider` None: the first that has it."""

    place: Platform | None = None
    provider: str | None = None
    settings: ProviderSettings
    again: bool = False

    @property
    def target(self) -> Platform:
        return self.place or Platform.here()


def find(wanted: ToolSpec, how: Installation) -> Offering:
    """The first provider that has it; an error says what each of them answered."""
    answers = []
    named = "folder" if how.settings.source is not None else how.provider
    answering = []
    for each in providers() if named is None else (provider(named),):
        with console.waiting(f"asking {each.NAME} for {wanted}"):
            found = each.find(wanted, how.target, how.settings)
        if found.offering is not None:
            return found.offering
        answers.append(f"{each.NAME}: {found.why}")
        answering += [] if found.silent else [each]
    message = f"{wanted} for {how.target.system} on {how.target.arch} is not available:\n" + "\n".join(
        f"  {answer}" for answer in answers
    )
    own = "`--from` takes a folder or archive of your own, `adopt` an installed toolkit"
    raise NoRoute(message, hint=f"{_nearest(wanted, how, answering)}{own}")


def _nearest(wanted: ToolSpec, how: Installation, answering: Sequence[Provider]) -> str:
    """The newest of the same major number that somebody has who answers."""
    if wanted.version is None or len(wanted.version.parts) < 2 or how.settings.source is not None:
        return ""
    same = ToolSpec(name=wanted.name, version=Version(str(wanted.version.major)))
    found = []
    for each in answering:
        with contextlib.suppress(RekindleError), console.waiting(f"asking {each.NAME} for {same}"):
            found += [offering] if (offering := each.find(same, how.target, how.settings).offering) else []
    if not found:
        return ""
    best = max(found, key=lambda offering: offering.version)
    return f"`{same.name}=={best.version.major_minor}` is available from {best.provider}; "


def install(store: Store, offering: Offering, how: Installation, *, say: Callable[[str], None] = lambda _: None) -> Kit:
    """The kit of this offering: the one that is there, or a new one. The caller holds the lock.

    It is remembered last: one that is there and not remembered was never tried, because that run was ended.
    """
    kit = next((kit for kit in store.kits() if _same(kit, offering) and not how.again), None)
    if kit is None:
        _room(store, offering)
        archives = bring(store, offering, how, say=say)
        kit = assemble(store, offering, archives, say=say)
        store.publish(kit)
    elif _memory(store, offering).is_file():
        return kit
    if (fault := does_not_start(store.folder(kit), kit)) is not None:
        store.remove(kit)
        message = f"{offering.name} {offering.version} was fetched and taken away again: {fault}"
        raise NoRoute(message, hint="take an older one, or build in a container of a newer system")
    remember(store, offering)
    return kit


def bring(
    store: Store, offering: Offering, how: Installation, *, say: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Every part, downloaded or at hand, with the hash that its provider stated."""
    source = provider(offering.provider)
    for part in offering.parts:
        _at_hand(store, part, how.settings.source)
    lacking = [part for part in offering.parts if not store.archive(part).is_file()]
    if lacking and how.settings.offline:
        names = ", ".join(part.file for part in lacking[:3]) + (" …" if len(lacking) > 3 else "")
        message = f"{len(lacking)} of {plural(len(offering.parts), 'archive')} not downloaded yet: {names}"
        raise NotFound(message, hint="run it once without `--offline`, or name them with `--from`")
    if not lacking:
        return [store.archive(part) for part in offering.parts]
    total = sum(part.size for part in lacking)
    say(f"fetching {plural(len(lacking), 'archive')}, {total / 1e6:,.0f} MB, from {offering.provider}")
    partial = store.archives / "partial"
    kept = sum(min(part.size, size_of(partial / part.sha256)) for part in lacking)
    with Pulse(fetching(store.archives, total, kept), say), ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        # The largest first: it would otherwise begin last and be waited for alone.
        jobs = [pool.submit(_fetched, store, source, group, how.settings) for group in _groups(lacking, source.GROUP)]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [store.archive(part) for part in offering.parts]


def _at_hand(store: Store, part: Part, source: Path | None) -> None:
    """An archive that the user has, if it is the very same file, need not be downloaded."""
    if source is None or store.archive(part).is_file():
        return
    found = folder.at_hand(part, source)
    if found is not None:
        place = store.archive(part)
        place.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(place) as stream, found.open("rb") as opened:
            shutil.copyfileobj(opened, stream, 1 << 20)


def _groups(parts: Sequence[Part], most: int) -> list[list[Part]]:
    """Large parts alone, small ones together where a provider prefers that."""
    ordered = sorted(parts, key=lambda part: -part.size)
    large = [[part] for part in ordered if part.size >= _LARGE or most == 1]
    small = [part for part in ordered if part.size < _LARGE and most > 1]
    return large + [small[begin : begin + most] for begin in range(0, len(small), most)]


def _fetched(store: Store, source: Provider, parts: list[Part], settings: ProviderSettings) -> None:
    """Parts to their places; a file with another hash is thrown away, fetched once more, and then refused."""
    for attempt in (1, 2):
        partial = store.archives / "partial" / parts[0].sha256
        try:
            partial.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise files.not_writable(partial, error) from error
        wrong = []
        for part, found in zip(parts, source.fetch(parts, partial, settings), strict=True):
            if paths.sha256_of(found) == part.sha256.lower():
                store.archive(part).parent.mkdir(parents=True, exist_ok=True)
                files.rename_over(found, store.archive(part))
            else:
                found.unlink(missing_ok=True)
                wrong.append(part)
        shutil.rmtree(partial, ignore_errors=True)
        if not wrong:
            return
        if attempt == 2:
            message = f"`{wrong[0].file}` arrived with another SHA-256 than {wrong[0].sha256[:16]}…, twice"
            raise FetchFailed(message, hint="do not use this file; the mirror may be broken or tampered with")
        parts = wrong


def _room(store: Store, offering: Offering) -> None:
    """Archives, and about three times as much unpacked: said before an hour of downloading, not after."""
    need = sum(part.size for part in offering.parts if not store.archive(part).is_file()) + 3 * offering.size
    store.root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(store.root).free
    if free < need:
        message = (
            f"{offering.name} {offering.version} needs about {need / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
        )
        raise NotWritable(message, hint="free some space, or move the folder with REKINDLE_TOOLCHAIN")


def _same(kit: Kit, offering: Offering) -> bool:
    hashes = [part.sha256 for part in kit.parts]
    return kit.id == kit_id(offering) and hashes == [part.sha256 for part in offering.parts]


def remember(store: Store, offering: Offering) -> None:
    """What was found, for `--offline`: the same parts without asking anybody."""
    files.write_text(_memory(store, offering), codec.to_json(offering) + "\n")


def _memory(store: Store, offering: Offering) -> Path:
    return store.state / "offerings" / f"{kit_id(offering)}.json"


def remembered(store: Store, wanted: ToolSpec, how: Installation) -> Offering:
    """An offering of an earlier run, the newest that fits."""
    found: list[Offering] = []
    for path in sorted((store.state / "offerings").glob("*.json")):
        try:
            each = codec.from_json(files.read_bytes(path), Offering)
        except BadInput:
            continue
        fits = wanted.fits(each.name, each.version, each.release)
        if fits and each.place == how.target and each.full == how.settings.full:
            found.append(each)
    if not found:
        message = f"no earlier run has found {wanted} for {how.target.system} on {how.target.arch}"
        raise NotFound(message, hint="run it once without `--offline`, or name its archives with `--from`")
    return max(found, key=lambda each: each.version)
