"""`verify --share`: what the owner of a card sends, and the rows that come of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rekindle.core import codec
from rekindle.core.errors import BadInput, UsageError
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.knowledge import tables
from rekindle.knowledge.torch.torch_wheels import describe, field_reports
from rekindle.model.card import Capability
from rekindle.wheels.verify import signed_report
from rekindle.wheels.verify.verify import NumberedCheck, SeenCard, Verification
from tools.observe import field_reports as tool

WHEEL = "torch-1.13.1+cu118.sm35-cp311-cp311-linux_x86_64.whl"


def verification(**more: object) -> Verification:
    known: dict[str, object] = {
        "subject": WHEEL,
        "kind": "wheel",
        "sha256": "a" * 64,
        "project": "torch",
        "torch": "1.13.1+cu118.sm35",
        "cuda": Version("11.8"),
        "cards": (SeenCard(index=0, name="Tesla K40c", capability=Capability(3, 5)),),
        "checks": (
            NumberedCheck(id="install", number=6, state=State.PASS, found="installed in /home/ada/env"),
            NumberedCheck(id="launch", number=14, state=State.PASS, found="fine", card="0: Tesla K40c"),
            NumberedCheck(id="fft", number=22, state=State.FAIL, found="wrong in /home/ada/x.py", card="0: Tesla K40c"),
        ),
        "state": State.FAIL,
    }
    return Verification(**{**known, **more})  # type: ignore[arg-type]


def report(**more: object) -> signed_report.FieldReport:
    return signed_report.field_report(verification(**more), driver=Version("470.256.02"), made_at="2026-11-20")


def test_what_travels_has_hashes_and_no_names() -> None:
    text = codec.to_json(report())
    assert "ada" not in text
    assert "/env" not in text
    known = json.loads(text)
    assert known["wheel_sha256"] == "a" * 64
    assert len(known["report_sha256"]) == 64
    assert known["cards"] == [{"name": "Tesla K40c", "capability": "3.5"}]
    assert [(check["id"], check["state"]) for check in known["checks"]][-1] == ("fft", "FAIL")
    assert len(text) < 16 << 10


@pytest.mark.parametrize(
    "more",
    [{"kind": "environment", "sha256": None}, {"project": "torchvision"}, {"checks": ()}],
    ids=["environment", "not torch", "no card"],
)
def test_only_a_torch_wheel_that_ran_on_a_card_is_shared(more: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        report(**more)


def test_a_report_becomes_field_evidence_that_plan_shows(tmp_path: Path) -> None:
    path = tmp_path / "k40c.json"
    path.write_text(codec.to_json(report()), encoding="utf-8")
    rows = tool.rows_of(tool.read_share(path), "https://example.org/issues/1")
    assert [(row["card"], row["passed"], row["failed"], row["state"]) for row in rows] == [
        ("Tesla K40c", 1, ["fft"], "FAIL")
    ]
    overlay = tmp_path / "knowledge"
    overlay.mkdir()
    (overlay / "field_reports.json").write_text(json.dumps({"reports": rows}), encoding="utf-8")
    assert field_reports("1.13.1", {Capability(3, 5)}, "linux") == ()
    tables.use_overlay(overlay)
    try:
        (row,) = field_reports("1.13.1", {Capability(3, 5)}, rows[0]["system"])
        assert field_reports("2.0.0", {Capability(3, 5)}, rows[0]["system"]) == ()
        assert row.evidence is tables.Evidence.FIELD
        assert "Tesla K40c with driver 470.256.02: 1 checks passed, failed: fft" in describe(row)
    finally:
        tables.use_overlay(None)


def test_the_same_report_is_one_row() -> None:
    rows = tool.rows_of(report(), "https://example.org/1")
    assert tool.merged(rows, rows) == rows


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"schema": "rekindle.verify/1"}', "x" * (300 << 10)],
    ids=["empty", "nothing", "another schema", "too large"],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sent.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput):
        tool.read_share(path)


def test_a_report_with_a_made_up_hash_is_refused(tmp_path: Path) -> None:
    known = json.loads(codec.to_json(report()))
    path = tmp_path / "sent.json"
    path.write_text(json.dumps({**known, "wheel_sha256": "../x"}), encoding="utf-8")
    with pytest.raises(BadInput, match="wheel_sha256"):
        tool.read_share(path)
