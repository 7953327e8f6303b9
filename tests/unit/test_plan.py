"""The lock, the matrix, why-not, and the verb itself, as a person meets them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from rekindle.cli.main import run
from rekindle.core import codec
from rekindle.core.errors import BadInput, NoRoute, UsageError
from rekindle.core.version import Version
from rekindle.install.shelf_offers import Shelves, on_shelves
from rekindle.knowledge.tables import Evidence
from rekindle.knowledge.torch.releases import torch_releases
from rekindle.model.card import Capability, Target
from rekindle.stack import offers
from rekindle.stack import plan as lock
from rekindle.stack.matrix import matrix
from rekindle.stack.resolver import resolve
from rekindle.stack.rules import RouteKind, rules
from rekindle.stack.situation import Wish, situation_from_options
from rekindle.stack.why_not import why_not
from rekindle.wheels.shelf import shelf
from support.command import rekindle_command


def test_a_plan_is_read_back_the_same(tmp_path: Path) -> None:
    plan = lock.plan_of(resolve(situation_from_options(["Tesla K40c"], system="windows"), Wish()))
    lock.write(plan, tmp_path / "plan.toml")
    read = lock.read(tmp_path / "plan.toml")
    assert set(read.seal) == set(lock.LOCKED)
    assert msgspec.structs.replace(read, seal={}) == plan
    assert lock.compare(plan).differences == ()


def test_a_plan_says_what_differs_elsewhere() -> None:
    plan = lock.plan_of(resolve(situation_from_options(["Tesla K80"], system="linux"), Wish()))
    here = lock.compare(plan, situation_from_options(["Tesla K80"], system="windows"))
    assert {each.field for each in here.differences} >= {"system", "wheel", "numpy"}


def test_a_plan_of_other_facts_is_noticed(tmp_path: Path) -> None:
    plan = lock.plan_of(resolve(situation_from_options(["Tesla K80"], system="linux"), Wish()))
    lock.write(plan, tmp_path / "plan.toml")
    text = (tmp_path / "plan.toml").read_text(encoding="utf-8").replace(plan.knowledge, "0" * 64)
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    assert [each.field for each in lock.compare(lock.read(tmp_path / "plan.toml")).differences] == ["knowledge"]


def test_a_source_build_names_patches_by_hash_and_pins_its_tools() -> None:
    plan = lock.plan_of(resolve(situation_from_options(["Tesla K40c"], system="windows"), Wish(torch="1.12.1")))
    assert plan.patches
    assert all(len(patch.sha256) == 64 for patch in plan.patches)
    # setuptools 74 took away what the build of 1.12 calls; CMake 4 refuses its files; ninja 1.13.0 truncates.
    assert "setuptools<74" in plan.requires
    assert "cmake>=3.13,<4" in plan.requires
    assert "ninja>=1.13.2" in plan.requires
    assert plan.wheel == "torch-1.12.1-cp310-cp310-win_amd64.whl"


def test_there_is_no_plan_where_there_is_no_route() -> None:
    with pytest.raises(NoRoute):
        lock.plan_of(resolve(situation_from_options(["GTX 580"], system="linux"), Wish()))


def test_a_broken_plan_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("schema = 'something else'\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"plan\.toml"):
        lock.read(tmp_path / "plan.toml")


def test_the_matrix_of_a_k80() -> None:
    rows = {row.torch: row for row in matrix(situation_from_options(["Tesla K80"], system="linux"), Wish()).rows}
    # cu118 from 2.0 to 2.7; from 2.4 on with a cuDNN that has no Kepler code; CUDA 12 never.
    assert [wheel.name for wheel in rows["2.7.1"].wheels] == ["cu118"]
    assert rows["2.7.1"].wheels[0].loses
    assert not rows["2.3.1"].wheels[0].loses
    assert rows["2.9.1"].wheels == rows["2.15.0"].wheels == ()
    assert [str(version) for version in rows["2.8.0"].source_cuda][-1] == "11.8"
    assert rows["2.9.1"].source_cuda == ()


def test_why_not_says_which_rule_in_words() -> None:
    situation = situation_from_options(["Tesla K80"], system="linux")
    verdict = resolve(situation, Wish())
    answer = why_not("torch==2.7.1", situation, Wish(), verdict)
    assert answer.answer == "possible"
    assert "cuDNN 9.1.0.70 has no code for Tesla K80" in answer.chain[0].sentence
    assert "2.3.1+cu118" in answer.instead
    answer = why_not("torch==2.9.1", situation, Wish(), verdict)
    assert answer.answer == "impossible"
    assert any("R470 is the last driver" in each.sentence for each in answer.chain)
    assert why_not("torch==2.3.1", situation, Wish(), verdict).answer == "recommended"


def test_why_not_answers_about_the_line_that_was_named() -> None:
    """`+cu130` was dropped, and the answer was about another wheel of that release."""
    situation = situation_from_options(["RTX 2080"], system="linux", driver="580")
    verdict = resolve(situation, Wish())
    answer = why_not("torch==2.6.0+cu130", situation, Wish(), verdict)
    assert answer.answer == "impossible"
    assert answer.sentence.startswith("PyTorch 2.6.0+cu130 is not compatible")
    answer = why_not("torch==2.6.0+cu126", situation, Wish(), verdict)
    assert answer.answer == "possible"
    assert "2.6.0+cu126" in answer.sentence and "cu124" not in answer.sentence
    with pytest.raises(UsageError, match="`\\+cpu` is not a CUDA build"):
        why_not("torch==2.6.0+cpu", situation, Wish(), verdict)


@pytest.mark.parametrize("question", ["latest", "torch latest", "torch==newest"])
def test_why_not_reads_latest_as_every_verb_does(question: str) -> None:
    situation = situation_from_options(["RTX 2080"], system="linux")
    newest = torch_releases()[-1].newest
    assert f"PyTorch {newest}" in why_not(question, situation, Wish(), resolve(situation, Wish())).sentence


def test_why_not_judges_the_python_that_is_there() -> None:
    """2.8.0 was said to work, with Python 3.12, to somebody who has 3.14."""
    situation = situation_from_options(["RTX 3060"], system="linux", driver="580", python="3.14")
    answer = why_not("2.8.0", situation, Wish(), resolve(situation, Wish()))
    assert answer.answer == "possible"
    assert answer.sentence.startswith("PyTorch 2.8.0 is for Python 3.9 to 3.13; 3.14 is not among them; ")
    assert "works otherwise: the official wheel torch 2.8.0+cu128, CUDA 12.8, Python 3.12" in answer.sentence
    there = situation_from_options(["RTX 3060"], system="linux", driver="580", python="3.13")
    assert why_not("2.8.0", there, Wish(), resolve(there, Wish())).sentence.startswith("PyTorch 2.8.0 works: ")


def test_why_not_cuda_and_python() -> None:
    situation = situation_from_options(["RTX 5070"], system="windows")
    verdict = resolve(situation, Wish())
    answer = why_not("cuda==12.3", situation, Wish(), verdict)
    assert answer.answer == "impossible"
    assert "12.8 is the first that can" in answer.sentence
    situation = situation_from_options(["Tesla K80"], system="linux")
    answer = why_not("python==3.13", situation, Wish(), resolve(situation, Wish()))
    assert answer.answer == "possible"
    assert "torch 2.7.1+cu118, CUDA 11.8, Python 3.13, which loses something (cuDNN" in answer.sentence
    answer = why_not("python==3.9", situation_from_options(["RTX 3080"], system="linux"), Wish(), verdict)
    assert "torch 2.8.0+cu128, CUDA 12.8, Python 3.9" in answer.sentence and "container" not in answer.sentence
    with pytest.raises(UsageError):
        why_not("gcc==12", situation, Wish(), verdict)


def test_every_rejection_has_a_sentence_and_a_source() -> None:
    verdict = resolve(situation_from_options(["Tesla K40c"], system="linux"), Wish())
    assert verdict.rejections
    known = {rule.id for rule in rules()}
    for each in verdict.rejections:
        assert each.rule in known
        assert each.sentence
        assert "{" not in each.sentence
        assert each.source


def test_the_verb_answers_json_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--gpu", "Tesla K80", "--os", "windows", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "rekindle.plan/1"
    assert {"recommended", "routes", "rejections", "missing"} <= set(answer)
    keys = {"route", "torch", "cuda", "cudnn", "python", "driver", "toolset", "arch_list", "commands", "loses"}
    assert keys | {"evidence"} <= set(answer["recommended"])
    assert run(["plan", "--gpu", "GTX 580", "--os", "linux", "--json"]) == NoRoute.exit_code
    assert json.loads(capsys.readouterr().out)["recommended"]["route"] == "none"


def test_a_build_keeps_what_was_wished_and_goes_on_to_its_companions() -> None:
    """Without its own torchvision the next `pip install torchvision` would bring the index's torch back."""
    wish = Wish(torch="1.13.1", cuda=Version("11.8"), profile="compat")
    steps = resolve(situation_from_options(["Tesla K40c"], system="linux", python="3.10"), wish).recommended.commands
    assert steps[0].endswith("--torch 1.13.1 --cuda 11.8 --python 3.10 --profile compat -o plan.toml")
    assert steps[1] == "rekindle build plan.toml"
    assert steps[2] == 'rekindle install --gpu "Tesla K40c" --torch 1.13.1'
    assert steps[3].startswith("rekindle extension build torchvision==0.14.1 ")
    assert steps[-1] == "pip install --no-deps --no-index --find-links wheels torchvision torchaudio"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["plan", "--gpu", "K40c", "--torch", "9.9"], 3),
        (["plan", "--gpu", "K40c", "--cuda", "12.7"], 3),
        (["plan", "--gpu", "K40c", "--cuda", "abc"], 2),
        (["plan", "--gpu", "K40c", "--python", "two"], 2),
        (["plan", "--gpu", "no such card"], 3),
        (["plan", "--gpu", "K40c", "--why-not", "nonsense"], 2),
        (["plan", "--from", "no-such-plan.toml"], 14),
    ],
)
def test_mistakes_have_their_own_exit_codes(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == code
    assert "hint:" in capsys.readouterr().err


def test_text_fits_eighty_columns_and_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    run(["plan", "--gpu", "Tesla K40c", "--os", "windows"])
    out = capsys.readouterr().out
    # Commands are never broken: they are to be copied.
    commands = ("rekindle ", "vs_installer", "pip download ")
    prose = [line for line in out.splitlines() if not any(word in line for word in commands)]
    assert max(len(line) for line in prose) <= 80


def test_a_verdict_survives_its_own_json() -> None:
    verdict = resolve(situation_from_options(["GTX 1080 Ti"], system="windows"), Wish())
    assert codec.from_json(codec.to_json(verdict), type(verdict)) == verdict


def test_a_plan_can_be_built(tmp_path: Path) -> None:
    from rekindle.build.configure import request

    situation = situation_from_options(["Tesla K40c"], system="windows")
    lock.write(lock.plan_of(resolve(situation, Wish(torch="1.12.1"))), tmp_path / "plan.toml")
    asked = request.read(tmp_path / "plan.toml")
    assert (asked.torch, str(asked.cuda), asked.arch_list, asked.toolset) == ("1.12.1", "11.4", "3.5", "14.29")
    assert asked.patches
    lock.write(
        lock.plan_of(resolve(situation_from_options(["Tesla K80"], system="linux"), Wish())), tmp_path / "wheel.toml"
    )
    with pytest.raises(UsageError, match="nothing to build"):
        request.read(tmp_path / "wheel.toml")


def test_a_processor_without_avx_gets_the_profile_it_can_run() -> None:
    old = msgspec.structs.replace(situation_from_options(["Tesla K40c"], system="windows"), cpu=("sse4.1",))
    assert lock.plan_of(resolve(old, Wish())).profile == "compat"
    refused = resolve(old, Wish(profile="fast"))
    assert refused.recommended.route.value == "none"
    assert any(each.rule == "cpu-profile" for each in refused.rejections)
    # The listed community wheels need AVX too.
    assert not any(each.route.value == "community" for each in resolve(old, Wish(community=True)).routes)


def test_a_ninja_that_is_known_to_be_broken_is_named() -> None:
    bench = msgspec.structs.replace(situation_from_options(["Tesla K40c"], system="windows"), ninja=Version("1.13.0"))
    missing = {piece.what: piece for piece in resolve(bench, Wish()).missing}
    assert "LNK1104" in missing["ninja"].why
    assert missing["ninja"].need == "Ninja 1.13.2 or newer"


def test_a_wheel_on_the_shelf_is_a_route(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = offers.Offer(
        route=RouteKind.SHELF,
        torch="2.7.1",
        cuda=Version("11.8"),
        cudnn=Version("8.7.0"),
        system="windows",
        pythons=("3.11",),
        code=(offers.listed((Target(Capability(3, 5)),)),),
        location="torch-2.7.1-cp311-cp311-win_amd64.whl",
        source="test",
        evidence=Evidence.BINARY,
    )
    read = shelf.ShelfOffers(offers=(own,), set_aside={"torch-9.9.9.whl": "torch 9.9.9 is newer"})
    monkeypatch.setattr("rekindle.wheels.shelf.shelf.offers", lambda *_: read)
    found = on_shelves(Shelves(addresses=(str(tmp_path),)))
    assert found == (own,)
    verdict = resolve(situation_from_options(["Tesla K40c"], system="windows", python="3.11"), Wish(), found)
    assert verdict.recommended.route is RouteKind.SHELF
    assert verdict.recommended.commands == ("pip install torch-2.7.1-cp311-cp311-win_amd64.whl",)


def test_a_cudnn_that_is_here_is_not_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """Its header says 8.7.0, its archive is called 8.7.0.84."""
    machines = Path(__file__).parent.parent / "machines"
    said = []
    for name in ("k40c-windows", "k40c-ready-windows"):
        words = ["plan", "--machine", str(machines / f"{name}.json"), "--torch", "1.12.1", "--cuda", "11.4"]
        assert run(words) == 0
        said.append(capsys.readouterr().out)
    assert ["cuDNN 8.7.0.84 for CUDA 11" in text for text in said] == [True, False]


def test_several_machines_get_the_fewest_stacks(capsys: pytest.CaptureFixture[str]) -> None:
    machines = Path(__file__).parent.parent / "machines"
    files = [str(machines / f"{name}.json") for name in ("k40c-windows", "k40c-ready-windows", "rtx5070-windows")]
    assert run(["plan", *(word for file in files for word in ("--machine", file)), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "rekindle.nodes/1"
    stacks = {node["name"]: (node["torch"], node["python"]) for node in answer["nodes"]}
    # The two with a K40c share one stack, and it is the one that each would get alone.
    assert stacks["k40c-windows"] == stacks["k40c-ready-windows"]
    assert stacks["k40c-windows"][0] == "2.7.1"
    assert answer["stacks"] == 2


def test_the_decisive_reason_is_the_card_and_not_the_driver() -> None:
    verdict = resolve(situation_from_options(["GTX 1080 Ti"], system="windows", driver="560"), Wish())
    assert "has no code for GeForce GTX 1080 Ti" in (verdict.decisive or "")
    old = resolve(situation_from_options(["RTX 4090"], system="linux", driver="535"), Wish())
    assert "does not run CUDA" in (old.decisive or "")


def test_the_reason_is_about_the_official_wheel_that_came_closest() -> None:
    """A T4G was told that 2.14.1 does not build with CUDA 10.2; an M60 of 2.8.0, though 2.14.1 lacks only a driver."""
    arm = resolve(situation_from_options(["g5g.xlarge"], system="linux"), Wish())
    assert (arm.decisive or "").startswith("not 2.14.1: torch 2.14.1+cu130 has no code for T4G (7.5): it was built for")
    old = resolve(situation_from_options(["Tesla M60"], system="windows", driver="474.44"), Wish())
    assert old.decisive == "not 2.9.1: driver 474.44 does not run CUDA 12.6: it needs 528.33 or newer"


def test_a_file_of_the_user_is_never_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "pyproject.toml"
    mine.write_text('[project]\nname = "mine"\n', encoding="utf-8")
    words = ("plan", "--gpu", "V100", "--os", "linux", "-o", str(mine))
    for more in ((), ("--as", "uv")):
        seen = rekindle_command(*words, *more)
        assert seen.code == 2 and "already exists" in seen.err
        assert mine.read_text(encoding="utf-8") == '[project]\nname = "mine"\n'


def test_a_form_is_what_is_written(tmp_path: Path) -> None:
    new, plan = tmp_path / "new.toml", tmp_path / "plan.toml"
    assert rekindle_command("plan", "--gpu", "V100", "--os", "linux", "--as", "uv", "-o", str(new)).code == 0
    assert "[tool.uv" in new.read_text(encoding="utf-8")
    for _ in range(2):
        assert rekindle_command("plan", "--gpu", "V100", "--os", "linux", "-o", str(plan)).code == 0
    assert "rekindle.lock/1" in plan.read_text(encoding="utf-8")


def test_a_release_and_a_toolkit_asked_together_are_answered_together() -> None:
    seen = rekindle_command(
        "plan", "--gpu", "RTX 5070", "--os", "windows", "--why-not", "torch==2.7", "--cuda", "12.3", "--json"
    )
    answer = seen.json()["why_not"]
    assert "CUDA 12.3" in answer["sentence"] and "12.8" in answer["instead"]


def test_torch_compile_on_pascal_names_the_triton_that_others_built(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--gpu", "Tesla P100", "--os", "linux", "--needs", "compile", "--json"]) == 5
    notes = " ".join(json.loads(capsys.readouterr().out)["notes"])
    assert "triton-pascal" in notes and "UNVERIFIED" in notes and "field evidence" in notes
    for card, system in (("Tesla P100", "windows"), ("Tesla K80", "linux")):
        assert run(["plan", "--gpu", card, "--os", system, "--needs", "compile", "--json"]) == 5
        assert "triton-pascal" not in " ".join(json.loads(capsys.readouterr().out)["notes"]), (card, system)


@pytest.mark.parametrize("need", ["compile", "flash-attention"])
def test_a_release_from_before_what_is_needed_is_not_proposed(need: str) -> None:
    """`--torch X --needs Y` gave torch 1.13.1 as if nothing had been asked of it."""
    words = ("plan", "--gpu", "RTX 3090", "--os", "linux", "--torch")
    seen = rekindle_command(*words, "1.13.1", "--needs", need)
    said = " ".join(seen.out.split())
    assert seen.code == 5 and "PyTorch 1.13.1 has no " in said and "yet: 2.0 is the first with it" in said
    assert "torch==2.0.1" in said
    assert rekindle_command(*words, "2.0.1", "--needs", need).code == 0
    seen = rekindle_command("plan", "--gpu", "A100,V100", "--os", "linux", "--torch", "2.15", "--needs", "compile")
    lines = [line for line in seen.out.splitlines() if "rekindle plan" in line]
    assert lines and all("--needs compile" in line for line in lines), "what is pasted next asks for it, too"


def test_what_a_board_or_wsl_needs_first_is_there_to_paste() -> None:
    """`git` was not named, an archive had no command, and WSL's Ubuntu refuses a bare pip."""
    board = rekindle_command("plan", "--gpu", "Jetson AGX Orin", "--os", "JetPack 6.2").out
    assert "apt-get install -y git python3-pip" in board
    assert "    tar -xf libcusparse_lt-" in board and "sudo cp -a libcusparse_lt-" in board
    inside = " ".join(rekindle_command("plan", "--gpu", "RTX 4070", "--os", "wsl2", "--driver", "527.41").out.split())
    assert "Ubuntu 24.04's own Python takes nothing from pip" in inside and "python3 -m venv" in inside


def test_who_has_no_administrator_says_so() -> None:
    """Another driver, WSL and packages of the system were proposed to people who cannot have them."""
    words = ("plan", "--gpu", "RTX 3090", "--driver", "470", "--torch", "2.9", "--os", "linux")
    assert "first install the driver" in rekindle_command(*words).out
    seen = rekindle_command(*words, "--prefer", "no-admin")
    assert seen.code == 5 and "torch==2.7.1+cu118" in seen.out and "administrator" not in seen.out
    words = ("plan", "--gpu", "V100", "--os", "linux", "--needs", "compile")
    assert "sudo" in rekindle_command(*words).out
    assert "sudo" not in rekindle_command(*words, "--prefer", "no-admin").out
    only = rekindle_command("plan", "--gpu", "RTX 5090", "--os", "linux", "--driver", "535", "--prefer", "no-admin")
    assert "what would help: a different driver" in only.out, "what nothing else replaces is said"


@pytest.mark.long
def test_nccl_is_on_linux_only_and_not_for_kepler() -> None:
    """Two cards that must train together: Windows has no NCCL, WSL 2 has; a K80 has none anywhere."""
    seen = rekindle_command("plan", "--gpu", "2x RTX 3090", "--os", "windows", "--needs", "nccl", "--json").json()
    assert seen["recommended"]["route"] == "wsl"
    notes = " ".join(seen["notes"])
    assert "this build has NCCL" in notes and "no NCCL" not in notes
    here = rekindle_command("plan", "--gpu", "2x RTX 3090", "--os", "linux", "--needs", "nccl", "--json").json()
    assert here["recommended"]["route"] == "official-wheel" and "this build has NCCL" in " ".join(here["notes"])
    kepler = rekindle_command("plan", "--gpu", "2x K80", "--os", "linux", "--needs", "nccl", "--json")
    assert kepler.code == 5 and "NCCL" in kepler.json()["recommended"]["summary"]


def test_a_folder_of_machines_shares_the_newest_stack_that_serves_most() -> None:
    """A GTX 1080 Ti and an RTX 3050 share 2.14.1, each on its own Python. They were sent to 2.7.1, seven releases
    back, for the two K40c, which are built for alone; the RTX 5070 needs CUDA 12.8."""
    seen = rekindle_command("plan", "--machine", str(Path(__file__).parent.parent / "machines"), "--json")
    answer = json.loads(seen.out)
    found = {node["name"]: (node["torch"], node["cuda"]) for node in answer["nodes"] if node["torch"]}
    assert answer["stacks"] == 3
    assert found == {
        "half-conda-windows": ("2.14.1", "12.6"),
        "k40c-ready-windows": ("2.7.1", "11.8"),
        "k40c-windows": ("2.7.1", "11.8"),
        "rtx5070-windows": ("2.11.0", "12.8"),
        "wsl": ("2.14.1", "12.6"),
    }
    assert {node["alone"] for node in answer["nodes"]} == {None}


def test_how_a_driver_was_read_is_said_also_where_nothing_works() -> None:
    seen = rekindle_command("plan", "--gpu", "RTX 5090", "--os", "linux", "--arch", "x86_64", "--driver", "530")
    assert seen.code == NoRoute.exit_code
    assert "driver 530 is taken as" in seen.out


def test_machines_that_are_alike_share_a_line_and_say_what_to_run(tmp_path: Path) -> None:
    from support.command import rekindle_command

    machines = Path(__file__).parents[1] / "machines"
    for number in range(40):
        shutil.copy(machines / "k40c-windows.json", tmp_path / f"node{number:02}.json")
    shutil.copy(machines / "mixed-linux.json", tmp_path / "odd.json")
    said = rekindle_command("plan", "--machine", str(tmp_path)).out
    assert "node00 and 39 more" in said
    assert said.count("node01") == 1
    assert "Run on node00 and 39 more\n    rekindle plan" in said
    assert "on one of them; `rekindle install --wheel WHEEL`" in said
    assert "odd: no driver drives all of these cards" in said
    assert "\n40 of 41 machines served: 1 stack\n" in said
    assert rekindle_command("plan", "--machine", str(tmp_path), "--as", "pip").code == 2
    assert rekindle_command("plan", "--gpu", "V100", "--within", "3").code == 2


@pytest.mark.parametrize(
    ("system", "python"), [("windows", r"torch-env\Scripts\python"), ("linux", "torch-env/bin/python")]
)
def test_another_python_is_used_without_being_activated(system: str, python: str) -> None:
    """`.venv` already exists where the README was followed, and PowerShell runs no activation as it comes."""
    seen = rekindle_command("plan", "--gpu", "K80", "--os", system, "--python", "3.14")
    printed = [line.strip() for line in seen.out.partition("  Run\n")[2].partition("\n\n")[0].splitlines()]
    assert printed[0] == "uv venv --seed --python 3.12 torch-env"
    assert len(printed) > 1
    assert all(line.startswith(f"{python} -m pip install ") for line in printed[1:])
    assert "activate" not in seen.out
    assert "needs uv" in seen.out


def test_a_container_brings_its_own_python() -> None:
    seen = rekindle_command("plan", "--gpu", "K80", "--os", "linux", "--why-not", "2.7.1")
    assert "in a container" in seen.out
    assert "None" not in seen.out


def test_two_reasons_do_not_contradict_each_other() -> None:
    """One said that the libraries of CUDA 11.8 were not known to run, the next that they had no code for the card."""
    question = ("--why-not", "torch==2.1.2", "--all")
    seen = rekindle_command("plan", "--gpu", "RTX 5070", "--os", "windows", *question)
    said = " ".join(seen.out.split())
    assert "math libraries of CUDA 11.8 run on it is not known" in said
    assert "have no code for GeForce RTX 5070" not in said
    seen = rekindle_command("plan", "--gpu", "V100", "--os", "linux", "--why-not", "cuda==13.0", "--all")
    assert "math libraries of CUDA 13 (" not in seen.out


WITH = ("--gpu", "RTX 3090", "--os", "windows", "--python", "3.12")


def test_an_extension_decides_which_pytorch_it_is() -> None:
    """`extension find flash-attn` said for the newest PyTorch that there is no wheel; an older one has one."""
    plain = rekindle_command("plan", *WITH, "--json").json()["recommended"]
    answer = rekindle_command("plan", *WITH, "--with", "flash-attn", "--json")
    best = answer.json()["recommended"]
    assert answer.code == 0 and Version(best["torch"]) < Version(plain["torch"])
    assert f"torch{Version(best['torch']).major_minor}-cp312" in str(best["commands"][-1])
    assert any("flash-attn" in said and "extension find" in said for said in best["unverified"])
    found = rekindle_command("extension", "find", "flash-attn", "--torch", f"{best['torch']}+{best['variant']}", *WITH)
    assert found.code == 9, "what plan promises, find finds"


def test_the_torch_that_is_told_is_not_changed_for_an_extension() -> None:
    answer = rekindle_command("plan", *WITH, "--torch", "2.15.0", "--with", "flash-attn")
    assert answer.code == 5
    assert "no ready-made wheel of flash-attn is known for torch 2.15.0" in " ".join(answer.out.split())
    assert "a different PyTorch" in answer.out


def test_an_extension_that_no_build_serves_the_card_with_is_not_built() -> None:
    answer = rekindle_command("plan", "--gpu", "GTX 1080 Ti", "--os", "linux", "--with", "flash-attn")
    assert answer.code == 5 and "it begins with 8.0" in " ".join(answer.out.split())
    assert "extension build" not in answer.out and "does without flash-attn" in " ".join(answer.out.split())
    both = rekindle_command(
        "plan", "--gpu", "RTX 2080 Ti", "--os", "linux", "--with", "flash-attn", "--with", "xformers"
    )
    assert "does without flash-attn then" in " ".join(both.out.split()) and "pip install xformers==" in both.out


def test_extensions_may_be_a_list() -> None:
    two = rekindle_command("plan", *WITH, "--with", "xformers", "--with", "flash-attn", "--json").json()
    assert rekindle_command("plan", *WITH, "--with", "xformers, flash-attn", "--json").json() == two


def test_an_extension_that_nobody_knows_is_not_called_answered() -> None:
    answer = rekindle_command("plan", *WITH, "--with", "no-such-thing")
    assert answer.code == 9 and "which wheel of no-such-thing fits" in " ".join(answer.out.split())


def test_a_form_of_another_tool_holds_torch_alone() -> None:
    assert rekindle_command("plan", *WITH, "--with", "flash-attn", "--as", "uv").code == 2


def test_a_companion_that_is_asked_for_is_there() -> None:
    """The newest PyTorch that is known for Linux has no torchaudio: the newest that has one is taken."""
    plain = rekindle_command("plan", "--gpu", "RTX 3090", "--os", "linux", "--json").json()["recommended"]
    assert plain["torchaudio"] is None, "choose another card: this one's PyTorch has its torchaudio"
    best = rekindle_command("plan", "--gpu", "RTX 3090", "--os", "linux", "--with", "torchaudio", "--json").json()
    assert best["recommended"]["torchaudio"]


@pytest.mark.parametrize("name", ["", "flash-attn==2.7.4", "Flash Attn or xformers", "x$(id)", "torch"])
def test_what_is_no_name_of_an_extension_is_refused_by_every_verb(name: str) -> None:
    for words in (("plan", *WITH, "--with", name), ("extension", "find", name, "--gpu", "RTX 3090", "--os", "linux")):
        answer = rekindle_command(*words)
        assert answer.code == 2 and "hint:" in answer.err, words
    assert "`flash-attn`" in rekindle_command("plan", *WITH, "--with", "Flash Attn or xformers").err


@pytest.mark.parametrize("name", ["xformer", "gsplatt"])
def test_a_misspelt_extension_is_answered_with_the_right_one(name: str) -> None:
    """It was planned for as if it existed."""
    answer = rekindle_command("plan", *WITH, "--with", name)
    assert answer.code == 3 and "did you mean" in answer.err


def test_a_written_machine_takes_a_system_as_the_option_does(tmp_path: Path) -> None:
    """`Ubuntu 20.04` in such a file left torchvision out, and ended `-o` with an internal error."""
    file = tmp_path / "nodes" / "k80.json"
    file.parent.mkdir()
    driver = {"version": "470.256.02"}
    machine = {"os": "Ubuntu 20.04", "arch": "x86_64", "gpus": [{"name": "Tesla K80"}], "driver": driver}
    file.write_text(json.dumps({"schema": "rekindle.machine/1", "machine": machine}), encoding="utf-8")
    best = rekindle_command("plan", "--machine", str(file), "--json").json()["recommended"]
    words = ("--gpu", "Tesla K80", "--os", "Ubuntu 20.04", "--driver", "470.256.02")
    named = rekindle_command("plan", *words, "--json").json()["recommended"]
    kept = ("torch", "variant", "torchvision", "torchaudio", "python", "commands")
    assert {name: best[name] for name in kept} == {name: named[name] for name in kept} and best["python"] == "3.8"
    assert rekindle_command("plan", "--machine", str(file.parent), "-o", str(tmp_path / "plans")).code == 0


def test_what_is_run_inside_wsl_says_so() -> None:
    """A bare `pip` behind `wsl --install` is the one of Windows."""
    words = ("--gpu", "2x RTX 3090", "--os", "windows", "--needs", "nccl", "--json")
    commands = rekindle_command("plan", *words).json()["recommended"]["commands"]
    assert all(str(each).startswith("wsl ") for each in commands) and "torch-env/bin/python -m pip" in commands[-1]


def test_a_python_that_nobody_has_is_made() -> None:
    """torch 1.7.1 has no wheel for a Python that Rekindle itself runs with."""
    words = ("--gpu", "RTX 3090", "--os", "linux", "--torch", "1.7.1", "--json")
    commands = rekindle_command("plan", *words).json()["recommended"]["commands"]
    assert "--python 3.9" in commands[0] and all("torch-env" in each for each in commands)


@pytest.mark.parametrize(
    ("card", "driver", "system", "named"),
    [
        ("RTX 4070 Ti", "520.56.06", "linux", "525.47.07"),
        ("RTX 4070 Ti", "525.60.13", "linux", None),
        ("RTX 4090", "520.56.06", "linux", None),
        ("RTX 4070 Ti", "522.25", "windows", None),
        ("RTX 3090", "455.45.01", "linux", None),
        ("sm_89", "520.56.06", "linux", None),
    ],
)
def test_a_driver_that_may_be_older_than_the_card_is_said(card: str, driver: str, system: str, named: str) -> None:
    """520.56.06 knows Ada, and was there before the RTX 4070 Ti."""
    verdict = resolve(situation_from_options([card], system=system, driver=driver), Wish())
    said = [note for note in verdict.notes if "NVIDIA's lists name" in note]
    assert len(said) == (named is not None)
    assert not named or f"from driver {named} on, and {driver} is older" in said[0]


def test_a_card_alone_keeps_the_driver_that_is_there() -> None:
    """The advice said that an RTX 5070 alone needs R580, under which another answer was given at once."""
    seen = rekindle_command(
        *("plan", "--gpu", "GTX 1060 6GB", "--gpu", "RTX 5070", "--os", "linux", "--driver", "575.51.03")
    )
    said = " ".join(seen.out.split())
    assert seen.code != 0 and "RTX 5070 alone gets official-wheel torch 2.13.0+cu129" in said
    assert '`rekindle plan --gpu "GeForce RTX 5070" --os linux --driver 575.51.03`' in said
