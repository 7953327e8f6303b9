"""Who may look at a page that this computer serves: this computer, or who has the token.

A page of a stranger's site runs in the same browser. It can name this server by an address that it makes the browser
resolve to 127.0.0.1 (DNS rebinding), so the name in the Host header must be one of ours; it cannot know the token; and
nothing here changes anything, whoever asks.
"""

from __future__ import annotations

import secrets
import socket
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from rekindle.core.web_server import App, Message, Receive, Scope, Send, is_loopback, listen, names_us

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_COOKIE = "rekindle_token"
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Bind(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen. Anything but this computer's own loopback has a token."""

    host: str = "127.0.0.1"
    port: int = 8036
    token: str | None = None

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def address(self) -> str:
        """To type into a browser, with the token where one is needed."""
        shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(self.host, self.host)
        host = f"[{shown}]" if ":" in shown else shown
        return f"http://{host}:{self.port}/" + (f"?{urlencode({'token': self.token})}" if self.token else "")


def bind(host: str, port: int) -> tuple[Bind, socket.socket]:
    """The place and its open socket."""
    made = Bind(host=host, port=port)
    opened = listen(host, port)
    token = None if made.loopback else secrets.token_urlsafe(24)
    return msgspec.structs.replace(made, port=opened.getsockname()[1], token=token), opened


class Guard:
    """Around an application: GET and HEAD only, our own name only, the token where there is one."""

    def __init__(self, app: App, place: Bind) -> None:
        self._app = app
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if refused := self._refusal(request):
            status, text = refused
            await PlainTextResponse(f"{text}\n", status, _HEADERS)(scope, receive, send)
        elif self._place.token and self._typed(request):
            cookie = f"{_COOKIE}={self._place.token}; HttpOnly; SameSite=Strict; Path=/"
            shown = {**_HEADERS, "location": "/", "set-cookie": cookie}
            await PlainTextResponse("see /\n", 303, shown)(scope, receive, send)
        else:
            await self._app(scope, receive, _with_headers(send))

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        if request.method not in ("GET", "HEAD"):
            return 405, "this server only shows: nothing here can be changed"
        if not names_us(request.headers.get("host", ""), self._place.host):
            return 421, "this is not the name of this server"
        if self._place.token and not self._typed(request) and not self._shown(request):
            return 401, "open the address that was printed when the server started: it holds the token"
        return None

    def _typed(self, request: Request) -> bool:
        return self._matches(request.query_params.get("token", ""))

    def _shown(self, request: Request) -> bool:
        sent = request.headers.get("authorization", "").partition("Bearer ")[2]
        return self._matches(sent) or self._matches(request.cookies.get(_COOKIE, ""))

    def _matches(self, given: str) -> bool:
        return bool(self._place.token) and secrets.compare_digest(given.encode(), str(self._place.token).encode())


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in {"content-security-policy": POLICY, **_HEADERS}.items():
                headers.setdefault(name, value)
        await send(message)

    return wrapped
