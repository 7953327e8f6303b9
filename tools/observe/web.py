"""Pages and ranges of files on the web, as the scripts here read them; kept on a tape and played back from it.

A tape is a folder with the very bytes that came: a page whole, a file as the ranges that were asked for. A script that
runs again from a tape needs no network, and a changed byte on the tape changes what it finds.
"""

from __future__ import annotations

import hashlib
import html.parser
import os
from pathlib import Path
from urllib.parse import urljoin

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from pip._internal.models.index import PyPI

from rekindle.core import fetch
from rekindle.formats.access import Bytes
from rekindle.formats.archive import Archive
from rekindle.formats.budget import Budget
from rekindle.formats.package import Package, Wheel
from rekindle.formats.remote import Remote

TAPE = "REKINDLE_OBSERVE_TAPE"
INDEX = "REKINDLE_OBSERVE_INDEX"


def tape() -> Path | None:
    """Where pages and ranges are kept, and looked for first."""
    return Path(os.environ[TAPE]) if os.environ.get(TAPE) else None


def index_url() -> str:
    """The package index: pip's own unless a local one is named."""
    return os.environ.get(INDEX) or PyPI.simple_url


def reach(url: str) -> None:
    """Stop where nothing may be fetched: what is not on the tape was not read."""
    if os.environ.get("REKINDLE_OBSERVE_OFFLINE"):
        raise SystemExit(
            f"{url.rpartition('/')[2] or url.rstrip('/').rpartition('/')[2]} is not on the tape (--offline)"
        )


def page(url: str) -> bytes:
    kept = _place(url, "page")
    if kept is not None and kept.exists():
        return kept.read_bytes()
    reach(url)
    answer = fetch.pool_for(url).request("GET", url)
    if answer.status != 200:
        raise SystemExit(f"{url}: the server answered {answer.status}")
    data: bytes = answer.data
    if kept is not None:
        kept.write_bytes(data)
    return data


def archive(url: str) -> Archive:
    """A wheel, read by ranges."""
    if tape() is None:
        reach(url)
    return Archive(Taped(url) if tape() else Remote(url), headers=False)


def opened(url: str) -> Package:
    """The same as a package, whose libraries can be read: a library is read from end to end, in large pieces."""
    if tape() is None:
        reach(url)
    return Wheel(Archive(Ahead(Taped(url) if tape() else Remote(url)), headers=False))


def wheels(package: str) -> list[tuple[str, str, bool]]:
    """File name, address and whether it was withdrawn, of each wheel of a package."""
    address = f"{index_url()}/{package}/"
    reader = Links()
    reader.feed(page(address).decode("utf-8"))
    found = [(href.rpartition("/")[2].replace("%2B", "+"), urljoin(address, href), bad) for href, bad in reader.found]
    return [one for one in found if _is_wheel(one[0])]


class Ahead:
    """Asks for more than it is asked for once the reads follow each other: a request costs more than its bytes."""

    PIECE = 16 << 20

    def __init__(self, source: Bytes) -> None:
        self.name, self.size, self.budget = source.name, source.size, source.budget
        self._source = source
        self._at, self._held, self._next = 0, b"", -1

    def read(self, offset: int, size: int) -> bytes:
        begin = offset - self._at
        if not (begin >= 0 and begin + size <= len(self._held)):
            asked = max(size, min(self.PIECE, self.size - offset)) if offset == self._next else size
            self._at, self._held, begin = offset, self._source.read(offset, asked), 0
        self._next = offset + size
        return self._held[begin : begin + size]


class Taped:
    """Ranges of a file on the web: from the tape where it has them, else fetched and kept there.

    The bytes lie one after the other in a file, just as they came; where each range begins is in a list next to it.
    """

    def __init__(self, url: str) -> None:
        self.url, self.name = url, url.rpartition("/")[2]
        place, listed = _place(url, "ranges"), _place(url, "list")
        assert place is not None and listed is not None
        self._place, self._listed = place, listed
        self._remote: Remote | None = None
        known = [tuple(map(int, line.split())) for line in _lines(listed)]
        self.size: int = known[0][0] if known else self._source().size
        self.budget = Budget(self.name, self.size)
        self._begins = {(offset, size): begin for offset, size, begin in known[1:]}
        if not known:
            listed.write_text(f"{self.size}\n", encoding="ascii")

    def read(self, offset: int, size: int) -> bytes:
        begin = self._begins.get((offset, size))
        if begin is None:
            return self._keep(offset, size, self._source().read(offset, size))
        with self._place.open("rb") as stream:
            stream.seek(begin)
            return stream.read(size)

    def _keep(self, offset: int, size: int, data: bytes) -> bytes:
        if len(data) != size:  # past the end of the file: nothing to find again
            return data
        with self._place.open("ab") as stream:
            begin = stream.tell()
            stream.write(data)
        with self._listed.open("a", encoding="ascii") as lines:
            lines.write(f"{offset} {size} {begin}\n")
        self._begins[offset, size] = begin
        return data

    def _source(self) -> Remote:
        if self._remote is None:
            reach(self.url)
            self._remote = Remote(self.url)
        return self._remote


def _lines(place: Path) -> list[str]:
    """Whole lines only: a run that was broken off may have left half of one."""
    text = place.read_text(encoding="ascii") if place.exists() else ""
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


class Links(html.parser.HTMLParser):
    """The addresses on an index page, and whether each was yanked."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "a" and named.get("href"):
            self.found.append((str(named["href"]).partition("#")[0], "data-yanked" in named))


def _is_wheel(name: str) -> bool:
    try:
        parse_wheel_filename(name)
    except InvalidWheelFilename:
        return False
    return True


def _place(url: str, kind: str) -> Path | None:
    folder = tape()
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{hashlib.sha256(url.encode()).hexdigest()[:20]}.{kind}"
