"""The script of a small project, run by bash with the real nvcc: killed in the middle, run again, and a wheel."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import psutil
import pytest

from rekindle.formats import fatbin
from support.command import rekindle_command
from support.cuda import kepler_toolkit, project
from support.pace import seconds

if os.name == "nt":
    pytest.skip("UNVERIFIED: bash is of POSIX; tests/windows runs build.cmd", allow_module_level=True)


def test_a_script_builds_with_the_real_nvcc_is_killed_and_goes_on(tmp_path: Path) -> None:
    shutil.copytree(project("spark"), tmp_path / "spark")
    plan = tmp_path / "spark" / "build.toml"
    cuda = str(kepler_toolkit().version)
    plan.write_text(plan.read_text(encoding="utf-8").replace('"11.8"', f'"{cuda}"'), encoding="utf-8")
    script, work = tmp_path / "build.sh", tmp_path / "w"
    seen = rekindle_command("build", str(plan), "--script", str(script), "--work", str(work), "--jobs", "1")
    assert seen.code == 0, seen.err

    # Nothing of Rekindle is in its environment.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REKINDLE"))}
    first = subprocess.Popen([script], env=env, stdout=subprocess.DEVNULL, start_new_session=True)
    log = work / "logs" / "compile.log"
    limit = time.monotonic() + seconds(300)
    while not (log.exists() and "[3/" in log.read_text(encoding="utf-8")):
        assert first.poll() is None and time.monotonic() < limit, "it ended or hung before the third file"
        time.sleep(0.1)
    below = psutil.Process(first.pid).children(recursive=True)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    psutil.wait_procs(below, timeout=20)
    assert not (work / "wheels").exists()

    begun = len(log.read_text(encoding="utf-8"))
    second = subprocess.run([script], env=env, capture_output=True, text=True, timeout=seconds(300), check=False)
    assert second.returncode == 0, second.stdout + second.stderr
    for step in ("smoke", "configure", "check"):
        assert f"{step:<11} kept" in second.stdout
    later = log.read_text(encoding="utf-8")[begun:]
    assert "core_alpha.cpp.o" not in later, "what was compiled before the kill is not compiled again"
    wheel = next((work / "wheels").glob("spark-1.0-py3-none-linux_*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        library = archive.read("spark/lib/libspark_cuda.so")
    assert {str(target) for container in fatbin.scan(library) for target in container.targets} == {"sm_35"}
    assert second.stdout.rstrip().endswith(wheel.name), "the wheel is the last word; nothing has to be done to it here"

    broken = plan.read_text(encoding="utf-8").replace(
        'arch_list = "3.5"', 'arch_list = "3.5"\noptions = { USE_CUDA = "OFF" }'
    )
    plan.write_text(broken, encoding="utf-8")
    rekindle_command("build", str(plan), "--script", str(script), "--work", str(work), "-D", "USE_CUDA=OFF")
    third = subprocess.run([script], env=env, capture_output=True, text=True, timeout=seconds(300), check=False)
    assert third.returncode == 1 and "FAILED in the step `check`" in third.stdout, third.stdout
    assert "USE_CUDA=OFF, the plan says ON" in third.stdout
