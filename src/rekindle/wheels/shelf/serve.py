"""The shelf over HTTP, read-only: both dialects of the index, ranges and ETags, and no client that can hold it up.

Any web server can carry a shelf; this one is at hand.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from urllib.parse import unquote

from rekindle.core import files
from rekindle.core.errors import NotFound
from rekindle.core.web_server import Message, Receive, Scope, Send, WebServer, is_loopback, listen, names_us
from rekindle.wheels.shelf import store
from rekindle.wheels.shelf.index import LISTING, SIGNED_LISTING

JSON = "application/vnd.pypi.simple.v1+json"
PIECE_SECONDS = 30.0
WHOLE = 4 << 20
"""No page of a shelf is larger; what lies there and is goes out in pieces, like a wheel."""
_KINDS = {".html": "text/html; charset=utf-8", ".json": "application/json", ".whl": "application/octet-stream"}


class Application:
    """ASGI: GET and HEAD of the files of the index; nothing else, no lists of folders, nothing that a link leads to."""

    def __init__(self, folder: Path, host: str) -> None:
        self.root = folder.resolve()
        self.host = host if is_loopback(host) else None
        """Bound to this computer, only names of this computer are answered: any page in its browser could ask."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.responses import FileResponse, PlainTextResponse, Response

        if scope["type"] != "http":
            return
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        response: Response
        if scope["method"] not in ("GET", "HEAD"):
            response = PlainTextResponse("only GET and HEAD\n", 405, headers={"allow": "GET, HEAD"})
        elif self.host and not names_us(headers.get("host", ""), self.host):
            response = PlainTextResponse("this is not the name of this server\n", 421)
        else:
            found = self._file(scope["path"], headers.get("accept", "*/*"))
            if found is None:
                response = PlainTextResponse("there is no such file\n", 404)
            else:
                state = found.stat()
                page = None
                with contextlib.suppress(OSError):
                    page = None if found.suffix == ".whl" else files.plain_bytes(found, limit=WHOLE)
                etag = f'"{state.st_mtime_ns:x}-{state.st_size:x}"'
                kind = JSON if found.name == "index.json" else _KINDS.get(found.suffix, "application/octet-stream")
                shown = {"etag": etag, "cache-control": "no-cache", "vary": "Accept"}
                if etag in [word.strip().removeprefix("W/") for word in headers.get("if-none-match", "").split(",")]:
                    response = Response(status_code=304, headers=shown)
                elif page is None:
                    response = FileResponse(found, media_type=kind, headers=shown, stat_result=state)
                else:
                    # A page is written anew while others read it: it is sent as it was read, with that length.
                    response = Response(page, media_type=kind, headers=shown)
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

    async def timely(message: Message) -> None:
        await asyncio.wait_for(send(message), PIECE_SECONDS)

    return timely


def server(folder: Path, host: str, port: int) -> WebServer:
    """A shelf on a socket that is already open, so that its port is known before anything is served."""
    store.guard(folder)
    if not (folder / "simple" / "index.html").is_file():
        raise NotFound(f"`{folder}` is not a shelf", hint="make one with `rekindle shelf add WHEEL`")
    return WebServer(Application(folder, host), listen(host, port))
