"""Real files, broken in a thousand ways: the readers answer or say what is wrong, quickly, and never crash.

REKINDLE_FUZZ sets how many; `.ci/full` runs a hundred thousand.
"""

from __future__ import annotations

import io
import os
import random
import sysconfig
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rekindle.core.errors import BadInput
from rekindle.formats import binary
from rekindle.formats.access import Buffer
from rekindle.formats.archive import Archive
from rekindle.formats.package import Wheel
from rekindle.wheels.closure.search_path import closure
from rekindle.wheels.inspect import identity
from rekindle.wheels.inspect.identity import read_binaries
from rekindle.wheels.inspect.integrity import record_findings
from support import pace
from support.artefacts import unverified
from support.fatbins import container

COUNT = int(os.environ.get("REKINDLE_FUZZ", "1000")) // 4
WILD = [0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF]


def broken(data: bytes, dice: random.Random) -> bytes:
    """One to eight changes: bits, wild numbers in header places, pieces cut out, repeated, or the end cut off."""
    out = bytearray(data)
    for _ in range(dice.randrange(1, 9)):
        if not out:
            return b""
        # Headers matter most, and they lie at the beginning and the end.
        near = dice.choice([64, 512, 4096, len(out)])
        at = dice.randrange(min(near, len(out))) if dice.random() < 0.7 else max(len(out) - 1 - dice.randrange(near), 0)
        kind = dice.randrange(6)
        if kind == 0:
            out[at] ^= 1 << dice.randrange(8)
        elif kind in (1, 2):
            width = dice.choice([1, 2, 4, 8])
            out[at : at + width] = (dice.choice(WILD) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        elif kind == 3:
            del out[at : at + dice.randrange(1, 200)]
        elif kind == 4:
            out[at:at] = out[at : at + dice.randrange(1, 200)]
        elif dice.random() < 0.3:
            del out[at:]
    return bytes(out)


def survives(sample: bytes, read: Callable[[bytes], object], seed: int) -> None:
    dice = random.Random(seed)
    read(sample)
    for number in range(COUNT):
        data = broken(sample, dice)
        begun = time.process_time()
        try:
            read(data)
        except BadInput as refused:
            assert refused.message and refused.hint
        assert time.process_time() - begun < pace.seconds(20), f"change {number} of seed {seed} took too long"


def read_library(data: bytes) -> None:
    found = binary.read(Buffer(data, "lib.so"), symbols=True)
    closure([found])
    identity.of_binaries([found])
    assert found.code.containers >= 0


def read_wheel(data: bytes) -> None:
    package = Wheel(Archive(Buffer(data, "x.whl")))
    binaries = read_binaries(package)
    known = identity.identify(package, binaries)
    record_findings(package)
    closure(binaries, requires=known.requires, torch=True)


def an_elf() -> bytes:
    folder = Path(sysconfig.get_path("stdlib")) / "lib-dynload"
    found = sorted(folder.glob("*.so"), key=lambda path: path.stat().st_size)
    if not found:
        unverified("this Python has no ELF extension modules")
    return found[0].read_bytes() + container("sm_50", "sm_70", "compute_70")


def a_pe() -> bytes:
    """pip and setuptools carry small Windows launchers on every system."""
    for folder in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        for pattern in ("setuptools/cli-64.exe", "pip/_vendor/distlib/t64.exe", "pip/_vendor/distlib/w64.exe"):
            path = Path(folder) / pattern
            if path.exists():
                return path.read_bytes()[:200_000]
    unverified("no small Windows program is at hand")
    return b""


def a_wheel() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("torch/version.py", "__version__ = '2.7.1+cu126'\ncuda: Optional[str] = '12.6'\n")
        archive.writestr("torch/lib/libtorch_cuda.so", an_elf())
        archive.writestr("torch/lib/raw.fatbin", container("sm_35", "sm_90a"))
        archive.writestr("torch-2.7.1.dist-info/METADATA", "Name: torch\nVersion: 2.7.1\nRequires-Dist: nvidia-x\n\nhi")
        archive.writestr("torch-2.7.1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n")
        archive.writestr("torch-2.7.1.dist-info/RECORD", "torch/version.py,sha256=x,60\n")
    return stream.getvalue()


@pytest.mark.long
def test_gpu_code() -> None:
    data = b"".join(b"\0" * 24 + container("sm_50", "sm_90a", "compute_90") for _ in range(20))
    survives(data, read_library, seed=1)


def test_elf() -> None:
    survives(an_elf(), read_library, seed=2)


def test_pe() -> None:
    survives(a_pe() + container("sm_75"), read_library, seed=3)


def test_wheel() -> None:
    survives(a_wheel(), read_wheel, seed=4)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ", b"!<arch>\n", b"PK\5\6" + bytes(18), b"\x50\xed\x55\xba"])
def test_the_beginning_and_nothing_else(data: bytes) -> None:
    found = binary.read(Buffer(data, "lib.so"), symbols=True)
    assert found.format in ("elf", "pe", "static", "fatbin", "other")
    assert not found.containers
