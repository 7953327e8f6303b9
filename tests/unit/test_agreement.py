"""Two commands asked the same question give the same answer: a sample of all cards and releases, drawn by a seed.

The whole of it is asked in `tests/real/test_agreement.py`.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

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
    assert "GeForce GT 730 was sold with chips of compute capability 2.1, 3.0, 3.5" in seen.err
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
        (("install", "--plan", "plan.toml", "--gpu", "K80"), "`--plan` cannot be combined with `--gpu`"),
        (("install", "--undo", "--torch", "2.7.1"), "`--undo` cannot be combined with `--torch`"),
        (("plan", "--gpu", "K80", "--torch", "2.1", "--torch", "2.2"), "`--torch` was given twice"),
        (("doctor", "--machine", "a.json", "--machine", "b.json"), "`--machine` was given twice"),
        (("plan", "--from", "p.toml", "--torch", "2.1"), "`--from` cannot be combined with `--torch`"),
        (("plan", "--gpu", "K80", "--list", "--why-not", "torch==2.1"), "`--list` cannot be combined with `--why-not`"),
    ],
)
def test_what_is_given_is_used_or_refused(words: tuple[str, ...], said: str) -> None:
    seen = rekindle_command(*words)
    assert seen.code == 2
    assert said in seen.err


NO_DRIVER = Path(__file__).parents[1] / "machines" / "no-driver-windows.json"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("plan",), 5),
        (("plan", "--torch", "2.6.0"), 5),
        (("plan", "--for", "llama.cpp"), 5),
        (("review", "FILE"), 8),
        (("audit", sys.prefix), 8),
        (("doctor",), 8),
    ],
)
def test_a_missing_driver_is_said_by_every_command(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    """`plan`, `review` and `audit` said that all was well."""
    listed = tmp_path / "requirements.txt"
    listed.write_text("torch==2.6.0\n--index-url https://download.pytorch.org/whl/cu124\n", encoding="utf-8")
    words = tuple(str(listed) if word == "FILE" else word for word in words)
    seen = rekindle_command(*words, "--machine", str(NO_DRIVER))
    assert (seen.code, "no NVIDIA driver is running" in " ".join(seen.out.split())) == (code, True), seen.out
    if words[0] != "doctor":
        told = rekindle_command(*words, "--machine", str(NO_DRIVER), "--driver", "560.94")
        assert "no NVIDIA driver" not in told.out


def test_a_list_to_choose_from_says_that_the_driver_is_missing() -> None:
    seen = rekindle_command("plan", "--list", "--machine", str(NO_DRIVER))
    assert "2.14.1" in seen.out and "no NVIDIA driver is running" in seen.out


@pytest.mark.parametrize(("system", "runs"), [("linux", True), ("wsl2", False), ("windows", False)])
def test_plan_review_and_audit_count_a_driver_alike(tmp_path: Path, system: str, runs: bool) -> None:
    """CUDA 12 asks for 525.60.13 on Linux and for 528.33 on Windows, whose driver WSL runs on."""
    made = tmp_path / "env" / "lib" / "python3.11" / "site-packages" / "torch"
    made.mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.4\n", encoding="utf-8")
    (made / "version.py").write_text("__version__ = '2.6.0+cu124'\ncuda: Optional[str] = '12.4'\n", encoding="utf-8")
    listed = tmp_path / "requirements.txt"
    listed.write_text("torch==2.6.0\n--index-url https://download.pytorch.org/whl/cu124\n", encoding="utf-8")
    place = ("--gpu", "RTX 3060", "--driver", "526.47", "--os", system)
    said = "driver 526.47 does not run CUDA 12.4: it needs 528.33 or newer"
    for words in (("plan", "--torch", "2.6.0+cu124"), ("review", str(listed)), ("audit", str(tmp_path / "env"))):
        seen = rekindle_command(*words, *place)
        assert (seen.code == 0, said in " ".join(seen.out.split())) == (runs, not runs), (words, seen.out)
