"""Two commands asked the same question give the same answer, over all cards and all releases."""

from __future__ import annotations

import pytest

from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.gpu.gpus import gpus
from rekindle.knowledge.torch.releases import torch_releases
from support import agreement

VERSIONS = [version for release in torch_releases() for version in release.patches]


def test_every_command_reads_every_name_alike() -> None:
    every = sorted({gpu.name for gpu in gpus() if gpu.name != "NVIDIA Graphics Device"})
    assert [fault for name in every for fault in agreement.capability(name)] == []


@pytest.mark.parametrize("system", ["windows", "linux"])
def test_gpu_and_plan_name_the_same_wheels(system: str) -> None:
    faults = [fault for card in capabilities.known() for fault in agreement.wheels(card, system)]
    assert faults == []


@pytest.mark.parametrize("version", VERSIONS)
def test_every_exact_release_has_the_same_wheels(version: str) -> None:
    every = [(card, system) for card in capabilities.known() for system in ("windows", "linux")]
    assert [fault for card, system in every for fault in agreement.release(version, card, system)] == []


@pytest.mark.parametrize("system", ["windows", "linux"])
def test_plan_and_build_find_the_same_cudnn(system: str) -> None:
    assert [fault for card in capabilities.known() for fault in agreement.cudnn_of(card, system)] == []
