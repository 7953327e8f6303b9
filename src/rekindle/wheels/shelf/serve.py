"""The shelf over HTTP, read-only. Any web server can do this; this one is at hand."""

from __future__ import annotations

import functools
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rekindle.core import console
from rekindle.core.errors import NotFound, UsageError

_JSON = "application/vnd.pypi.simple.v1+json"


def server(folder: Path, host: str, port: int) -> ThreadingHTTPServer:
    if not (folder / "simple" / "index.html").is_file():
        raise NotFound(f"`{folder}` is not a shelf", hint="`rekindle shelf add WHEEL` makes one")
    try:
        return ThreadingHTTPServer((host, port), functools.partial(_Handler, directory=str(folder.resolve())))
    except OSError as error:
        message = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise UsageError(message, hint="choose another with `--port`") from error


class _Handler(SimpleHTTPRequestHandler):
    """GET and HEAD of what belongs to the index; folders other than the index are not listed."""

    def translate_path(self, path: str) -> str:
        plain = unquote(urlsplit(path).path)
        wants_json = _JSON in self.headers.get("Accept", "")
        parts = [part for part in plain.split("/") if part]
        if any(part.startswith(".") or "\\" in part or ":" in part for part in parts):
            return str(Path(self.directory) / "there is no such file")
        if parts[:1] == ["simple"] and len(parts) <= 2 and plain.endswith("/") and wants_json:
            parts.append("index.json")
        # A slash at the end makes the handler look for index.html.
        slash = "/" if plain.endswith("/") and parts[-1:] != ["index.json"] else ""
        return str(Path(self.directory).joinpath(*parts)) + slash

    def guess_type(self, path: object) -> str:
        kinds = {".html": "text/html; charset=utf-8", ".json": "application/json"}
        return (
            _JSON if str(path).endswith("index.json") else kinds.get(Path(str(path)).suffix, "application/octet-stream")
        )

    def list_directory(self, path: object) -> None:
        self.send_error(404, "there is no list of this folder")

    def log_message(self, format: str, *args: object) -> None:
        console.say(console.clean(f"{self.address_string()} {format % args}"))
