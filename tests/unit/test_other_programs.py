"""`rekindle plan --for`: which release of another program runs on a card."""

from __future__ import annotations

import pytest
from packaging.version import Version

from rekindle.core.command import rekindle
from rekindle.core.errors import UnknownName
from rekindle.extension.candidates import IndexAnswer
from rekindle.knowledge.builds.programs import known, program, programs, releases
from rekindle.knowledge.cuda.toolkits import toolkit
from rekindle.knowledge.tables import Evidence
from rekindle.model.card import Capability
from rekindle.stack.card import describe
from rekindle.stack.from_machine import situation_here
from rekindle.stack.programs import ProgramAnswer, for_program
from rekindle.stack.situation import situation_from_options
from support.command import rekindle_command

CARDS = ("GTX 680", "Tesla K40c", "Tesla K80", "GTX 980", "Tesla P100", "GTX 1080 Ti", "Tesla V100", "RTX 2080 Ti")


def _asked(name: str, card: str, system: str = "linux", driver: str | None = None) -> ProgramAnswer:
    place = situation_here(gpus=(card,), system=system, machine="x86_64", driver=driver, python=None, snapshot=None)
    return for_program(name, place)


@pytest.mark.parametrize(
    ("name", "card", "system", "version"),
    [
        # 1.26.0 has sm_60, 1.27.0 begins with sm_75: both wheels were opened.
        ("onnxruntime-gpu", "GTX 1080 Ti", "linux", "1.26.0"),
        ("onnxruntime-gpu", "GTX 1080 Ti", "windows", "1.26.0"),
        # The two systems differ: for Windows 1.21.1 to 1.26.0 have sm_52, sm_61, sm_75, sm_86 and sm_89.
        ("onnxruntime-gpu", "GTX 980", "linux", "1.20.2"),
        ("onnxruntime-gpu", "GTX 980", "windows", "1.26.0"),
        ("onnxruntime-gpu", "Tesla V100", "linux", "1.26.0"),
        ("onnxruntime-gpu", "Tesla V100", "windows", "1.20.2"),
        ("onnxruntime-gpu", "Tesla T4", "linux", "1.31.1"),
        ("onnxruntime", "RTX 4090", "linux", "1.31.1"),
        # Tags v0.9.2 and v0.9.3: the latter has no CUDA 11.
        ("ollama", "GTX 980", "linux", "0.32.15"),
        ("ollama", "Tesla K80", "linux", None),
        ("jax", "GTX 1080 Ti", "linux", "0.12.0.1 (CUDA 12)"),
        ("jax", "RTX 4090", "linux", "0.12.0.1 (CUDA 13)"),
        ("jax", "RTX 4090", "windows", None),
        ("cupy", "GTX 680", "linux", "12.3.0 (CUDA 10.2)"),
        ("cupy", "Tesla K40c", "windows", "13.6.0 (CUDA 11)"),
        ("vllm", "GTX 1080 Ti", "linux", None),
        ("vllm", "Tesla V100", "linux", "0.19.1"),
        ("tensorrt", "Tesla V100", "linux", "10.4.0"),
        ("tensorrt", "GTX 1080 Ti", "linux", "8.6.0"),
        ("tensorrt", "GTX 980", "linux", "8.5.3.1"),
        ("llama-cpp-python", "GTX 1080 Ti", "windows", "b10586 (CUDA 12.4)"),
        ("llama.cpp", "Tesla K80", "linux", "of March 2025, built with CUDA 11.4"),
    ],
)
def test_the_newest_release_that_runs_on_a_card(name: str, card: str, system: str, version: str | None) -> None:
    assert _asked(name, card, system).version == version


