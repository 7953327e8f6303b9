"""Judgements: one verdict, one sentence and one change, whoever asks."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from rekindle.audit import environment_checks
from rekindle.audit.module_checks import AuditContext
from rekindle.compat import driver_cuda
from rekindle.compat.companion import belongs
from rekindle.compat.driver_cuda import DriverNeed
from rekindle.compat.extension_torch import official_abi, runtimes, same_abi, same_cuda
from rekindle.compat.host_compiler import takes_compiler
from rekindle.compat.judgement import Clash, Fits, Unknown, judged
from rekindle.compat.library_card import cudnn_serves
from rekindle.compat.toolkit_card import arch_list, compiles
from rekindle.compat.torch_cuda import has_line, taken
from rekindle.compat.torch_python import takes
from rekindle.compat.wheel_platform import built_for
from rekindle.compat.wheel_platform import goes_with as wheel_goes_with
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.doctor.cuda import driven, targets
from rekindle.inputs.driver import read_driver
from rekindle.knowledge.cuda import toolkits
from rekindle.model.card import Capability
from rekindle.model.driver import Driver
from rekindle.model.host_compiler import msvc
from rekindle.model.platform import LINUX
from rekindle.model.toolkit import FoundToolkit
from rekindle.stack.driver import Driving, drive, window_of
from rekindle.stack.offers import official_of
from rekindle.stack.resolver import resolve
from rekindle.stack.rules import Candidate, RouteKind
from rekindle.stack.situation import Situation, Wish, situation_from_options
from rekindle.wheels.inspect import inspection
from support.command import rekindle_command

_DRIVERS = ("418.39", "450.80.02", "470.256.02", "R535", "550", "560.35.03", "570.86.10", "580", "595.45.04", "612.1")
_EVERY = list(
    itertools.product(_DRIVERS, [str(row.version) for row in toolkits.toolkits()], ("linux", "windows", "wsl2"))
)
_SEEDED = random.Random(28).sample(_EVERY, 40)


@pytest.mark.parametrize(("driver", "cuda", "system"), _SEEDED)
def test_a_driver_and_a_cuda_are_judged_alike(driver: str, cuda: str, system: str) -> None:
    """`--driver 580`: plan took cu130 and audit failed it; WSL with 527.41: plan refused, audit saw no problem."""
    counting = "linux" if system == "linux" else "windows"
    asked = read_driver(driver, counting).driver
    answer = driver_cuda.runs(asked, Version(cuda))
    assert not isinstance(answer, Unknown)

    situation = situation_from_options(["A100"], system=system, driver=driver)
    window = window_of(situation)
    route = drive(toolkits.toolkit(cuda), situation, window, Candidate(name="x"))
    told = driven("cuda.driver-runs", asked, Version(cuda), f"CUDA {cuda}")
    place = AuditContext(
        environment=None, contents=None, torch="2.7.1", cuda=Version(cuda), cards=(), driver=asked,  # type: ignore[arg-type]
        offered=None, known={},
    )  # fmt: skip
    audited = [each.finding for each in environment_checks._driver(place)]
    if isinstance(answer, Fits):
        assert isinstance(route, Driving) and route.loses == answer.loses
        assert told.state is State.PASS and all(each in told.found for each in answer.loses)
        assert audited == []
        return
    assert not isinstance(route, Driving) and route.sentence == answer.sentence
    assert told.state is State.FAIL and answer.sentence in told.found and told.fix
    assert told.fix.text == answer.changes[0].text
    assert [each.state for each in audited] == [State.FAIL] and answer.sentence in audited[0].found
    assert audited[0].fix and answer.changes[0].text in audited[0].fix.text


def test_the_driver_sentence_is_one() -> None:
    """One wheel needed "560.76" without a driver and "528.33" with one; "595.45" and "580.65" for the same cu132."""
    for card, cuda, system in (("GTX 1080 Ti", "12.6", "windows"), ("RTX 4090", "13.2", "linux")):
        said = set()
        for driver in (None, "580.65.06", "595.45.04"):
            situation = situation_from_options([card], system=system, driver=driver)
            if driver is not None and isinstance(driver_cuda.runs(situation.driven_by, Version(cuda)), Clash):  # type: ignore[arg-type]
                continue
            route = drive(toolkits.toolkit(cuda), situation, window_of(situation), Candidate(name="x"))
            said.add(route.words() if isinstance(route, Driving) else route.sentence)
        assert len(said) == 1
        need = driver_cuda.need(Version(cuda), system)
        assert isinstance(need, DriverNeed) and str(need.floor) in said.pop()
        assert inspection._drivers(Version(cuda), full=False)[system] == need.floor  # type: ignore[index]


def test_what_would_help_is_computed() -> None:
    answer = driver_cuda.runs(Driver(Version("535.183.01"), "linux"), Version("13.0"))
    assert isinstance(answer, Clash)
    assert [(each.what, each.value) for each in answer.changes] == [("driver", "580.65.06"), ("cuda", "12.9")]
    for each in answer.changes:
        driver = Version(each.value) if each.what == "driver" else Version("535.183.01")
        cuda = Version(each.value) if each.what == "cuda" else Version("13.0")
        assert isinstance(driver_cuda.runs(Driver(driver, "linux"), cuda), Fits)


def test_a_cuda_that_nobody_knows_is_not_guessed() -> None:
    assert isinstance(driver_cuda.runs(Driver(Version("580.65.06"), "linux"), Version("99.0")), Unknown)


_PAIRS = random.Random(29).sample(
    list(itertools.product(("11.4", "11.8", "12.3", "12.9", "13.0"), ("14.16", "14.29", "14.34", "14.39", "14.44"))), 20
)


@pytest.mark.parametrize(("cuda", "toolset"), _PAIRS)
def test_a_cuda_and_a_toolset_are_judged_alike(cuda: str, toolset: str, tmp_path: Path) -> None:
    """Through plan, doctor's check, a build's preflight and review."""
    from rekindle.review import review as room
    from rekindle.stack.resolver import resolve
    from rekindle.stack.situation import Wish

    answer = takes_compiler(Version(cuda), msvc(Version(toolset)))
    verdict = resolve(
        situation_from_options(["RTX 2080"], system="windows"), Wish(cuda=Version(cuda), toolset=Version(toolset))
    )
    refused = {each.sentence for each in verdict.rejections if each.rule == "cuda-msvc"}
    state, told = judged(answer, "fits")
    script = tmp_path / "build.bat"
    lines = [
        f'call "C:\\VS\\VC\\Auxiliary\\Build\\vcvars64.bat" -vcvars_ver={toolset}',
        f"set CUDA_HOME=C:\\CUDA\\v{cuda}",
        f"set PATH=C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v{cuda}\\bin;%PATH%",
        "cd pytorch",
        "python setup.py bdist_wheel",
    ]
    script.write_text("\r\n".join(lines) + "\r\n", encoding="utf-8")
    remarks = [each for file in room.review((script,)).scripts for each in file.remarks if each.id == "toolset-refused"]
    if isinstance(answer, Clash):
        assert state is State.FAIL and told == answer.sentence
        assert any(answer.sentence in each for each in refused)
        assert remarks and all(answer.sentence in f"{each.found} {each.why}" for each in remarks)
    else:
        assert state is State.PASS and not refused and not remarks


@pytest.mark.parametrize(
    ("card", "cuda"), [("Tesla K40c", "12.3"), ("RTX 5070", "12.3"), ("Tesla K40c", "11.8"), ("V100", "13.0")]
)
def test_a_toolkit_and_a_card_are_judged_alike(card: str, cuda: str) -> None:
    from rekindle.stack.resolver import resolve
    from rekindle.stack.situation import Wish

    situation = situation_from_options([card], system="linux")
    (own,) = situation.cards
    answer = compiles(Version(cuda), own.capabilities[0], f"{own.name} ({own.capabilities[0].sm})")
    verdict = resolve(situation, Wish(cuda=Version(cuda)))
    refused = {each.sentence for each in verdict.rejections if each.rule == "toolkit-target"}
    toolkit = FoundToolkit(root="/cuda", version=Version(cuda), nvcc="/cuda/bin/nvcc")
    told = targets(toolkit, own.capabilities[0])
    if isinstance(answer, Clash):
        assert answer.sentence in refused and isinstance(told, Clash) and told.changes == answer.changes
        for change in answer.changes:
            assert isinstance(compiles(Version(change.value), own.capabilities[0], "x"), Fits)
    else:
        assert isinstance(told, Fits) and f"CUDA {cuda} cannot compile" not in " ".join(refused)


_RELEASES = ("1.10.2", "1.13.1", "2.0.1", "2.4.1", "2.6.0", "2.8.0", "2.11.0", "2.15.0")
_PYTHONS = ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")


@pytest.mark.parametrize(
    ("torch", "python"), random.Random(36).sample(list(itertools.product(_RELEASES, _PYTHONS)), 12)
)
def test_a_torch_and_a_python_are_judged_alike(torch: str, python: str, tmp_path: Path) -> None:
    """`plan --why-not`, the fleet and `review` each looked into the release's list."""
    answer = takes(torch, python, "linux")
    lines = f"FROM python:{python}-slim\nRUN pip install torch=={torch}\n"
    (tmp_path / "Dockerfile").write_text(lines, encoding="utf-8")
    found = rekindle_command("review", str(tmp_path / "Dockerfile"), "--json").json()["scripts"][0]["remarks"]
    assert any(each["id"] == "python-not-supported" for each in found) is isinstance(answer, Clash)
    card = situation_from_options(["RTX 3090"], system="linux", python=python)
    asked = _python_of_torch(torch, card)
    assert asked == (answer.sentence if isinstance(answer, Clash) else None)


