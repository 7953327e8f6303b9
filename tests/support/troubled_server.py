"""A server of files on this machine that cuts, delays, corrupts and forgets them, and counts what it was asked for."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Trouble:
    """What the server does wrong, and what it was asked for."""

    def __init__(self) -> None:
        self.cuts: dict[str, list[int]] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.gone: set[str] = set()
        self.corrupt: set[str] = set()
        self.slow = 0.0
        self.waiting = self.side_by_side = 0
        """Who waits for a slow server now, and the most that did at once."""
        self.before: Callable[[str], None] | None = None
        """Called with the name of a file before it is sent."""

    def times(self, name: str) -> int:
        return sum(name in path for path, _ in self.asked)


class Handler(SimpleHTTPRequestHandler):
    trouble: Trouble

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        wanted = self.headers.get("Range")
        self.trouble.asked.append((self.path, wanted))
        path = Path(self.translate_path(self.path))
        if name in self.trouble.gone or not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        if name in self.trouble.corrupt:
            data = data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
        if start >= len(data) and wanted:
            self.send_error(416)
            return
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(data) - start))
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        cuts = self.trouble.cuts.get(name, [])
        end = next((cut for cut in sorted(cuts) if cut > start), None)
        if end is not None:
            cuts.remove(end)
        if self.trouble.before:
            self.trouble.before(name)
        self.trouble.waiting += 1
        self.trouble.side_by_side = max(self.trouble.side_by_side, self.trouble.waiting)
        time.sleep(self.trouble.slow)
        self.trouble.waiting -= 1
        self.wfile.write(data[start:end])
        if end is not None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(site: Path, trouble: Trouble) -> Iterator[str]:
    """The address at which the files of `site` are."""
    handler = type("Staged", (Handler,), {"trouble": trouble})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(site)))
    server.daemon_threads = True
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