def test_the_driver_decides_too() -> None:
    assert _asked("ollama", "GTX 980", driver="470").version == "0.9.2"
    assert _asked("ollama", "RTX 3090", driver="545.23.08").version == "0.24.0"  # the docs of 0.30 ask for 550
    assert _asked("ollama", "Tesla P40", driver="535.183.01").version == "0.24.0"
    # They ask for 570 with Maxwell and Pascal, and an owner without a known driver is told too.
    old = _asked("ollama", "Tesla M40", driver="560.35.03")
    assert old.version == "0.24.0" and "asks for driver 570 or newer" in old.too_new[0].reason
    assert _asked("ollama", "RTX 3090", driver="560.35.03").newest
    assert _asked("ollama", "RTX 3090").driver == "R550 or newer"


def test_an_old_card_gets_the_last_cudnn_with_its_code() -> None:
    found = _asked("onnxruntime-gpu", "GTX 1080 Ti")
    assert found.commands == ('pip install "onnxruntime-gpu[cuda,cudnn]==1.26.0" "nvidia-cudnn-cu12==9.10.2.*"',)
    assert "cudnn" not in _asked("onnxruntime-gpu", "RTX 4090").commands[0].replace("[cuda,cudnn]", "")


def test_vllm_is_chosen_with_the_torch_that_it_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _asked("vllm", "Tesla V100")
    assert "torch 2.10.0: read off the real file" in found.source
    older = _asked("vllm", "Tesla V100", driver="525.60.13")
    assert older.version == found.version
    # Its own code alone would do: what is lost is said of the torch.
    opened = [row for row in releases("vllm") if row.torch == "2.13.0"]
    monkeypatch.setattr("rekindle.stack.programs.releases_as", lambda _: opened)
    assert any("libtorch_cuda_linalg" in note for note in _asked("vllm", "Tesla T4").notes)


def test_comfyui_is_the_answer_of_the_plan() -> None:
    found = _asked("comfyui", "GTX 1080 Ti", "windows")
    plan = rekindle_command("plan", "--gpu", "GTX 1080 Ti", "--os", "windows", "--torch", ">=2.7", "--json").json()
    assert list(found.commands) == plan["recommended"]["commands"]
    assert any(note.startswith("flags: no flag needed: it chooses by itself") for note in found.notes)
    assert any(note.endswith("ComfyUI_windows_portable_nvidia_cu126.7z") for note in found.notes)


def test_a_programs_own_flags_are_given_without_those_of_another() -> None:
    """`--force-fp32` was said of a 6 GB card, for which ComfyUI chooses by itself, with A1111's flags beside it."""
    for card in CARDS:
        assert not any("A1111" in note or "--no-half" in note for note in _asked("comfyui", card).notes)
    assert any("torch.backends.cudnn.enabled = False" in note for note in _asked("comfyui", "Tesla K80").notes)
    assert not any("7z" in note for note in _asked("comfyui", "GTX 1060 6GB").notes), "the folder is for Windows"


def test_gpu_says_the_same() -> None:
    for card in CARDS:
        told = describe(card).programs
        assert set(told) == {row.id for row in programs() if row.torch is None}
        for name, by_system in told.items():
            assert by_system == {system: _asked(name, card, system).version for system in ("windows", "linux")}, card


def test_what_nobody_opened_says_unverified_and_where_to_look() -> None:
    for row in programs():
        for card in CARDS:
            found = _asked(row.id, card)
            if found.evidence is not Evidence.BINARY:
                assert found.known_from.startswith("UNVERIFIED: ")
                assert found.known_from.endswith(row.page)


def test_the_rows_stand_newest_first_and_name_known_toolkits() -> None:
    for row in programs():
        for system in ("linux", "windows"):
            own = [each for each in releases(row.id) if system in each.systems]
            numbers = [Version(each.version.split()[0]) for each in own if each.version[0].isdigit()]
            assert numbers == sorted(numbers, reverse=True)
        for each in releases(row.id):
            assert toolkit(each.cuda).version == each.cuda
            assert each.requirements or each.build or "http" in f"{each.note}{each.source}"
            assert each.evidence is not Evidence.BINARY or ".whl" in each.source, each.version


