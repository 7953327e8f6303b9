"""`extension build` killed at seeded moments: the next run ends like an undisturbed one, and nothing is left behind.

REKINDLE_KILLS says how many kills (3 unless told); REKINDLE_SEED repeats a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from rekindle.core.paths import venv_python
from support import artefacts
from support.fatbins import container
from support.houses import EXTENSION, House, needs_cuda_13

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="UNVERIFIED: the small torch is for Linux")

KILLS = int(os.environ.get("REKINDLE_KILLS", "3"))
SEED = int(os.environ.get("REKINDLE_SEED", "40"))


class Bench:
    """A project, an environment with a small torch, and how long an undisturbed build takes."""

    def __init__(self, root: Path) -> None:
        needs_cuda_13()
        self.root, self.project, self.temporary = root, root / "ext", root / "t"
        house = House(root)
        house.torch("2.11.0+cu130", "13.0")
        (self.project / "ext").mkdir(parents=True)
        self.temporary.mkdir()
        (self.project / "setup.py").write_text(EXTENSION, encoding="utf-8")
        (self.project / "ext/__init__.py").write_bytes(b"")
        (self.project / "code.fatbin").write_bytes(container("sm_90"))
        self.environ = {**os.environ, "TMPDIR": str(self.temporary), "REKINDLE_CACHE": str(root / "cache")}
        subprocess.run([sys.executable, "-m", "venv", str(root / "env")], check=True, timeout=300)
        tools = [artefacts.wheel(each) for each in ("setuptools==80.9.0", "wheel==0.45.1", "ninja==1.13.2")]
        pip = [str(venv_python(root / "env")), "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
        subprocess.run([*pip, *map(str, tools), *map(str, house.wheels.glob("*.whl"))], check=True, timeout=300)
        begun = time.monotonic()
        assert self.start("undisturbed").wait(600) == 0
        self.seconds = time.monotonic() - begun
        self.members = self.made("undisturbed")

    def start(self, output: str) -> subprocess.Popen[bytes]:
        words = ["extension", "build", str(self.project), "--env", str(self.root / "env"), "--gpu", "H200"]
        with (self.root / "said.txt").open("ab") as said:
            return subprocess.Popen(
                [sys.executable, "-m", "rekindle", *words, "-o", str(self.root / output)],
                env=self.environ, cwd=self.root, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip

    def made(self, output: str) -> list[str]:
        """What is in the wheel; beside it lies nothing but the log."""
        wheel, log = sorted((self.root / output).iterdir(), key=lambda path: path.suffix != ".whl")
        assert log.name == "extension-build.log"
        with zipfile.ZipFile(wheel) as opened:
            assert opened.testzip() is None
            return opened.namelist()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("killed"))


@pytest.mark.long
@pytest.mark.parametrize("number", range(KILLS))
def test_killed_at_any_moment_it_ends_the_same(bench: Bench, number: int) -> None:
    lot = random.Random(SEED * 1000 + number)
    run = bench.start(f"out{number}")
    # On a machine that has become faster it may have ended before.
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(lot.uniform(0.05, 0.8) * bench.seconds)
    if number % 2:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    else:
        run.kill()
    run.wait()
    assert bench.start(f"out{number}").wait(600) == 0, (bench.root / "said.txt").read_text(encoding="utf-8")[-2000:]
    assert bench.made(f"out{number}") == bench.members
    assert [path.name for path in bench.temporary.iterdir()] == [], "a killed run left something behind"
