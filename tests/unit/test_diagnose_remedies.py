"""Logs with the remedy that people took: it is in the fix, by the words of the log, and nothing wrong for the log."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from rekindle.diagnose.diagnosis import diagnose_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DATA = Path(__file__).parents[1] / "data"


class Remedy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    label: str
    words: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


def _remedies() -> list[Remedy]:
    tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(DATA.glob("remedies-*.toml"))]
    return [remedy for table in tables for remedy in msgspec.convert(table["log"], type=tuple[Remedy, ...])]


@pytest.mark.long
@pytest.mark.parametrize("remedy", _remedies(), ids=lambda remedy: remedy.text.strip().splitlines()[-1][:60])
def test_the_accepted_remedy_is_in_the_fix_and_nothing_wrong_for_this_log(remedy: Remedy) -> None:
    found = diagnose_text(remedy.text)
    assert found.causes, found.outcome
    cause = found.causes[0]
    said = " ".join((cause.whole.text, *cause.whole.commands))
    assert cause.label == remedy.label
    assert [word for word in remedy.words if word not in said] == [], said
    assert [word for word in remedy.never if word in said] == [], said


def test_a_warning_of_nccl_in_a_run_that_goes_on_is_no_failure() -> None:
    log = "h:1:2 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\nNCCL version 2.7.3+cuda10.2\n"
    assert diagnose_text(f"{log}epoch 1 loss 0.41\nepoch 2 loss 0.33\n").causes == ()
