"""The corpus of real failures, which is not part of the repository, and the successful logs made on this machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from rekindle.diagnose.diagnosis import diagnose_file
from support.good_logs import good_logs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_diagnose", ROOT / "benchmarks" / "diagnose.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.corpus() is None:
        pytest.skip("UNVERIFIED: the corpus is not here; REKINDLE_CORPUS names its folder")
    return module


def test_the_right_cause_first(bench: ModuleType) -> None:
    table, confused = bench.score(bench.corpus(), lambda case: bench.labels(case.text))
    first, three, total = table["re-rendered"]
    assert first / total >= 0.95, confused
    assert three / total >= 0.98
    first, three, total = table["verbatim-file"]
    assert first / total >= 0.85, confused


def test_buried_in_other_work(bench: ModuleType) -> None:
    host = bench.Host(good_logs())
    plain, _ = bench.score(bench.corpus(), lambda case: bench.labels(case.text))
    buried, lost = bench.score(bench.corpus(), lambda case: bench.labels(host.bury(case.text, bench.hash_of(case.id))))
    for form, (first, _, total) in plain.items():
        assert (first - buried[form][0]) / total <= 0.03, lost


def test_successful_work_has_no_cause() -> None:
    logs = good_logs()
    if len(logs) < 40:
        pytest.skip(f"UNVERIFIED: only {len(logs)} successful logs could be made here")
    found = {path.name: diagnose_file(path) for path in logs}
    assert {name: answer.causes[0].label for name, answer in found.items() if answer.causes} == {}
