"""Rekindle as a library gives what the command line prints."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import rekindle
from rekindle.core import codec
from rekindle.knowledge.gpu import gpus
from support.command import rekindle_command

MACHINES = Path(__file__).parents[1] / "machines"


@pytest.mark.long
def test_the_same_json_as_the_command_line() -> None:
    draw = random.Random(20261115)
    names = sorted({gpu.name for gpu in gpus.gpus() if gpu.capability.major >= 3})
    for _ in range(12):
        name, system = draw.choice(names), draw.choice(["windows", "linux"])
        seen = rekindle_command("plan", "--gpu", name, "--os", system, "--json")
        assert json.loads(seen.out) == json.loads(codec.to_json(rekindle.plan(gpus=[name], os=system))), name


def test_a_function_keeps_its_name_after_its_room_was_imported(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text("nvcc fatal   : Unsupported gpu architecture 'compute_35'\n", encoding="utf-8")
    from rekindle import diagnose

    assert diagnose(log).causes[0].label == "cuda_arch_unsupported_by_nvcc"
    from rekindle import diagnose as again

    assert again is diagnose
    assert rekindle.doctor(MACHINES / "k40c-windows.json").machine.gpus[0].name == "Tesla K40c"


def test_importing_touches_nothing() -> None:
    code = "import sys, rekindle; print(sorted(m for m in sys.modules if m.startswith('rekindle') or m == 'msgspec'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['rekindle']"


def test_an_application_asks_at_its_start() -> None:
    assert rekindle.needs(["sm_50", "sm_61"], (6, 1)) is None
    assert rekindle.needs(["compute_50"], (12, 0)) is None
    said = rekindle.needs(["sm_75", "sm_80", "sm_90"], (6, 1), os="windows")
    assert said and "sm_61" in said and "pip install torch==" in said


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = rekindle.nothing_here


def test_numbers_and_texts_are_taken_as_people_write_them(tmp_path: Path) -> None:
    """Each of these ended in a TypeError of somebody else's words."""
    assert rekindle.plan(gpus=[6.1], os="linux", driver=580, cuda=12.6, torch=2.6).recommended.torch == "2.6.0"
    assert rekindle.plan(gpus="T4", os="linux", needs="compile").recommended.torch
    beside = rekindle.plan(gpus="RTX 3090", os="windows", extensions="flash-attn").recommended
    assert "flash_attn" in str(beside.commands[-1])
    machine = str(Path(__file__).parents[1] / "machines" / "k40c-windows.json")
    assert rekindle.doctor(machine).schema and rekindle.plan(machine=machine).recommended
    (tmp_path / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    (tmp_path / "pyvenv.cfg").write_text("version = 3.12.4\n", encoding="utf-8")
    assert rekindle.audit(str(tmp_path), gpus="K80", driver=550).findings
    script = tmp_path / "i.sh"
    script.write_text("pip install torch==2.7.1\n", encoding="utf-8")
    assert rekindle.review(str(script), gpus=6.1, python=3.11, torch=2.7, driver=580).scripts
    with pytest.raises(rekindle.RekindleError, match="get_arch_list"):
        rekindle.needs(["banana"], (6, 1))
