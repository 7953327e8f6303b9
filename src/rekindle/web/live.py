"""A build as a page while it runs: what has finished on a timeline, what runs now, how long it will take.

The page gets everything from the beginning when it is opened, however late, then what is new every second. A viewer
that reads slowly is told less often; the build never waits for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from rekindle.build.governor import record
from rekindle.build.overview import ReportStep
from rekindle.build.overview import report_steps as steps
from rekindle.build.progress import outputs
from rekindle.build.progress.watch import Now
from rekindle.build.run import journal
from rekindle.build.run.folders import Folders
from rekindle.core import codec
from rekindle.core.errors import RekindleError
from rekindle.core.redact import without_secrets
from rekindle.core.web_server import WebServer
from rekindle.formats import ninja_log
from rekindle.web import page, report
from rekindle.web.guard import Bind, Guard
from rekindle.web.timeline import Bar, Growing

_EVERY = 1.0
_ALIVE = 15.0
"""Seconds after which something is sent in any case, so that a broken line is noticed."""
_LINGER = 5.0
"""Seconds that the finished report can still be fetched by pages that are open."""
_MANY = 64


class RunningFile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    seconds: float
    memory: int | None


class LiveState(msgspec.Struct, frozen=True, kw_only=True):
    """What the page is told each time. `bars` are those it does not have yet."""

    run: str
    step: str = ""
    number: int = 0
    of: int = 0
    seconds: float = 0.0
    done: int = 0
    total: int = 0
    share: float | None = None
    left: float | None = None
    jobs: int | None = None
    waiting: int = 0
    memory_free: int | None = None
    disk_free: int | None = None
    last_line: str = ""
    running: tuple[RunningFile, ...] = ()
    steps: tuple[ReportStep, ...] = ()
    bars: tuple[Bar, ...] = ()
    count: int = 0
    """How many bars there are in all."""
    ended: str = ""


class LiveBuild:
    """What is known of a build that runs. `now` and `end` are called by the build, the rest by the server."""

    def __init__(self, folder: Path, title: str) -> None:
        self.folder = folder
        self.title = title
        self._run = str(time.time_ns())
        self._lock = threading.Lock()
        self._now: Now | None = None
        self._ended = ""
        self._growing = Growing()
        self._read_at = 0.0
        self._steps: tuple[ReportStep, ...] = ()

    def now(self, moment: Now) -> None:
        with self._lock:
            self._now = moment

    def end(self, outcome: str) -> None:
        with self._lock:
            self._ended = outcome
            self._read_at = 0.0

    def state(self, seen: int) -> LiveState:
        """Everything of this moment, and the bars from `seen` on."""
        self._read()
        with self._lock:
            bars = tuple(self._growing.bars)
            known = {"run": self._run, "steps": self._steps, "bars": bars[seen:], "count": len(bars)}
            return _of(self._now, **known, ended=self._ended)

    def _read(self) -> None:
        """What the build has written since the last look, at most once a second however many pages are open."""
        with self._lock:
            if time.monotonic() - self._read_at < _EVERY:
                return
            self._read_at = time.monotonic()
            # A log in the middle of a line: what is not readable now is readable a second later.
            with contextlib.suppress(RekindleError, OSError):
                folders = Folders(self.folder)
                self._steps = tuple(steps(journal.read(folders.journal)))
                done = ninja_log.read(report.log_of(self.folder))
                self._growing.take(done, record.read(folders.compiles))


def _of(now: Now | None, **known: Any) -> LiveState:
    if now is None:
        return LiveState(**known)
    running = tuple(
        codec.like(RunningFile, job, name=outputs.read(job.output).source if job.output else job.program)
        for job in now.running[:_MANY]
    )
    left = {"share": now.estimate.share, "left": now.estimate.seconds} if now.estimate else {}
    return codec.like(LiveState, now, running=running, **left, **known)


def application(build: LiveBuild, place: Bind) -> Guard:
    async def front(request: Request) -> Response:
        del request
        if build.state(0).ended:
            with contextlib.suppress(RekindleError, OSError):
                return _report(build)
        return HTMLResponse(page.render_linked("live.html", root="/", title=build.title, served=True))

    async def events(request: Request) -> Response:
        del request
        return StreamingResponse(_events(build), media_type="text/event-stream")

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        kinds = {"rekindle.css": "text/css", "live.js": "text/javascript"}
        return Response(page.asset(name), media_type=kinds[name]) if name in kinds else Response(status_code=404)

    routes = [Route("/", front), Route("/events", events), Route("/{name}", asset)]
    return Guard(Starlette(routes=routes), place)


def _report(build: LiveBuild) -> Response:
    """The finished report. Its style and script are inside it, so it brings a policy of its own."""
    text = report.html(report.build_report(build.folder, build.title))
    return HTMLResponse(text, headers={"content-security-policy": page.policy_of(text)})


async def _events(build: LiveBuild) -> AsyncIterator[str]:
    seen, told, sent = 0, "", 0.0
    while True:
        state = await asyncio.to_thread(build.state, seen)
        text = codec.to_json(without_secrets(codec.to_builtins(state)), indent=0)
        if text != told or time.monotonic() - sent > _ALIVE:
            # Waits here while the viewer does not read; meanwhile nothing piles up.
            yield f"data: {text}\n\n"
            bare = msgspec.structs.replace(state, bars=())
            told = codec.to_json(without_secrets(codec.to_builtins(bare)), indent=0)
            sent, seen = time.monotonic(), state.count
        if state.ended:
            return
        await asyncio.sleep(_EVERY)


class LiveServer:
    """The page of one build, in a thread of its own beside it."""

    def __init__(self, build: LiveBuild, place: Bind, opened: socket.socket) -> None:
        self._build = build
        self._server = WebServer(application(build, place), opened)

    def start(self) -> None:
        self._server.start()

    def stop(self, outcome: str, linger: float = _LINGER) -> None:
        """The build is over: open pages get the end and fetch the report, then the server is gone."""
        self._build.end(outcome)
        if self._server.watched:
            time.sleep(linger)
        self._server.stop()
