"""The compile cache that a fleet shares: what one machine compiled, another takes from a real Redis."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from rekindle.fleet import planning
from support.artefacts import unverified
from support.command import rekindle_command
from support.fleets import pebble, redis


def compile_seconds(work: Path) -> tuple[float, int]:
    """The seconds of the compile step, and how many compiles the cache served, as the build's own journal says."""
    (journal,) = work.glob("jobs/*/w/journal.jsonl")
    entries = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    (answer,) = work.glob("jobs/*/answer.json")
    hits = json.loads(answer.read_text(encoding="utf-8"))["cache"]["hits"]
    return next(each["seconds"] for each in entries if each["event"] == "done" and each["step"] == "compile"), hits


@pytest.mark.long
def test_a_second_machine_takes_from_redis_what_the_first_compiled(tmp_path: Path) -> None:
    if shutil.which("ccache") is None:
        unverified("ccache is not installed")
    lines = pebble(tmp_path, "pebble", files=4, header="regex")
    part = tmp_path / "pebble" / "part.cpp.in"
    heavy = '#include <regex>\n#include <string>\nextern "C" int use_@number@(const char* s) {\n'
    heavy += '  return std::regex_search(std::string(s), std::regex("a+b@number@"));\n}\n'
    part.write_text(heavy, encoding="utf-8")
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(f'project = "pebble"\ncuda = "cpu"\narch = "{os.uname().machine}"\n{lines}', encoding="utf-8")
    key = str(planning.make(matrix).plan.jobs[0].key)
    found = []
    with redis(tmp_path) as (address, _, _):
        for machine in ("one", "two"):
            words = ["fleet", "job", str(matrix), key, "--shelf", str(tmp_path / f"shelf-{machine}")]
            seen = rekindle_command(*words, "--work", str(tmp_path / machine), "--cache", address)
            assert seen.code == 0, seen.err
            found.append(compile_seconds(tmp_path / machine))
    (cold, none), (warm, all_) = found
    print(f"cold {cold:.1f} s, warm {warm:.1f} s, {cold / warm:.1f} x")
    assert (none, all_) == (0, 4)
    assert cold / warm >= 5
    sums = {path.read_bytes() for path in tmp_path.glob("shelf-*/wheels/*.whl")}
    assert len(sums) == 1, "the same wheel, compiled or taken from the cache"
