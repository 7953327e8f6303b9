"""A file on the web, read by ranges: the end of a wheel holds its directory, the directory says where the rest lies."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from rekindle.core import fetch
from rekindle.formats.budget import Budget

if TYPE_CHECKING:
    pass

_BLOCK = 256 << 10
_AHEAD = 8 << 20
_KEPT = 4


class Remote:
    """Asks for little where it jumps and for more where it reads on. `fetched` counts the bytes that came."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._pool = fetch.pool_for(url)
        self.name = unquote(urlsplit(url).path.rpartition("/")[2]) or url
        self.size = fetch.content_length(url, pool=self._pool)
        self.budget = Budget(self.name, self.size)
        self.fetched = 0
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._next = -1

    def read(self, offset: int, size: int) -> bytes:
        size = max(min(size, self.size - offset), 0)
        if not size or offset < 0:
            return b""
        self.budget.read(size)
        for begin, data in self._kept.items():
            if begin <= offset < begin + len(data):
                part = data[offset - begin : offset - begin + size]
                return part if len(part) == size else part + self.read(offset + len(part), size - len(part))
        begin, end = offset, offset + size
        if offset == self._next:
            end = max(end, offset + _AHEAD)
        elif end > self.size - _BLOCK:
            begin = max(min(offset, self.size - _BLOCK), 0)
            end = self.size
        else:
            end = max(end, offset + _BLOCK)
        end = min(end, self.size)
        data = fetch.fetch_range(self.url, begin, end, pool=self._pool)
        self.fetched += len(data)
        self._next = begin + len(data)
        self._kept[begin] = data
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return data[offset - begin : offset - begin + size]
