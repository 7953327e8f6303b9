"""`rekindle install --configured-index` with real wheels: fresh environments, Ctrl-C on the way, go on, undo.

Each card is one that the package index serves on this machine. They are large (two to three gigabytes each); what
arrives lies in a cache folder of the test and is removed with it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.core import paths
from support.artefacts import unverified

CARDS = {
    "aarch64": (("GB10", "2.15.0"), ("GH200", "2.14.1"), ("A100", "2.12.1")),
    "x86_64": (("RTX 5070", "2.15.0"), ("RTX 3060", "2.9.1"), ("GTX 1080 Ti", "2.7.1")),
}
ROOM = 14 * 2**30
"""Download, unpacked wheel and what pip needs in between."""


@pytest.fixture(params=CARDS.get(paths.architecture(), ()), ids=lambda row: f"{row[0]} {row[1]}".replace(" ", "-"))
def wanted(request: pytest.FixtureRequest) -> tuple[str, str]:
    card: tuple[str, str] = request.param
    return card


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    if not os.environ.get("REKINDLE_HEAVY"):
        unverified("three real PyTorchs are 8 GB to download: set REKINDLE_HEAVY=1 to install them")
    if os.name == "nt":
        unverified("a Ctrl-C is sent as on Linux")
    if shutil.disk_usage(tmp_path).free < ROOM:
        unverified("less than 14 GB of disk are free")
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_interrupted_resumed_and_undone(wanted: tuple[str, str], folder: Path) -> None:
    card, torch = wanted
    env = folder / "fresh env"
    venv.create(env, with_pip=True)
    python = env / "bin" / "python"
    before = _everything(env)

    said = _until(0.3, _command(folder, env, card, torch))
    assert said.code == 130, said.err
    assert _everything(env) == before
    kept = list((folder / "cache" / "downloads").glob("*/*.whl"))
    assert kept, "nothing that had arrived was kept"

    done = _run(_command(folder, env, card, torch), folder)
    assert done.code == 0, done.err
    again = {match[1] for match in re.finditer(r"downloading \d+ of \d+: (\S+) ", done.err)}
    assert not again & {wheel.name.partition("-")[0].replace("_", "-") for wheel in kept}
    answer = _run([str(python), "-c", "import torch; print(torch.__version__, torch.version.cuda)"], folder)
    assert answer.out.startswith(torch), answer.err
    assert not list((folder / "cache" / "downloads").glob("*/*.whl"))

    undone = _run([sys.executable, "-m", "rekindle", "install", str(env), "--undo"], folder)
    assert undone.code == 0, undone.err
    assert _everything(env) == before


def _everything(folder: Path) -> dict[str, bytes]:
    """Every file of the environment with its bytes; compiled copies come and go by themselves."""
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name != "lock"}


class _Said:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


def _command(folder: Path, env: Path, card: str, torch: str) -> list[str]:
    words = [sys.executable, "-m", "rekindle", "install", str(env), "--gpu", card, "--torch", torch]
    return [*words, "--configured-index"]


def _environment(folder: Path) -> dict[str, str]:
    # pip's own cache would hold every wheel a second time.
    return {**os.environ, "REKINDLE_CACHE": str(folder / "cache"), "PIP_NO_CACHE_DIR": "1", "TMPDIR": str(folder)}


def _run(words: list[str], folder: Path) -> _Said:
    done = subprocess.run(words, capture_output=True, text=True, env=_environment(folder), timeout=3000, check=False)
    return _Said(done.returncode, done.stdout, done.stderr)


def _until(share: float, words: list[str]) -> _Said:
    """Run it, and press Ctrl-C when this share of the downloads has begun."""
    env = _environment(Path(words[4]).parent)
    err: list[str] = []
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        for line in process.stderr:
            err.append(line)
            match = re.match(r"downloading (\d+) of (\d+)", line)
            if match and int(match[1]) > 1 and int(match[1]) / int(match[2]) >= share:
                # As a terminal does: to the whole group, pip included.
                os.killpg(process.pid, signal.SIGINT)
                break
        err += process.stderr.readlines()
        out = process.stdout.read()
        return _Said(process.wait(timeout=60), out, "".join(err))
