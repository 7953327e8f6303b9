"""Extensions from the index, Linux and Windows: none is called broken, and each that is damaged is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.core.findings import State
from rekindle.wheels.inspect.identity import read_torch
from rekindle.wheels.inspect.inspection import Inspection, inspect
from rekindle.wheels.repair import repair
from support.artefacts import wheel

LINUX, WINDOWS, ARM = "manylinux_2_28_x86_64", "win_amd64", "manylinux_2_28_aarch64"
PUBLISHED = [
    *((name, system) for name in ("torchvision==0.22.1", "torchaudio==2.7.1") for system in (LINUX, WINDOWS, ARM)),
    ("xformers==0.0.31", LINUX),
    ("xformers==0.0.31", WINDOWS),
    ("bitsandbytes==0.46.0", "manylinux_2_24_x86_64"),
    ("bitsandbytes==0.46.0", WINDOWS),
]


def _failures(found: Inspection) -> list[str]:
    return [item.found for item in found.findings if item.state is State.FAIL]


@pytest.mark.parametrize(("name", "system"), PUBLISHED)
def test_a_published_extension_is_not_called_broken(name: str, system: str) -> None:
    found = inspect(wheel(name, platform=system))
    assert not _failures(found)
    if found.closure is not None:
        assert found.closure.brought
        assert any(item.id == "closure.torch" and item.state is State.UNVERIFIED for item in found.findings)


@pytest.mark.parametrize("system", [ARM, WINDOWS])
@pytest.mark.parametrize("name", ["torchvision==0.22.1", "torchaudio==2.7.1"])
def test_with_its_own_torch_every_symbol_is_there(name: str, system: str) -> None:
    torch = read_torch(wheel("torch==2.7.1", platform=system))
    found = inspect(wheel(name, platform=system), against=torch)
    assert not _failures(found)
    assert found.closure is not None and found.closure.symbols > 100
    assert not any(item.state is State.UNVERIFIED for item in found.findings if item.id.startswith("closure"))


@pytest.mark.parametrize("name", ["torchvision==0.22.1", "torchaudio==2.7.1"])
def test_another_torch_is_found_by_version_and_by_symbols(name: str) -> None:
    old = read_torch(wheel("torch==2.4.1", platform="manylinux2014_aarch64"))
    said = _failures(inspect(wheel(name, platform=ARM), against=old))
    assert any("==2.7.1" in text and "this is 2.4.1" in text for text in said), said
    assert any("symbols that torch 2.4.1" in text for text in said), said


@pytest.mark.parametrize("name", ["torchvision==0.22.1", "torchaudio==2.7.1"])
def test_a_torch_of_another_machine_is_found(name: str) -> None:
    arm = read_torch(wheel("torch==2.7.1", platform=ARM))
    said = _failures(inspect(wheel(name, platform=LINUX), against=arm))
    assert any("x86_64" in text and "aarch64" in text for text in said), said


def test_a_cpu_torch_under_a_cuda_extension_is_found() -> None:
    cpu = read_torch(wheel("torch==2.7.1", platform=ARM))
    said = _failures(inspect(wheel("xformers==0.0.31", platform=LINUX), against=cpu))
    assert any("`libc10_cuda.so`" in text and "CPU build" in text for text in said), said
    assert any("`libcudart.so.12`" in text for text in said), said


@pytest.mark.parametrize(
    ("name", "system", "library"),
    [
        ("torchvision==0.22.1", LINUX, "torchvision.libs/libjpeg.cee450dc.so.8"),
        ("torchvision==0.22.1", WINDOWS, "torchvision/jpeg8.dll"),
        ("torchaudio==2.7.1", LINUX, "torchaudio/lib/libtorchaudio.so"),
    ],
)
def test_a_library_that_was_taken_out_is_found(tmp_path: Path, name: str, system: str, library: str) -> None:
    """RECORD is written anew, so that only following the links can tell."""
    done = repair.repair(wheel(name, platform=system), tmp_path, remove=(library,))
    said = _failures(inspect(done.output or tmp_path))
    assert any(library.rpartition("/")[2] in text for text in said), said
