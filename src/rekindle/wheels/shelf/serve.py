"""The shelf over HTTP, read-only: both dialects of the index, ranges and ETags, and no client that can hold it up.

Any web server can carry a shelf; this one is at hand. Every connection has a deadline: for its request, for each piece
of the answer it takes, and for its silence in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from rekindle.core import files, own
from rekindle.core.errors import MissingTool, NotFound, UsageError
from rekindle.wheels.shelf import store
from rekindle.wheels.shelf.index import LISTING, SIGNED_LISTING

if TYPE_CHECKING:
    import uvicorn

JSON = "application/vnd.pypi.simple.v1+json"
REQUEST_SECONDS, SILENCE_SECONDS, PIECE_SECONDS = 10.0, 15, 30.0
_MOST_AT_ONCE, _BACKLOG = 2000, 1024
_KINDS = {".html": "text/html; charset=utf-8", ".json": "application/json", ".whl": "application/octet-stream"}

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Application:
    """ASGI: GET and HEAD of the files of the index; nothing else, no lists of folders, nothing that a link leads to."""

    def __init__(self, folder: Path) -> None:
        self.root = folder.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.responses import FileResponse, PlainTextResponse, Response

        if scope["type"] != "http":
            return
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        response: Response
        if scope["method"] not in ("GET", "HEAD"):
            response = PlainTextResponse("only GET and HEAD\n", 405, headers={"allow": "GET, HEAD"})
        else:
            found = self._file(scope["path"], headers.get("accept", "*/*"))
            if found is None:
                response = PlainTextResponse("there is no such file\n", 404)
            else:
                state = found.stat()
                etag = f'"{state.st_mtime_ns:x}-{state.st_size:x}"'
                kind = JSON if found.name == "index.json" else _KINDS.get(found.suffix, "application/octet-stream")
                shown = {"etag": etag, "cache-control": "no-cache", "vary": "Accept"}
                if etag in [word.strip().removeprefix("W/") for word in headers.get("if-none-match", "").split(",")]:
                    response = Response(status_code=304, headers=shown)
                else:
                    response = FileResponse(found, media_type=kind, headers=shown, stat_result=state)
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError, OSError):
            await response(scope, receive, _in_time(send))

    def _file(self, path: str, accept: str) -> Path | None:
        """The file of an address, if it is one of the shelf's own."""
        plain = unquote(path)
        parts = [part for part in plain.split("/") if part]
        if any(part.startswith(".") or not part.isprintable() or set(part) & set("\\:") for part in parts):
            return None
        if parts and parts[0] not in ("simple", "wheels", "index.html", LISTING, SIGNED_LISTING):
            return None
        if not parts or (parts[0] == "simple" and not parts[-1].startswith("index.")):
            parts.append("index.json" if parts and _prefers_json(accept) else "index.html")
        place = self.root.joinpath(*parts)
        try:
            real = place.resolve()
            inside = real.is_relative_to(self.root) and not files.is_link(place)
            return real if inside and real.is_file() else None
        except (OSError, ValueError):
            return None


def _prefers_json(accept: str) -> bool:
    """pip and uv name the JSON form first; a browser does not name it at all."""
    return JSON in accept and ("html" not in accept or accept.index(JSON) < accept.index("html"))


def _in_time(send: Send) -> Send:
    """A client that does not take a piece of its answer in time is let go."""

    async def timely(message: MutableMapping[str, Any]) -> None:
        await asyncio.wait_for(send(message), PIECE_SECONDS)

    return timely


class ShelfServer:
    """A shelf on a socket that is already open, so that its port is known before anything is served."""

    def __init__(self, folder: Path, host: str, port: int) -> None:
        store.guard(folder)
        if not (folder / "simple" / "index.html").is_file():
            raise NotFound(f"`{folder}` is not a shelf", hint="make one with `rekindle shelf add WHEEL`")
        self._server = _server(Application(folder))
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
            # Who reads the address may come before the server has started: he waits, and is not refused.
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self._socket.close()
            message = f"cannot listen on {host}:{port}: {error.strerror or error}"
            raise UsageError(message, hint="choose another port with `--port`") from error
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._socket.getsockname()[1]}"

    def run(self) -> None:
        """Serve until the process is told to end."""
        self._server.run(sockets=[self._socket])

    @contextlib.contextmanager
    def in_background(self) -> Iterator[str]:
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        try:
            while not self._server.started and thread.is_alive():
                thread.join(0.01)
            yield self.address
        finally:
            self._server.should_exit = True
            thread.join(10)
            self._socket.close()


def _server(application: Application) -> uvicorn.Server:
    try:
        import starlette.responses
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol
    except ImportError as error:
        message = "`shelf serve` needs the packages starlette and uvicorn"
        raise MissingTool(message, hint=f"install them: `{own.with_extra('serve')}`") from error
    assert starlette.responses

    class Impatient(H11Protocol):
        """A connection that brings no whole request in time is closed: half-open clients hold nothing."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_request(None)

        def data_received(self, data: bytes) -> None:
            before: Any = self.cycle
            super().data_received(data)
            if self.cycle is before:
                # A piece of a request: the rest must come in time as well.
                self._expect_request(before)

        def _expect_request(self, before: Any) -> None:
            self.loop.call_later(REQUEST_SECONDS, self._end_if_silent, before)

        def _end_if_silent(self, before: Any) -> None:
            current: Any = self.cycle
            busy = current is not None and not current.response_complete
            if current is before and not busy and not self.transport.is_closing():
                self.transport.close()

    configuration = uvicorn.Config(
        application,
        http=Impatient,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=SILENCE_SECONDS,
        timeout_graceful_shutdown=3,
        limit_concurrency=_MOST_AT_ONCE,
        backlog=_BACKLOG,
        server_header=False,
        h11_max_incomplete_event_size=32 << 10,
    )
    return uvicorn.Server(configuration)