def test_where_only_the_driver_is_in_the_way_a_newer_one_is_proposed() -> None:
    found = _asked("ollama", "GTX 1050 Ti", "windows", driver="546.33")
    assert found.version == "0.9.2"
    assert (
        found.notes[0].startswith("with driver 570.65 or newer, up to R580 (https://") and "0.32.15" in found.notes[0]
    )
    assert not any("with driver" in note for note in _asked("ollama", "RTX 3090", driver="570.86.10").notes)
    # R470 is the last for a K80: no other driver is named.
    assert not any("with driver" in note for note in _asked("ollama", "Tesla K80", driver="470.256.02").notes)


def test_what_is_said_at_the_end_fits_the_place_and_the_card() -> None:
    """An Orin was told of older cards, and a Maxwell card under Windows of Kepler before WSL 2."""
    board = for_program("vllm", situation_from_options(["Jetson AGX Orin"], system="linux"))
    assert board.version is None and [each.reason for each in board.too_new] == [
        "no build of vllm for a Jetson is in the tables"
    ]
    assert len(board.notes) == 1 and "jetson-containers" in board.notes[0]
    windows = _asked("jax", "Quadro M4000", "windows", driver="546.33")
    assert windows.commands == ('rekindle plan --for jax --gpu "Quadro M4000" --os wsl --driver 546.33',)
    assert windows.notes[0].startswith("Take WSL 2: jax 0.12.0.1 (CUDA 12) is for Linux")
    assert windows.notes[1].endswith("Quadro M4000 may not work there.") and len(windows.notes) == 2
    assert "Kepler" in _asked("jax", "Tesla K80", "windows").notes[0]


def test_an_extension_is_looked_for_with_the_torch_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command in the hint had lost the card, and stopped because it named no torch."""
    asked = ("--gpu", "Tesla P40", "--os", "linux")
    hint = rekindle_command("plan", "--for", "bitsandbytes", *asked).err
    words = ("extension", "find", "bitsandbytes", *asked, "--torch", "2.14.1+cu126", "--python", "3.12")
    assert f"`{rekindle(*words, system='linux')}`" in hint
    monkeypatch.setattr("rekindle.extension.find._ask", lambda *_: IndexAnswer(place=None, reached=False))
    assert rekindle_command(*words).code == 0, "exactly the release that is named was read"


def test_an_unknown_program_is_refused() -> None:
    assert known("no-such") is None
    with pytest.raises(UnknownName, match="no program `no-such`"):
        program("no-such")
    answer = rekindle_command("plan", "--for", "no-such", "--gpu", "K80", "--os", "linux")
    assert answer.code == 3
    assert "one of vllm" in answer.err
    wish = rekindle_command("plan", "--for", "vllm", "--gpu", "V100", "--os", "linux", "--torch", "2.7")
    assert wish.code == 2


def test_the_command_says_why_not_the_newest_and_fails_where_nothing_runs() -> None:
    good = rekindle_command("plan", "--for", "onnxruntime-gpu", "--gpu", "GTX 1080 Ti", "--os", "linux")
    assert good.code == 0
    assert "1.31.1 has no code that runs on sm_61: it begins with sm_75" in good.out
    bad = rekindle_command("plan", "--for", "vllm", "--gpu", "Tesla P40", "--os", "linux", "--json")
    assert bad.code == 5
    told = bad.json()
    assert told["schema"] == "rekindle.program/1"
    assert told["version"] is None


def test_a_capability_is_served_by_what_runs_on_it() -> None:
    row = next(each for each in releases("onnxruntime-gpu") if each.version == "1.26.0")
    assert row.serves(Capability(6, 1)).value == "native"
    assert row.serves(Capability(12, 0)).value == "jit-unverified"
    assert row.serves(Capability(5, 2)).value == "no"


def test_a_program_keeps_the_torch_that_it_brings_where_that_serves() -> None:
    """The webui's own 2.1.2 runs on a GTX 1080 Ti; a newer one refuses checkpoints that it loads."""
    assert _asked("a1111", "GTX 1080 Ti", "windows").version == "with torch 2.1.2"
    assert _asked("forge", "GTX 1080 Ti", "windows").version == "with torch 2.3.1"
    assert _asked("a1111", "RTX 5070", "windows").version == "with torch 2.7.1"


