"""What a log is not: another card, a text, or one log of several."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import psutil
import pytest

from rekindle import api
from rekindle.core.errors import BadInput, UnknownName
from rekindle.diagnose.answer import Diagnosis
from rekindle.diagnose.cards import in_line, of_this_machine
from rekindle.diagnose.diagnosis import diagnose_file, diagnose_text
from rekindle.diagnose.facts import facts_from_options, gather
from rekindle.diagnose.scan import BLOCK, scan
from rekindle.diagnose.source import Diagnoses, diagnose
from rekindle.knowledge.gpu import gpus
from support import pace
from support.command import rekindle_command


def test_a_titan_rtx_is_no_titan() -> None:
    assert [(card.sm, name) for card, name in in_line("GPU 0                  TITAN RTX")] == [("sm_75", "TITAN RTX")]


def test_every_card_of_a_line_and_of_a_title() -> None:
    both = [("sm_120", "RTX 5080"), ("sm_61", "1080ti")]
    assert [(card.sm, name) for card, name in in_line("my RTX 5080 and the 1080ti stop")] == both
    assert in_line("GTX 1070 and CUDA errors") == []
    assert [name for _, name in in_line("GTX 1070 and CUDA errors", title=True)] == ["GTX 1070"]
    assert [name for _, name in in_line(of_this_machine("my 1060 GTX"))] == ["GTX 1060"]


@pytest.mark.parametrize(
    ("line", "sm"),
    [
        ("GPU: RTX 4000 Ada", "sm_89"),
        ("0  NVIDIA RTX 4000 Ada Gene...  Off | 00000000:01:00.0 Off", "sm_89"),
        ("NVIDIA RTX 6000 Ada Generation", "sm_89"),
        ("1  GeForce GTX 106...  Off  | 0000:04:00.0     Off |", "sm_61"),
        ("0  Tesla V100-SXM2...  On", "sm_70"),
        ("0  NVIDIA GeForce ...  Off", None),  # which one it is does not show
    ],
)
def test_a_card_whose_name_is_cut_or_has_a_generation(line: str, sm: str | None) -> None:
    assert [card.sm for card, _ in in_line(line)] == ([sm] if sm else [])


@pytest.mark.parametrize(
    "data",
    [b"\x7fELF\x02\x01\x01" + bytes(64) + b"error: \x9b\xff" * 40, b"PK\x03\x04" + bytes(range(256)) * 8],
    ids=["elf", "zip"],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, data: bytes) -> None:
    log = tmp_path / "build.log"
    log.write_bytes(data)
    with pytest.raises(BadInput, match="is not a text file"):
        diagnose_file(log)


def test_a_refused_file_is_closed_while_the_refusal_is_told(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(64))
    with pytest.raises(BadInput) as refusal:
        diagnose_file(log)
    still_open = [Path(file.path).name for file in psutil.Process().open_files()]
    assert refusal.value.hint
    assert log.name not in still_open


def test_a_binary_among_logs_is_named_and_the_others_are_answered(tmp_path: Path) -> None:
    (tmp_path / "a.out").write_bytes(b"\x7fELF" + bytes(100))
    (tmp_path / "b.log").write_text("AssertionError: Torch not compiled with CUDA enabled\n", encoding="utf-8")
    found = diagnose(str(tmp_path))
    assert isinstance(found, Diagnoses)
    assert "is not a text file" in found.logs[0].summary
    assert found.logs[1].causes[0].label == "torch_cpu_only"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "gb18030", "utf-32"])
def test_a_log_in_any_encoding_is_still_read(tmp_path: Path, encoding: str) -> None:
    log = tmp_path / "build.log"
    log.write_bytes("fatal error C1189: 错误\r\nninja: build stopped: subcommand failed.\r\n".encode(encoding))
    assert diagnose_file(log).lines == 2


def test_a_log_with_a_few_zero_bytes_is_still_read() -> None:
    """A machine that lost power leaves some at the end of its log."""
    assert diagnose_text(b"nvcc fatal   : Unsupported gpu architecture 'compute_35'\n" * 4 + bytes(40)).causes


def test_the_library_takes_the_text_of_a_log() -> None:
    found = api.diagnose(b"OSError: CUDA_HOME environment variable is not set.\n", os="linux")
    assert isinstance(found, Diagnosis)
    assert found.causes[0].label == "cuda_home_unset"


def test_nothing_recognised_is_a_bundle(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("GPU 0: NVIDIA GeForce RTX 3090\ntorch 2.8.0+cu128\nthe frobnicator refused to start\n", "utf-8")
    out = rekindle_command("diagnose", str(log)).out
    for part in (
        "Read in the log:",
        "card NVIDIA GeForce RTX 3090 (8.6)",
        "fits",
        "frobnicator refused",
        "To learn more:",
    ):
        assert part in out


def test_near_names_of_unknown_cards_are_not_looked_for_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty kilobytes of `GPU 0: RTX 1`, `RTX 2` and so on took ten seconds: each was compared with every name."""
    monkeypatch.setattr(gpus, "nearest", lambda *_: pytest.fail("nobody asked"))
    diagnose_text("".join(f"GPU 0: NVIDIA GeForce RTX {number}1 Ti\n" for number in range(200)).encode())
    monkeypatch.undo()
    with pytest.raises(UnknownName) as caught:
        gpus.find("GeForce RTX 2081 Ti")
    assert "RTX 2080 Ti" in (pickle.loads(pickle.dumps(caught.value)).hint or "")


