"""The published side of a factory: a static package index whose links lead to a release, and the coverage page.

Wheels are too large for a page host and lie as files of a release; everything small (metadata, statements, entries) is
in the site. The next run reads the same site and builds nothing that is there.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from rekindle.core import codec, console, fetch, files, signing
from rekindle.core.errors import BadInput, ChecksFailed, NotFound, NothingThere, UsageError
from rekindle.core.paths import sha256_of
from rekindle.fleet import shelved
from rekindle.fleet.job import FleetJob, JobState
from rekindle.fleet.planning import FleetPlan
from rekindle.fleet.shelved import ShelvedJob
from rekindle.wheels.shelf import index, provenance, shelf, store
from rekindle.wheels.shelf.provenance import believed
from rekindle.wheels.shelf.store import ShelvedWheel

_LIMIT = 64 * 1024 * 1024
LARGEST = 2 * 1024**3
"""GitHub takes files of a release below 2 GiB."""


class FactoryRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The signed list of a site: a shelf's, and enough for the next run to know what is done."""

    schema: str
    base: str
    """Where the wheels lie."""
    jobs: tuple[ShelvedJob, ...] = ()
    wheels: tuple[ShelvedWheel, ...] = ()

    @property
    def hashes(self) -> frozenset[str]:
        return frozenset(wheel.sha256 for wheel in self.wheels)


