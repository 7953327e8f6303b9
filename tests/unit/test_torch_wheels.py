"""The official wheels in the table: the cases that a union of targets gets wrong."""

from __future__ import annotations

import pytest

from rekindle.compat import gpu_code
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.torch.torch_wheels import TorchWheel, torch_wheels
from rekindle.model.card import Capability
from tools.observe import library_code

K40C, K80, PASCAL, TURING, HOPPER = (Capability.parse(text) for text in ("3.5", "3.7", "6.1", "7.5", "9.0"))
LINALG = "torch/lib/libtorch_cuda_linalg.so"


def wheel_of(release: str) -> TorchWheel:
    """That of a release (`2.7.1`) or of a minor (`2.7`)."""
    return next(row for row in torch_wheels() if release in (row.version, row.version.rpartition(".")[0]))


def figures(release: str, card: Capability) -> dict[str, tuple[str, int, int]]:
    """Per file: the answer, and n of m."""
    wheel = wheel_of(release)
    return {
        code.file.rpartition("/")[2]: (answer.coverage.value, answer.native + answer.jit, answer.containers)
        for code in gpu_code.own(wheel.gpu_code)
        for answer in [gpu_code.served(code, card)]
    }


def covers(release: str, card: Capability) -> str:
    wheel = wheel_of(release)
    return library_code.covers(wheel.gpu_code, card).value


def test_every_minor_release_is_there_once() -> None:
    minors = [wheel.version.rpartition(".")[0] for wheel in torch_wheels()]
    assert minors == ["1.13", *(f"2.{n}" for n in range(16))]
    assert all(wheel.gpu_code and wheel.cuda and wheel.sha256 for wheel in torch_wheels())


def test_a_k40c_finds_a_fraction_of_what_it_needs_and_a_k80_all() -> None:
    assert figures("1.13.1", K40C)["libtorch_cuda_cu.so"] == ("PARTIAL", 50, 271)
    assert covers("1.13.1", K40C) == "PARTIAL"
    assert covers("1.13.1", K80) == "SERVES"
    assert covers("2.0.1", K80) == "SERVES"
    assert covers("2.1.2", K80) == "NO"


@pytest.mark.parametrize("minor", ["2.11", "2.12", "2.13", "2.14"])
def test_a_turing_card_has_no_linear_algebra_there(minor: str) -> None:
    found = figures(minor, TURING)
    assert found["libtorch_cuda.so"][0] == "SERVES"
    assert found["libtorch_cuda_linalg.so"][:2] == ("NO", 0)
    assert covers(minor, TURING) == "PARTIAL"


def test_a_turing_card_on_2_15_has_one_of_33() -> None:
    assert figures("2.15.0", TURING)["libtorch_cuda_linalg.so"] == ("PARTIAL", 1, 33)
    assert figures("2.15.0", TURING)["libtorch_cuda.so"][0] == "SERVES"


def test_kernels_for_one_card_alone_do_not_spoil_the_answer() -> None:
    assert covers("2.7.1", PASCAL) == "SERVES"
    assert covers("2.7.1", HOPPER) == "SERVES"
    assert all(covers(minor, HOPPER) == "SERVES" for minor in ("2.1", "2.8", "2.13", "2.15"))


def test_the_stated_coverage_is_what_the_code_gives() -> None:
    for wheel in torch_wheels():
        computed = {str(card): library_code.covers(wheel.gpu_code, card) for card in capabilities.known()}
        assert computed == wheel.coverage, wheel.version
