"""Built on a machine without a card, checked on one that announces it. Real processes, real nvcc, no real card."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

import pytest

from rekindle.core.findings import State
from rekindle.fleet.state import FleetState, status_of
from rekindle.wheels.shelf import shelf as shelves
from support.artefacts import unverified
from support.cuda import machine, project
from support.fleets import Fleet, events

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the card is announced by a shell script")
SMI = """#!/bin/sh
case "$*" in
*query-gpu*) echo "Tesla T4, 00000000:3B:00.0, 0x1EB810DE, 15360, 580.95.05, 7.5" ;;
*)
  echo "| NVIDIA-SMI 580.95.05    Driver Version: 580.95.05    CUDA Version: 13.0 |"
  echo "|   0  Tesla T4                       Off |   00000000:3B:00.0 Off |                    0 |"
  ;;
esac
"""


@pytest.mark.long
def test_the_check_goes_to_the_machine_with_the_card(tmp_path: Path) -> None:
    if not any(kit.nvcc and kit.version and str(kit.version.major_minor) == "13.0" for kit in machine().toolkits):
        unverified("no CUDA 13.0 here")
    shutil.copytree(project("spark"), tmp_path / "spark")
    cmake = tmp_path / "spark" / "CMakeLists.txt"
    text = cmake.read_text(encoding="utf-8").replace("alpha beta gamma delta", "alpha").replace("red green blue", "red")
    cmake.write_text(text, encoding="utf-8")
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(
        f'project = "spark"\ncuda = "13.0"\ngpu = ["7.5", "9.0"]\narch = "{os.uname().machine}"\n'
        '[projects.spark]\nbuild = "spark/build.toml"\nminutes = 1\ndisk_gb = 0.1\nmemory_gb = 2\n',
        encoding="utf-8",
    )
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(SMI, encoding="utf-8")
    (programs / "nvidia-smi").chmod(0o755)
    fleet = Fleet(tmp_path)
    with contextlib.ExitStack() as stack:
        stack.callback(fleet.close)
        fleet.scheduler()
        fleet.worker("builder", "--slots", "1", "--memory", "4")
        fleet.worker("carded", "--slots", "1", "--memory", "1", PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")
        code = fleet.client("run", matrix, "--patience", "120").wait(1500)
    assert code == 0, (tmp_path / "client.txt").read_text(encoding="utf-8")
    said = [(each.event, each.name, each.worker) for each in events(matrix) if each.event in ("begin", "check")]
    turing, hopper = (f"spark-cu130-{card}-linux-{os.uname().machine}" for card in ("sm75", "sm90"))
    assert sorted(said) == [("begin", turing, "builder"), ("begin", hopper, "builder"), ("check", turing, "carded")]
    status = status_of(FleetState(matrix.with_suffix(".fleet")), running=False)
    found = {job.name: job.check for job in status.jobs}
    # What is announced is not there: nothing could be run on it, and that is said.
    there, nowhere = found[turing], found[hopper]
    assert there and there.state is State.UNVERIFIED and there.worker == "carded"
    assert "nothing could be run on it" in there.reason
    assert nowhere and nowhere.state is State.UNVERIFIED and nowhere.worker is None
    assert nowhere.reason.startswith("no machine of the fleet has a card of sm_90; run `rekindle verify ")
    assert all(entry.signed_by for entry in shelves.entries(tmp_path / "shelf"))