class FactorySite(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle factory publish`."""

    schema: str = "rekindle.factory-site/1"
    folder: str
    wheels: int
    upload: tuple[str, ...]
    """The files that belong into the release."""
    coverage: dict[str, int]


def publish(
    folder: Path, site: Path, plan: FleetPlan, *, base: str, before: FactoryRecords | None = None
) -> FactorySite:
    """Write the site of a shelf. A wheel whose statement does not hold stops everything.

    What is signed lies on the shelf, or was signed by the same key: in the list of `site`, or in `before`.
    """
    if not base.startswith(("https://", "http://")):
        raise UsageError(f"`{base[:80]}` is not an address", hint="`--base` is where the wheels will lie")
    base = base.rstrip("/")
    earlier = [each for each in (records_of(str(site)), before) if each is not None]
    published = {wheel.file: wheel for each in earlier for wheel in each.wheels}
    here = {wheel.file: wheel for wheel in shelf.entries(folder)}
    for entry in here.values():
        _check(folder / "wheels" / entry.file, entry, published.get(entry.file))
    listed = sorted({**published, **here}.values(), key=lambda entry: (entry.project, entry.file))
    done: dict[str, ShelvedJob] = {job.key: job for each in earlier for job in each.jobs} | shelved.jobs_on(folder)
    for name, text in index.pages(listed).items():
        text = text.replace("../../wheels/", f"{base}/").replace('href="wheels/', f'href="{base}/')
        files.write_text(site / name, text, inside=site)
    jobs = tuple(done[key] for key in sorted(done))
    records = FactoryRecords(schema="rekindle.shelf/1", base=base, jobs=jobs, wheels=tuple(listed))
    files.write_text(site / index.LISTING, codec.to_json(records) + "\n")
    index.sign_listing(site)
    upload = _small_files(folder, site, listed)
    files.write_text(site / "coverage.html", coverage_page(plan.jobs, done, base))
    return FactorySite(folder=str(site), wheels=len(listed), upload=upload, coverage=_counts(plan.jobs, done))


def _check(wheel: Path, entry: ShelvedWheel, published: ShelvedWheel | None) -> None:
    """Nothing is published whose bytes are not those that were checked and signed."""
    if not wheel.is_file():
        if published is None or published.sha256 != entry.sha256:
            raise ChecksFailed(f"there is no `{entry.file}`, and no list of yours names it", hint="build it again")
        return
    if sha256_of(wheel) != entry.sha256:
        raise ChecksFailed(f"`{entry.file}` is not the file that was added to the shelf", hint="build it again")
    statement = wheel.with_name(wheel.name + store.STATEMENT)
    if entry.signed_by is None or not statement.is_file():
        raise ChecksFailed(f"`{entry.file}` has no signed statement", hint="a factory publishes signed wheels only")
    said = provenance.of_file(statement, (signing.PublicKey.parse(entry.signed_by),)).entry
    if said != msgspec.structs.replace(entry, yanked=said.yanked):
        raise ChecksFailed(f"what the shelf says of `{entry.file}` is not what was signed", hint="build it again")


def _small_files(folder: Path, site: Path, listed: Sequence[ShelvedWheel]) -> tuple[str, ...]:
    """Statements, metadata and reports into the site; the wheels, and what pip asks for beside them, to the release."""
    upload = []
    for entry in listed:
        wheel = folder / "wheels" / entry.file
        if not wheel.is_file():
            continue
        if wheel.stat().st_size >= LARGEST:
            message = f"`{entry.file}` is larger than a release takes ({LARGEST // 1024**3} GiB)"
            raise BadInput(message, hint="build it for fewer cards, or with `repair --slim`")
        for name in store.names_of(entry.file):
            source = folder / "wheels" / name
            if name != entry.file and source.is_file():
                files.no_links(source, folder)
                files.write_bytes(site / "wheels" / name, files.read_bytes(source, limit=_LIMIT), inside=site)
        upload += [str(wheel), f"{wheel}{store.METADATA}"]
    return tuple(upload)


def bring(address: str, folder: Path) -> FactoryRecords | None:
    """The records of a published site into a shelf, without its wheels. The first run of a factory has none."""
    records = records_of(address)
    if records is None:
        return None
    have = {entry.file for entry in shelf.entries(folder)}
    for entry in records.wheels:
        if entry.file not in have:
            files.write_text(
                folder / "wheels" / f"{store.file_name(entry.file)}{store.ENTRY}", codec.to_json(entry) + "\n"
            )
    known = shelved.jobs_on(folder)
    for job in records.jobs:
        if job.key not in known and job.lock.key == job.key:
            shelved.record(folder, job)
    return records


def fetch_wheel(address: str, folder: Path, job: ShelvedJob) -> None:
    """A wheel that was published, by its hash."""
    place = folder / "wheels" / store.file_name(job.wheel)
    if not place.is_file():
        records = records_of(address)
        if records is None:
            raise NotFound(f"nothing of yours is published at {address}", hint="build the job that it needs first")
        fetch.download(f"{records.base}/{quote(job.wheel)}", place, sha256=job.sha256)


def records_of(address: str) -> FactoryRecords | None:
    """The list of a site, which is an address or a folder, if our own key signed it. None else, which is said."""
    name = f"the list at {address}"
    try:
        data = _got(address, index.LISTING)
    except (NotFound, NothingThere):
        return None
    try:
        index.signed_state(data, _got(address, index.SIGNED_LISTING), believed(()), name=name)
        return codec.from_json(data, FactoryRecords, name=name)
    except (NotFound, NothingThere, ChecksFailed, BadInput) as error:
        console.say(f"{name} is not believed, and nothing of it is taken over: {error}")
        return None


def _got(address: str, file: str) -> bytes:
    if address.startswith(("http://", "https://")):
        return fetch.fetch_small(f"{address.rstrip('/')}/{file}", most=_LIMIT)
    return files.read_bytes(Path(address) / file, limit=_LIMIT)


def _counts(jobs: Sequence[FleetJob], done: dict[str, ShelvedJob]) -> dict[str, int]:
    return dict(Counter(_state(job, done) for job in jobs))


def _state(job: FleetJob, done: dict[str, ShelvedJob]) -> str:
    if job.key in done or job.state is JobState.DONE:
        return "there"
    spoken = {JobState.BUILD: "missing", JobState.NOT_NEEDED: "not needed"}
    return spoken.get(job.state, str(job.state.value))


def coverage_page(jobs: Sequence[FleetJob], done: dict[str, ShelvedJob], base: str) -> str:
    """Every combination of the matrix, with its wheel or the reason why there is none."""
    rows = []
    for job in jobs:
        state, record = _state(job, done), done.get(job.key or "")
        link = f'<a href="{html.escape(base)}/{quote(record.wheel)}">{html.escape(record.wheel)}</a>' if record else ""
        said = link or html.escape(job.reason)
        for cell in job.cells:
            cards = cell.gpu or cell.machine or ""
            words = (cell.project, cell.torch, cell.cuda, cards, cell.python, cell.os, cell.arch)
            columns = "".join(f"<td>{html.escape(word or '')}</td>" for word in words)
            rows.append(f'<tr class="{state.replace(" ", "-")}">{columns}<td>{state}</td><td>{said}</td></tr>')
    head = "".join(
        f"<th>{word}</th>" for word in ("project", "torch", "CUDA", "GPUs", "Python", "system", "processor", "", "")
    )
    counts = ", ".join(f"{count} {state}" for state, count in sorted(_counts(jobs, done).items()))
    style = (
        "body{font-family:sans-serif;margin:2em}td,th{text-align:left;padding:.2em .8em}"
        ".there td:nth-child(8){color:#080}.missing td:nth-child(8){color:#a60}.impossible td:nth-child(8){color:#a00}"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Coverage</title>'
        f"<style>{style}</style></head>\n<body>\n<h1>Coverage</h1>\n<p>{counts}</p>\n"
        f"<table>\n<tr>{head}</tr>\n{chr(10).join(rows)}\n</table>\n</body></html>\n"
    )
