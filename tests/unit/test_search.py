"""The cheapest way first, over everything that a person can change; at most two others beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rekindle.core.version import Version
from rekindle.stack.answers import verdict as text
from rekindle.stack.resolver import resolve, several_cards
from rekindle.stack.route import Route, Verdict
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Prefer, Wish, situation_from_options
from support.command import rekindle_command


def _asked(*cards: str, system: str = "linux", driver: str | None = None, **wish: object) -> Verdict:
    return resolve(situation_from_options(cards, system=system, driver=driver), Wish(**wish))  # type: ignore[arg-type]


def _other(found: Verdict, wins: str) -> Route:
    return next(each.route for each in found.alternatives if wins in each.wins)


def test_a_driver_comes_before_a_build_of_hours() -> None:
    """An L40S on R550 was sent to a build of two hours; driver 580 makes the official wheel work."""
    found = _asked("L40S", driver="550.54.15", torch="2.15.0")
    best = found.recommended
    assert (best.route, best.torch) == (RouteKind.OFFICIAL_WHEEL, "2.15.0")
    assert best.change is not None and best.change.what == "driver"
    assert "580.65.06" in best.change.text and "administrator" in best.change.text
    assert [(each.what, each.have) for each in best.missing] == [("driver", "550.54.15")]
    assert _other(found, "nothing to change").route is RouteKind.SOURCE_BUILD
    assert _other(found, "quickest").torch == "2.14.1"
    assert "Driver 580.65.06 or newer (here: 550.54.15)" in text(found)


def test_the_driver_of_a_vgpu_guest_is_the_hosts_affair() -> None:
    """A guest was told to install a driver by itself, as an administrator."""
    found = _asked("GRID A100-10C", driver="535.104.05")
    newest = _other(found, "newest")
    assert newest.change is not None
    assert newest.change.text == "have the host's vGPU software updated to a guest driver 580.65.06 or newer"
    assert [(each.what, each.commands) for each in newest.missing] == [("driver", ())]
    assert "install the driver" in (_other(_asked("A100", driver="535.104.05"), "newest").change or newest.change).text


def test_what_spares_a_build_is_on_the_first_screen() -> None:
    """An RTX 5090 with 2.6.0 got the wheel of 2.7.1 fifty lines below the build, and no word why it is built."""
    found = _asked("RTX 5090", torch="2.6.0")
    first, _, rest = text(found).partition("\n  why\n")
    assert found.recommended.torch == "2.6.0" and "torch==2.7.1+cu128" in first
    assert rest.strip().startswith("- no official wheel of 2.6.0 serves: torch 2.6.0+cu126 has no code for")
    assert text(found).count("\nOr\n") == 1
    conda = _asked("GTX 960", system="windows", torch="2.8.0")
    assert conda.recommended.route is RouteKind.CONDA_FORGE
    assert (conda.decisive or "").startswith("no official wheel of 2.8.0 serves: torch 2.8.0+cu12")


def test_a_display_card_costs_no_build() -> None:
    found = _asked("GT 710", "RTX 3060")
    best = found.recommended
    assert best.route is RouteKind.OFFICIAL_WHEEL and best.change is not None
    assert best.change.text == "leave GeForce GT 710 out"
    assert best.loses[0] == "GeForce GT 710 is not used, and that driver does not drive it: R470 is its last"
    assert [card.name for card in found.situation.cards] == ["GeForce RTX 3060"]
    build = _other(found, "loses nothing")
    assert build.route is RouteKind.SOURCE_BUILD and build.arch_list == "3.5;8.6"
    assert "--prefer complete -o plan.toml" in build.commands[0]


def test_hours_of_building_are_not_the_first_answer_for_a_card_that_computes_little() -> None:
    """A GT 710 was sent to a build of two hours without a word on what it would gain."""
    found = _asked("GT 710", system="windows")
    best = found.recommended
    assert (best.route, best.variant, best.cuda) == (RouteKind.CPU_WHEEL, "cpu", None)
    (lost,) = best.loses
    assert lost.startswith(
        "GeForce GT 710 is not used: its chip has at most 384 cores, about what a processor computes"
    )
    assert lost.endswith("and hardly repays hours of building")
    assert "--index-url https://download.pytorch.org/whl/cpu" in str(best.commands[-1])
    build = _other(found, "loses nothing")
    assert (build.route, build.torch) == (RouteKind.SOURCE_BUILD, "2.7.1")
    assert "--prefer complete -o plan.toml" in build.commands[0]


@pytest.mark.parametrize("wish", [{"prefer": Prefer.COMPLETE}, {"cuda": Version("11.8")}])
def test_who_asks_for_the_card_gets_the_build(wish: dict[str, object]) -> None:
    assert _asked("GT 710", system="windows", **wish).recommended.route is RouteKind.SOURCE_BUILD


def test_a_plan_for_the_processor_is_found_again(tmp_path: Path) -> None:
    """`--from` of it ended with: PyTorch 2.15.0 cannot run on the card."""
    file = str(tmp_path / "plan.toml")
    assert rekindle_command("plan", "--gpu", "Quadro K2000", "--os", "linux", "-o", file).code == 0
    again = rekindle_command("plan", "--from", file)
    assert (again.code, again.out) == (0, "the same: torch 2.15.0+cpu, Python 3.12\n")


def test_the_release_that_was_asked_for_is_kept_on_the_processor() -> None:
    assert _asked("GT 640 Rev. 2", system="windows", torch="2.6.0").recommended.version == "2.6.0+cpu"
    # No build of it serves the card: that is no failure where the processor is as good.
    seen = rekindle_command("plan", "--gpu", "GT 650M", "--os", "linux", "--torch", "2.12.1", "--as", "requirements")
    assert (seen.code, seen.err) == (0, "") and "torch==2.12.1" in seen.out


@pytest.mark.parametrize("card", ["GT 1030", "MX130", "GT 730"])
def test_a_card_that_computes_little_is_called_so_whatever_its_route(card: str) -> None:
    found = _asked(card, system="windows")
    assert "has at most 384 cores" in " ".join(found.notes) and "whl/cpu" in " ".join(found.notes)


@pytest.mark.parametrize("card", ["GTX 680", "Tesla K40c", "GTX 750 Ti", "sm_35"])
def test_a_card_that_computes_is_not_called_small(card: str) -> None:
    assert "384 cores" not in " ".join(_asked(card, system="windows").notes)


def test_a_card_that_computes_is_not_given_up_unasked() -> None:
    found = _asked("Tesla K40c", "RTX 3060")
    assert [card.name for card in found.situation.cards] == ["Tesla K40c", "GeForce RTX 3060"]
    assert _other(found, "quickest").change is not None


def test_a_package_of_minutes_comes_before_a_build_of_hours() -> None:
    """A K40c's ready-made package was line 67 of `--all`."""
    found = _asked("Tesla K40c")
    assert found.recommended.route is RouteKind.CONDA_FORGE and found.recommended.change is None
    assert [each.wins for each in found.alternatives] == ["loses nothing, newest"]
    assert found.alternatives[0].route.route is RouteKind.SOURCE_BUILD


