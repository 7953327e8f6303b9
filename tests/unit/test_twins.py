"""Two installs of PyTorch, compared entry by entry."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from rekindle.wheels.verify import trial
from tools import twins

OFFICIAL = {
    "libraries": ["/usr/lib/site-packages/torch/lib/libtorch_cuda.so"],
    "registered": {
        "aten::add": ["CUDA: registered at /pytorch/build/aten/src/ATen/RegisterCUDA_0.cpp:7 :: (Tensor _0) [ boxed ]"]
    },
    "computed": {"prims::abs": ["CUDA: registered at /opt/torch/env/site-packages/torch/_library/custom_ops.py:942"]},
    "operators": {"add/float32/forward": ["passed", "6 samples"]},
}


def test_the_folder_that_a_kernel_was_compiled_in_is_no_difference() -> None:
    other = copy.deepcopy(OFFICIAL)
    other["registered"]["aten::add"] = [
        "CUDA: registered at build/aten/src/ATen/RegisterCUDA_0.cpp:7 :: (Tensor _0) [ boxed ]"
    ]
    other["computed"]["prims::abs"] = ["CUDA: registered at /other/torch/_library/custom_ops.py:942"]
    assert list(twins.differences(OFFICIAL, other)) == []


@pytest.mark.parametrize(
    ("table", "name", "entry"),
    [
        ("registered", "aten::add", ["CUDA: registered at build/aten/src/ATen/RegisterCUDA_0.cpp:8 :: (Tensor _0)"]),
        ("registered", "aten::mul", ["CUDA: registered at build/aten/src/ATen/RegisterCUDA_0.cpp:9 :: (Tensor _0)"]),
        ("computed", "prims::abs", []),
        ("operators", "add/float32/forward", ["failed", "differs"]),
    ],
)
def test_any_other_difference_is_one(table: str, name: str, entry: list[str]) -> None:
    other = copy.deepcopy(OFFICIAL)
    other[table][name] = entry
    found = list(twins.differences(OFFICIAL, other))
    assert len(found) == 1
    assert found[0].startswith(f"{table}: {name}: ")
    assert len(list(twins.differences(other, OFFICIAL))) == 1


def test_a_python_without_torch_is_an_error_and_no_answer(tmp_path: Path) -> None:
    python = tmp_path / "no-such-python"
    with pytest.raises(SystemExit, match="did not answer"):
        twins.ask(trial.Trip(python=python, env={}))
