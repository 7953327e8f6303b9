"""A small file never takes more than a second and 100 MB to read: each of these did."""

from __future__ import annotations

import io
import os
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rekindle.core.errors import BadInput
from rekindle.formats import binary, elf, fatbin
from rekindle.formats.access import Buffer, File
from rekindle.formats.archive import Archive
from rekindle.formats.package import Wheel
from support import fatbins, pace
from tools.hostile.elf import Recipe, build

pytestmark = pytest.mark.long


def within_budget(read: Callable[[], object], size: int) -> None:
    """Processor time and memory, as promised: 1 s + 1 s per 10 MB, 100 MB + 4 times the file."""
    begun = time.process_time()
    _refused_or_read(read)
    assert time.process_time() - begun < pace.seconds(1 + size / 10e6)
    # Counting memory makes everything several times as slow, so it is done apart.
    tracemalloc.start()
    try:
        _refused_or_read(read)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100e6 + 4 * size


def _refused_or_read(read: Callable[[], object]) -> None:
    try:
        read()
    except BadInput as refused:
        assert refused.hint


def zipped(data: bytes, name: str = "demo/lib.so") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return stream.getvalue()


ATTACKS = {
    "4096 x 4096 version needs": Recipe(needs=4096, versions=4096, need_step=16, version_step=16),
    "65,000 needs before the string table": Recipe(needed=65_000, strings_last=True),
    "65,000 needs with long names": Recipe(
        needed=65_000, strings=b"\0" + b"l" * 8000 + b"\0", name_at=tuple(range(1, 4000))
    ),
    "section names that overlap": Recipe(
        sections=65_000, section_names=b"\0" + b"n" * (1 << 20), section_name_at=tuple(range(1, 65_000))
    ),
    "symbols over one long name": Recipe(
        symbols=100_000, strings=b"\0" + b"s" * 200_000 + b"\0", symbol_names=tuple(range(1, 100_000))
    ),
    "segments that cover everything": Recipe(segments=60_000, segment_size=15 << 20, padding=30 << 20),
    "a hash table that claims millions": Recipe(gnu_buckets=1 << 24),
    "a hash table of a million symbols": Recipe(hash_says=1_100_000, padding=26 << 20),
    "source names that overlap": Recipe(
        symtab=True, symbols=50_000, strings=b"\0" + b"u" * 300_000, symbol_names=tuple(range(1, 50_000))
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_library_that_multiplies(attack: str) -> None:
    data = build(ATTACKS[attack])

    def read() -> None:
        source = Buffer(data, "lib.so")
        binary.read(source, symbols=True, units=True)
        elf.sections(source)
        elf.units(source)

    within_budget(read, len(data))


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_same_inside_a_wheel(attack: str) -> None:
    data = zipped(build(ATTACKS[attack]))

    def read() -> None:
        package = Wheel(Archive(Buffer(data, "demo.whl")))
        for name in package.files:
            package.binary(name, symbols=True)

    within_budget(read, len(data))


@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="this system does not say where nothing was written")
def test_nothing_that_was_never_written_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of 200 GB that takes 8 KB on the disk was searched from end to end, thirty of them for an hour."""
    path = tmp_path / "a.so"
    with path.open("wb") as stream:
        stream.write(b"\x7fELF\x02\x01\x01" + bytes(5000))
        stream.seek(1 << 31)
        stream.write(fatbins.container("sm_35"))
        stream.truncate(1 << 32)
    if path.stat().st_blocks * 512 > 1 << 24:
        pytest.skip("UNVERIFIED: this file system writes holes out")
    count, whole = 0, File.read

    def read(file: File, offset: int, size: int) -> bytes:
        nonlocal count
        count += size
        return whole(file, offset, size)

    monkeypatch.setattr(File, "read", read)
    with File(path) as file:
        (container,) = fatbin.scan(file)
    assert container.offset == 1 << 31 and count < 1 << 25