@pytest.mark.parametrize("prefer", [Prefer.NEWEST, Prefer.COMPLETE])
def test_a_preference_keeps_its_meaning(prefer: Prefer) -> None:
    found = _asked("Tesla K40c", prefer=prefer)
    assert (found.recommended.route, found.recommended.torch) == (RouteKind.SOURCE_BUILD, "2.7.1")
    assert [each.wins for each in found.alternatives] == (["quickest"] if prefer is Prefer.NEWEST else [])


def test_what_was_asked_for_is_not_given_up_first() -> None:
    found = _asked("Tesla K40c", torch="2.7.1")
    assert (found.recommended.route, found.recommended.torch) == (RouteKind.SOURCE_BUILD, "2.7.1")
    other = _other(found, "quickest")
    assert other.change is not None and other.change.text == "take PyTorch 2.4.1 instead"


def test_a_library_without_code_for_the_card_is_offered_and_not_first() -> None:
    """MAGMA's code for 7.5: until it is known to fail loudly, its wheel is a choice."""
    found = _asked("T4")
    assert found.recommended.torch == "2.14.1"
    assert _other(found, "newest").torch == "2.15.0"


def test_what_is_ready_as_it_is_stays_first() -> None:
    """A newer driver would allow a newer release: said, and never in front of what works tonight."""
    found = _asked("L40S", driver="550.54.15")
    assert found.recommended.change is None and found.recommended.torch == "2.14.1"
    newest = _other(found, "newest")
    assert newest.torch == "2.15.0" and newest.change is not None and newest.change.what == "driver"
    assert _asked("RTX 4090").alternatives == ()


def test_two_changes_are_found_where_one_is_not_enough() -> None:
    found = _asked("GT 710", "RTX 3060", driver="470.256.02", torch="2.15.0")
    assert found.recommended.change is not None
    assert "leave GeForce GT 710 out and install the driver" in found.recommended.change.text