def test_a_flood_of_candidates_is_passed_over_but_for_its_ends() -> None:
    """A build that prints `sm_80` on every line took 17 s for 200 MB."""
    flood = b"ptxas info    : Compiling entry function '_Z1k' for 'sm_80'\n" * 60_000
    before, after = (
        b"nvcc fatal   : Unsupported gpu architecture 'compute_35'\n",
        b"fatal error: THC/THC.h: No such file\n",
    )
    blocks = [before, *(flood[at : at + BLOCK] for at in range(0, len(flood), BLOCK)), after]
    started = time.process_time()
    kept = scan(blocks)
    assert time.process_time() - started < pace.seconds(1)
    assert kept.total == 60_002
    assert {1, 60_002} <= {line.number for line in kept.lines if line.hit}


@pytest.mark.parametrize(
    ("text", "card", "driver"),
    [
        ("It works fine on my RTX 3090 (driver 550.54.14), but not on the server with a Tesla K80.", "sm_37", None),
        ("On my laptop (RTX 3060, driver 551.23) it works. With a Tesla V100, driver 450.119, no.", "sm_70", "450.119"),
        ("It worked on my GTX 1080 until the update", "sm_61", None),
    ],
)
def test_of_two_machines_it_is_the_one_that_fails(text: str, card: str, driver: str | None) -> None:
    facts, _ = gather([(1, text)])
    assert [gpu.sm for gpu in facts.gpus] == [card]
    assert facts.driver == driver


def test_a_box_that_is_not_ticked_says_nothing() -> None:
    facts, _ = gather([(1, "- [X] WSL 2"), (2, "- [ ] WSL 1")])
    assert facts.wsl and "wsl1" not in facts.signs


def test_a_series_is_no_card() -> None:
    assert in_line("Incompatibility with RTX 50", title=True) == []


@pytest.mark.parametrize(
    ("text", "label", "words"),
    [
        ("driver 470.82.01, I installed cupy-cuda12x and it fails\n", "driver_too_old", "cupy-cuda11x"),
        ("Tesla V100. The kernels require sm_80 or newer, it fails\n", "gpu_too_old_for_kernel", ""),
        (
            "RTX 5060 and Tesla K80 in one box, one of them is always missing\n",
            "driver_not_loaded",
            "No driver has all",
        ),
    ],
)
def test_what_two_things_of_a_text_say_together(text: str, label: str, words: str) -> None:
    found = diagnose_text(text).causes[0]
    assert found.label == label
    assert words in " ".join((found.fix.text, *map(str, found.fix.commands)))


def test_a_driver_in_wsl_chooses_the_torch_too() -> None:
    """527.41 of Windows was taken for one of Linux, and its own judgement contradicted the fix."""
    known = facts_from_options(gpus=["RTX 2080"], system="wsl2", driver="527.41")
    log = "RuntimeError: The NVIDIA driver on your system is too old (found version 12000).\ntorch 2.6.0+cu126\n"
    found = diagnose_text(log, known=known)
    assert "torch==2.7.1+cu118" in str(found.causes[0].fix.commands[0])


def test_of_two_cards_the_one_without_code_is_named() -> None:
    known = facts_from_options(gpus=["RTX 5070", "RTX 3090"])
    log = "torch 2.6.0+cu124\nRuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    found = diagnose_text(log, known=known)
    assert found.causes[0].fix.text.startswith("This torch has no code for sm_120.")


def test_a_driver_that_has_dropped_the_card_comes_first() -> None:
    known = facts_from_options(gpus=["GTX 1080 Ti"], driver="595.45.04", system="linux")
    log = "RuntimeError: No CUDA GPUs are available\ntorch 2.14.1+cu126\n"
    found = diagnose_text(log, known=known)
    assert found.causes[0].label == "driver_not_loaded"
    assert "nvidia-driver-580" in str(found.causes[0].fix.commands[0])


def test_a_program_that_was_killed_is_no_compiler() -> None:
    log = "Loading checkpoint shards:  33%|###   | 1/3 [00:20<00:41, 20.6s/it]Killed\n"
    found = diagnose_text(log)
    assert "No compiler is involved" in found.causes[0].fix.text


def test_a_driver_of_a_branch_is_no_card() -> None:
    log = (
        "NVRM: The NVIDIA Tesla K40c GPU installed in this system is supported through the NVIDIA 470.xx Legacy "
        "drivers.\nnvidia-smi: No devices were found\n"
    )
    found = diagnose_text(log)
    assert "dropped NVIDIA Tesla K40c" in found.causes[0].fix.text


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("CUDA error: no kernel image is available for execution on the device", 8),
        ("no kernel image is available for execution on the device", 8),
        ("RuntimeError: no kernel image is available\n" + "  at frame\n" * 500, 8),
        ("it just does not work since yesterday", 9),
        ("my build.log", 14),
    ],
)
def test_a_message_may_be_typed_as_it_is(
    tmp_path: Path, typed: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert rekindle_command("diagnose", typed).code == code
    named = tmp_path / "a log that has a long name"
    named.write_text("CUDA error: no kernel image is available for execution on the device\n", encoding="utf-8")
    assert rekindle_command("diagnose", named.name).code == 8, "a file of that name is the file"
