"""`verify --bench` and `--all-gpus`: rates against data sheets, and the checks against a torch made of plain Python."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rekindle.core.findings import Finding, State
from rekindle.core.run import Result
from rekindle.knowledge.gpu.capabilities import throughput
from rekindle.model.card import Capability
from rekindle.wheels.verify import ask_torch_checks, trial, verify
from support.command import rekindle_command


@pytest.mark.parametrize(
    ("capability", "multiprocessors", "megahertz", "single", "half"),
    [
        # The data sheets: Tesla K40 5.04 at 875 MHz, GTX 1080 Ti 11.34, V100 SXM2 15.7 and 125, A100 19.5 and 312,
        # H100 SXM 67 and 989.
        ("3.5", 15, 875, 5.04, None),
        ("6.1", 28, 1582, 11.34, None),
        ("7.0", 80, 1530, 15.7, 125),
        ("8.0", 108, 1410, 19.5, 312),
        ("9.0", 132, 1980, 67, None),
        ("9.0", 132, 1830, None, 989),
    ],
)
def test_nominal_rates_are_those_of_the_data_sheets(
    capability: str, multiprocessors: int, megahertz: float, single: float | None, half: float | None
) -> None:
    row = throughput(Capability.parse(capability))
    assert row is not None
    found = row.nominal(multiprocessors, megahertz)
    if single is not None:
        assert found[0] == pytest.approx(single, rel=0.01)
    if half is not None:
        assert found[1] == pytest.approx(half, rel=0.01)


def test_a_share_says_when_the_nominal_rate_is_unknown_or_far() -> None:
    assert "92 % of the card's nominal 10.00" in ask_torch_checks.share("products", 9.2, 10.0)
    assert "not known" in ask_torch_checks.share("products", 9.2, 0.0)
    with pytest.raises(ask_torch_checks.Wrong, match="less than a tenth"):
        ask_torch_checks.share("products", 0.5, 10.0)


def test_the_clock_is_that_of_the_cards_pci_place(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "00000000:0A:00.0, 875\n00000000:02:00.0, 745\n"
    monkeypatch.setattr(verify, "call", lambda *_, **__: Result(args=("nvidia-smi",), code=0, out=text, err=""))
    assert verify._clocks() == [745.0, 875.0]
    card = {"index": 1, "capability": "3.5", "multiprocessors": 15}
    single, half = verify._nominal(card, verify._clocks())
    assert (single, half) == (pytest.approx(5.04), None)
    assert verify._nominal({**card, "capability": "99.0"}, [1.0, 1.0]) == (None, None)


def test_one_card_alone_cannot_work_together() -> None:
    made = trial.TrialRun(python=Path(sys.executable), finding=Finding(id="install", state=State.PASS, found=""))
    answers = verify.together(made, [{"index": 0}])
    assert [answer.finding.state for answer in answers] == [State.UNVERIFIED] * 2


class _Tensor:
    def __init__(self, values: list[float]) -> None:
        self.values = values

    def to(self, _: str) -> _Tensor:
        return _Tensor(list(self.values))

    def cpu(self) -> list[float]:
        return self.values

    def min(self) -> float:
        return min(self.values)

    def max(self) -> float:
        return max(self.values)


def _torch(*, damaged: bool = False, nccl: bool = True) -> SimpleNamespace:
    def all_reduce(inputs: list[_Tensor]) -> None:
        total = sum(tensor.values[0] for tensor in inputs)
        for tensor in inputs:
            tensor.values = [total]
        if damaged:
            inputs[-1].values = [0.0]

    cuda = SimpleNamespace(
        synchronize=lambda *_: None,
        can_device_access_peer=lambda one, two: one < two,
        nccl=SimpleNamespace(is_available=lambda _: nccl, all_reduce=all_reduce),
    )
    return SimpleNamespace(
        cuda=cuda,
        float32=None,
        arange=lambda *_, **__: _Tensor([1.0, 2.0]),
        full=lambda _, value, device: _Tensor([value]),
        equal=lambda one, two: one == two and not damaged,
    )


def test_cards_that_work_together() -> None:
    assert ask_torch_checks.peer_copy(_torch(), 3) == "6 copies between 3 cards arrive whole, 3 of them card to card"
    assert "sum over 3 cards is right" in ask_torch_checks.all_reduce(_torch(), 3)
    with pytest.raises(ask_torch_checks.Wrong, match="arrives changed"):
        ask_torch_checks.peer_copy(_torch(damaged=True), 2)
    with pytest.raises(ask_torch_checks.Wrong, match="is wrong on card 2"):
        ask_torch_checks.all_reduce(_torch(damaged=True), 3)
    with pytest.raises(ask_torch_checks.NotHere, match="without NCCL"):
        ask_torch_checks.all_reduce(_torch(nccl=False), 2)


def test_measuring_needs_running(tmp_path: Path) -> None:
    assert rekindle_command("verify", str(tmp_path), "--no-run", "--bench").code == 2