def test_the_plan_that_begins_a_build_leads_to_that_build() -> None:
    build = _other(_asked("GT 710", "RTX 3060"), "loses nothing")
    words = [str(word) for word in build.commands[0].words[1:-2]]
    again = rekindle_command(*words, "--json").json()["recommended"]
    assert (again["route"], again["torch"], again["arch_list"]) == ("source-build", build.torch, build.arch_list)


@pytest.mark.skipif(sys.platform == "win32", reason="the driver is counted as Linux counts")
def test_install_changes_no_driver() -> None:
    seen = rekindle_command(
        "install", sys.prefix, "--gpu", "L40S", "--driver", "550.54.15", "--torch", "2.15.0", "--dry-run"
    )
    assert seen.code == 5 and "first install the driver 580.65.06 or newer" in seen.err


@pytest.mark.parametrize(
    ("card", "system", "torch", "version"),
    [
        ("RTX 3090", "linux", "1.8.1", "1.8.1+cu111"),
        ("A100", "linux", "1.9", "1.9.1+cu111"),
        ("RTX 3090", "windows", "1.7.1", "1.7.1+cu110"),
    ],
)
def test_a_papers_release_is_offered_where_it_is_asked_for(card: str, system: str, torch: str, version: str) -> None:
    """They were "older than Rekindle's data" to exactly those who need them."""
    best = _asked(card, system=system, torch=torch).recommended
    assert (best.route, best.version, best.numpy) == (RouteKind.OFFICIAL_WHEEL, version, "numpy<2")
    assert best.torchvision is not None and best.python == "3.9"


def test_an_old_release_is_never_offered_unasked() -> None:
    found = _asked("RTX 3090")
    assert all(not str(each.torch).startswith(("1.7", "1.8", "1.9")) for each in found.routes)


def test_the_reason_is_that_of_the_wheel_that_came_closest() -> None:
    """It said "no code for 5.2: built for sm_50 …" of cu128, where cu126 has the code and lacks the driver alone."""
    seen = rekindle_command("plan", "--gpu", "GTX 970", "--driver", "470.256.02", "--os", "linux")
    assert "not 2.8.0: driver 470.256.02 does not run CUDA 12.6" in " ".join(seen.out.split())


def test_what_a_wheel_was_built_for_is_what_torch_was_compiled_for() -> None:
    found = _asked("GTX 970").rejections
    said = next(each for each in found if each.rule == "wheel-code" and each.candidate.name == "torch 2.8.0+cu128")
    assert "sm_50" not in said.sentence and said.sentence.endswith("sm_70, sm_75, sm_80, sm_86, sm_90, sm_100, sm_120")


def test_why_not_begins_with_what_stops_the_plain_install() -> None:
    seen = rekindle_command("plan", "--gpu", "GTX 1080", "--why-not", "torch==2.15.0", "--os", "linux")
    said = " ".join(seen.out.split())
    assert "torch 2.15.0+cu132 has no code for GeForce GTX 1080 (6.1)" in said
    assert "PyTorch 2.15.0 works otherwise: a source build" in said


def test_a_wheel_nobody_opened_holds_nothing_that_its_toolkit_does_not_compile() -> None:
    found = _asked("GTX 1080", torch="2.15.0").rejections
    about = [each.rule for each in found if each.candidate.name == "torch 2.15.0+cu130"]
    assert "toolkit-target" in about


def test_what_was_asked_beside_torch_holds_for_every_route() -> None:
    answer = _asked("GTX 1070", torchvision="0.15")
    assert {route.torch for route in answer.routes} == {"2.0.1"}


def test_a_release_before_the_data_names_those_that_are_in_it() -> None:
    seen = rekindle_command("plan", "--gpu", "RTX 3090", "--torch", "0.4.1")
    assert seen.code == 3 and "1.7.1, 1.8.1, 1.9.0, 1.9.1)" in seen.err


def test_a_refusal_names_the_verb_or_the_place_that_helps() -> None:
    seen = rekindle_command("plan", "--gpu", "RTX 3080", "--for", "flash-attn")
    assert seen.code == 3 and "rekindle extension find flash-attn" in seen.err
    other = rekindle_command("plan", "--gpu", "V100", "--arch", "ppc64le")
    assert other.code == 2 and "no wheels with CUDA for `ppc64le`" in other.err


