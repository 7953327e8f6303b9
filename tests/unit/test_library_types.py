"""The documented calls type-check, strictly, and every answer says what `--json` prints."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from rekindle import Diagnosis, DoctorReport, Verdict, diagnose, doctor, gpu, plan, review
from support.artefacts import unverified
from support.command import rekindle_command

pytestmark = pytest.mark.long

USE = """
from pathlib import Path

import rekindle
from rekindle import Audit, CardAnswer, Diagnoses, Diagnosis, DoctorReport, Inspection, Review, Verdict
from rekindle import RekindleError, audit, diagnose, doctor, gpu, inspect, needs, plan, review

verdict: Verdict = plan(gpus=["GTX 1080 Ti"], os="windows", python="3.11")
card: CardAnswer = gpu("Tesla K40c")
inspection: Inspection = inspect("torch.whl", gpus=["sm_61"])
found: Diagnosis | Diagnoses = diagnose(Path("build.log"))
report: DoctorReport = doctor()
audited: Audit = audit(Path(".venv"), gpus=["sm_61"])
reviewed: Review = review([Path("build.sh")])
message: str | None = needs(["sm_90"], (9, 0))
texts: list[str] = [each.to_json() for each in (verdict, card, inspection, found, report, audited, reviewed)]
try:
    rekindle.plan(gpus=["x"])
except RekindleError as error:
    print(error.message, error.hint, "\\n".join(verdict.recommended.commands))
"""


def test_every_documented_call_type_checks(tmp_path: Path) -> None:
    """`diagnose`, `doctor`, `audit` and `review` were modules to a type checker."""
    if find_spec("mypy") is None:
        unverified("mypy is not installed")
    program = tmp_path / "use.py"
    program.write_text(USE, encoding="utf-8")
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout


def test_an_answer_is_its_json(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text("nvcc fatal   : Unsupported gpu architecture 'compute_35'\n", encoding="utf-8")
    script = tmp_path / "build.sh"
    script.write_text("pip install torch==2.7.1\n", encoding="utf-8")
    machine = Path(__file__).parents[1] / "machines" / "k40c-windows.json"
    asked = {
        ("plan", "--gpu", "GTX 1080 Ti", "--os", "windows"): plan(gpus=["GTX 1080 Ti"], os="windows"),
        ("gpu", "Tesla K40c"): gpu("Tesla K40c"),
        ("diagnose", str(log)): diagnose(log),
        ("doctor", "--machine", str(machine)): doctor(machine),
        ("review", str(script)): review([script]),
    }
    for words, answer in asked.items():
        assert json.loads(answer.to_json()) == json.loads(rekindle_command(*words, "--json").out), words
    kinds = {type(each) for each in asked.values()}
    assert {Verdict, Diagnosis, DoctorReport} <= kinds
