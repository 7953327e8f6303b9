"""`factory init` with projects of your own: what goes into the repository, and what never does."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from rekindle.core import own
from rekindle.fleet import job, planning
from rekindle.fleet.factory.template import WORKFLOW
from rekindle.fleet.state import keys_named
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

SAID = ("--rekindle", "git+https://host.org/me/rekindle", "--accept-licence")


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
    seen = rekindle_command("factory", "init", str(repository), "--matrix", str(mine / "matrix.toml"), *SAID)
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


def test_a_card_that_no_wheel_is_built_for_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for three cards and gets wheels for two finds out here, not after nine hours of runners."""
    matrix = tmp_path / "mine.toml"
    matrix.write_text(
        'torch = "2.15.0"\ncuda = "12.6"\ngpu = ["GTX 1080 Ti", "V100", "K80"]\npython = ["3.12"]\n', encoding="utf-8"
    )
    why = "CUDA 12.6 cannot compile for compute capability 3.7 (sm_37): 11.8 is the last that can"
    seen = rekindle_command("factory", "init", str(tmp_path / "factory"), "--matrix", str(matrix), *SAID)
    assert seen.code == 0
    assert f"not built: torch-2.15.0-cu12.6-K80-3.12-linux: {why}" in " ".join(seen.err.split())
    page = (tmp_path / "factory" / "README.md").read_text(encoding="utf-8")
    assert f"It does not build:\n\n- torch-2.15.0-cu12.6-K80-3.12-linux: {why}\n\nWhat is published" in page
    monkeypatch.chdir(tmp_path)
    seen = rekindle_command("fleet", "export", "slurm", matrix.name, "-o", "a.sh", *SAID)
    assert seen.code == 0
    assert f"not built: torch-2.15.0-cu12.6-K80-3.12-linux: {why}" in " ".join(seen.err.split())


def test_a_number_without_its_quotes_is_named(tmp_path: Path) -> None:
    """TOML reads 3.10 as 3.1: the same in a plan, a matrix and a build file."""
    matrix = tmp_path / "matrix.toml"
    matrix.write_text('torch = "2.15.0"\ngpu = ["V100"]\npython = [3.12]\n', encoding="utf-8")
    seen = rekindle_command("fleet", "plan", str(matrix))
    assert seen.code == 4
    assert "`$.python[0]`" in seen.err
    assert 'hint: write it in quotes there, such as "3.10"' in seen.err


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
    assert code == 2 and "already exists" in said
    assert sorted(path.name for path in project.parents[2].iterdir()) == ["factory", "id_ed25519", "mine"]


def test_a_repository_that_exists_keeps_what_is_in_it(project: Path) -> None:
    mine = project.parents[1]
    for name, text in {"README.md": "# mine\n", ".gitignore": "*.o"}.items():
        (mine / name).write_text(text, encoding="utf-8")
    before = {path: path.read_bytes() for path in mine.rglob("*") if path.is_file() and path.name != ".gitignore"}
    seen = rekindle_command("factory", "init", str(mine), "--matrix", str(mine / "matrix.toml"), *SAID)
    assert seen.code == 0, seen.err
    assert {path: path.read_bytes() for path in before} == before
    assert (mine / "FACTORY.md").is_file() and (mine / WORKFLOW).is_file()
    assert (mine / ".gitignore").read_text(encoding="utf-8").splitlines()[0] == "*.o"


def _jobs(repository: Path) -> dict[str, str]:
    flow = yaml.safe_load((repository / WORKFLOW).read_text(encoding="utf-8"))
    first = next(iter(flow["jobs"].values()))
    return {entry["name"]: entry["key"] for entry in first["strategy"]["matrix"]["include"]}