def _python_of_torch(torch: str, card: Situation) -> str | None:
    broken = resolve(card, Wish(torch=torch), as_it_is=True).rejections
    own = (each for each in broken if each.candidate.route is RouteKind.OFFICIAL_WHEEL)
    said = {each.sentence for each in own if each.rule == "torch-python"}
    assert len(said) < 2
    return said.pop() if said else None


def test_what_nobody_knows_of_a_torch_and_a_python_is_not_a_clash() -> None:
    assert isinstance(takes("99.1.0", "3.12", "linux"), Unknown)
    first = takes("2.15.0", "3.8", "linux")
    assert isinstance(first, Clash) and [each.value for each in first.changes] == ["3.12", "2.4.1"]


@pytest.mark.parametrize(
    ("torch", "line", "abi"),
    [("2.5.1", None, "pre-cxx11"), ("2.6.0", "cu126", "cxx11"), ("2.6.0", "cu124", "pre-cxx11"), ("2.6.0", None, None),
     ("2.7.0", None, "cxx11")],
)  # fmt: skip
def test_the_c_plus_plus_abi_of_pytorchs_own_wheels(torch: str, line: str | None, abi: str | None) -> None:
    assert official_abi(Version(torch), line) == abi
    other = "cxx11" if abi == "pre-cxx11" else "pre-cxx11"
    assert isinstance(same_abi("it", other, abi), Clash if abi else Unknown)


