"""Broken environments, made by a real pip and a real uv: what `audit` prints is run, and then it has nothing to say.

The packages are small ones that look like the real ones, in a folder that stands in for the index; the commands are
run by a shell exactly as they are printed, and extensions are compiled from their sdists.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from rekindle import api
from rekindle.audit import contents
from rekindle.audit.answer import Audit
from rekindle.audit.audit import audit
from rekindle.compat.companion import release_for
from rekindle.core.findings import State
from rekindle.core.paths import venv_python
from rekindle.machine.python.environment import find as find_environment
from rekindle.model.card import Capability, NamedCard
from support import artefacts
from support.fatbins import container
from support.houses import EXTENSION, SYMBOL, House, needs_cuda_13

H200 = NamedCard(name="H200", capability=Capability(9, 0))
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
MODULE = f"cpython-{TAG.removeprefix('cp')}-{platform.machine()}-linux-gnu.so"
GONE = "_ZN2at3addERKNS_6TensorES2_"


class Broken(House):
    """An environment that is filled from it, and mended."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.place = root / "my env"
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        self.environ |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PIP_CONFIG_FILE": os.devnull}
        self.environ |= {"UV_OFFLINE": "1", "UV_FIND_LINKS": str(self.wheels), "REKINDLE_CACHE": str(root / "cache")}
        self.environ |= {"UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(root / "uv")}
        self.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))

    def extension(self, *needs: str, wants: str = SYMBOL) -> None:
        """Its wheel, made elsewhere; and its sdist, which is compiled here."""
        path = f"ext/_C.{MODULE}"
        module = self.library(path, wants=(SYMBOL, wants), options=self.linked(*needs), targets=("sm_90",))
        self.wheel("ext", "1.0", {"ext/__init__.py": b"", path: module}, ["torch"])

    def sdist(self) -> None:
        """What is compiled instead; the wheel made elsewhere is on the index no longer."""
        for old in self.wheels.glob("ext-*.whl"):
            old.unlink()
        folder = self.root / "ext-1.0"
        (folder / "ext").mkdir(parents=True)
        (folder / "setup.py").write_text(EXTENSION, encoding="utf-8")
        (folder / "ext/__init__.py").write_bytes(b"")
        (folder / "code.fatbin").write_bytes(container("sm_90"))
        (folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: ext\nVersion: 1.0\n", encoding="utf-8")
        with tarfile.open(self.wheels / "ext-1.0.tar.gz", "w:gz") as archive:
            archive.add(folder, "ext-1.0")

    def real(self, *requirements: str) -> None:
        for each in requirements:
            file = artefacts.wheel(each)
            (self.wheels / file.name).symlink_to(file)

    def compiling(self) -> None:
        needs_cuda_13()
        self.real("setuptools==80.9.0", "wheel==0.45.1")

    def fill(self, *requirements: Sequence[str], by: str = "pip") -> None:
        """One call of the installer for each group, as environments grow."""
        if by == "pip":
            self.run(f'"{sys.executable}" -m venv "{self.place}"')
        else:
            self.run(f'uv venv -q --python "{sys.executable}" "{self.place}"')
        python = venv_python(self.place)
        words = f'"{python}" -m pip install -q' if by == "pip" else f'uv pip install -q --python "{python}"'
        for group in requirements:
            self.run(f"{words} --no-deps {' '.join(group)}")

    def run(self, line: str) -> str:
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self.root,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def audited(self) -> Audit:
        return audit(self.place, cards=(H200,))

    def mended(self) -> list[str]:
        """The commands, run in their order; afterwards nothing is left to say."""
        out = self.run(f'rekindle audit "{self.place}" --gpu H200 || [ $? = 8 ]')
        lines = [line[2:] for line in out.partition("Run these, in this order\n")[2].splitlines() if line[:2] == "  "]
        assert lines, out
        for line in lines:
            self.run(line)
        after = self.audited()
        every = [*after.findings, *(one for module in after.modules for one in module.findings)]
        assert [f"{one.state.value} {one.found}" for one in every] == []
        assert (after.state, after.steps) == (State.PASS, ())
        assert "no problems" in self.run(f'rekindle audit "{self.place}" --gpu H200'), "its memory is clean, too"
        return lines


@pytest.fixture
def house(tmp_path: Path) -> Broken:
    return Broken(tmp_path)


def ids(answer: Audit) -> set[str]:
    every = [*answer.findings, *(finding for module in answer.modules for finding in module.findings)]
    return {finding.id.removeprefix("audit.") for finding in every}


def test_torchvision_of_another_torch(house: Broken) -> None:
    house.torch("2.11.0+cu130", "13.0")
    house.companion("torchvision", "0.20.1+cu121")
    house.companion("torchvision", "0.26.0+cu130")
    house.fill(["torch==2.11.0+cu130", "torchvision==0.20.1+cu121"])
    assert ids(house.audited()) == {"companions"}
    assert len(house.mended()) == 1


@pytest.mark.parametrize("by", ["pip", "uv"])
def test_companions_of_two_other_torches(house: Broken, by: str) -> None:
    """One of them has the right number and another CUDA: pip takes the label for no difference."""
    house.torch("2.11.0", "13.0")
    house.companion("torchvision", "0.20.1+cu121")
    house.companion("torchaudio", "2.9.1")
    house.fill(["torch==2.11.0", "torchvision==0.20.1+cu121", "torchaudio==2.9.1"], by=by)
    for name, version in (("torchvision", "0.26.0"), ("torchaudio", "2.11.0")):
        house.companion(name, version)
    assert ids(house.audited()) == {"companions"}
    assert len(house.mended()) == 2


@pytest.mark.long
def test_cuda_12_beside_a_torch_of_cuda_13(house: Broken) -> None:
    """cuDNN for CUDA 12 over that for CUDA 13, and an extension that wants the runtime of CUDA 12, which is nowhere."""
    house.compiling()
    house.torch("2.11.0+cu130", "13.0", ["nvidia-cudnn-cu13==9.19.0.56"])
    for line, version in (("cu12", "9.10.2.21"), ("cu13", "9.19.0.56")):
        library = house.library("libcudnn.so.9", targets=("sm_90",))
        house.wheel(f"nvidia-cudnn-{line}", version, {"nvidia/cudnn/lib/libcudnn.so.9": library})
    house.extension("libcudart.so.12")
    house.fill(["torch==2.11.0+cu130", "nvidia-cudnn-cu13", "ext"], ["nvidia-cudnn-cu12"])
    house.sdist()
    assert ids(house.audited()) == {"duplicates", "cuda-runtime", "missing"}
    lines = house.mended()
    assert [line for line in lines if "nvidia-cuda-runtime-cu12" in line] == [], "what is built again does not need it"
    assert [" uninstall -y nvidia-cudnn-cu12" in line for line in lines] == [True, False, False, False]


@pytest.mark.parametrize("by", ["pip", "uv"])
def test_numpy_2_beside_an_old_torch(house: Broken, by: str) -> None:
    """The one that asks for NumPy 2 goes back to a release that does not."""
    house.real("numpy==1.26.4", "numpy==2.2.6")
    house.torch("2.2.2+cu121", "12.1", numpy="core")
    house.wheel("picture", "2.0", {"picture.py": b""}, ["numpy>=2"])
    house.wheel("picture", "1.0", {"picture.py": b""}, ["numpy>=1.20"])
    house.fill(["torch==2.2.2+cu121", "numpy==2.2.6", "picture==2.0"], by=by)
    assert ids(house.audited()) == {"numpy"}
    house.mended()
    there = contents.read(find_environment(house.place)).distributions
    assert (there["numpy"].version, there["picture"].version) == ("1.26.4", "1.0")


@pytest.mark.long
def test_an_extension_of_another_torch(house: Broken) -> None:
    house.compiling()
    house.torch("2.11.0+cu130", "13.0")
    house.extension(wants=GONE)
    house.fill(["torch==2.11.0+cu130", "ext"])
    house.sdist()
    assert ids(house.audited()) == {"torch-symbols"}
    assert len(house.mended()) == 2


@pytest.mark.long
def test_a_torch_without_cuda_and_what_was_compiled_for_it(house: Broken) -> None:
    """Everything that was compiled against the torch that goes is built for the one that comes."""
    house.compiling()
    best = api.plan(gpus=["H200"], python=".".join(map(str, sys.version_info[:2]))).recommended
    assert best is not None
    house.torch("2.11.0+cpu", None)
    house.extension()
    house.fill(["torch==2.11.0+cpu", "ext"])
    house.sdist()
    house.torch(f"{best.torch}+{best.variant}", str(best.cuda))
    house.companion("torchvision", f"{release_for('torchvision', str(best.torch))}+{best.variant}")
    assert ids(house.audited()) == {"cpu-torch"}
    assert ["rekindle install" in line for line in house.mended()] == [True, False, False]
