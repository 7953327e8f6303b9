"""GPU code found in the bytes of a file."""

from __future__ import annotations

import random
import struct

import pytest

from rekindle.core.errors import BadInput
from rekindle.formats import fatbin
from rekindle.formats.access import File
from support.fatbins import container, entry


def targets(data: bytes) -> list[list[str]]:
    return [[str(target) for target in found.targets] for found in fatbin.scan(data)]


def test_cubins_ptx_and_suffixes_are_told_apart() -> None:
    data = b"junk" * 9 + container("sm_35", "compute_86", "sm_90a", "sm_100f", "sm_120")
    assert targets(data) == [["sm_35", "compute_86", "sm_90a", "sm_100f", "sm_120"]]


def test_containers_follow_each_other_with_padding_between() -> None:
    data = container("sm_50", "sm_70") + b"\0" * 8 + container("sm_75") + b"tail"
    assert targets(data) == [["sm_50", "sm_70"], ["sm_75"]]
    assert [found.offset for found in fatbin.scan(data)] == [0, len(container("sm_50", "sm_70")) + 8]


def test_ptx_says_its_isa_and_compression_is_seen() -> None:
    data = container(entry("compute_80", isa=78, flags=0x8000), entry("sm_80", flags=0x2000), entry("sm_86"))
    first, second, third = fatbin.scan(data)[0].entries
    assert str(first.ptx_isa) == "7.8"
    assert (first.compressed, second.compressed, third.compressed) == (True, True, False)


def test_lto_code_is_listed_but_does_not_count_as_code_that_runs() -> None:
    found = fatbin.scan(container(entry("sm_80", kind=8), entry("sm_75")))[0]
    assert [e.kind for e in found.entries] == [8, 2]
    assert [str(t) for t in found.targets] == ["sm_75"]
    code = fatbin.gpu_code("x.so", [found])
    assert code.targets == {"sm_75": 1} and code.sizes == {"sm_75": found.entries[1].size}


def test_the_magic_as_a_constant_in_code_is_no_container() -> None:
    constant = fatbin.MAGIC + b"\x01\x00\x10\x00" + struct.pack("<Q", 4096) + b"\xcc" * 6000
    assert targets(constant + container("sm_60")) == [["sm_60"]]
    assert targets(fatbin.MAGIC * 5) == []


def test_a_container_cut_short_keeps_what_can_be_read_and_says_so() -> None:
    whole = container("sm_50", "sm_60")
    damaged = bytearray(whole + container("sm_70"))
    damaged[16 + 128 : 16 + 130] = b"\xff\xff"  # the kind of the second entry
    found = fatbin.scan(bytes(damaged))
    assert [(c.whole, [str(t) for t in c.targets]) for c in found] == [(False, ["sm_50"]), (True, ["sm_70"])]


def test_a_container_that_claims_more_than_the_file_holds_is_not_believed() -> None:
    assert targets(container("sm_50", "sm_60")[:-1]) == []


@pytest.mark.parametrize("step", [1, 7, 64, 1000, 1 << 20])
def test_in_pieces_of_any_size_the_same_is_found(step: int) -> None:
    dice = random.Random(step)
    data = b"".join(
        bytes(dice.randrange(256) for _ in range(dice.randrange(300)))
        + container(*dice.sample(["sm_35", "sm_50", "sm_90a", "compute_90", "sm_120"], dice.randrange(1, 5)))
        for _ in range(20)
    )
    pieces = (data[at : at + step] for at in range(0, len(data), step))
    assert fatbin.scan_stream(pieces, len(data)) == fatbin.scan(data)
    assert len(fatbin.scan(data)) == 20


def test_a_file_on_disk_reads_like_a_buffer(tmp_path: object) -> None:
    from pathlib import Path

    data = (
        b"\1" * 5000 + container("sm_50", entry("sm_60", payload=b"x" * 100_000)) + b"\2" * 70_000 + container("sm_70")
    )
    path = Path(str(tmp_path)) / "lib.so"
    path.write_bytes(data)
    with File(path) as file:
        assert fatbin.scan(file) == fatbin.scan(data)
    assert targets(data) == [["sm_50", "sm_60"], ["sm_70"]]


def test_a_file_of_nothing_but_headers_is_refused_in_bounded_time() -> None:
    with pytest.raises(BadInput):
        fatbin.scan(fatbin.MAGIC * 1_500_000)