def test_a_line_that_releases_before_and_after_have_is_not_known_to_lack() -> None:
    assert isinstance(has_line("2.9.1", "cu129"), Unknown)
    assert all(
        isinstance(has_line(*each), Clash) for each in [("2.7.1", "cu129"), ("2.9.1", "cu118"), ("2.3.1", "cu124")]
    )
    assert isinstance(has_line("2.8.0", "cu129"), Fits)
    assert taken(lambda patch: patch == "2.9.1", line="cu129") is None


@pytest.mark.parametrize(
    ("name", "line", "kind"),
    [("torch2.9.0cxx11abiFALSE", "cu128", Fits), ("torch2.6cxx11abiFALSE", "cu126", Clash),
     ("torch2.4cxx11abiTRUE", "cu124", Clash)],
)  # fmt: skip
def test_a_torch_that_has_one_abi_gives_it_to_what_is_compiled_with_it(name: str, line: str, kind: type) -> None:
    built = built_for(f"flash_attn-2.8.3+{line}{name}-cp313-cp313-linux_x86_64.whl")
    answer = wheel_goes_with(built, torch=f"{built.torch}.0", line=line, python="3.13", system="linux")
    assert isinstance(answer, kind)


@pytest.mark.parametrize("needed", [["libcudart.so.11.0", "libc.so.6"], ["cudart64_110.dll"], ["libcudart.so.11"]])
def test_a_runtime_of_another_major_is_another_cuda(needed: list[str]) -> None:
    assert runtimes(needed) == [11]
    answer = same_cuda("x.so", Version("11"), Version("12.6"))
    assert isinstance(answer, Clash)
    assert answer.sentence == "x.so uses CUDA 11, and torch is built for CUDA 12.6"
    assert answer.changes[0].text == "build it with a CUDA 12 toolkit"
    assert isinstance(same_cuda("x.so", Version("11"), None), Clash)
    assert isinstance(same_cuda("x.so", Version("12.1"), Version("12.6")), Fits)