def test_a_factory_in_the_projects_own_repository_builds_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was PyTorch itself that was to be built, and a matrix with `source = "."` was refused."""
    (project / "pyproject.toml").write_text('[project]\nname = "fastnms"\n', encoding="utf-8")
    (project / "README.md").write_text("# fastnms\n", encoding="utf-8")
    monkeypatch.chdir(project)
    seen = rekindle_command("factory", "init", ".", *SAID)
    assert seen.code == 0, seen.err
    jobs = _jobs(project)
    assert len(jobs) == 3 and all(name.startswith("fastnms-torch") for name in jobs)
    assert (
        "1. Look at `matrix.toml`" in seen.out and (project / "README.md").read_text(encoding="utf-8") == "# fastnms\n"
    )
    # A commit to the project, and what a runner and a developer leave in its folder, change no name of the workflow.
    before = job.digest_source(project)
    (project / ".venv").mkdir()
    for name in ("shelf/x", "fleet-work/x", "site/x", ".venv/pyvenv.cfg", "upload.txt", "matrix.toml"):
        (project / name).parent.mkdir(exist_ok=True)
        with (project / name).open("a", encoding="utf-8") as stream:
            stream.write("\n")
    assert job.digest_source(project) == before
    (project / "csrc" / "k.cu").write_text("int x;", encoding="utf-8")
    planned = planning.make(project / "matrix.toml")
    for name, key in jobs.items():
        (found,) = keys_named(planned, (key,))
        assert keys_named(planned, (name,)) == (found,) and not found.startswith(key)
    assert job.digest_source(project) != before
    shelf = project / "shelf" / "__init__.py"
    shelf.write_text("", encoding="utf-8")
    assert "shelf/__init__.py" in job.source_names(project), "a package of that name is the project's own"
    assert (
        rekindle_command("factory", "init", "../new", "--matrix", "matrix.toml", *SAID).err.count("factory init") == 1
    )
    assert rekindle_command("fleet", "export", "github", "matrix.toml", *SAID).code == 0


def test_a_second_time_renews_and_keeps_what_was_changed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another card, or a newer Rekindle: the newcomer got stuck at files that were there already."""
    monkeypatch.chdir(project)
    assert rekindle_command("factory", "init", ".", *SAID).code == 0
    matrix, page = project / "matrix.toml", project / "README.md"
    text = matrix.read_text(encoding="utf-8").replace("6.1;7.0;7.5;8.0;8.6;9.0", "6.1")
    matrix.write_text(text, encoding="utf-8")
    seen = rekindle_command("factory", "init", ".", *SAID[:2])
    assert seen.code == 0 and matrix.read_text(encoding="utf-8") == text, "the terms were accepted, the file says"
    assert all("-sm61-" in name for name in _jobs(project)) and not (project / "FACTORY.md").exists()
    with monkeypatch.context() as from_a_folder:  # which no runner could fetch: the address was said once
        from_a_folder.setattr(own, "_origin", lambda: project)
        assert rekindle_command("factory", "init", ".").code == 0
    assert "git+https://host.org/me/rekindle" in (project / WORKFLOW).read_text(encoding="utf-8")
    page.write_text(page.read_text(encoding="utf-8").replace("wheel factory", "factory of mine"), encoding="utf-8")
    matrix.write_text(text.replace('"6.1"', '"7.0"'), encoding="utf-8")
    seen = rekindle_command("factory", "init", ".", *SAID)
    assert seen.code == 0 and "1. You have changed `README.md`" in seen.out
    assert "factory of mine" in page.read_text(encoding="utf-8") and "sm70" in (project / "README.md.new").read_text()
    assert all("-sm70-" in name for name in _jobs(project))
    (project / WORKFLOW).write_bytes((project / WORKFLOW).read_bytes().replace(b"\n", b"\r\n"))
    assert "workflow" not in rekindle_command("factory", "init", ".", *SAID, "--json").json()["steps"][0]
    (project / WORKFLOW).write_text("name: theirs\n", encoding="utf-8")
    assert "already exists" in rekindle_command("factory", "init", ".", *SAID).err


