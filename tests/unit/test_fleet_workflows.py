"""Exported workflows without a network: what they hold, how they are divided, and that the scripts are scripts."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from rekindle.core import own
from rekindle.core.errors import BadInput, UsageError
from rekindle.fleet import planning
from rekindle.fleet.export import write
from rekindle.fleet.export.write import Exported, ExportSettings
from rekindle.fleet.factory import template
from support.command import rekindle_command

TORCH = 'torch = "2.15.0"\ncuda = "12.6"\ngpu = "6.1"\npython = ["3.11", "3.12"]\nproject = ["torch", "torchvision"]\n'


@pytest.fixture(autouse=True)
def fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Rekindle that another computer can get, too."""
    monkeypatch.setattr(own, "_origin", lambda: "git+https://host.org/me/rekindle")


def exported(folder: Path, text: str = TORCH, **settings: object) -> Exported:
    (folder / "matrix.toml").write_text(text, encoding="utf-8")
    plan = planning.make(folder / "matrix.toml").plan
    return write.exported(plan, ExportSettings(**settings))  # type: ignore[arg-type]


def test_a_torch_gets_as_many_rounds_as_its_time_needs(tmp_path: Path) -> None:
    assert exported(tmp_path, limit=350, cores=4).rounds == 1
    assert exported(tmp_path, limit=120, cores=4).rounds == 5, "258 minutes on four cores by 80, and one to spare"
    assert exported(tmp_path, limit=120, cores=4, rounds=2).rounds == 2


def test_extensions_come_after_the_torch_they_need_and_know_its_key(tmp_path: Path) -> None:
    made = write.workflow(exported(tmp_path))
    first, second = made["jobs"].items()
    assert (first[0], second[0]) == ("build-round-1", "extensions-round-1")
    assert second[1]["needs"] == ["build-round-1"]
    torches = {entry["key"] for entry in first[1]["strategy"]["matrix"]["include"]}
    assert {entry["needs"] for entry in second[1]["strategy"]["matrix"]["include"]} == torches


@pytest.mark.long
def test_more_jobs_than_a_matrix_may_have_are_divided_and_none_is_lost(tmp_path: Path) -> None:
    cards = ["5.0", "5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0"]
    sets = [";".join(each) for size in (1, 2, 3, 4) for each in itertools.combinations(cards, size)][:300]
    text = TORCH.replace('"6.1"', json.dumps(sets)).replace('["torch", "torchvision"]', '"torch"')
    made = exported(tmp_path, text.replace('["3.11", "3.12"]', '"3.11"'), rounds=1)
    for jobs, most in ((write.workflow(made)["jobs"], 256), (write.pipeline(made), 200)):
        parts = [
            job.get("strategy", {}).get("matrix", {}).get("include") or job.get("parallel", {}).get("matrix")
            for job in jobs.values()
            if isinstance(job, dict) and ("strategy" in job or "parallel" in job)
        ]
        keys = [entry.get("key") or entry.get("KEY") for part in parts for entry in part]
        assert len(parts) > 1 and max(map(len, parts)) <= most
        assert sorted(keys) == sorted({str(job.key)[:16] for job in made.jobs}) and len(keys) == len(made.jobs)


def test_the_scripts_are_scripts(tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    made = exported(tmp_path)
    steps = next(iter(write.workflow(made)["jobs"].values()))["steps"]
    texts = [step["run"] for step in steps if "run" in step]
    assert not any("${{" in text for text in texts), "GitHub fills these in before the shell reads the line"
    texts.append(write.script(made))
    texts += write.pipeline(made)["build-1-linux-x86_64"]["script"]
    for text in texts:
        said = subprocess.run(
            ["bash", "-n"],
            input=text,
            text=True,
            capture_output=True,
            check=False,
        )
        assert said.returncode == 0, (text, said.stderr)


def test_the_nodes_of_a_cluster_need_a_toolkit_first_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(TORCH, encoding="utf-8")
    seen = rekindle_command("fleet", "export", "slurm", "m.toml", "-o", "a.sbatch")
    assert "`sbatch a.sbatch`" in seen.err
    first = [line for line in (tmp_path / "a.sbatch").read_text("utf-8").splitlines() if "every node reads it" in line]
    assert [line.partition("it: ")[2] for line in first] == [
        "rekindle toolchain install cuda==12.6 cudnn==9.10.2.21 --cuda 12.6", "rekindle toolchain install cuda==12.6"
    ]  # fmt: skip


def test_objects_go_from_round_to_round_not_build_trees(tmp_path: Path) -> None:
    steps = next(iter(write.workflow(exported(tmp_path))["jobs"].values()))["steps"]
    cached = [step["with"]["path"] for step in steps if "cache/" in step.get("uses", "")]
    assert cached == [write.COMPILED, write.COMPILED]


def test_terms_are_accepted_by_a_person_only(tmp_path: Path) -> None:
    made = exported(tmp_path)
    assert "--accept-licence" not in json.dumps(write.workflow(made)) and "terms" in write.notes(made)
    said = exported(tmp_path, accept_licence=True)
    assert "install --accept-licence" in json.dumps(write.workflow(said)) and "terms" not in write.notes(said)


def test_somebody_elses_file_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = exported(tmp_path)
    place = tmp_path / "ci.yml"
    place.write_text("jobs: {}\n", encoding="utf-8")
    with pytest.raises(UsageError, match="not written by Rekindle"):
        write.write("github", made, place)
    place.unlink()
    for _ in range(2):
        write.write("github", made, place)
    assert yaml.safe_load(place.read_text(encoding="utf-8"))["on"]["workflow_dispatch"] == {}
    assert rekindle_command("fleet", "export", "github", "--runner", "nonsense", "-o", "x").code == 2


def test_the_arithmetic_of_the_orphans_names_every_limit_and_that_nobody_tried(tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text(template.ORPHANS, encoding="utf-8")
    text = template.arithmetic(planning.make(tmp_path / "matrix.toml").plan, 3)
    for word in ("UNVERIFIED", "45 GB", "14 GB", "rounds of 310 minutes", "10 GB", "2 GiB"):
        assert word in text


@pytest.mark.parametrize("name", ["x$(touch PWNED).toml", "x`touch PWNED`.toml", "x'; touch PWNED; '.toml"])
def test_the_name_of_a_matrix_runs_nowhere(tmp_path: Path, name: str) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    made = exported(tmp_path, matrix=name)
    steps = next(iter(write.workflow(made)["jobs"].values()))["steps"]
    text = next(step["run"] for step in steps if step.get("id") == "build")
    lines = [
        next(line for line in text.splitlines() if line.startswith("rekindle fleet job")),
        next(line for line in write.script(made).splitlines() if line.startswith("rekindle fleet job")),
        write.pipeline(made)["build-1-linux-x86_64"]["script"][-1].removeprefix("code=0; "),
    ]
    for line in lines:
        shown = line.replace("rekindle", "printf '%s\\n'", 1).partition(" ||")[0].partition(" > ")[0]
        said = subprocess.run(["bash", "-c", shown], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert name in said.stdout.splitlines() and not (tmp_path / "PWNED").exists()


def test_an_expression_of_github_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        write.workflow(exported(tmp_path, matrix="x${{ secrets.REKINDLE_KEY }}.toml"))
    assert "\nevil" not in write.notes(exported(tmp_path, rekindle="x\nevil: 1"))