@pytest.mark.parametrize(
    ("card", "torch", "last"),
    [("RTX 3090", "1.7.1", "install --no-deps torchaudio==0.7.2"), ("GTX 1080 Ti", "1.4.0", "torchaudio==0.4.0")],
)
def test_a_companion_without_gpu_code_goes_with_every_line(card: str, torch: str, last: str) -> None:
    """`torchaudio is left out: none is known` was said of 0.7.2, which the package index has."""
    best = _asked(card, torch=torch).recommended
    assert str(best.commands[-1]).endswith(last) and not any("left out" in why for why in best.why)


@pytest.mark.parametrize(
    ("card", "driver", "said"),
    [
        ("GH200", "550.54.15", "torchvision 0.29.1 belongs to torch 2.14.1; whether there is one of cu126"),
        ("DGX Spark", None, "there is no torchaudio of cu132 for torch 2.15.0 and Linux on aarch64, only of cu130"),
    ],
)
def test_no_companion_is_told_from_one_that_nobody_looked_for(card: str, driver: str | None, said: str) -> None:
    assert said in " ".join(_asked(card, driver=driver).recommended.why)


def test_what_torch_compile_compiles_with_is_named_on_linux_and_in_wsl() -> None:
    """Triton compiles a C file when it first runs; a fresh Ubuntu has neither gcc nor Python's headers."""
    there = resolve(situation_from_options(["RTX 4090"], system="ubuntu 24.04"), Wish(needs=("compile",))).recommended
    (missing,) = (each for each in there.missing if each.what == "compiler")
    assert [str(each) for each in missing.commands] == ["sudo apt-get install -y gcc python3-dev"]
    inside = resolve(situation_from_options(["RTX 4090"], system="windows"), Wish(needs=("compile",))).recommended
    assert any("python3-venv gcc python3-dev" in str(each) for each in inside.commands)
    plain = resolve(situation_from_options(["RTX 4090"], system="ubuntu 24.04"), Wish()).recommended
    assert not any(each.what == "compiler" for each in plain.missing)


def test_slices_of_a_card_are_not_said_to_train_together() -> None:
    sliced = situation_from_options(["2x A100-SXM4-40GB MIG 3g.20gb"], system="linux")
    (said,) = several_cards(sliced, resolve(sliced, Wish()).recommended)
    assert "experimental" in said


def test_the_plan_of_a_newer_release_keeps_the_python() -> None:
    found = resolve(situation_from_options(["GTX 1080"], system="linux", python="3.11"), Wish())
    plans = [str(line) for step in found.outlook for line in step.commands if " plan " in str(line)]
    assert plans and all("--python 3.11" in line for line in plans)


def test_the_python_that_is_there_does_not_send_anybody_to_a_build() -> None:
    """A K40m under Python 3.9 was sent to an hour and a half of building; conda-forge has a package for that Python."""
    there = situation_from_options(["Tesla K40m"], system="CentOS 7", driver="470.82.01", python="3.9")
    assert resolve(there, Wish()).recommended.route is RouteKind.CONDA_FORGE


def test_beside_hours_of_building_stands_what_works_at_once() -> None:
    """Nothing is ready-made for a GTX 690 on Windows."""
    assert any("on the processor" in note for note in _asked("GTX 690", system="windows").notes)
    assert not any("on the processor" in note for note in _asked("Tesla K40c", system="linux").notes)


def test_a_jetson_with_a_newer_jetpack_is_told_where_wheels_are_listed() -> None:
    assert "install-pytorch-jetson-platform" in text(_asked("Jetson AGX Xavier", system="JetPack 6.2"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu", "GH200", "--arch", "x86_64"), "comes with an Arm processor only"),
        (("--gpu", "RTX 3080", "--os", "FreeBSD 14"), "does not exist for `freebsd`"),
        (("--gpu", "RTX 3080", "--os", "Windows 11 ARM"), "does not exist for `windows 11 arm`"),
    ],
)
def test_a_place_without_pytorch_for_cuda_is_refused(words: tuple[str, ...], said: str) -> None:
    done = rekindle_command("plan", *words)
    assert done.code == 2 and said in done.err


def test_a_companion_that_no_line_has_is_said_in_a_whole_sentence() -> None:
    found = _asked("RTX 3060", system="windows", torch="1.7.1")
    assert not any(line.rstrip().endswith("only of") for line in text(found).splitlines())


def test_a_newer_release_for_another_python_stands_beside() -> None:
    there = situation_from_options(["L4"], system="Debian 11", python="3.9")
    found = resolve(there, Wish())
    assert (found.recommended.torch, _other(found, "newest").torch) == ("2.8.0", "2.15.0")
    assert "for Python 3.12" in text(found)


