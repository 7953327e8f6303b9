"""Files to and from the workers, and onto the shelf: in pieces, by hash, with what a report says checked again."""

from __future__ import annotations

import asyncio
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from rekindle.build.configure import request as build_request
from rekindle.core import codec, files, signing
from rekindle.core.errors import ChecksFailed, NotFound
from rekindle.core.paths import sha256_of
from rekindle.core.untrusted import Sha256
from rekindle.fleet import job as sources
from rekindle.fleet import shelved, work
from rekindle.fleet.job import FleetJob, FleetLock, JobKind, JobOrder, JobResult, MadeFile
from rekindle.fleet.planning import Planned
from rekindle.fleet.shelved import ShelvedJob
from rekindle.fleet.state import FleetState
from rekindle.wheels.shelf import shelf
from rekindle.wheels.shelf.store import ShelvedWheel

Call = Callable[..., Any]


class Intake:
    """The client's side of the files. `call` runs a function on a worker."""

    def __init__(self, planned: Planned, state: FleetState, shelf_folder: Path, call: Call) -> None:
        self.planned = planned
        self.state = state
        self.shelf = shelf_folder
        self.call = call
        self._one_at_a_time = asyncio.Lock()
        self._there: set[tuple[str, str]] = set()
        self._packed: dict[str, tuple[Sha256, bytes]] = {}
        self._build_files: dict[str, build_request.BuildFile] = {}

    async def order(self, client: Any, address: str, job: FleetJob, cache: str | None) -> JobOrder:
        """The order of a job; what it needs is on the worker when this returns."""
        assert job.key is not None and job.lock is not None
        folder = self.planned.sources.get(job.key)
        source = await self._send_source(client, address, folder, job) if folder else None
        wheel = await self._send_wheel(client, address, job.needs[0]) if job.needs else None
        if folder and job.lock.kind is JobKind.CMAKE and folder not in self._build_files:
            # Read once, like the source beside it that is packed once.
            self._build_files[folder] = build_request.read(Path(folder))
        return order_of(self.planned, job, source, wheel, self._build_files.get(folder or ""), cache)

    async def _send_source(self, client: Any, address: str, folder: str, job: FleetJob) -> Sha256:
        if folder not in self._packed:
            self._packed[folder] = sources.packed(folder, job)
        sha256, data = self._packed[folder]
        if (address, sha256) in self._there:
            return sha256
        await self._send(client, address, sha256, io.BytesIO(data), len(data))
        self._there.add((address, sha256))
        return sha256

    async def _send(self, client: Any, address: str, sha256: Sha256, stream: BinaryIO, size: int) -> None:
        """In pieces, from where an earlier try broke off."""
        have = await self.call(client, address, work.has_file, sha256)
        while have >= 0:
            stream.seek(have)
            piece = stream.read(work.PIECE)
            last = have + len(piece) >= size
            await self.call(client, address, work.take_piece, sha256, have, piece, last)
            have = -1 if last else have + len(piece)

    async def check_order(self, client: Any, address: str, job: FleetJob) -> JobOrder:
        """The order to check the wheel of a finished job on a card; the wheel is there when this returns."""
        assert job.key is not None and job.lock is not None
        done = await self._send_wheel(client, address, job.key)
        return codec.like(JobOrder, job, check=done.sha256, check_name=done.wheel)

    async def _send_wheel(self, client: Any, address: str, key: str) -> ShelvedJob:
        """What a job built, from the shelf."""
        done = shelved.jobs_on(self.shelf).get(key)
        if done is None:
            raise NotFound("the wheel that this job needs is not on the shelf", hint="run the fleet again")
        path = self.shelf / "wheels" / done.wheel
        with path.open("rb") as stream:
            await self._send(client, address, done.sha256, stream, path.stat().st_size)
        return done

    async def take(self, client: Any, address: str, job: FleetJob, result: JobResult, key: str | None) -> ShelvedWheel:
        """Bring the wheel with its report, check it, and put it on the shelf."""
        assert job.key is not None and result.wheel is not None
        place = self.state.arriving / job.key[:16]
        wheel = await self._fetch(client, address, job.key, result.wheel, place)
        report = await self._fetch(client, address, job.key, result.report, place) if result.report else None
        if result.signature:
            await self._fetch(client, address, job.key, result.signature, place)
        trusted = (signing.public_key(key),) if key else ()
        how = {"report": report, "trusted": trusted, "build": result.facts}
        async with self._one_at_a_time:
            entry = await asyncio.to_thread(shelved.shelve, self.shelf, job, wheel, result.seconds, **how)
        shutil.rmtree(place)
        return entry

    async def take_check(
        self, client: Any, address: str, job: FleetJob, result: JobResult, key: str | None
    ) -> ShelvedWheel:
        """Bring the report of a check, and let it and the wheel's statement say so on the shelf."""
        assert job.key is not None and result.report is not None
        done = shelved.jobs_on(self.shelf)[job.key]
        place = self.state.arriving / f"{job.key[:16]}-check"
        report = await self._fetch(client, address, job.key, result.report, place)
        if result.signature:
            await self._fetch(client, address, job.key, result.signature, place)
        trusted = (signing.public_key(key),) if key else ()
        async with self._one_at_a_time:
            try:
                return await asyncio.to_thread(shelf.complete, self.shelf, done.wheel, report, trusted)
            finally:
                shutil.rmtree(place)

    async def _fetch(self, client: Any, address: str, key: str, made: MadeFile, place: Path) -> Path:
        """In pieces; what came before a connection broke is kept."""
        path = place / made.name.name
        part = place / f"{made.sha256[:16]}.part"
        files.no_links(part, self.state.root)
        place.mkdir(parents=True, exist_ok=True)
        if path.is_file() and sha256_of(path) == made.sha256:
            return path
        with part.open("ab") as stream:
            while (have := stream.tell()) < made.size:
                piece = await self.call(client, address, work.give_piece, key, made.name, have)
                if not piece:
                    raise ChecksFailed(f"`{path.name}` is shorter than its worker said", hint="`retry --failed`")
                stream.write(piece)
        if sha256_of(part) != made.sha256:
            part.unlink()
            raise ChecksFailed(f"`{path.name}` arrived with other bytes than were made", hint="`retry --failed`")
        part.replace(path)
        return path

    def yank(self, job: FleetJob, reason: str) -> None:
        """The wheel stays, but nobody is offered it any more."""
        done = shelved.jobs_on(self.shelf).get(job.key or "")
        if done is not None:
            shelf.yank(self.shelf, done.wheel, reason)

    def keep_log(self, key: str, text: str) -> str | None:
        if not text:
            return None
        path = self.state.logs / f"{key[:16]}.log"
        files.write_text(path, text, inside=self.state.root)
        return str(path)


def order_of(
    planned: Planned,
    job: FleetJob,
    source: Sha256 | None,
    wheel: ShelvedJob | None,
    written: build_request.BuildFile | None,
    cache: str | None = None,
) -> JobOrder:
    assert job.key is not None and job.lock is not None
    return codec.like(
        JobOrder,
        job,
        plan=planned.plans.get(job.key),
        build=_build_file(job.lock, written) if written else None,
        source=source,
        torch_wheel=wheel.sha256 if wheel else None,
        torch_wheel_name=wheel.wheel if wheel else None,
        cache=cache,
    )


def _build_file(lock: FleetLock, written: build_request.BuildFile) -> build_request.BuildFile:
    """The project's build file with what this job changes in it."""
    return msgspec.structs.replace(
        written,
        source=".",
        backend=lock.backend,
        version=lock.version,
        cuda=lock.cuda_version,
        cuda_root=None,
        arch_list=lock.arch_list,
        python=lock.python,
        profile=lock.profile,
        options=lock.options,
    )
