"""A small project that is built by the command line, killed, and built on: what both tests of kills share."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import psutil

import rekindle
from rekindle.build.configure.environment import MARK
from support.cuda import project


class BuildBench:
    """One project, one work folder (its path is in the libraries), one build that went through undisturbed."""

    def __init__(self, root: Path) -> None:
        self.root, self.work, self.shelf = root, root / "w", root / "shelf"
        self.plan = root / "spark" / "build.toml"
        shutil.copytree(project("spark"), root / "spark")
        self.plan.write_text(self.plan_text(self.plan.read_text(encoding="utf-8")), encoding="utf-8")
        begun = time.monotonic()
        assert self.start().wait(timeout=900) == 0, self.said()
        self.seconds = time.monotonic() - begun
        self.reference = self.artefacts()

    def plan_text(self, text: str) -> str:
        """The plan for what is on this machine."""
        return text

    def artefacts(self) -> dict[str, str]:
        """What must be the same after a kill."""
        return self.members(next((self.work / "wheels").glob("*.whl")))

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        own = ["build", str(self.plan), "--work", str(self.work), "--jobs", "2", "--cache", "none", *words]
        env = {**os.environ, "PYTHONPATH": str(Path(rekindle.__file__).parents[1]), "REKINDLE_SHELF": str(self.shelf)}
        with (self.root / "said.txt").open("wb") as log:
            return subprocess.Popen([sys.executable, "-m", "rekindle", *own], env=env, stdout=log, stderr=log)

    def said(self) -> str:
        return (self.root / "said.txt").read_text(encoding="utf-8", errors="replace")

    def members(self, wheel: Path) -> dict[str, str]:
        """Every member of the wheel by its digest; libraries stripped, because nvcc puts a random name into objects."""
        found = {}
        with zipfile.ZipFile(wheel) as archive:
            assert archive.testzip() is None
            for name in archive.namelist():
                data = archive.read(name)
                if name.endswith(".so") or ".so." in name:
                    plain = self.root / "plain.so"
                    plain.write_bytes(data)
                    subprocess.run(["strip", "--strip-all", str(plain)], check=True)
                    data = plain.read_bytes()
                if not name.endswith("RECORD"):
                    found[name] = hashlib.sha256(data).hexdigest()
        return found

    def journal(self) -> list[dict[str, object]]:
        """Its whole lines; the last one may have been cut short by a kill."""
        path = self.work / "journal.jsonl"
        found = []
        for line in path.read_bytes().split(b"\n") if path.exists() else []:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def processes(self) -> list[psutil.Process]:
        """Everything of this build that is alive."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == str(self.work) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found