def test_a_program_with_its_own_torch_is_no_extension() -> None:
    """`--with vllm` said that no PyTorch has a wheel of it."""
    done = rekindle_command("plan", "--gpu", "RTX 3090", "--os", "linux", "--with", "vllm")
    assert done.code == 2 and "plan --for vllm" in done.err


def test_makers_wheels_come_before_those_of_others() -> None:
    """torch 2.13 and a stranger's torch-scatter were first, though PyG has its own for 2.12."""
    there = situation_from_options(["L40S"], system="linux", python="3.11")
    found = resolve(there, Wish(extensions=("torch-scatter",)))
    assert found.recommended.torch == "2.12.1" and "data.pyg.org" in text(found)
    assert _other(found, "newest").torch == "2.13.0"
    assert "others than the makers built torch-scatter" in " ".join(text(found).split())
    trusting = resolve(there, Wish(extensions=("torch-scatter",), community=True))
    assert trusting.recommended.torch == "2.13.0"


def test_of_cards_that_no_driver_drives_together_one_is_left_out() -> None:
    """ "One card at a time" was said of two V100s, an RTX 3090 and an RTX 5080."""
    found = text(_asked("2x Tesla V100", "RTX 3090", "RTX 5080", driver="570.195.03"))
    assert "without GeForce RTX 5080 the others get official-wheel torch 2.14.1+cu126" in " ".join(found.split())


def test_a_patch_release_that_was_not_opened_loses_what_its_neighbour_loses() -> None:
    """2.12.0 of CUDA 13 has no MAGMA for a Turing card, as 2.12.1, which was opened."""
    there = situation_from_options(["RTX 2060"], system="linux", python="3.13t")
    assert resolve(there, Wish()).recommended.version == "2.12.0+cu126"


def test_conda_is_not_proposed_where_its_cuda_does_not_load() -> None:
    there = situation_from_options(["RTX 4090"], system="CentOS 7", python="3.12")
    conda = [route for route in resolve(there, Wish()).routes if route.route is RouteKind.CONDA_FORGE]
    assert conda and all(route.cuda and route.cuda < Version("12.9") for route in conda)


def test_flash_attention_is_not_promised_on_windows() -> None:
    """An A100 on Windows got a wheel that is compiled without it, and no word."""
    found = _asked("A100", system="windows", needs=("flash-attention",))
    assert found.recommended.route is RouteKind.WSL and "up to 2.14 are compiled without flash attention" in " ".join(
        text(found).split()
    )
    assert _asked("A100", needs=("flash-attention",)).recommended.route is RouteKind.OFFICIAL_WHEEL


def test_a_jetpack_made_from_ubuntu_24_04_has_its_python_and_its_driver() -> None:
    notes = " ".join(_asked("Jetson AGX Thor", system="JetPack 7.0").notes)
    assert "takes nothing from pip" in notes and "580.00" in notes


@pytest.mark.parametrize(("typed", "first"), [("JetPack 6.0", True), ("JetPack 6.2", False), ("JetPack 6", False)])
def test_a_wheel_of_another_jetpack_asks_for_the_update_first(typed: str, first: bool) -> None:
    """6.0 has CUDA 12.2 and cuDNN 8; the wheel of 6.1 wants 12.6 and cuDNN 9."""
    assert _asked("Jetson Orin Nano", system=typed).recommended.summary.startswith("first update") is first


def test_a_line_whose_cuda_knows_the_card_comes_first() -> None:
    """cu128 was chosen for a DGX Spark, though its NVRTC and ptxas do not know sm_121."""
    found = resolve(situation_from_options(["DGX Spark"], system="linux"), Wish(torch="2.9.1")).recommended
    assert found.cuda is not None and found.cuda >= Version("12.9")


def test_a_board_with_a_newer_jetpack_runs_what_is_made_for_servers() -> None:
    found = resolve(situation_from_options(["Jetson AGX Orin"], system="JetPack 7.2"), Wish()).recommended
    assert found.route is RouteKind.OFFICIAL_WHEEL and any("a board runs code" in each for each in found.unverified)


def test_the_headers_are_those_of_the_python_that_was_named() -> None:
    there = situation_from_options(["V100"], system="Ubuntu 22.04", python="3.11")
    found = resolve(there, Wish(needs=("compile",))).recommended
    assert any("python3.11-dev" in str(line) for piece in found.missing for line in piece.commands)
