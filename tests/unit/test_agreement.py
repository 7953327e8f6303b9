"""Two commands asked the same question give the same answer: a sample of all cards and releases, drawn by a seed.

The whole of it is asked in `tests/real/test_agreement.py`.
"""

from __future__ import annotations

import random
import sys

import pytest

from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.gpu.gpus import gpus
from rekindle.knowledge.torch.releases import torch_releases
from support import agreement
from support.command import rekindle_command

CHOICE = random.Random(20261115)
NAMES = sorted({gpu.name for gpu in gpus() if gpu.name != "NVIDIA Graphics Device"})
CAPABILITIES = capabilities.known()
VERSIONS = [version for release in torch_releases() for version in release.patches]


@pytest.mark.long
def test_every_command_reads_a_name_alike() -> None:
    assert [fault for name in CHOICE.sample(NAMES, 60) for fault in agreement.capability(name)] == []


@pytest.mark.parametrize("system", ["windows", "linux"])
def test_gpu_and_plan_name_the_same_wheels(system: str) -> None:
    sample = CHOICE.sample(CAPABILITIES, 4)
    assert [fault for card in sample for fault in agreement.wheels(card, system)] == []


def test_an_exact_release_has_the_same_wheels() -> None:
    pairs = [(CHOICE.choice(VERSIONS), CHOICE.choice(CAPABILITIES)) for _ in range(4)]
    assert [fault for version, card in pairs for fault in agreement.release(version, card, "linux")] == []


def test_plan_and_build_find_the_same_cudnn() -> None:
    sample = CHOICE.sample([card for card in CAPABILITIES if card.major in (3, 5, 6)], 2)
    assert [fault for card in sample for fault in agreement.cudnn_of(card, "linux")] == []


def test_doctor_and_plan_name_the_same_profile() -> None:
    every = [(), ("sse4.1",), ("sse4.1", "avx"), ("sse4.1", "avx", "avx2")]
    assert [fault for flags in every for fault in agreement.profile(flags)] == []


def test_plan_and_build_count_the_same_jobs() -> None:
    every = [(cores, memory) for cores in (1, 4, 8, 24, 64) for memory in (4, 8, 16, 32, 128)]
    assert [fault for cores, memory in every for fault in agreement.job_count(cores, memory)] == []


@pytest.mark.parametrize(
    "words",
    [
        ("audit", sys.prefix, "--gpu", "GT 730"),
        ("diagnose", "-", "--gpu", "GT 730"),
        ("env", "--gpu", "GT 730", "--torch", "2.7.1"),
        ("shelf", "find", "--gpu", "GT 730"),
    ],
)
def test_a_name_with_several_chips_is_refused_alike(words: tuple[str, ...]) -> None:
    seen = rekindle_command(*words)
    assert seen.code == 2, seen.err
    assert "`GT 730` was sold with different chips" in seen.err
    assert "`10de:1287` (3.5)" in seen.err


@pytest.mark.parametrize(
    "words",
    [
        ("audit", sys.prefix, "--gpu", "K80", "--driver", "abc"),
        ("plan", "--gpu", "K80", "--driver", "abc"),
        ("plan", "--gpu", "K80", "--why-not", "cuda==abc"),
        ("env", "--gpu", "K80", "--torch", "2.7.1", "--cuda", "abc"),
        ("review", "x.sh", "--torch", "abc"),
    ],
)
def test_a_version_that_is_none_is_a_mistake_everywhere(words: tuple[str, ...]) -> None:
    seen = rekindle_command(*words)
    assert seen.code == 2, seen.err
    assert "is not a version number" in seen.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("install", "--plan", "plan.toml", "--gpu", "K80"), "`--plan` does not go with `--gpu`"),
        (("install", "--undo", "--torch", "2.7.1"), "`--undo` does not go with `--torch`"),
        (("plan", "--gpu", "K80", "--torch", "2.1", "--torch", "2.2"), "`--torch` was given twice"),
        (("doctor", "--machine", "a.json", "--machine", "b.json"), "`--machine` was given twice"),
        (("plan", "--from", "p.toml", "--torch", "2.1"), "`--from` does not go with `--torch`"),
        (("plan", "--gpu", "K80", "--list", "--why-not", "torch==2.1"), "`--list` does not go with `--why-not`"),
    ],
)
def test_what_is_given_is_used_or_refused(words: tuple[str, ...], said: str) -> None:
    seen = rekindle_command(*words)
    assert seen.code == 2
    assert said in seen.err
