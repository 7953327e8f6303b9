"""The one place that downloads: the system's certificates and proxies, resume, retries, hashes.

Wheels of package indexes are not fetched here: pip or uv do that with the user's own mirror, proxy and hash settings.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from rekindle.core import console
from rekindle.core.errors import BadInput, FetchFailed, NothingThere, NotWritable, RekindleError
from rekindle.core.files import FULL, is_link, not_writable, rename_over
from rekindle.core.paths import sha256_of

if TYPE_CHECKING:
    import ssl

    from urllib3 import BaseHTTPResponse, PoolManager

_TRIES = 4
_CHUNK = 1 << 16
# A small answer has so many seconds, and more by its size at so many bytes a second.
_PATIENCE, _SLOWEST = 90, 20_000
# However large it is, so many bytes a second come in as many seconds: the slowest line brings more.
_TRICKLE = 1_000
_DIGITS = 16
_SLOW = "try again later, or download the file by other means"
_BY_PATH = "download the file and name it by its path instead"
# What urllib3, pip, uv and git say, and the setting behind it.
_BEHIND = (
    (
        r"CERTIFICATE_VERIFY_FAILED|UnknownIssuer|certificate verif\w+ failed|self[- ]signed certificate",
        (
            "its certificate is signed by nobody you trust; behind a company's proxy, name the company's "
            "certificates: SSL_CERT_FILE, for pip PIP_CERT (REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE go before it), "
            "for git GIT_SSL_CAINFO"
        ),
    ),
    (
        r"TLS CA certificate bundle, invalid path",
        "a setting names a file of certificates that is not there: PIP_CERT, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE",
    ),
    (
        r"\b407\b|Proxy Authentication",
        "the proxy wants a name and a password: HTTPS_PROXY=http://NAME:PASSWORD@HOST:PORT",
    ),
    (
        r"ProxyError|resolve proxy|[Pp]roxy CONNECT|tunneling socket",
        "the proxy does not answer: the variable HTTPS_PROXY, or the system's settings, name it",
    ),
    (
        r"Name or service not known|[Nn]ame resolution|getaddrinfo failed|dns error|Could not resolve host",
        "the name of a server could not be looked up: no network or DNS here, or a proxy that HTTPS_PROXY must name",
    ),
    (
        r"NewConnectionError|ConnectTimeoutError|[Nn]etwork is unreachable|No route to host|Connection refused",
        "a server could not be reached from here: a firewall, or a proxy that HTTPS_PROXY must name",
    ),
)

_WHICH_PROXY = "look at HTTPS_PROXY, HTTP_PROXY and pip's `proxy`: an address like `http://proxy.example:3128`"


def download(
    url: str,
    to: Path,
    *,
    sha256: str | None = None,
    most: int | None = None,
) -> Path:
    """Fetch `url` to the file `to`, going on where an earlier try stopped. The file appears only when it is complete.

    More than `most` bytes are refused: whoever answers decides how much comes.
    """
    pool = pool_for(url)
    try:
        return _downloaded(pool, url, to, sha256, most)
    finally:
        pool.clear()


def _downloaded(pool: PoolManager, url: str, to: Path, sha256: str | None, most: int | None) -> Path:
    part = to.with_name(to.name + ".part")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritable(f"cannot write to `{to.parent}`: {error.strerror}", hint="choose another place") from error
    if is_link(part) or sha256 is None:  # without a hash nobody would see that what lies there is a stranger's
        part.unlink(missing_ok=True)
    problem = ""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(min(2**attempt, 15) / 2)
        try:
            with console.waiting(f"downloading {url}"):
                _receive(pool, url, part, most)
        except FetchFailed:
            raise
        except OSError as error:
            if error.errno in FULL:
                # No network's fault, and another try would not mend it.
                raise not_writable(part, error) from error
            problem = str(error)
            continue
        except Exception as error:
            problem = _reason(error, url)
            if _nobody(error) and not part.exists():
                break
            continue
        if sha256 and sha256_of(part) != sha256.lower():
            part.unlink(missing_ok=True)
            problem = f"its SHA-256 is not {sha256[:16]}…"
            continue
        rename_over(part, to)
        console.detail(f"downloaded {to.stat().st_size:,} bytes of {url}")
        return to
    message = f"`{url}` could not be downloaded: {problem}"
    raise FetchFailed(
        message, hint="check the network and proxy settings (HTTPS_PROXY), then run the same command again"
    )


def fetch_range(url: str, start: int, end: int, *, pool: PoolManager | None = None) -> bytes:
    """The bytes `start` to `end` (exclusive) of `url`; an error if the server does not give ranges."""
    status, _, data = _answer(url, end - start, f"bytes={start}-{end - 1}", pool)
    if status != 206:
        raise _refused(url, status, " to a request for part of it", hint=_BY_PATH)
    return data


def fetch_small(url: str, *, most: int) -> bytes:
    """All of `url`, which must be at most so many bytes and come in reasonable time."""
    status, _, data = _answer(url, most, None, None)
    if status != 200:
        raise _refused(url, status)
    return data


def content_length(url: str, *, pool: PoolManager | None = None) -> int:
    """How long `url` is, found by asking for its last byte."""
    status, told, _ = _answer(url, 1, "bytes=-1", pool)
    total = _number(told.rpartition("/")[2])
    if status != 206 or total is None:
        raise _refused(url, status, " without ranges", hint=_BY_PATH)
    return total


def _refused(url: str, status: int, words: str = "", *, hint: str = "check the address") -> FetchFailed:
    """The one place that tells a page that is not there from a server that does not do what it was asked."""
    if status in (404, 410):
        return NothingThere(f"`{url}` answered {status}", hint="check the address")
    return FetchFailed(f"`{url}` answered {status}{words}", hint=hint)


def _number(text: str | None) -> int | None:
    """A size that a server states; `²` is a digit, too, and five thousand of them are no number to Python."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < _DIGITS else None


