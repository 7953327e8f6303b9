"""`repair --slim`: NVIDIA's packages in place of their libraries, right versions, run paths and requirements."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

import pytest

from rekindle.core.findings import State
from rekindle.formats import package
from rekindle.wheels.inspect.inspection import inspect
from rekindle.wheels.repair import slim as slimming
from support import small_wheels, torch_like
from support.command import rekindle_command
from support.compiled import Compiler

pytestmark = pytest.mark.skipif(os.name == "nt", reason="gcc makes the libraries")
MACHINE = os.uname().machine if hasattr(os, "uname") else "x86_64"


def _fat(root: Path, carried: str = "libcublas.so.12") -> Path:
    """A torch that carries cuBLAS, under NVIDIA's name or one that auditwheel gave it, and links cuDNN elsewhere."""
    gcc = Compiler(root / "files", "")
    cublas = gcc.build(f"torch/lib/{carried}", options=(f"-Wl,-soname,{carried}",))
    cudnn = gcc.work / "libcudnn.so.9"
    gcc.run([gcc.gcc, "-shared", "-nostdlib", "-Wl,-soname,libcudnn.so.9", "-o", cudnn, "-x", "c", os.devnull])
    main = gcc.build(
        "torch/lib/libmain.so", options=("-Wl,--no-as-needed", str(cublas), str(cudnn), "-Wl,-rpath,$ORIGIN")
    )
    info = "torch-2.7.1+mine.dist-info"
    files = {
        "torch/__init__.py": b"",
        "torch/version.py": b"__version__ = '2.7.1+mine'\ncuda = '12.6'\n",
        f"torch/lib/{carried}": cublas.read_bytes() + os.urandom(200_000),
        "torch/lib/libmain.so": main.read_bytes(),
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 2.7.1+mine\n"
        b"Requires-Dist: sympy\n\nAbout it.\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: cp311-cp311-linux_{MACHINE}\n".encode(),
    }
    return small_wheels.make(root, files, name=f"torch-2.7.1+mine-cp311-cp311-linux_{MACHINE}.whl")


@pytest.mark.parametrize("carried", ["libcublas.so.12", "libcublas-1a2b3c4d.so.12", "libcublas.1a2b3c4d.so.12"])
def test_what_packages_have_is_required_and_not_carried(tmp_path: Path, carried: str) -> None:
    done = slimming.slim(_fat(tmp_path, carried), tmp_path / "out")
    assert done.output is not None
    assert done.removed == (f"torch/lib/{carried}",)
    names = {line.split("==")[0]: line for line in done.requires}
    assert sorted(names) == ["nvidia-cublas-cu12", "nvidia-cudnn-cu12"]
    assert '; platform_system == "Linux"' in names["nvidia-cublas-cu12"]
    assert "12.6." in names["nvidia-cublas-cu12"]
    small_wheels.check_record(done.output)
    with package.open_package(done.output) as found:
        text = found.read("torch-2.7.1+mine.dist-info/METADATA").decode()
        main = found.binary("torch/lib/libmain.so")
    assert f"Requires-Dist: sympy\nRequires-Dist: {names['nvidia-cublas-cu12']}\n" in text
    assert text.endswith("\n\nAbout it.\n")
    assert main.elf is not None
    assert {"libcublas.so.12", "libcudnn.so.9"} <= set(main.elf.needed)
    ways = [path.removeprefix("$ORIGIN/") for path in (*main.elf.rpath, *main.elf.runpath)]
    reached = {posixpath.normpath(posixpath.join("torch/lib", way)) for way in ways}
    assert {"nvidia/cublas/lib", "nvidia/cudnn/lib"} <= reached
    again = inspect(done.output)
    assert not [item for item in again.findings if item.state is State.FAIL]


def test_the_sizes_of_both_are_said(tmp_path: Path) -> None:
    wheel = _fat(tmp_path)
    seen = rekindle_command("repair", str(wheel), "--slim", "-o", str(tmp_path / "out"))
    assert seen.code == 0, seen.err
    assert "instead of 0.2 MB" in " ".join(seen.out.split())
    assert "nvidia-cublas-cu12==" in seen.out
    dry = rekindle_command("repair", str(wheel), "--slim", "--dry-run", "-o", str(tmp_path / "dry"), "--json").json()
    assert (dry["output"], len(dry["requires"])) == (None, 2)
    assert not (tmp_path / "dry").exists()


def test_what_cannot_be_slim_says_why(tmp_path: Path) -> None:
    windows = torch_like.wheel(
        tmp_path, libraries={"torch/lib/kernels.fatbin": (("sm_75",),)}, tag="cp311-cp311-win_amd64"
    )
    seen = rekindle_command("repair", str(windows), "--slim", "-o", str(tmp_path / "out"))
    assert (seen.code, "not a Linux wheel" in seen.err) == (2, True)
    both = rekindle_command("repair", str(_fat(tmp_path)), "--slim", "--remove", "x", "-o", str(tmp_path / "out"))
    assert both.code == 2


def test_a_cudnn_without_code_for_the_cards_stays(tmp_path: Path) -> None:
    """cuDNN 9 has nothing for Kepler, and no package of CUDA 12 has a cuDNN that does."""
    done = slimming.slim(_fat(tmp_path), tmp_path / "out", cards=("Tesla K40c",))
    assert [line.split("==")[0] for line in done.requires] == ["nvidia-cublas-cu12"]
