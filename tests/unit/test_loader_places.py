"""Where an installed torch looks for its libraries on this machine."""

from __future__ import annotations

from pathlib import Path

from rekindle.core.version import Version
from rekindle.wheels.closure.search_path import linux_places, windows_places


def windows(tmp_path: Path, *files: str, cuda: str | None = "12.6", **environ: str) -> list[tuple[str, bool]]:
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    (tmp_path / "env/Lib/site-packages/torch/lib").mkdir(parents=True, exist_ok=True)
    settings = {name: str(tmp_path / value) for name, value in environ.items() if name != "PATH"}
    settings["PATH"] = ";".join(str(tmp_path / part) for part in environ.get("PATH", "").split(";") if part)
    defaults = {"ProgramFiles": str(tmp_path / "programs"), "SystemRoot": str(tmp_path / "windows")}
    found = windows_places(
        tmp_path / "env/Lib/site-packages",
        torch="2.7.1",
        cuda=Version(cuda) if cuda else None,
        environ={**defaults, **settings},
        separator=";",
    )
    return [(place.label, place.sure) for place in found]


def test_the_order_is_that_of_torchs_loader_and_path_comes_last(tmp_path: Path) -> None:
    found = windows(
        tmp_path,
        "env/Library/bin/mkl_rt.2.dll",
        "windows/System32/msvcp140.dll",
        "programs/NVIDIA GPU Computing Toolkit/CUDA/v12.6/bin/cudart64_12.dll",
        "somewhere/zlibwapi.dll",
        PATH="somewhere;nowhere",
    )
    assert found == [
        ("System32", True),
        ("Library\\bin of the environment", True),
        ("the CUDA folder", False),
        ("PATH", False),
    ]


def test_the_cuda_folder_is_left_out_when_cudart_lies_beside_torch(tmp_path: Path) -> None:
    cuda = "programs/NVIDIA GPU Computing Toolkit/CUDA/v12.6/bin/cublas64_12.dll"
    assert windows(tmp_path, cuda) == [("the CUDA folder", False)]
    assert windows(tmp_path, cuda, "env/Lib/site-packages/torch/lib/cudart64_12.dll") == []


def test_the_cuda_folder_is_that_of_torchs_own_cuda(tmp_path: Path) -> None:
    assert windows(tmp_path, "c126/bin/cudart64_12.dll", CUDA_PATH_V12_6="c126") == [("the CUDA folder", False)]
    assert windows(tmp_path, "c118/bin/cudart64_110.dll", CUDA_PATH_V11_8="c118") == []
    assert windows(tmp_path, "c126/bin/cudart64_12.dll", cuda=None, CUDA_PATH_V12_6="c126") == []


def test_linux_run_paths_lead_to_nvidias_packages(tmp_path: Path) -> None:
    from rekindle.formats.binary import Binary
    from rekindle.formats.elf import Elf

    folder = tmp_path / "nvidia/cudnn/lib"
    folder.mkdir(parents=True)
    (folder / "libcudnn.so.9").write_bytes(b"")
    name = "torch/lib/libtorch_cuda.so"
    rpath = ("$ORIGIN/../../nvidia/cudnn/lib", "$ORIGIN")
    elf = Elf(name=name, machine="x86_64", bits=64, kind="library", rpath=rpath)
    places = linux_places(tmp_path, [Binary(name=name, size=1, format="elf", elf=elf)])
    assert {place.label: list(place.libraries) for place in places} == {
        "nvidia/cudnn/lib": ["libcudnn.so.9"],
        "torch/lib": [],
    }
