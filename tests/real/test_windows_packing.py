"""The packing step of a build script on the real torch 2.7.1 for Windows, run by a real Windows Python under Wine.

The wheel is put back into the state in which a build leaves it: what PyTorch redistributes (Intel's OpenMP, libuv) lies
elsewhere, and the Visual C++ runtime is nowhere. The script's own `libraries` step has to find and bring it, and
`tryout` has to say so when any of it is taken away again. The wheel is the CPU's, for no other can be had here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.build.configure import options, request
from rekindle.build.script import script, text
from rekindle.machine.snapshot import load
from support.artefacts import wheel
from support.pace import seconds
from support.windows_python import TORCH_NEEDS, WITHOUT_REDISTRIBUTABLE, WindowsPython

MACHINE = Path(__file__).resolve().parents[1] / "machines" / "k40c-ready-windows.json"
REDISTRIBUTED = {"libiomp5md.dll": "intel", "libiompstubs5md.dll": "intel", "uv.dll": "libuv"}
RUNTIME = ("msvcp140.dll", "vcruntime140.dll", "vcruntime140_1.dll")
BROUGHT = {"libiomp5md.dll", "uv.dll", "msvcp140.dll"}
TOP = "packing"


class Built:
    """A folder on drive C: with an interpreter of its own, in whose site-packages the wheel lies."""

    def __init__(self, windows: WindowsPython) -> None:
        self.bench = windows.bench
        self.top = windows.bench.drive / TOP
        self.libraries = self.top / "python/Lib/site-packages/torch/lib"
        self.places = [rf"C:\{TOP}\{name}" for name in ("intel", "libuv", "vc")]

    def step(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """One call of the script's Python part, in a prompt that knows nothing of the build."""
        env = {
            "RK_WORK": rf"C:\{TOP}\w",
            "RK_PATH": r"C:\windows\system32;C:\windows",
            "WINEDLLOVERRIDES": WITHOUT_REDISTRIBUTABLE,
            "KMP_AFFINITY": "disabled",
        }
        program = [rf"C:\{TOP}\python\python.exe", rf"C:\{TOP}\steps.py", *words]
        done: subprocess.CompletedProcess[bytes] = self.bench.call(program, env=env, timeout=seconds(1500))
        return done


@pytest.fixture(scope="module")
def built(windows: WindowsPython) -> Iterator[Built]:
    found = Built(windows)
    shutil.rmtree(found.top, ignore_errors=True)
    shutil.copytree(windows.folder, found.top / "python", ignore=shutil.ignore_patterns("site-packages", "test"))
    site = found.top / "python/Lib/site-packages"
    for requirement in ("torch==2.7.1", *TORCH_NEEDS):
        with zipfile.ZipFile(wheel(requirement, platform="win_amd64")) as archive:
            archive.extractall(site)
    for name, folder in REDISTRIBUTED.items():
        (found.top / folder).mkdir(exist_ok=True)
        (found.libraries / name).rename(found.top / folder / name)
    (found.top / "vc").mkdir()
    with zipfile.ZipFile(wheel("msvc-runtime==14.44.35112", platform="win_amd64")) as archive:
        for member in archive.namelist():
            if member.rpartition("/")[2] in RUNTIME and ".data/data/" in member:
                (found.top / "vc" / member.rpartition("/")[2]).write_bytes(archive.read(member))
    assert (found.top / "vc" / "msvcp140.dll").is_file()
    _write_steps(found.top / "steps.py")
    yield found
    shutil.rmtree(found.top, ignore_errors=True)


def _write_steps(path: Path) -> None:
    """The Python part, as `rekindle build --script build.cmd` writes it, for a build without CUDA."""
    wanted = request.resolve(request.BuildFile(torch="2.7.1", cuda=None, cudnn=None, python="3.9"), load(MACHINE))
    composed = script.compose(wanted, options.resolve(wanted), work=rf"C:\{TOP}\w", jobs=2)
    path.write_text("\n".join(text.python_part(composed)) + "\n", encoding="utf-8", newline="\r\n")


def _of_the_wheel() -> set[str]:
    with zipfile.ZipFile(wheel("torch==2.7.1", platform="win_amd64")) as archive:
        return {
            name[10:].lower() for name in archive.namelist() if name.startswith("torch/lib/") and name[-4:] == ".dll"
        }


def test_the_script_brings_what_the_build_left_elsewhere(built: Built) -> None:
    without = built.step("tryout")
    assert without.returncode != 0, without.stdout.decode("utf-8", "replace")

    done = built.step("libraries", rf"C:\{TOP}\python\Lib\site-packages\torch\lib", *built.places)
    said = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, said
    brought = {line.split()[3] for line in said.splitlines() if " brought " in line}
    assert brought == BROUGHT, said

    works = built.step("tryout")
    said = works.stdout.decode("utf-8", "replace")
    assert works.returncode == 0, said
    assert "a matrix product and a convolution are right" in said


def test_any_dll_that_is_taken_out_again_is_named(built: Built) -> None:
    """Those that were brought, or with REKINDLE_HEAVY every one of `torch\\lib`."""
    listed = (built.top / "w/libraries.txt").read_text(encoding="utf-8").split()
    assert set(listed) == {*_of_the_wheel(), *BROUGHT} - {"libiompstubs5md.dll"}
    chosen = listed if os.environ.get("REKINDLE_HEAVY") else sorted(BROUGHT)
    for name in chosen:
        path = next(each for each in built.libraries.iterdir() if each.name.lower() == name)
        path.rename(built.top / path.name)
        try:
            done = built.step("tryout")
        finally:
            (built.top / path.name).rename(path)
        said = done.stdout.decode("utf-8", "replace")
        assert done.returncode != 0, f"{name}: {said}"
        assert f"it lacks {name}" in said, said
