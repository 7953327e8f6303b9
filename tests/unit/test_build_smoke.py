"""The small CUDA file before the large ones: what is said when it does not come to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.build.configure import tools
from rekindle.build.configure.request import BuildRequest, Compiler, Cuda
from rekindle.core.findings import State
from rekindle.core.run import Result
from rekindle.core.version import Version
from rekindle.model.card import Capability, Target

REQUEST = BuildRequest(
    source="/src",
    system="linux",
    arch="aarch64",
    python="/usr/bin/python3",
    compiler=Compiler(kind="gcc", cxx="/usr/bin/g++-12", c="/usr/bin/gcc-12", cuda_host="/usr/bin/g++-12"),
    cuda=Cuda(root="/opt/cuda-13.0", nvcc="/opt/cuda-13.0/bin/nvcc", version=Version("13.0.88")),
    arch_list="7.5",
)


@pytest.mark.parametrize(
    ("said", "words", "advice"),
    [
        (Result(args=("nvcc",), code=None, timed_out=True), "was not compiled for sm_75 within 15 minutes", "too busy"),
        (Result(args=("nvcc",), code=1, err="nvcc fatal : x"), "does not compile for sm_75", "which compiler"),
    ],
)
def test_a_busy_machine_is_not_a_compiler_that_does_not_fit(
    said: Result, words: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools.run, "call", lambda *given, **more: said)
    (found,) = tools.smoke_test(REQUEST, tmp_path, {}, gpu=False)
    assert found.state is State.FAIL and words in found.found
    assert found.fix and advice in found.fix.text


@pytest.mark.parametrize(
    ("targets", "card", "runs"),
    [
        (("sm_35",), "9.0", False),  # who builds for a K40 on another machine is not stopped by its card
        (("sm_35", "compute_35"), "9.0", True),
        (("sm_80",), "8.6", True),
        (("sm_90",), "8.6", False),
    ],
)
def test_the_small_program_is_run_only_on_a_card_that_it_was_compiled_for(
    targets: tuple[str, ...], card: str, runs: bool
) -> None:
    assert tools.can_run(map(Target.parse, targets), [None, Capability.parse(card)]) is runs
    assert not tools.can_run(map(Target.parse, targets), [])
