"""Downloads against a real server on this machine: resume, hashes, ranges, refusals."""

from __future__ import annotations

import errno
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from rekindle.core import fetch
from rekindle.core.errors import BadInput, FetchFailed, NothingThere, NotWritable

BODY = bytes(range(256)) * 4096


class Handler(BaseHTTPRequestHandler):
    breaks = 0
    ranges = True
    requests: list[str | None]

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        type(self).requests.append(wanted)
        if self.path != "/file":
            self.send_error(404)
            return
        start, end = 0, len(BODY)
        if wanted and self.ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start = int(first) if first else len(BODY) - int(last)
            end = min(int(last) + 1, len(BODY)) if first and last else len(BODY)
        self.send_response(206 if wanted and self.ranges else 200)
        if wanted and self.ranges:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(BODY)}")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        part = BODY[start:end]
        if type(self).breaks and len(part) > 1000:
            type(self).breaks -= 1
            self.wfile.write(part[: len(part) // 2])
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(part)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fetch.time, "sleep", lambda _: None)
    Handler.breaks, Handler.ranges, Handler.requests = 0, True, []
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_address[1]}"
    listening.shutdown()
    listening.server_close()
    thread.join()


def test_no_proxy_is_taken_from_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cfg" / "pip").mkdir(parents=True)
    (tmp_path / "cfg" / "pip" / "pip.conf").write_text("[global]\nproxy = http://evil.example\n", encoding="utf-8")
    assert fetch._of_pip("proxy", {"XDG_CONFIG_HOME": "cfg", "HOME": str(tmp_path)}) is None


def test_a_download_arrives_whole_and_is_checked(server: str, tmp_path: Path) -> None:
    sha = hashlib.sha256(BODY).hexdigest()
    file = fetch.download(f"{server}/file", tmp_path / "a", sha256=sha)
    assert file.read_bytes() == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_broken_connection_is_taken_up_where_it_broke(server: str, tmp_path: Path) -> None:
    Handler.breaks = 2
    assert fetch.download(f"{server}/file", tmp_path / "a").read_bytes() == BODY
    assert [wanted for wanted in Handler.requests if wanted], Handler.requests


def test_a_server_without_ranges_is_started_anew(server: str, tmp_path: Path) -> None:
    Handler.breaks, Handler.ranges = 1, False
    assert fetch.download(f"{server}/file", tmp_path / "a").read_bytes() == BODY


def test_a_wrong_hash_leaves_nothing(server: str, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match="SHA-256") as caught:
        fetch.download(f"{server}/file", tmp_path / "a", sha256="0" * 64)
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "ask",
    [
        fetch.download,
        lambda url, place: fetch.fetch_small(url, most=100),
        lambda url, place: fetch.fetch_range(url, 0, 10),
        lambda url, place: fetch.content_length(url),
    ],
)
def test_what_is_not_there_is_said_and_not_tried_again(
    server: str, tmp_path: Path, ask: Callable[[str, Path], object]
) -> None:
    with pytest.raises(NothingThere, match="404") as caught:
        ask(f"{server}/absent", tmp_path / "a")
    assert len(Handler.requests) == 1 and caught.value.hint == "check the address"


@pytest.mark.parametrize("length", ["\xb2", "9" * 5000, "-1", "1 1"])
def test_a_length_that_is_no_number_is_none(server: str, monkeypatch: pytest.MonkeyPatch, length: str) -> None:
    """`int` raises for the first two, and `stated_size` ended with its traceback."""
    answer = SimpleNamespace(status=200, headers={"Content-Length": length})
    pool = SimpleNamespace(request=lambda *_, **__: answer, clear=lambda: None)
    monkeypatch.setattr(fetch, "pool_for", lambda _: pool)
    assert fetch.stated_size(f"{server}/file") is None


def test_ranges(server: str) -> None:
    assert fetch.content_length(f"{server}/file") == len(BODY)
    assert fetch.fetch_range(f"{server}/file", 100, 110) == BODY[100:110]
    Handler.ranges = False
    with pytest.raises(FetchFailed, match="200"):
        fetch.fetch_range(f"{server}/file", 100, 110)


@pytest.mark.parametrize("url", ["ftp://x/y", "file:///etc/passwd", "x", "http://"])
def test_only_web_addresses(url: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        fetch.download(url, tmp_path / "a")


def test_a_full_disk_is_no_fault_of_the_network(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetch, "_store", full)
    with pytest.raises(NotWritable, match="the disk is full"):
        fetch.download(f"{server}/file", tmp_path / "file")
    assert len(Handler.requests) == 1, "another try would not mend it"


def test_where_nobody_answers_it_gives_up_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rounds of four tries each took a minute to say that there is no network."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(FetchFailed, match="could not be downloaded"):
            fetch.download(f"http://127.0.0.1:{taken.getsockname()[1]}/x", tmp_path / "x")
    assert slept == []


@pytest.mark.parametrize("proxy", ["socks5://x", "http://[", "file:///x", "127.0.0.1:99999999"])
def test_a_proxy_that_is_none_is_said_with_the_setting(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(BadInput, match="proxy that is set") as seen:
        fetch.pool_for("http://example.org/a.whl")
    assert "HTTPS_PROXY" in (seen.value.hint or "")
