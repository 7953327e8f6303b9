"""Classes of failures that were told wrongly, or not at all: the cause, and the thing to do first."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rekindle.diagnose import report
from rekindle.diagnose.answer import LogOutcome
from rekindle.diagnose.cards import cards_in_text
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.diagnose.facts import Facts
from rekindle.diagnose.fix import MOST_WORDS
from rekindle.knowledge.logs.signatures import LogSignature, causes

pytestmark = pytest.mark.usefixtures("as_on_linux")

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CASES = tomllib.loads((Path(__file__).parents[1] / "data" / "diagnose_classes.toml").read_text(encoding="utf-8"))[
    "case"
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_cause_and_the_thing_to_do_first(case: dict[str, str]) -> None:
    found = diagnose_text(case["log"] + "\n").causes[0]
    assert found.label == case["label"]
    assert case["first"] in " ".join((found.fix.text, *found.fix.commands))


@pytest.mark.parametrize(
    "text",
    [
        "Got Forge working on my 5070 Ti in an hour, it runs great. How can I change the theme?",
        "GTX 1080 and RTX 3060 in one PC. Both work in ComfyUI. Which of them should I sell?",
        "My laptop has intel graphics and a RTX 4060. ComfyUI runs well on the 4060. How do I install the manager?",
        "set CUDA_VISIBLE_DEVICES=1\ncall webui.bat\nWorks as it should, the second card is used. Thanks!",
        "Task manager shows 80% GPU on the RTX 3080 while training. Is it possible to see VRAM there, too?",
        "Since yesterday the RTX 4070 is not used fully, 30% GPU load in the best case. Before it was 95%.",
        "stable-diffusion.cpp does not find my model file, is the path wrong? With the RTX 2070 it is fast.",
        "My 5070 does voices in real time with F5 TTS. Can I run two models at once?",
        "RTX 3090, torch is at version 2.6.0, all tests pass. Should I update?",
        "LM Studio finds my RTX 2060 and it is fast. But I cannot find the setting for the context length.",
        "Training hangs on A100.\nThe code is normal when I run on a V100 and won't hang.\ncuda: 11.0\ntorch 1.7",
        "RVC works on my GT 1030, just slow. Which settings are best for voice quality?",
    ],
)
def test_where_all_is_well_or_nothing_says_why_no_cause_is_named(text: str) -> None:
    assert not diagnose_text(text).causes


def test_a_folder_is_no_package() -> None:
    found = diagnose_text("CUDA error (/src/csrc/ops.cu:12): no kernel image is available for execution\n").causes[0]
    assert found.label == "no_kernel_image"
    assert "`src`" not in found.whole.text


def test_a_log_of_linux_gets_nothing_of_windows() -> None:
    found = diagnose_text("NVRM: No NVIDIA GPU found.\nmodprobe: ERROR: could not insert 'nvidia': No such device\n")
    assert found.facts["os"] == "linux"
    assert not any("Device Manager" in cause.whole.text for cause in found.causes)


SHOWN = [(row.id, signature) for row in causes() for signature in row.signature]


@pytest.mark.long
@pytest.mark.parametrize(("label", "signature"), SHOWN, ids=[f"{label}-{each.id}" for label, each in SHOWN])
def test_the_first_screen_has_one_thing_to_do(label: str, signature: LogSignature) -> None:
    for cause in diagnose_text((signature.sample or signature.example).strip("\n") + "\n").causes:
        assert len(cause.fix.text.split()) <= MOST_WORDS
        assert len(cause.fix.commands) <= 1


def test_nothing_is_named_without_its_name() -> None:
    assert not any("the missing program" in step.text for row in causes() for step in row.fix)


def test_what_the_plan_leaves_out_is_said() -> None:
    log = (
        "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
    )
    fix = diagnose_text(log, known=Facts(os="linux")).causes[0].fix
    assert ("torchaudio is left out" in fix.text) is not any("torchaudio" in command for command in fix.commands)
    assert "nvidia-smi" in fix.text


def test_whoever_names_a_card_and_no_message_is_told_what_runs_on_it() -> None:
    found = diagnose_text("# Tesla P40\nWhich pytorch can I use with it?\n")
    assert found.outcome is LogOutcome.UNKNOWN and found.runs is not None
    assert "Tesla P40" in found.runs.text and "What runs on this card:" in report.text(found)


def test_nothing_is_proposed_for_a_card_that_torch_serves() -> None:
    assert diagnose_text("RTX 3090, torch 2.7.1+cu126\nHow far did you get with this program?\n").runs is None


@pytest.mark.parametrize(
    "line", ["this wheel supports RTX 30 series and newer", "requires an RTX 40 series card", "20 series of runs"]
)
def test_a_series_that_is_asked_for_is_no_card_that_is_there(line: str) -> None:
    assert cards_in_text(line) == []


def test_a_card_by_its_name_comes_before_its_series() -> None:
    ((_, name),) = cards_in_text("GPU: RTX 3060, one of the RTX 30 series cards")
    assert name == "RTX 3060"
