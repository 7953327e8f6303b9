"""Damaged, hostile and absurd logs: always an answer, soon, and nothing in it that a terminal would obey."""

from __future__ import annotations

import random
import time

import pytest

from rekindle.diagnose import report
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.knowledge.logs.signatures import causes
from support import pace

pytestmark = pytest.mark.long

EXAMPLES = [signature.example.encode() for row in causes() for signature in row.signature]
NASTY = (
    b"\x1b[2J",
    b"\x1b]0;owned\x07",
    b"\0",
    b"\r",
    b"\xff\xfe",
    b"\xe2\x80\xae",
    b"\x9b31m",
    b"A" * 3000,
    b"\x08" * 9,
)


def _mutated(dice: random.Random) -> bytes:
    data = bytearray(b"\n".join(dice.choices(EXAMPLES, k=dice.randrange(1, 6))))
    for _ in range(dice.randrange(1, 30)):
        at = dice.randrange(len(data) + 1)
        what = dice.randrange(4)
        if what == 0 and data:
            data[at % len(data)] = dice.randrange(256)
        elif what == 1:
            del data[at : at + dice.randrange(40)]
        elif what == 2:
            data[at:at] = dice.choice(NASTY)
        else:
            data[at:at] = data[at : at + dice.randrange(100)] * dice.randrange(8)
    return bytes(data)


def test_mutated_logs() -> None:
    dice = random.Random(20261115)
    for _ in range(150):
        text = report.text(diagnose_text(_mutated(dice)))
        assert not {
            letter for letter in text if (ord(letter) < 32 and letter not in "\n\t") or 127 <= ord(letter) < 160
        }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"\0" * 5000,
        b"error: " * 200_000,
        b"(" * 100_000,
        b"\n" * 100_000,
        b"File \"" + b"a/" * 60_000 + b"\", line 1\nerror: x\n",
        ("error: " + "é" * 50_000).encode("utf-16"),
        b"\x1b[" + b"1;" * 50_000 + b"m error: x",
        b"a.cpp:1:1: error: x\n" * 20_000,
    ],
    ids=range(10),
)  # fmt: skip
def test_absurd_logs_cost_seconds_at_most(data: bytes) -> None:
    start = time.process_time()
    diagnose_text(data)
    assert time.process_time() - start < pace.seconds(20)