def _answer(url: str, most: int, asked: str | None, pool: PoolManager | None) -> tuple[int, str, bytes]:
    with console.waiting(f"waiting for {url}"):
        return _whole_answer(url, most, asked, pool)


def _whole_answer(url: str, most: int, asked: str | None, pool: PoolManager | None) -> tuple[int, str, bytes]:
    """Status, Content-Range and body of one request. A body that is longer, or does not come to its end, is refused."""
    headers = {"Accept-Encoding": "identity"} | ({"Range": asked} if asked else {})
    until = time.monotonic() + _PATIENCE + most / _SLOWEST
    pace = _Pace(url)
    try:
        answer = (pool or pool_for(url)).request("GET", url, headers=headers, preload_content=False)
        try:
            data = bytearray()
            if answer.status in (200, 206) and not (asked and answer.status == 200):
                while len(data) <= most and (block := answer.read1(min(_CHUNK, most + 1 - len(data)))):
                    data += block
                    pace.arrived(len(block))
                    if time.monotonic() > until:
                        message = f"`{url}` sends too slowly: {len(data)} bytes in {_PATIENCE + most // _SLOWEST} s"
                        raise FetchFailed(message, hint=_SLOW)
        finally:
            # What is left of the body is of no use, and may have no end.
            answer.close()
    except RekindleError:
        raise
    except Exception as error:
        why = _reason(error, url)
        hint = None if why == setting_behind(str(error)) else "check the address and the network"
        raise FetchFailed(f"`{url}` could not be read: {why}", hint=hint) from error
    if len(data) > most:
        message = f"`{url}` sends more than the {most:,} bytes that were asked for or expected"
        raise FetchFailed(message, hint="is this the right address?")
    console.detail(f"asked {url} ({asked or 'whole'}): {answer.status}, {len(data):,} bytes")
    return answer.status, answer.headers.get("Content-Range", ""), bytes(data)


def stated_size(url: str) -> int | None:
    """How long `url` is by the server's own word, without a byte of it; None where it does not tell, or not soon."""
    own = pool_for(url)
    try:
        answer = own.request("HEAD", url, timeout=10, retries=2, headers={"Accept-Encoding": "identity"})
    except Exception:
        return None
    finally:
        own.clear()
    return _number(answer.headers.get("Content-Length")) if answer.status == 200 else None


