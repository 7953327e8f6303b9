"""A web server of this computer: its port is known before anything is served, and no client can hold it up.

Every connection has a deadline for its request and for its silence in between.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from rekindle.core.errors import NotWritable, StepFailed, UsageError

if TYPE_CHECKING:
    import uvicorn

REQUEST_SECONDS, SILENCE_SECONDS = 10.0, 15
_MOST_AT_ONCE, _BACKLOG = 2000, 1024
_MOST_FALLS = 5

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def listen(host: str, port: int) -> socket.socket:
    """An open socket: a port that is taken is said before anything begins; who comes early waits."""
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    if sys.platform == "win32":
        # There SO_REUSEADDR lets another program take the port away.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
        opened.listen(_BACKLOG)
    except OSError as error:
        opened.close()
        message = f"cannot listen on {host}:{port}: {error.strerror or error}"
        if isinstance(error, socket.gaierror):
            raise UsageError(message, hint="`--host` takes an address of this computer") from error
        raise NotWritable(message, hint="`--port 0` takes any free port") from error
    return opened


def is_loopback(host: str) -> bool:
    """Whether only this computer can come by that address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def names_us(header: str, bound: str) -> bool:
    """Names of this computer, and numbers: a page of a stranger's can only come by a name of its own."""
    name = re.sub(r":[0-9]{1,5}\Z", "", header).strip("[]").lower().rstrip(".")
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback or not is_loopback(bound)
    others = () if is_loopback(bound) else (bound.lower(), socket.gethostname().lower(), socket.getfqdn().lower())
    return name in ("localhost", *others)


class WebServer:
    """An application on an open socket. As a context it serves beside the caller, and gives its address."""

    def __init__(self, application: Any, opened: socket.socket) -> None:
        self._server = _server(application)
        self._socket = opened
        self._thread = threading.Thread(target=self.run, name="rekindle-server", daemon=True)
        host, port = opened.getsockname()[:2]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def run(self) -> None:
        """Serve until the process is told to end."""
        self._server.run(sockets=[self._socket])

    @property
    def watched(self) -> bool:
        return bool(self._server.server_state.connections)

    def start(self) -> str:
        self._thread.start()
        return self.address

    def stop(self, *problem: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()

    __enter__, __exit__ = start, stop


def kept_up(work: Callable[[int], None], say: Callable[[str], None]) -> None:
    """Do `work` in a process of its own, and again when a fault ends that; it is told how often this has happened.

    Whoever asks meanwhile waits: the socket stays open here.
    """
    import multiprocessing

    for falls in range(_MOST_FALLS + 1):
        worker = multiprocessing.get_context("spawn").Process(target=_until_the_parent_ends, args=(work, falls))
        worker.start()
        try:
            worker.join()
        except KeyboardInterrupt:
            # Ctrl-C reaches both; what a service manager sends reaches this process alone.
            worker.terminate()
            worker.join(5)
            worker.kill()
            return
        if worker.exitcode == 0:
            return
        if falls < _MOST_FALLS:
            say(f"the server ended with exit code {worker.exitcode} and is started again")
    message = f"the server ended {_MOST_FALLS + 1} times, the last time with exit code {worker.exitcode}"
    raise StepFailed(message, hint="start it again, and please report what it was asked")


def _until_the_parent_ends(work: Callable[[int], None], falls: int) -> None:
    import multiprocessing
    from multiprocessing.connection import wait

    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        work(falls)


def _server(application: Any) -> uvicorn.Server:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Deadlines(H11Protocol):
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
        http=Deadlines,
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
