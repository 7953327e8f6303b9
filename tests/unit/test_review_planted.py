"""Whole scripts with planted faults, every class in several dresses: what is found, and nothing beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rekindle.core.findings import State
from rekindle.knowledge.gpu.gpus import capabilities_of
from rekindle.review.document import load
from rekindle.review.question import Asked
from rekindle.review.remark import Remark
from rekindle.review.review import review_script

DATA = Path(__file__).parents[1] / "data" / "review"
LISTS = sorted(DATA.glob("planted*/*.faults.json"))
# A variable in a message only: nothing depends on it.
MISSED = {("p12.bat", 22)}


def _remarks(path: Path, known: dict[str, Any]) -> list[Remark]:
    answer = review_script(load(path.with_name(known["script"])), Asked(gpus=capabilities_of((known["gpu"],))))
    return [remark for remark in answer.remarks if remark.state is not State.PASS]


def _says(remark: Remark, fault: dict[str, Any]) -> bool:
    lines = {fault["line"], *fault.get("also_lines", ())}
    text = f"{remark.found} {remark.why} {remark.text}"
    return remark.line in lines and any(re.search(word, text) for word in fault["words"])


@pytest.mark.parametrize("path", LISTS, ids=[path.name.removesuffix(".faults.json") for path in LISTS])
def test_every_planted_fault_is_found_and_nothing_else_is_wrong(path: Path) -> None:
    known = json.loads(path.read_text(encoding="utf-8"))
    remarks = _remarks(path, known)
    missed = [
        fault["what"]
        for fault in known["faults"]
        if not any(_says(remark, fault) for remark in remarks) and (known["script"], fault["line"]) not in MISSED
    ]
    assert not missed
    extra = [
        f"{remark.line}: {remark.id}"
        for remark in remarks
        if remark.state is State.FAIL
        and remark.line not in known.get("allowed_lines", ())
        and not any(_says(remark, fault) for fault in known["faults"])
    ]
    assert not extra