def pool_for(url: str) -> PoolManager:
    """A connection pool with the system's certificate store and the proxy that the environment names for `url`."""
    # Here, not above: most commands fetch nothing, and it brings all of `http` and `ssl` with it.
    import urllib3

    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # `http://[`
        whole = False
    if not whole:
        raise BadInput(f"`{url}` is not an http or https address", hint="give a full address, or the path of a file")
    options: dict[str, Any] = {
        "ssl_context": _certificates(os.environ),
        # A server may ask to wait before the next try: for a year, if it likes.
        "retries": urllib3.Retry(
            total=3,
            connect=1,
            redirect=5,
            backoff_factor=0.5,
            status_forcelist=[429, 500, 502, 503, 504],
            respect_retry_after_header=False,
        ),
        "timeout": urllib3.Timeout(connect=10, read=60),
        "headers": {"User-Agent": "rekindle"},
    }
    proxy = _proxy(url)
    if not proxy:
        return _impatient(urllib3.PoolManager(**options))
    # Who asks is part of the proxy's address, and urllib3 does not look there.
    try:
        named = urlsplit(proxy)
        who = f"{unquote(named.username)}:{unquote(named.password or '')}" if named.username else None
        headers = urllib3.make_headers(proxy_basic_auth=who) if who else None
        return _impatient(urllib3.ProxyManager(proxy, proxy_headers=headers, **options))
    except (ValueError, urllib3.exceptions.HTTPError) as error:
        raise BadInput("the proxy that is set cannot be used", hint=_WHICH_PROXY) from error


def _impatient(pool: PoolManager) -> PoolManager:
    """Who sends even the head of an answer byte by byte is given up: no timeout of a socket sees that."""
    pool.pool_classes_by_scheme = _pools()
    return pool


@cache
def _pools() -> dict[str, Any]:
    import threading
    from socket import SHUT_RDWR

    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool

    def limited(kind: Any) -> Any:
        def getresponse(self: Any) -> Any:
            late = threading.Event()

            def end() -> None:
                late.set()
                with contextlib.suppress(OSError, AttributeError, ValueError):
                    self.sock.shutdown(SHUT_RDWR)

            timer = threading.Timer(_PATIENCE, end)
            timer.daemon = True
            timer.start()
            try:
                answer = kind.getresponse(self)
                if not late.is_set():
                    return answer
            except Exception:
                if not late.is_set():
                    raise
            finally:
                timer.cancel()
            message = f"`{self.host}` answers too slowly: its answer did not begin within {_PATIENCE} s"
            raise FetchFailed(message, hint=_SLOW)

        return type(kind.__name__, (kind,), {"getresponse": getresponse})

    return {
        "http": type("Plain", (HTTPConnectionPool,), {"ConnectionCls": limited(HTTPConnectionPool.ConnectionCls)}),
        "https": type("Safe", (HTTPSConnectionPool,), {"ConnectionCls": limited(HTTPSConnectionPool.ConnectionCls)}),
    }