def test_an_old_driver_gets_the_last_release_for_it_and_the_smallest_change() -> None:
    """A T4 on R470 was told that no ONNX Runtime runs, and to take R580, though R525 runs one of CUDA 12."""
    found = _asked("onnxruntime-gpu", "Tesla T4", "linux", driver="470.256.02")
    assert found.version == "1.18.1"
    assert [note.partition(" (")[0] for note in found.notes[:2]] == [
        "with driver 580.65.06 or newer",
        "with driver 525.60.13 or newer",
    ]
    assert _asked("jax", "GTX 1080 Ti", "linux", driver="470.256.02").version == "0.4.25 (CUDA 11)"
    assert _asked("tensorrt", "GTX 1060", "windows").version == "8.6.1"


def test_a_webui_takes_the_python_that_it_is_made_for() -> None:
    """Under Python 3.12 the newest of torch 2.1.2 was taken, 3.11; the webui wants 3.10."""
    place = situation_from_options(["GTX 1660 Ti"], system="windows", python="3.12")
    found = for_program("a1111", place)
    assert found.pythons == ("3.10",) and "--python 3.10" in str(found.commands[0])


def test_another_python_is_said_and_gets_a_folder_by_the_programs_name() -> None:
    """JAX went into a `torch-env` of Python 3.12 without a word on the 3.9 that is there."""
    place = situation_from_options(["RTX 3060"], system="linux", driver="580.65.06", python="3.9")
    found = for_program("jax", place)
    assert str(found.commands[0]) == "uv venv --seed --python 3.12 jax-env"
    assert str(found.commands[1]).startswith("jax-env/bin/python -m pip install ")
    assert found.notes[0].startswith("Python 3.12 instead of 3.9: jax 0.12.0.1 (CUDA 13) is for Python 3.12 to ")
    assert "`python3.12 -m venv jax-env` does the same" in found.notes[1]
    there = for_program("jax", situation_from_options(["RTX 3060"], system="linux", python="3.13"))
    assert not any("instead of" in note or "uv venv" in note for note in there.notes)


@pytest.mark.parametrize(
    ("name", "word", "meant", "not_meant"),
    [
        ("vllm", "--dtype half", ("Tesla T4", "Tesla V100"), ("RTX 3060", "A100", "H100")),
        ("onnxruntime-gpu", "begin with 8.0", ("Tesla T4",), ("RTX 3060", "RTX 5090")),
    ],
)
def test_a_note_is_for_the_cards_that_it_is_about(
    name: str, word: str, meant: tuple[str, ...], not_meant: tuple[str, ...]
) -> None:
    for card in (*meant, *not_meant):
        assert any(word in note for note in _asked(name, card).notes) is (card in meant), card


@pytest.mark.parametrize("card", ["GH200", "GB10", "Jetson AGX Thor"])
def test_vllm_has_a_wheel_for_arm_servers(card: str) -> None:
    """Only an address was given, though the index has it."""
    found = for_program("vllm", situation_from_options([card], system="linux"))
    assert [str(each) for each in found.commands] == [f"pip install vllm=={found.version}"]
    assert found.version == "0.33.0"
    # An Orin runs the wheels of its JetPack.
    assert for_program("vllm", situation_from_options(["Jetson AGX Orin"], system="linux")).version is None


def test_vllm_for_a_driver_of_cuda_12_is_its_makers_second_line() -> None:
    found = _asked("vllm", "RTX 4090", driver="550.54.15")
    assert found.version == "0.30.0 (CUDA 12.9)" and "vllm==0.30.0+cu129" in str(found.commands[0])


def test_an_empty_name_is_no_extension() -> None:
    """A project without a repository of its own answered to it."""
    seen = rekindle_command("plan", "--gpu", "K80", "--for", "")
    assert seen.code != 0 and "no program ``" in seen.err and "extension find" not in seen.err
