"""What one machine compiled goes to another: `build --export-cache` there, `--import-cache` here, C++ and CUDA.

The two machines are two homes and two caches on this one; source and build have the same paths on both, as the guide
says. The first one is stopped twice on its way, by SIGTERM and by kill -9. CUDA only with REKINDLE_HEAVY=1.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rekindle
from rekindle.core.paths import toolchain_folder
from support.artefacts import unverified
from support.cuda import machine, project
from support.pace import seconds

if os.name == "nt":
    pytest.skip("UNVERIFIED: SIGTERM is of POSIX, and so is ccache here", allow_module_level=True)


class CacheMachine:
    """A machine of its own: nothing of another one's home or cache is there."""

    def __init__(self, top: Path, name: str) -> None:
        self.top, self.home = top, top / name
        self.home.mkdir()
        self.work = top / "w"
        self.env = {
            **os.environ,
            "PYTHONPATH": str(Path(rekindle.__file__).parents[1]),
            "HOME": str(self.home),
            "REKINDLE_CACHE": str(self.home / "cache"),
            "REKINDLE_SHELF": str(self.home / "shelf"),
            # The same compilers at the same paths, which the exchange insists on.
            "REKINDLE_TOOLCHAIN": str(toolchain_folder()),
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        own = ["build", str(self.top / "build.toml"), "--work", str(self.work), "--until", "compile", "--yes", "--json"]
        with (self.home / "out.json").open("wb") as out, (self.home / "said.txt").open("wb") as said:
            return subprocess.Popen(
                [sys.executable, "-m", "rekindle", *own, *words], env=self.env, stdout=out, stderr=said
            )

    def said(self) -> str:
        return (self.home / "said.txt").read_text(encoding="utf-8", errors="replace")

    def build(self, *words: str) -> Any:
        assert self.start(*words).wait(timeout=seconds(900)) == 0, self.said()
        return json.loads((self.home / "out.json").read_bytes())

    def stopped(self, how: signal.Signals, *words: str) -> None:
        """A run that is stopped as soon as an object of the compile is there."""
        run = self.start(*words)
        before = self.objects()
        while run.poll() is None and self.objects() == before:
            time.sleep(0.02)
        assert run.poll() is None, self.said()
        run.send_signal(how)
        assert run.wait(timeout=seconds(120)) != 0

    def objects(self) -> int:
        """Of the compile. CMake makes and removes folders meanwhile: `os.walk` passes over what is gone."""
        inside = (names for top, _, names in os.walk(self.work) if ".dir" in top and "spark_" in top)
        return sum(name.endswith((".cpp.o", ".cu.o")) for names in inside for name in names)


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_a_cache_travels_from_a_machine_that_was_stopped_twice(tmp_path: Path, language: str) -> None:
    if shutil.which("ccache") is None:
        unverified("ccache is not installed")
    shutil.copytree(project("spark"), tmp_path / "spark")
    plan = ['source = "spark"', 'name = "spark"', 'version = "1.0"', 'backend = "cmake"']
    files = 4
    if language == "cuda":
        if not os.environ.get("REKINDLE_HEAVY"):
            unverified("CUDA files take minutes on few cores: REKINDLE_HEAVY=1 compiles them")
        kits = [kit for kit in machine().toolkits if kit.nvcc and kit.version and kit.targets and kit.whole]
        if not kits:
            unverified("there is no CUDA toolkit here")
        oldest = min(target.capability for target in kits[0].targets)
        plan += [f'cuda = "{kits[0].version}"', f'cuda_root = "{kits[0].root}"', f'arch_list = "{oldest}"']
        files = 7
    else:
        plan += ["[options]", 'USE_CUDA = "OFF"']
    (tmp_path / "build.toml").write_text("\n".join(plan) + "\n", encoding="utf-8")

    strong = CacheMachine(tmp_path, "strong")
    export = ("--jobs", "1", "--export-cache", str(tmp_path / "cache.tar"))
    strong.stopped(signal.SIGTERM, *export)
    assert "interrupted during compile" in strong.said()
    strong.stopped(signal.SIGKILL, *export)
    strong.build(*export)
    shutil.rmtree(strong.work)
    shutil.rmtree(strong.home)

    used = CacheMachine(tmp_path, "weak").build("--import-cache", str(tmp_path / "cache.tar"))["cache"]
    assert (used["hits"], used["misses"]) == (files, 0)