def _proxy(url: str) -> str | None:
    """The proxy that pip's settings, the environment or the system name for `url`."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxy = _of_pip("proxy") or getproxies().get(parts.scheme)
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _certificates(environ: Mapping[str, str]) -> ssl.SSLContext:
    """The bundle a user has named for pip or requests, else the system's own store (corporate roots included)."""
    import ssl

    named = {name: environ.get(name) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")}
    for name, value in (named | {"pip's setting `cert`": _of_pip("cert", environ)}).items():
        if value:
            try:
                many = Path(value).is_dir()
                return ssl.create_default_context(cafile=None if many else value, capath=value if many else None)
            except OSError as error:
                message = f"{name} names `{value}`, which is no file of certificates: {error.strerror or error}"
                raise BadInput(message, hint="name a PEM file there, or clear the setting") from error
    import truststore

    context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return context


def _of_pip(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """What pip was told once for all: by a variable, for its environment, for the user or for the computer."""
    from configparser import ConfigParser
    from configparser import Error as NotRead

    environ = os.environ if environ is None else environ
    if value := environ.get(f"PIP_{name.upper()}"):
        return value
    own = environ.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return None
    if os.name == "nt":
        homes = [environ.get(home, "") for home in ("ProgramData", "USERPROFILE", "APPDATA")]
        places = [*(Path(home) / "pip" / "pip.ini" for home in homes if home), Path(sys.prefix) / "pip.ini"]
    else:
        home = Path(environ.get("HOME", "/"))
        user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        user = user if user.is_absolute() else home / ".config"  # as the standard says
        folders = (Path("/etc"), home / ".pip", user / "pip", Path(sys.prefix))
        places = [folder / "pip.conf" for folder in folders]
    found = ConfigParser(interpolation=None, strict=False)
    try:
        found.read([*places, *([Path(own)] if own else [])], encoding="utf-8")
    except (NotRead, UnicodeError):
        return None
    return found.get("global", name, fallback=None) or None


def setting_behind(said: str) -> str | None:
    """What to look at, by the words of whoever could not fetch."""
    return next((told for pattern, told in _BEHIND if re.search(pattern, said)), None)


def _receive(pool: PoolManager, url: str, part: Path, most: int | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    answer = pool.request("GET", url, headers=headers, preload_content=False)
    try:
        if have and answer.status == 416:
            part.unlink()
            raise OSError("the partial file did not fit; starting anew")
        if answer.status not in (200, 206):
            raise _refused(url, answer.status)
        _store(answer, part, have if answer.status == 206 else 0, most, _Pace(url))
    except _TooMuch as error:
        part.unlink(missing_ok=True)
        answer.close()
        raise FetchFailed(f"`{url}` is larger than {most:,} bytes", hint="is this the right address?") from error
    except BaseException:
        # What was not read to its end cannot be used again: its socket is closed now, not by the garbage collector.
        answer.close()
        raise
    finally:
        answer.release_conn()


class _TooMuch(Exception):
    pass


class _Pace:
    """How much came lately: who sends a byte a minute is given up, a slow line is waited for."""

    def __init__(self, url: str) -> None:
        self._url, self._since, self._have = url, time.monotonic(), 0

    def arrived(self, size: int) -> None:
        self._have += size
        took = time.monotonic() - self._since
        if took > _PATIENCE:
            if self._have < _TRICKLE * took:
                message = f"`{self._url}` sends too slowly: {self._have:,} bytes in {took:.0f} s"
                raise FetchFailed(message, hint=_SLOW)
            self._since, self._have = time.monotonic(), 0


def _store(answer: BaseHTTPResponse, part: Path, have: int, most: int | None, pace: _Pace) -> None:
    length = _number(answer.headers.get("Content-Length"))
    total = have + length if length is not None else None
    with part.open("ab" if have else "wb") as stream:
        while chunk := answer.read1(_CHUNK):
            stream.write(chunk)
            have += len(chunk)
            pace.arrived(len(chunk))
            if most is not None and have > most:
                raise _TooMuch
        stream.flush()
        os.fsync(stream.fileno())
    if total is not None and have != total:
        raise OSError(f"the connection broke after {have} of {total} bytes")


def _nobody(error: Exception) -> bool:
    """No server took the connection, and the pool has tried twice."""
    from urllib3 import exceptions

    reason = getattr(error, "reason", None) or error
    return isinstance(reason, (exceptions.NewConnectionError, exceptions.ConnectTimeoutError))


def _reason(error: Exception, url: str) -> str:
    from urllib3 import exceptions

    reason = getattr(error, "reason", None) or error
    refused = re.search(r"Tunnel connection failed: (.*?)['\"]", str(reason))
    if isinstance(reason, exceptions.SSLError) or (refused and refused[1].startswith("407")):
        return setting_behind(str(reason)) or str(reason)
    if isinstance(reason, exceptions.ProxyError):
        proxy = urlsplit(_proxy(url) or "")
        name = f"{urlsplit(url).scheme}_proxy".upper()
        where = f" {proxy.hostname}:{proxy.port}" if proxy.hostname else ""
        if refused:
            return f"the proxy{where} refuses: {refused[1]}"
        return f"the proxy{where} does not answer (the variable {name}, or the system's settings, name it)"
    if isinstance(reason, exceptions.NameResolutionError):
        return f"the name `{urlsplit(url).hostname}` could not be looked up"
    if isinstance(reason, exceptions.NewConnectionError):
        return str(reason).rpartition("new connection: ")[2].partition("] ")[2] or "nothing answers there"
    return str(reason) or type(error).__name__