@pytest.mark.parametrize(
    ("vision", "verdict"), [("0.21.0", Fits), ("0.21", Fits), ("0.21.9", Unknown), ("0.20.1", Clash)]
)
def test_a_companion_is_judged_alike(vision: str, verdict: type, tmp_path: Path) -> None:
    """Of a patch release that the tables do not have, audit said FAIL and review nothing."""
    assert isinstance(belongs("torchvision", vision, "2.6.0"), verdict)
    (tmp_path / "requirements.txt").write_text(f"torch==2.6.0\ntorchvision=={vision}\n", encoding="utf-8")
    seen = rekindle_command("review", str(tmp_path / "requirements.txt"), "--json").json()["scripts"][0]["remarks"]
    assert any(each["id"] == "companion" for each in seen) is (verdict is Clash)


@pytest.mark.parametrize(("line", "glibc"), [("cu118", "2.5"), ("cu124", "2.5"), ("cu126", "2.28")])
def test_one_line_of_a_release_was_built_on_a_newer_system(line: str, glibc: str) -> None:
    """All of 2.6 but the experimental line was built on the old platform."""
    offers = {offer.variant: offer.glibc for offer in official_of("2.6.0", LINUX)}
    need = offers[line]
    assert need is not None and need >= Version(glibc)
    assert (need >= Version("2.28")) == (line == "cu126")


@pytest.mark.parametrize(
    ("cards", "cuda", "written"),
    [
        (["8.9"], "11.4", "8.6+PTX"),
        (["8.6", "8.9"], "11.4", "8.6+PTX"),
        (["8.9"], "11.8", "8.9"),
        (["3.5"], "11.8", "3.5"),
        (["12.1"], "12.8", "12.0+PTX"),
    ],
)
def test_nvcc_is_asked_for_what_it_knows(cards: list[str], cuda: str, written: str) -> None:
    """An RTX 4090 and CUDA 11.4 were planned with `8.9+PTX`, which that nvcc refuses."""
    assert arch_list([Capability.parse(each) for each in cards], Version(cuda), jit=True) == written


def test_the_first_toolkit_is_the_one_that_knows_the_card() -> None:
    answer = compiles(Version("10.2"), Capability.parse("8.9"), "RTX 4090 (sm_89)")
    assert isinstance(answer, Clash) and answer.sentence.endswith("11.8 is the first that can")


def test_a_card_that_came_later_has_a_first_cudnn() -> None:
    """It was said of a Blackwell card that no cuDNN has code for it."""
    answer = cudnn_serves(Version("9.5.1"), Capability(12, 0), cuda_major=12)
    assert isinstance(answer, Clash) and answer.sentence.endswith("9.7.0.66 is the first with it")
    assert "or newer" in answer.changes[0].text
