"""A few files of each kind that `python -m tools.hostile` makes by the ten thousand, and faults that it found."""

from __future__ import annotations

import contextlib
import random

import pytest

from rekindle.build.configure import cmake_result
from rekindle.core import codec
from rekindle.core.errors import RekindleError
from rekindle.core.untrusted import Sha256
from rekindle.formats import binary
from rekindle.formats.access import Buffer
from rekindle.wheels.closure.search_path import closure
from tools.hostile import elf, handed
from tools.hostile.readers import READERS

# What takes long to make, to read or, with a git to compare with, to start.
FEW = dict.fromkeys(list(READERS)[: list(READERS).index("install record")], 4)
FEW |= dict.fromkeys(("git configuration", "packed log", "list of a shelf", "install record", "bundle of tables"), 50)


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_every_reader_answers_or_says_what_is_wrong(name: str) -> None:
    """Behind the door, too: a generator whose files are all refused tests nothing there."""
    read = 0
    for number in range(FEW.get(name, 200)):
        data = READERS[name].make(random.Random(f"{name} 0 {number}"))
        try:
            READERS[name].read(data)
            read += 1
        except RekindleError as refused:
            assert refused.message
            assert refused.hint
    assert read or FEW.get(name) == 4


def test_a_star_that_a_library_asks_for_is_a_name_and_no_pattern() -> None:
    strange = elf.Recipe(needed=1, strings=b"\0*\0libasking.so\0", name_at=(1, 3), needs=0, symbols=0)
    asking = binary.read(Buffer(elf.build(strange), "torch/lib/libasking.so"), symbols=True)
    other = binary.read(Buffer(elf.build(elf.Recipe(needed=0, needs=0)), "torch/lib/libother.so"), symbols=True)
    links = closure([asking, other], torch=True)
    assert links is not None
    assert [missing.library for missing in links.missing] == ["*"]


def test_a_library_that_asks_for_the_same_one_many_times() -> None:
    many = elf.Recipe(needed=60_000, strings=b"\0libnowhere.so\0", name_at=(1,), needs=0, symbols=0)
    links = closure([binary.read(Buffer(elf.build(many), "lib.so"))])
    assert links is not None
    assert [missing.library for missing in links.missing] == ["libnowhere.so"]


@pytest.mark.parametrize("code", ["lto_90", "sm_35nvcc", "sm_99999999", "x", "[]"])
def test_a_flag_that_names_no_code_for_a_card(code: str) -> None:
    line = f"build a.o: CUDA_COMPILER__x a.cu\n  FLAGS = -gencode arch=compute_50,code={code}\n"
    assert cmake_result.parse_ninja(line) == (((),), 1)


def test_the_generator_finds_a_hole_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of a fleet's job was any text once."""
    monkeypatch.setattr(Sha256, "__new__", str.__new__)
    reader = READERS["plan of a fleet"]
    try:
        with pytest.raises(handed.Leak):
            for number in range(4000):
                with contextlib.suppress(RekindleError, ValueError, OSError):
                    reader.read(reader.make(random.Random(f"plan of a fleet 0 {number}")))
    finally:
        codec._parsed.cache_clear()  # it remembers what passed through the hole, for every test after this one
