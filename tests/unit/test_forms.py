"""`plan --as`: the same pins in the form of a project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.command import rekindle_command

PASCAL = ("plan", "--gpu", "1080 ti", "--os", "linux")
PINS = {"torch": "2.14.1+cu126", "torchvision": "0.29.1+cu126", "torchaudio": "2.11.0+cu126"}
INDEX = "https://download.pytorch.org/whl/cu126"


def shown(form: str, *words: str) -> str:
    seen = rekindle_command(*(words or PASCAL), "--as", form)
    assert seen.code == 0, seen.err
    return seen.out


def test_pip_is_the_command_of_the_plan() -> None:
    assert shown("pip").split() == rekindle_command(*PASCAL, "--json").json()["recommended"]["commands"][-1].split()


def test_a_requirements_file_has_the_pins_and_their_index() -> None:
    lines = [line for line in shown("requirements").splitlines() if not line.startswith("#")]
    assert lines == [f"--extra-index-url {INDEX}", *(f"{name}=={version}" for name, version in PINS.items())]


def test_before_python_3_7_the_usual_index_stays_beside_pytorchs() -> None:
    """PyTorch's index has no typing_extensions and no dataclasses for Python 3.6: alone it cannot be installed from."""
    old = ("plan", "--gpu", "RTX A2000", "--os", "linux", "--python", "3.6")
    for form in ("pip", "requirements", "conda", "dockerfile"):
        text = shown(form, *old)
        assert "--extra-index-url https://download.pytorch.org/whl/cu113" in text and "--index-url" not in text
    assert "--extra-index-url" not in shown("pip", *old[:-1], "3.7")


@pytest.mark.parametrize("form", ["uv", "requirements", "pixi", "conda", "dockerfile"])
def test_another_python_than_the_one_asked_for_is_said_in_the_file(form: str) -> None:
    assert "# Python 3.12 instead of 3.15: PyTorch 2.14.1 is for Python 3.10 to 3.14" in shown(
        form, *PASCAL, "--python", "3.15"
    )


def test_uv_gets_sources_an_explicit_index_and_constraints() -> None:
    found: Any = msgspec.toml.decode(shown("uv"))
    pins = [f"{name}=={version}" for name, version in PINS.items()]
    assert found["project"]["dependencies"] == found["tool"]["uv"]["constraint-dependencies"] == pins
    assert found["tool"]["uv"]["sources"] == {name: {"index": "pytorch-cu126"} for name in PINS}
    assert found["tool"]["uv"]["index"] == [{"name": "pytorch-cu126", "url": INDEX, "explicit": True}]


def test_pixi_is_toml_with_the_pins() -> None:
    pixi: Any = msgspec.toml.decode(shown("pixi"))
    assert {name: row["version"] for name, row in pixi["pypi-dependencies"].items()} == {
        name: f"=={version}" for name, version in PINS.items()
    }


def test_a_lock_that_no_tool_would_take_is_refused_with_what_makes_one() -> None:
    """pip and uv refused all of them: no addresses, no hashes, and nothing of what torch itself needs."""
    seen = rekindle_command(*PASCAL, "--as", "pylock")
    assert seen.code == 2 and "every file with its address and hash" in seen.err
    assert "--as requirements" in seen.err and "uv pip compile requirements.txt" in seen.err


def test_pixi_keeps_numpy_and_takes_every_driver_of_the_major_version() -> None:
    """`cuda = "12.6"` refuses driver 535, which runs it, and NumPy 2 came in beside torch 2.0.1."""
    found: Any = msgspec.toml.decode(shown("pixi", "plan", "--gpu", "3090", "--os", "linux", "--torch", "2.0.1"))
    assert found["dependencies"]["numpy"] == "<2" and found["system-requirements"] == {"cuda": "11"}


def test_pixi_takes_the_package_of_conda_forge() -> None:
    found: Any = msgspec.toml.decode(shown("pixi", "plan", "--gpu", "K40c", "--os", "linux", "--prefer", "quickest"))
    assert found["dependencies"]["pytorch"] == {"version": "2.4.1", "build": "cuda*"}


def test_an_environment_file_takes_condas_package_where_it_serves_the_card_whole() -> None:
    """A GTX 1080's was a section for pip alone."""
    lines = shown("conda").splitlines()
    assert '  - "pytorch=2.13.0=cuda*"' in lines and "  - pip:" not in lines
    assert lines[0].startswith("# torch 2.13.0 for")


def test_an_environment_file_holds_pip_to_the_line() -> None:
    lines = shown("conda", *PASCAL, "--torch", "2.14.1").splitlines()
    assert f"      - --index-url {INDEX}" in lines
    assert "      - torch==2.14.1+cu126" in lines