@pytest.mark.parametrize(
    ("said", "kept"), [("done       x  y.whl", True), ("kept       x", False), ("unfinished x", False)]
)
def test_the_step_keeps_what_it_made(project: Path, tmp_path: Path, said: str, kept: bool) -> None:
    """By its own answer: the key of a wheel is not that of the workflow, which holds for every commit."""
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    assert _init(project)[0] == 0
    flow = yaml.safe_load((project.parents[2] / "factory" / WORKFLOW).read_text(encoding="utf-8"))
    step = next(each for each in flow["jobs"]["build-round-1"]["steps"] if each.get("id") == "build")
    makes = (
        f"rekindle() {{ mkdir -p shelf/wheels shelf/fleet; sleep 0.05; echo > shelf/fleet/k.json; echo '{said}'; }}\n"
    )
    given = {"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "out"), "LAST": "true", "KEY": "k"}
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", makes + step["run"]],
        cwd=tmp_path, env={**os.environ, **given, "REKINDLE_KEY_TEXT": "", "SITE_URL": ""}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{said}\n"), done.stderr
    out = tmp_path / "out"
    assert (out.read_text() if out.exists() else "") == (
        "fresh=yes\nmade<<END\nshelf/fleet/k.json\nEND\n" if kept else ""
    )


def test_the_matrix_that_nobody_named_says_that_it_is_pytorchs(tmp_path: Path) -> None:
    seen = rekindle_command("factory", "init", str(tmp_path / "f"), *SAID)
    assert seen.out.startswith("f: 18 jobs")
    assert seen.code == 0 and "1. Look at `matrix.toml`: it is PyTorch itself." in seen.out


def test_an_ignore_file_that_is_a_link_brings_nothing_in(project: Path) -> None:
    mine = project.parents[1]
    trees.link(mine / ".gitignore", project.parents[2] / "id_ed25519")
    seen = rekindle_command("factory", "init", str(mine), "--matrix", str(mine / "matrix.toml"), *SAID)
    assert seen.code == 4 and "is a link" in seen.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (SAID[:2], "add `--accept-licence`"),
        (SAID[2:], '`--rekindle "rekindle-torch @ git+https://'),
        ((*SAID, "--matrix", "nothing.toml"), "there is nothing to build"),
    ],
)
def test_a_refused_init_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    """A workflow that cannot work is not written, and the next try finds the folder as it was."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own, "_origin", lambda: tmp_path)
    (tmp_path / "nothing.toml").write_text('torch = "1.0"\ncuda = "12.6"\ngpu = "6.1"\n', encoding="utf-8")
    seen = rekindle_command("factory", "init", "f", *words)
    assert seen.code == 2 and said in " ".join(seen.err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["nothing.toml"]


def test_what_is_left_to_do_is_said_here_and_in_the_readme(project: Path) -> None:
    mine, repository = project.parents[1], project.parents[2] / "factory"
    seen = rekindle_command("factory", "init", str(repository), "--matrix", str(mine / "matrix.toml"), *SAID, "--json")
    steps = seen.json()["steps"]
    assert [step.partition(" ")[0] for step in steps] == ["Push", "Switch", "Make", "Start"]
    readme = (repository / "README.md").read_text(encoding="utf-8")
    assert all(f"{number}. {step}\n" in readme for number, step in enumerate(steps, 1))
    assert "cu118.sm35" not in readme and "1 rounds" not in readme and "builds 1 wheel on" in readme
    flow = yaml.safe_load((repository / WORKFLOW).read_text(encoding="utf-8"))
    assert flow["on"] == {"workflow_dispatch": {}}, "the first push comes before key and pages are there"
    assert flow["env"]["REKINDLE_REQUIREMENT"] == "rekindle-torch[sign] @ git+https://host.org/me/rekindle"
    (entry,) = flow["jobs"]["build-round-1"]["strategy"]["matrix"]["include"]
    (planned,) = planning.make(repository / "matrix.toml").plan.jobs
    assert planned.lock is not None and planned.lock.asked.startswith(entry["key"])
    signing = [
        step for each in flow["jobs"].values() for step in each["steps"] if "REKINDLE_KEY_TEXT" in step.get("env", {})
    ]
    assert [step["name"] for step in signing] == ["Build", "Index and coverage"]


@pytest.mark.parametrize("name", [".github", ".github/workflows"])
def test_a_workflow_is_not_written_through_a_link(project: Path, name: str) -> None:
    repository, outside = project.parents[2] / "factory", project.parents[2] / "outside"
    outside.mkdir()
    (repository / name).parent.mkdir(parents=True, exist_ok=True)
    trees.link(repository / name, outside, to_folder=True)
    code, said, _ = _init(project)
    assert code == 4 and "is a link" in said, said
    assert list(outside.iterdir()) == []


def test_a_matrix_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_bytes(b'torch = "2.7.1\xff"\n')
    seen = rekindle_command("factory", "init", str(tmp_path / "new"), "--matrix", str(tmp_path / "m.toml"), *SAID)
    assert seen.code == 4 and not (tmp_path / "new").exists(), seen.err
