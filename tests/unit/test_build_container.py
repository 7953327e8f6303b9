"""`rekindle build --container`: a plan as a Dockerfile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser

from rekindle.core import own
from support.command import rekindle_command
from support.cuda import project


@pytest.fixture(autouse=True)
def fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Rekindle that another computer can get, too."""
    monkeypatch.setattr(own, "_origin", lambda: "git+https://host.org/me/rekindle")


@pytest.fixture
def kepler(tmp_path: Path) -> Path:
    words = ["plan", "--gpu", "Tesla K40c", "--os", "linux", "--torch", "2.7.1", "--cuda", "11.8", "--python", "3.11"]
    seen = rekindle_command(*words, "-o", str(tmp_path / "plan.toml"))
    assert seen.code == 0, seen.err
    return tmp_path / "plan.toml"


def read(path: Path) -> list[tuple[str, str]]:
    """By a parser that is not ours."""
    with path.open("rb") as stream:
        structure = DockerfileParser(fileobj=stream).structure
    return [(each["instruction"], each["value"]) for each in structure if each["instruction"] != "COMMENT"]


def test_a_plan_becomes_a_file_with_its_toolchain_and_an_end_that_holds_the_shelf(kepler: Path) -> None:
    target = kepler.parent / "Dockerfile"
    seen = rekindle_command("build", str(kepler), "--container", str(target), "--json")
    assert seen.code == 0, seen.err
    found = read(target)
    assert found[0] == ("ARG", "BASE=python:3.11-bookworm")
    assert [value for word, value in found if word == "FROM"] == ["${BASE} AS build", "scratch"]
    said = target.read_text(encoding="utf-8")
    assert "toolchain install cuda==11.8 cudnn==8.7.0.84 --cuda 11.8" in said and "UNVERIFIED" in said
    assert ("COPY", '["plan.toml", "/src/plan.toml"]') in found
    assert rekindle_command("build", str(kepler), "--container", str(target)).code == 0, "its own file is written anew"


def test_a_build_with_openblas_brings_it(tmp_path: Path) -> None:
    """Python's image has none, and CMake stops without it."""
    (tmp_path / "b.toml").write_text('torch = "1.13.1"\nprofile = "minimal"\n', encoding="utf-8")
    assert rekindle_command("build", str(tmp_path / "b.toml"), "--container", str(tmp_path / "Dockerfile")).code == 0
    said = (tmp_path / "Dockerfile").read_text(encoding="utf-8")
    assert "toolchain install openblas --accept-licence" in said and "NVIDIA" not in said


def test_a_project_of_your_own_is_copied_with_its_build_file(tmp_path: Path) -> None:
    shutil.copytree(project("spark"), tmp_path / "spark")
    words = ["build", str(tmp_path / "spark" / "build.toml"), "--container", str(tmp_path / "spark" / "Dockerfile")]
    assert rekindle_command(*words, "--base", "debian:12").code == 0
    found = read(tmp_path / "spark" / "Dockerfile")
    assert ("COPY", '[".", "/src/."]') in found and found[0] == ("ARG", "BASE=debian:12")


def test_what_cannot_be_is_refused(kepler: Path, tmp_path: Path) -> None:
    mine = tmp_path / "Mine"
    mine.write_text("FROM scratch\n", encoding="utf-8")
    assert rekindle_command("build", str(kepler), "--container", str(mine)).code == 2
    assert mine.read_text(encoding="utf-8") == "FROM scratch\n"
    (tmp_path / "elsewhere").mkdir()
    assert rekindle_command("build", str(kepler), "--container", str(tmp_path / "elsewhere" / "Dockerfile")).code == 2
    assert rekindle_command("build", str(kepler), "--container", str(tmp_path / "D"), "--clean").code == 2
    assert rekindle_command("build", str(kepler), "--base", "x").code == 2
    evil = ["build", str(kepler), "--container", str(tmp_path / "D")]
    assert rekindle_command(*evil, "--base", "x\nRUN evil").code == 2
    assert rekindle_command(*evil, "--rekindle", "x\nRUN evil").code not in (0, 1) and not (tmp_path / "D").exists()
    words = ["plan", "--gpu", "Tesla K40c", "--os", "windows", "--torch", "2.7.1", "--cuda", "11.8", "--python", "3.11"]
    assert rekindle_command(*words, "-o", str(tmp_path / "w.toml")).code == 0
    assert rekindle_command("build", str(tmp_path / "w.toml"), "--container", str(tmp_path / "W")).code == 2
