"""What sweeps of PyTorch's CUDA files say, and of which pairs."""

from __future__ import annotations

import pytest

from rekindle.build.progress import weights
from rekindle.build.progress.weights import Weights
from rekindle.core.version import Version
from rekindle.knowledge.builds import sweeps
from rekindle.model.card import Capability


def row(torch: str, cuda: str, capability: str, **more: object) -> sweeps.Sweep:
    facts = {"platform": "linux", "files": 10, "compiled": 7, "refused": ("a.cu",), "dropped": ("b.cu", "c.cu"), **more}
    return sweeps.Sweep(
        torch=torch, cuda=Version(cuda), capability=Capability.parse(capability),
        source="a test", observed_at="2026-11-15", evidence="binary", **facts,
    )  # fmt: skip


def test_another_toolkit_or_the_development_tree_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "sweeps", lambda: (row("2.15.0a0", "12.4", "6.1"), row("2.11.0", "12.4", "6.1")))
    six = Capability.parse("6.1")
    said = sweeps.seen("2.15.0", Version("12.6"), six)
    assert said == (
        "of 2.15.0a0: 7 of 8 CUDA files tried (of 10) compile for 6.1 with CUDA 12.4 (measured on Linux), 1 do not, "
        "2 files with kernels left empty for it"
    )
    assert (sweeps.seen("2.11.0", Version("12.6"), six) or "").startswith("7 of 8 CUDA files tried")
    assert sweeps.seen("2.11.0", Version("13.0"), six) is None, "another major is another compiler"
    assert sweeps.seen("2.11.0", Version("12.6"), Capability.parse("5.2")) is None
    assert sweeps.seen("2.11.0", Version("12.6"), Capability.parse("6.0")) is None, "6.0 does not run the code of 6.1"
    assert (sweeps.seen("2.11.0", Version("12.6"), Capability.parse("6.2")) or "").endswith(
        "6.2 runs the code of 6.1 too"
    )
    assert sweeps.seen("2.1.0", Version("12.6"), six) is None


def test_the_system_that_it_was_measured_on_is_named() -> None:
    said = row("2.7.1", "11.8", "3.5", platform="linux, g++ 11", compiled=10, refused=(), dropped=()).sentence
    assert said == "10 of 10 CUDA files compile for 3.5 with CUDA 11.8 (measured on Linux with g++ 11)"


def test_the_times_of_a_whole_sweep_weigh_the_mean_over_its_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"aten/src/ATen/native/cuda/F{number}.cu" for number in range(100)]
    one, other = dict.fromkeys(names, 2.0), dict.fromkeys(names, 4.0)
    few = row("2.11.0", "12.4", "6.1", seconds=dict.fromkeys(names[:99], 9.0))
    rows = (row("2.15.0a0", "12.4", "5.0", seconds=one), row("2.15.0a0", "12.4", "6.1", seconds=other), few)
    monkeypatch.setattr(sweeps, "sweeps", lambda: rows)
    assert sweeps.file_seconds.__wrapped__() == {"2.15.0a0": dict.fromkeys(names, 3.0)}  # type: ignore[attr-defined]


def test_a_build_is_weighed_by_the_sweep_of_its_files() -> None:
    """A file that no recorded build has timed is known by the sweep, under the name that CMake gives its object."""
    names = [f"caffe2/CMakeFiles/torch_cuda.dir/__/{file}.o" for file in sweeps.file_seconds()["2.15.0a0"]]
    found = Weights(weights.builds("nothing")).of(names)
    assert all(weight.known for weight in found.values())