WHEEL = "https://developer.download.nvidia.com/compute/redist/jp/"


def test_a_jetsons_wheel_is_an_address_in_every_form() -> None:
    """`--as pixi` was an internal error, and uv refused its tables."""
    board = ("plan", "--gpu", "Jetson AGX Orin")
    pixi: Any = msgspec.toml.decode(shown("pixi", *board))
    assert pixi["pypi-dependencies"]["torch"]["url"].startswith(WHEEL)
    uv: Any = msgspec.toml.decode(shown("uv", *board))
    assert uv["project"]["dependencies"] == ["torch"] and "constraint-dependencies" not in uv["tool"]["uv"]
    assert uv["tool"]["uv"]["sources"]["torch"]["url"].startswith(WHEEL)
    refused = rekindle_command(*board, "--as", "dockerfile")
    assert refused.code == 2 and "JetPack" in refused.err


def test_the_python_of_a_machine_is_not_that_of_its_containers() -> None:
    recorded = ("plan", "--machine", str(Path(__file__).parent.parent / "machines" / "wsl.json"))
    assert "python     3.10" in rekindle_command(*recorded).out
    assert "FROM python:3.12-slim" in shown("dockerfile", *recorded)
    assert "FROM python:3.10-slim" in shown("dockerfile", *recorded, "--python", "3.10")


def test_a_dockerfile_is_for_linux_and_names_the_driver() -> None:
    text = shown("dockerfile")
    assert "FROM python:3.12-slim" in text
    assert "the host needs driver" in text
    assert rekindle_command("plan", "--gpu", "4090", "--os", "windows", "--as", "dockerfile").code == 2


@pytest.mark.parametrize("form", ["uv", "requirements", "pylock"])
def test_a_route_without_that_form_says_so(form: str) -> None:
    seen = rekindle_command("plan", "--gpu", "K40c", "--os", "windows", "--as", form)
    assert seen.code == 2
    assert "source-build" in seen.err


@pytest.mark.parametrize("form", ["pip", "requirements"])
def test_what_has_to_be_changed_before_is_said_with_every_form(form: str) -> None:
    """A P1000 on R595 got the commands and exit code 5, without a word on the driver that does not drive it."""
    seen = rekindle_command("plan", "--gpu", "Quadro P1000", "--os", "windows", "--driver", "595", "--as", form)
    assert seen.code == 5 and "first: install the driver 528.33 or newer, up to R580" in seen.err
    assert ("# first: install the driver" in seen.out) is (form == "requirements")


@pytest.mark.long
@pytest.mark.parametrize(
    ("python", "torch"), [("3.13t", "2.12.0"), ("3.14t", "2.15.0"), ("3.15t", "2.15.0"), ("3.12t", None)]
)
def test_free_threaded_pythons_are_those_of_the_index(python: str, torch: str | None) -> None:
    """The index lists them; 3.13t ends with 2.12.0, and there was never a 3.12t."""
    found = rekindle_command("plan", "--gpu", "4090", "--os", "linux", "--python", python, "--json").json()
    best = found["recommended"]
    assert (best["python"], best["torch"]) == ((python, torch) if torch else ("3.12", "2.15.0"))
    assert "UNVERIFIED" not in " ".join(best["why"])


def test_a_free_threaded_python_in_every_form() -> None:
    words = ("plan", "--gpu", "4090", "--os", "linux", "--python", "3.14t", "--torch", "2.15.0")
    uv: Any = msgspec.toml.decode(shown("uv", *words))
    assert uv["project"]["requires-python"] == "==3.14.*"
    pixi: Any = msgspec.toml.decode(shown("pixi", *words))
    assert pixi["dependencies"] == {"python-freethreading": "3.14.*"}
    assert "  - python-freethreading=3.14" in shown("conda", *words)
    assert rekindle_command(*words, "--as", "dockerfile").code == 2


def test_a_python_without_any_pytorch_is_said_first() -> None:
    said = rekindle_command("plan", "--gpu", "1080 ti", "--os", "linux", "--python", "2.7").out
    assert "no PyTorch since 1.10 has a wheel for Python 2.7" in " ".join(said.split()[:40])


def test_a_file_says_what_is_lost_and_which_driver_it_needs() -> None:
    """`--as conda` for a Kepler card was silent about the cuDNN that has no code for it."""
    lines = shown("conda", "plan", "--gpu", "GTX Titan Black", "--os", "linux", "--prefer", "quickest").splitlines()
    comments = " ".join(line for line in lines if line.startswith("# "))
    assert "R470" in comments and "cudnn.enabled = False" in comments
