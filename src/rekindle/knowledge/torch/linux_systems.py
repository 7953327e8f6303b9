"""Linux systems by the names people give them, with the C library that decides which wheels load."""

from __future__ import annotations

import re

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, decided


class LinuxSystem(Row, frozen=True, kw_only=True):
    id: str
    names: tuple[str, ...]
    glibc: dict[str, Version] = msgspec.field(default_factory=dict)
    """By release: `{"22.04": 2.35}`."""
    libc: str = "glibc"


@cached
def linux_systems() -> tuple[LinuxSystem, ...]:
    return decided("linux_systems", dict[str, tuple[LinuxSystem, ...]])["system"]


def find(text: str) -> tuple[LinuxSystem, Version | None] | None:
    """The system of `Ubuntu 22.04`, `centos7` or `rhel8.6`, and its glibc where the release is known."""
    match = re.fullmatch(r"([a-z!-]+?)[ _-]?(?:linux)?[ _-]?v?(\d[\d.]*)?(?: lts)?", text.strip().lower())
    row = next((row for row in linux_systems() if match and match[1].replace("!", "") in row.names), None)
    if match is None or row is None:
        return None
    release = match[2] or ""
    known = next((row.glibc[each] for each in (release, release.partition(".")[0]) if each in row.glibc), None)
    return row, known
