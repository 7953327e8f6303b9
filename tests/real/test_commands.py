"""The printed commands against the package index itself, where it has what they ask for.

uv's resolver answers for each command, and pip's own for one of every system: pip 23 and older read a wheel's metadata
out of the whole wheel, half a gigabyte each.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from support.artefacts import unverified
from support.questions import questions, recommended

UNREACHABLE = re.compile(r"ConnectionError|Max retries|error sending request|dns error|Connect|timed out", re.I)
PIP_TAGS = {
    ("linux", "x86_64"): [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 17)]
    + ["manylinux2014_x86_64", "manylinux1_x86_64"],
    ("linux", "aarch64"): [f"manylinux_2_{minor}_aarch64" for minor in (28, 27, 17)] + ["manylinux2014_aarch64"],
}
"""None for Windows: the wheels of the package index for it are for the CPU, so no command takes them."""
UV_PLATFORMS = {
    ("linux", "x86_64"): "x86_64-manylinux_2_28",
    ("linux", "aarch64"): "aarch64-manylinux_2_28",
    ("windows", "x86_64"): "x86_64-pc-windows-msvc",
}


class Asked(NamedTuple):
    requirements: tuple[str, ...]
    system: str
    machine: str
    python: str


@pytest.fixture(scope="module")
def printed() -> list[Asked]:
    """The pins of every command that needs no index of its own, each once."""
    wanted: dict[Asked, None] = {}
    for question in questions():
        with pytest.MonkeyPatch.context() as patch:
            route = recommended(question, patch)
        if route.get("route") == "official-wheel" and route["on_configured_index"]:
            place = (route["system"], route["machine"], route["python"])
            wanted[Asked(tuple(route["requirements"]), *place)] = None
    return list(wanted)


def test_uv_finds_every_pin_that_needs_no_index_of_its_own(tmp_path: Path, printed: list[Asked]) -> None:
    """Name, version, Python and platform of every pin; nothing is downloaded but metadata."""
    uv = shutil.which("uv")
    if uv is None:
        unverified("uv is not installed")
        return
    # A control: 2.5.1 has no wheel for Python 3.13 on Windows, so that the resolver is seen to mind tags.
    never = Asked(("torch==2.5.1",), "windows", "x86_64", "3.13")
    assert _resolved(uv, never, tmp_path).returncode != 0
    assert len(printed) >= 5
    wrong: dict[Asked, str] = {}
    for asked in printed:
        done = _resolved(uv, asked, tmp_path)
        if done.returncode and UNREACHABLE.search(done.stderr):
            unverified("the package index cannot be reached")
            return
        if done.returncode:
            wrong[asked] = done.stderr[-500:]
    assert wrong == {}


def _resolved(uv: str, asked: Asked, folder: Path) -> subprocess.CompletedProcess[str]:
    wishes = folder / "wishes.in"
    wishes.write_text("\n".join(asked.requirements) + "\n", encoding="utf-8")
    command = [uv, "pip", "compile", "--no-deps", "--quiet", "--no-header", "--only-binary", ":all:"]
    # uv names a free-threaded Python by its release: which wheels it has is on another page.
    command += ["--python-version", asked.python.rstrip("t")]
    command += ["--python-platform", UV_PLATFORMS[(asked.system, asked.machine)]]
    env = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    words = [*command, str(wishes)]
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.parametrize("place", PIP_TAGS, ids="-".join)
def test_pip_finds_the_pins_of_a_command(place: tuple[str, str], tmp_path: Path, printed: list[Asked]) -> None:
    """pip's own resolver, dry, for the newest command of each system."""
    fitting = [each for each in printed if (each.system, each.machine) == place]
    asked = max(fitting, key=lambda each: (each.requirements, each.python))
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "-q", "--ignore-installed"]
    command += ["--only-binary=:all:", "--use-feature=fast-deps", "--target", str(tmp_path)]
    command += ["--python-version", asked.python.rstrip("t")]
    command += [word for tag in PIP_TAGS[place] for word in ("--platform", tag)]
    done = subprocess.run([*command, *asked.requirements], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode and UNREACHABLE.search(done.stderr):
        unverified("the package index cannot be reached")
        return
    assert done.returncode == 0, (asked, done.stderr[-500:])
