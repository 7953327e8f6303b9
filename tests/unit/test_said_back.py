"""What a person typed is understood or said back: forgotten quotes, another system, a release nobody knows."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from rekindle.build.configure.request import BuildFile, resolve
from rekindle.core.errors import MissingTool, UsageError
from rekindle.diagnose.answer import Diagnosis, LogOutcome
from rekindle.diagnose.report import markdown
from rekindle.install.apply import check
from rekindle.machine.model import Machine
from rekindle.model.environment import Environment
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind
from support.command import rekindle_command


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("gpu GTX 1080 Ti", 'rekindle gpu "GTX 1080 Ti"'),
        ("plan --gpu RTX 5070 --os windows", '--gpu "RTX 5070"'),
        ("audit --gpu GTX 1080 Ti", '--gpu "GTX 1080 Ti"'),
        ("extension check folder", "extension build"),
    ],
)
def test_forgotten_quotes_are_shown(typed: str, hint: str) -> None:
    seen = rekindle_command(*typed.split())
    assert seen.code == 2
    assert hint in " ".join(seen.err.split())


def test_the_linux_that_was_named_is_said_back() -> None:
    seen = rekindle_command("plan", "--gpu", "RTX 4090", "--os", "Ubuntu 22.04")
    assert "on Linux (Ubuntu 22.04)" in seen.out
    assert "not in Rekindle's data" not in " ".join(seen.out.split())


def test_a_release_that_nobody_knows_is_said() -> None:
    seen = rekindle_command("plan", "--gpu", "RTX 4090", "--os", "Ubuntu 99.04")
    said = " ".join((seen.out + seen.err).split())
    assert "which glibc Ubuntu 99.04 has is not in Rekindle's data" in said


@pytest.mark.parametrize(("system", "arch"), [("windows", "x86_64"), ("linux", "x86_64")])
def test_a_plan_for_another_system_is_refused_as_such(system: str, arch: str) -> None:
    """It said that a toolkit was missing, which nobody could have installed there."""
    wanted = BuildFile(torch="2.7.1", system=system, arch=arch)
    with pytest.raises(UsageError, match=f"for {system.capitalize()} on x86_64; this is Linux on aarch64"):
        resolve(wanted, Machine(os="linux", arch="aarch64"))


def test_a_plan_says_for_which_system_it_is(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    words = ("--gpu", "K40c", "--os", "windows", "--torch", "1.13.1", "-o", str(plan))
    assert rekindle_command("plan", *words).code == 0
    from rekindle.build.configure.request import read

    assert (read(plan).system, read(plan).arch) == ("windows", "x86_64")
    assert msgspec.structs.replace(read(plan), system=None).torch == "1.13.1"


def test_a_text_without_a_build_is_not_accepted(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Garden\n\nWater the roses.\n", encoding="utf-8")
    seen = rekindle_command("review", str(tmp_path / "README.md"))
    assert "accepted" not in seen.out
    assert "nothing was checked" in seen.out


def test_facts_of_a_report_are_said_in_words() -> None:
    facts = {"torch": "2.7.1", "torch_lacks_card": "True", "triton": "False", "gpu_name": "K80"}
    said = markdown(Diagnosis(outcome=LogOutcome.UNKNOWN, summary="x", lines=1, facts=facts))
    assert "Known: torch 2.7.1, torch has no code for the GPU, gpu name K80" in said


def test_an_error_begins_with_what_is_in_the_way() -> None:
    """It began with the good news that a package should have code for the card."""
    route = Route(
        route=RouteKind.CONDA_FORGE, torch="2.13.0", summary="the package should have code", commands=("conda",)
    )
    place = Environment(
        root="env", os="linux", kind="venv", python=None, site_packages=("x",), interpreter=None, has_headers=False
    )
    with pytest.raises(MissingTool) as caught:
        check(route, place)
    assert caught.value.message == "this needs a conda environment, and `env` is not one"
    assert "conda" in (caught.value.hint or "")


@pytest.mark.skipif(os.name == "nt", reason="spelled for sh")
def test_what_is_said_back_is_one_word_for_the_shell() -> None:
    """It stood between double quotes, where a shell runs what is in `$(…)`."""
    seen = rekindle_command("plan", "--gpu", "GTX$(id)", "1080")
    assert "`--gpu 'GTX$(id) 1080'`" in seen.err
    assert "`rekindle gpu 'K40$(id) x'`" in rekindle_command("gpu", "K40$(id)", "x").err
