"""The one place that downloads: the system's certificates and proxies, resume, retries, hashes.

Wheels of package indexes are not fetched here: pip or uv do that with the user's own mirror, proxy and hash settings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rekindle.core.errors import BadInput, FetchFailed, NotWritable
from rekindle.core.files import rename_over
from rekindle.core.paths import sha256_of

if TYPE_CHECKING:
    import ssl

    from urllib3 import BaseHTTPResponse, PoolManager

_TRIES = 4
# Small, because what has not filled a chunk when a connection breaks is lost and fetched again.
_CHUNK = 1 << 16


def download(
    url: str,
    to: Path,
    *,
    sha256: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    pool: PoolManager | None = None,
) -> Path:
    """Fetch `url` to the file `to`, going on where an earlier try stopped. The file appears only when it is whole."""
    part = to.with_name(to.name + ".part")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot write to `{to.parent}`: {error.strerror}"
        raise NotWritable(message, hint="choose another place") from error
    pool = pool or pool_for(url)
    problem = ""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(min(2**attempt, 15) / 2)
        try:
            _receive(pool, url, part, progress)
        except FetchFailed as refused:
            raise refused
        except OSError as error:
            problem = str(error)
            continue
        except Exception as error:
            problem = _reason(error)
            continue
        if sha256 and sha256_of(part) != sha256.lower():
            part.unlink(missing_ok=True)
            problem = f"its SHA-256 is not {sha256[:16]}…"
            continue
        rename_over(part, to)
        return to
    message = f"`{url}` could not be downloaded: {problem}"
    raise FetchFailed(
        message, hint="check the network and proxy settings (HTTPS_PROXY), then run the same command again"
    )


def fetch_range(url: str, start: int, end: int, *, pool: PoolManager | None = None) -> bytes:
    """The bytes `start` to `end` (exclusive) of `url`; an error if the server does not give ranges."""
    pool = pool or pool_for(url)
    try:
        answer = pool.request("GET", url, headers={"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"})
    except Exception as error:
        message = f"`{url}` could not be read: {_reason(error)}"
        raise FetchFailed(message, hint="check the address and the network") from error
    if answer.status != 206:
        message = f"`{url}` answered {answer.status} to a request for part of it"
        raise FetchFailed(message, hint="download the file and name it by its path instead")
    return bytes(answer.data)


def content_length(url: str, *, pool: PoolManager | None = None) -> int:
    """How long `url` is, found by asking for its last byte."""
    pool = pool or pool_for(url)
    try:
        answer = pool.request("GET", url, headers={"Range": "bytes=-1", "Accept-Encoding": "identity"})
    except Exception as error:
        message = f"`{url}` could not be reached: {_reason(error)}"
        raise FetchFailed(message, hint="check the address and the network") from error
    total = answer.headers.get("Content-Range", "").rpartition("/")[2]
    if answer.status != 206 or not total.isdigit():
        message = f"`{url}` answered {answer.status} without ranges"
        raise FetchFailed(message, hint="download the file and name it by its path instead")
    return int(total)


def pool_for(url: str, environ: Mapping[str, str] | None = None) -> PoolManager:
    """A connection pool with the system's certificate store and the proxy that the environment names for `url`."""
    # Here, not above: most commands fetch nothing, and these bring all of `http` and `ssl` with them.
    from urllib.request import getproxies, proxy_bypass

    import urllib3

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        message = f"`{url}` is not an http or https address"
        raise BadInput(message, hint="give a full address, or the path of a file")
    options = {
        "ssl_context": _certificates(os.environ if environ is None else environ),
        "retries": urllib3.Retry(total=3, redirect=5, backoff_factor=0.5, status_forcelist=[429, 500, 502, 503, 504]),
        "timeout": urllib3.Timeout(connect=15, read=60),
        "headers": {"User-Agent": "rekindle"},
    }
    proxy = getproxies().get(parts.scheme)
    if proxy and not proxy_bypass(parts.hostname):
        return urllib3.ProxyManager(proxy if "://" in proxy else f"http://{proxy}", **options)  # type: ignore[arg-type]
    return urllib3.PoolManager(**options)  # type: ignore[arg-type]


def _certificates(environ: Mapping[str, str]) -> ssl.SSLContext:
    """The bundle a user has named for pip or requests, else the system's own store (corporate roots included)."""
    import ssl

    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE"):
        if environ.get(name):
            return ssl.create_default_context(cafile=environ[name])
    import truststore

    context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return context


def _receive(pool: PoolManager, url: str, part: Path, progress: Callable[[int, int | None], None] | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    answer = pool.request("GET", url, headers=headers, preload_content=False)
    try:
        if have and answer.status == 416:
            part.unlink()
            message = "the partial file did not fit; starting anew"
            raise OSError(message)
        if answer.status not in (200, 206):
            message = f"`{url}` answered {answer.status}"
            raise FetchFailed(message, hint="check the address")
        _store(answer, part, have if answer.status == 206 else 0, progress)
    finally:
        answer.release_conn()


def _store(answer: BaseHTTPResponse, part: Path, have: int, progress: Callable[[int, int | None], None] | None) -> None:
    length = answer.headers.get("Content-Length")
    total = have + int(length) if length and length.isdigit() else None
    with part.open("ab" if have else "wb") as stream:
        for chunk in answer.stream(_CHUNK):
            stream.write(chunk)
            have += len(chunk)
            if progress:
                progress(have, total)
        stream.flush()
        os.fsync(stream.fileno())
    if total is not None and have != total:
        message = f"the connection broke after {have} of {total} bytes"
        raise OSError(message)


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or error) or type(error).__name__
