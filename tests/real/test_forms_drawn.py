"""Two hundred situations and forms, drawn by a seed: each file is taken by its own reader, or refused with a reason."""

from __future__ import annotations

import random
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from packaging.specifiers import SpecifierSet
from pip._internal.commands import create_command
from pip._internal.network.session import PipSession
from pip._internal.req.constructors import install_req_from_line
from pip._internal.req.req_file import parse_requirements

from rekindle.knowledge.gpu.gpus import gpus
from rekindle.knowledge.torch.releases import torch_releases
from support.artefacts import unverified
from support.command import Seen, rekindle_command

# An older pip warns about its own parts.
pytestmark = pytest.mark.filterwarnings("ignore:pkg_resources is deprecated:DeprecationWarning")

FORMS = ("pip", "requirements", "uv", "conda", "pixi", "dockerfile")
PARTS = 20


def _drawn(part: int) -> Iterator[tuple[str, ...]]:
    """Ten of the two hundred: cards that people have, Pythons, drivers, releases and preferences."""
    dice = random.Random(f"forms {part}")
    names = sorted({row.name for row in gpus() if row.official and row.capability.major > 2})
    releases = [patch for row in torch_releases() for patch in row.patches]
    for _ in range(200 // PARTS):
        words = ["--gpu", dice.choice(names), "--os", dice.choice(["linux", "linux", "windows", "Ubuntu 22.04", "wsl"])]
        words += ["--gpu", dice.choice(names)] if dice.random() < 0.1 else []
        words += ["--python", dice.choice(["3.8", "3.10", "3.11", "3.12", "3.13t", "3.14"])] * (dice.random() < 0.6)
        words += ["--driver", dice.choice(["470", "525", "535.183.01", "550", "580", "595"])] * (dice.random() < 0.4)
        words += ["--torch", dice.choice(releases)] * (dice.random() < 0.4)
        words += ["--prefer", dice.choice(["newest", "quickest", "complete", "stable"])] * (dice.random() < 0.3)
        yield (*words, "--as", dice.choice(FORMS))


@pytest.mark.parametrize("part", range(PARTS))
def test_a_drawn_form_is_taken_by_its_reader(part: int, tmp_path: Path) -> None:
    for number, words in enumerate(_drawn(part)):
        seen = rekindle_command("plan", *words)
        said = f"{shlex.join(words)}\n{seen.err or seen.out}"
        if seen.code:
            refused = not seen.out and seen.err.startswith("error: ") and "\nhint: " in seen.err
            changed = seen.out and re.match(r"first: (install|leave) ", seen.err)
            assert seen.code in (2, 3, 5) and (refused or changed), said
        if not seen.out:
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            _READERS[words[-1]](seen, folder)
        except (AssertionError, SystemExit, ValueError, KeyError, yaml.YAMLError) as error:
            raise AssertionError(f"{error!r}\n{said}") from error


def _pip(seen: Seen, folder: Path) -> None:
    lines = seen.out.splitlines()
    assert lines
    for line in lines:
        _command(shlex.split(line.replace("\\", "/")))


def _command(words: list[str]) -> None:
    """pip's own parser takes what is for pip."""
    if "pip" not in words[:6] and not words[0].endswith("pip"):
        return
    verb, *rest = words[next(i for i, each in enumerate(words) if each.endswith("pip")) + 1 :]
    options, asked = create_command(verb).parse_args(rest)
    assert asked or options.requirements
    for each in asked:
        install_req_from_line(each)


def _requirements(seen: Seen, folder: Path) -> None:
    file = folder / "requirements.txt"
    file.write_text(seen.out, encoding="utf-8")
    found = list(parse_requirements(str(file), session=PipSession()))
    assert any("torch" in each.requirement for each in found)
    for each in found:
        install_req_from_line(each.requirement)


def _uv(seen: Seen, folder: Path) -> None:
    """uv itself reads the tables and gets as far as its index, which it may not ask."""
    uv = shutil.which("uv")
    if uv is None:
        unverified("uv is not installed")
    own = '[project]\nname = "mine"\nversion = "0.1"\n'
    tables = re.sub(r"^\[project\]$", "", seen.out, flags=re.M)
    wanted = re.search(r'^requires-python = "(.*)"$', tables, flags=re.M)
    assert wanted and SpecifierSet(wanted[1])
    # For this Python: uv asks for one that is here before it reads on.
    mine = tables.replace(wanted[0], 'requires-python = ">=3.10"')
    (folder / "pyproject.toml").write_text(own + mine, encoding="utf-8")
    asked = [str(uv), "lock", "--offline", "--no-cache", "--python", sys.executable]
    done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "not found in the cache" in done.stderr, done.stderr


def _conda(seen: Seen, folder: Path) -> None:
    found: Any = yaml.safe_load(seen.out)
    assert found["channels"] == ["conda-forge"]
    *plain, last = found["dependencies"]
    if isinstance(last, str):
        plain.append(last)
    else:
        (folder / "requirements.txt").write_text("\n".join(last["pip"]), encoding="utf-8")
        _requirements(Seen(0, "\n".join(last["pip"]), ""), folder)
    assert all(re.fullmatch(r"[a-z-]+(?:(?:[<>=!]=?)[\w.*]+(?:=[\w.*]+)?)?", each) for each in plain), plain


def _pixi(seen: Seen, folder: Path) -> None:
    found: Any = msgspec.toml.decode(seen.out)
    assert set(found) <= {"workspace", "system-requirements", "dependencies", "pypi-dependencies"}
    for row in found.get("pypi-dependencies", {}).values():
        assert row.keys() <= {"version", "index", "url"}
        SpecifierSet(row.get("version", ""))
    for each in found["dependencies"].values():
        assert re.fullmatch(r"(?:[<>=]=?)?[\d.*]+", each if isinstance(each, str) else each["version"])


def _dockerfile(seen: Seen, folder: Path) -> None:
    """Docker's words, pip's words, and `review`, which must find nothing to refuse."""
    lines = [line for line in seen.out.splitlines() if not line.startswith("#")]
    first, *rest = (line.partition(" ") for line in lines)
    assert first[0] == "FROM" and {each[0] for each in rest} == {"RUN"}
    for _, _, text in rest:
        _command(shlex.split(text))
    (folder / "Dockerfile").write_text(seen.out, encoding="utf-8")
    reviewed = rekindle_command("review", str(folder / "Dockerfile"), "--json").json()["scripts"][0]
    assert not reviewed["refused"], reviewed["remarks"]


_READERS = {
    "pip": _pip,
    "requirements": _requirements,
    "uv": _uv,
    "conda": _conda,
    "pixi": _pixi,
    "dockerfile": _dockerfile,
}
