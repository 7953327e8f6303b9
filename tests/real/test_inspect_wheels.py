"""The real torch wheels of the index, read and compared with what pefile, cuobjdump and the issue say of them."""

from __future__ import annotations

import json
import resource
import zipfile
from pathlib import Path
from typing import Any

import pefile
import pytest

from rekindle.cli.main import run
from rekindle.formats import package, pe
from rekindle.formats.access import Buffer, File
from rekindle.formats.archive import Archive
from rekindle.wheels.inspect.inspection import Inspection, inspect
from support.artefacts import wheel


def spelled(symbol: Any) -> str:
    """pefile names the ordinals of a few well-known libraries; the file itself does not."""
    return f"#{symbol.ordinal}" if symbol.import_by_ordinal else symbol.name.decode()


WINDOWS = {
    # Beside Python itself: what a machine without the Visual C++ Redistributable lacks (facts of 20 wheels, by pefile).
    "2.7.1": {"msvcp140.dll", "vcruntime140.dll", "vcruntime140_1.dll", "python311.dll"},
    "2.14.1": {
        *("msvcp140.dll", "vcruntime140.dll", "vcruntime140_1.dll", "python311.dll"),
        *("vcruntime140_threads.dll", "msvcp140_atomic_wait.dll"),
    },
    "2.3.1": {
        *("msvcp140.dll", "vcruntime140.dll", "vcruntime140_1.dll", "python311.dll"),
        *("mkl_intel_thread.1.dll", "vcomp140.dll"),
    },
}


@pytest.mark.parametrize("release", WINDOWS)
def test_windows_wheels_lack_exactly_what_they_are_known_to_lack(release: str) -> None:
    found = inspect(wheel(f"torch=={release}", platform="win_amd64"))
    assert found.closure is not None
    assert {item.library.lower() for item in found.closure.missing} == WINDOWS[release]
    assert found.closure.skew == ()
    assert found.closure.wrong_machine == ()
    assert found.closure.duplicates == ()
    assert found.closure.tests == ()
    assert (found.torch, found.cuda, found.gpu_code) == (f"{release}+cpu", None, ())
    assert not [item for item in found.findings if item.state.value == "FAIL"]


def test_numpy_abi_of_the_windows_wheels() -> None:
    """2.3.1 for Windows was built against NumPy 1; 2.7.1 takes both."""
    assert inspect(wheel("torch==2.3.1", platform="win_amd64")).numpy_abi == (1,)
    assert inspect(wheel("torch==2.7.1", platform="win_amd64")).numpy_abi == (1, 2)


def test_every_import_and_export_as_pefile_sees_them() -> None:
    """With its limit raised: pefile stops near 8,192 exports of the 59,121 by default."""
    path = wheel("torch==2.7.1", platform="win_amd64")
    with zipfile.ZipFile(path) as archive:
        for name in ("torch/lib/torch_cpu.dll", "torch/lib/torch_python.dll", "torch/lib/libiomp5md.dll"):
            data = archive.read(name)
            mine = pe.read(Buffer(data, name))
            theirs = pefile.PE(data=data, fast_load=True, max_symbol_exports=100_000)
            theirs.parse_data_directories(
                [pefile.DIRECTORY_ENTRY[f"IMAGE_DIRECTORY_ENTRY_{k}"] for k in ("EXPORT", "IMPORT")]
            )
            exports = theirs.DIRECTORY_ENTRY_EXPORT.symbols
            # It also cuts names at 512 letters, which in C++ is not enough.
            assert {name[:512] for name in mine.exports} == {symbol.name.decode() for symbol in exports if symbol.name}
            assert mine.ordinals == {symbol.ordinal for symbol in exports}
            imports = {
                entry.dll.decode(): tuple(map(spelled, entry.imports)) for entry in theirs.DIRECTORY_ENTRY_IMPORT
            }
            for library, symbols in imports.items():
                assert set(symbols) <= {symbol[:512] for symbol in mine.imports[library]}
            theirs.close()
            if name.endswith("torch_cpu.dll"):
                assert len(mine.exports) == 59_121
            if name.endswith("torch_python.dll"):
                assert len(mine.imports["torch_cpu.dll"]) == 4_994


@pytest.fixture(scope="module")
def linux() -> Inspection:
    return inspect(wheel("torch==2.7.1", platform="manylinux_2_28_x86_64"), cards=["Tesla K80", "GTX 1080 Ti", "H200"])


def test_linux_wheel_has_the_code_that_cuobjdump_lists(linux: Inspection) -> None:
    """cuobjdump lists 378 containers of seven targets, two with sm_89 and three with sm_90a; 36 have no kernels."""
    main = next(code for code in linux.gpu_code if code.file == "torch/lib/libtorch_cuda.so")
    assert main.containers == 378 - 36
    seven = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
    assert main.targets == {**dict.fromkeys(seven, 378 - 36), "sm_89": 2, "sm_90a": 3}


def test_linux_wheel_is_identified(linux: Inspection) -> None:
    assert (linux.torch, str(linux.cuda), linux.cudnn) == ("2.7.1+cu126", "12.6", "9.5.1.17")
    assert (linux.python, linux.platform) == ("cp311", "manylinux_2_28_x86_64")
    assert (str(linux.glibc), linux.cxx_abi, linux.numpy_abi, linux.blas) == ("2.28", "cxx11", (1, 2), "mkl (static)")
    assert [card.coverage.value for card in linux.cards] == ["NO", "SERVES", "SERVES"]
    assert linux.closure is not None
    assert (linux.closure.missing, linux.closure.skew) == ((), ())


def test_memory_stays_small(linux: Inspection) -> None:
    """The whole wheel, 1.6 GB unpacked, in this very process."""
    assert linux.size > 1_500_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1_200_000  # pefile above took most of this


def test_the_command_line_on_the_real_wheel(capsys: pytest.CaptureFixture[str]) -> None:
    path: Path = wheel("torch==2.7.1", platform="win_amd64")
    assert run(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["closure"]["symbols"] > 4_994
    assert run(["inspect", str(path)]) == 0
    assert "MSVCP140.dll" in capsys.readouterr().out


@pytest.mark.parametrize("platform", ["manylinux_2_28_x86_64", "win_amd64"])
@pytest.mark.parametrize("project", ["numpy==2.2.6", "pillow==11.2.1", "scipy==1.15.3"])
def test_healthy_wheels_of_others_raise_no_alarm(project: str, platform: str) -> None:
    """Run paths that are handed down, unversioned names of zlib, libraries brought under a hashed name."""
    tag = {"manylinux_2_28_x86_64": "manylinux2014_x86_64"}.get(platform, platform)
    path = wheel(project, platform=tag if project.startswith(("numpy", "scipy")) else platform)
    bad = [item for item in inspect(path).findings if item.state.value == "FAIL"]
    assert bad == []


def test_the_static_libraries_of_the_windows_wheel_are_read_in_one_pass() -> None:
    """dnnl.lib alone is 709 MB; six of them were once said to be damaged, because they were read by jumping."""
    with File(wheel("torch==2.7.1", platform="win_amd64")) as file:
        archive = Archive(file)
        libraries = [package.Wheel(archive).binary(name) for name in archive.members if name.endswith(".lib")]
    assert len(libraries) == 19
    assert {found.format for found in libraries} == {"static"}
    assert not [found.name for found in libraries if found.problem]
