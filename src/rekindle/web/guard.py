"""Who may look at a page that this computer serves: this computer, or who has the token.

A page of a stranger's site runs in the same browser. It can name this server by an address that it makes the browser
resolve to 127.0.0.1 (DNS rebinding), so the name in the Host header must be one of ours; it cannot know the token; and
nothing here changes anything, whoever asks.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode

import msgspec

from rekindle.core.web_server import App, Message, Receive, Scope, Send, is_loopback, listen, names_us

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_COOKIE = "rekindle_token"
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


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
        refused = self._refusal(scope)
        if refused is not None:
            await _plain(send, *refused)
            return
        if self._place.token and self._typed(scope):
            cookie = f"{_COOKIE}={self._place.token}; HttpOnly; SameSite=Strict; Path=/"
            await _plain(send, 303, "see /", [(b"location", b"/"), (b"set-cookie", cookie.encode())])
            return
        await self._app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        if scope["type"] != "http":
            return 403, "not served here"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "this server only shows: nothing here can be changed"
        headers = {name.lower(): value for name, value in scope["headers"]}
        if not names_us(headers.get(b"host", b"").decode("latin-1"), self._place.host):
            return 421, "this is not the name of this server"
        if self._place.token and not self._typed(scope) and not self._shown(headers):
            return 401, "open the address that was printed when the server started: it holds the token"
        return None

    def _typed(self, scope: Scope) -> bool:
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        return self._matches(given)

    def _shown(self, headers: dict[bytes, bytes]) -> bool:
        sent = headers.get(b"authorization", b"").decode("latin-1").partition("Bearer ")[2]
        cookie: SimpleCookie = SimpleCookie()
        with contextlib.suppress(CookieError):
            cookie.load(headers.get(b"cookie", b"").decode("latin-1"))
        kept = cookie[_COOKIE].value if _COOKIE in cookie else ""
        return self._matches(sent) or self._matches(kept)

    def _matches(self, given: str) -> bool:
        return bool(self._place.token) and secrets.compare_digest(given.encode(), str(self._place.token).encode())


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            own = [(b"content-security-policy", POLICY.encode()), *_HEADERS]
            message["headers"] = [*message["headers"], *((name, value) for name, value in own if name not in present)]
        await send(message)

    return wrapped


async def _plain(send: Send, status: int, text: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    head = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS, *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": (text + "\n").encode()})
