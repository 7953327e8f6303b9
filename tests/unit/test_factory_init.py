"""`factory init` with projects of your own: what goes into the repository, and what never does."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import trees
from support.command import rekindle_command

MATRIX = """project = ["kernels"]
torch = ["2.7.1"]
cuda = ["11.8"]
gpu = ["6.1"]
python = ["3.11"]

[projects.kernels]
source = "projects/kernels"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "mine" / "projects" / "kernels"
    (folder / "csrc").mkdir(parents=True)
    (folder / "setup.py").write_text("from setuptools import setup\nsetup()\n", encoding="utf-8")
    (folder / "csrc" / "k.cu").write_text("", encoding="utf-8")
    (tmp_path / "mine" / "matrix.toml").write_text(MATRIX, encoding="utf-8")
    (tmp_path / "id_ed25519").write_text("private", encoding="utf-8")
    return folder


def _init(project: Path) -> tuple[int, str, set[str]]:
    mine = project.parents[1]
    repository = mine.parent / "factory"
    seen = rekindle_command("factory", "init", str(repository), "--matrix", str(mine / "matrix.toml"))
    found = {path.relative_to(repository).as_posix() for path in repository.rglob("*") if not path.is_dir()}
    return seen.code, " ".join(seen.err.split()), found


def test_the_files_of_a_project_and_nothing_of_its_git(project: Path) -> None:
    (project / ".git").mkdir()
    (project / ".git" / "config").write_text("url = https://token@host/", encoding="utf-8")
    code, said, found = _init(project)
    assert code == 0, said
    assert found == {
        "matrix.toml", "README.md", ".gitignore", ".github/workflows/factory.yml", "projects/kernels/setup.py",
        "projects/kernels/csrc/k.cu",
    }  # fmt: skip


@pytest.mark.parametrize("place", ["csrc/key", "csrc", ".", ".."])
def test_a_link_is_refused_before_anything_is_written(project: Path, place: str) -> None:
    """A link of a project that came from somebody else brought the user's private key into the repository."""
    link = (project / place).resolve()
    if link.is_dir():
        link.rename(project.parents[2] / "elsewhere")
        trees.link(link, project.parents[2] / "elsewhere", to_folder=True)
    else:
        trees.link(link, project.parents[2] / "id_ed25519")
    code, said, found = _init(project)
    assert (code, found) == (4, set()), said
    assert f"`{link}` is a link" in said


@pytest.mark.parametrize("name", ["projects", "projects/kernels"])
def test_a_folder_that_is_there_is_not_written_into(project: Path, name: str) -> None:
    """It may be a link itself, or hold one."""
    taken = project.parents[2] / "factory" / name
    taken.parent.mkdir(parents=True)
    trees.link(taken, project.parents[2], to_folder=True)
    code, said, _ = _init(project)
    assert code == 2 and "is there already" in said
    assert sorted(path.name for path in project.parents[2].iterdir()) == ["factory", "id_ed25519", "mine"]
