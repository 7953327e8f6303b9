"""What is believed of a folder, a file or a variable that somebody else made, where it could have been asked."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rekindle.core import paths, signing
from rekindle.core.errors import BadInput, ChecksFailed
from rekindle.fleet import matrix_file, planning, shelved
from rekindle.wheels.shelf import index, shelf
from support import torch_like
from support.command import rekindle_command


@pytest.mark.parametrize("folder", [".github", ".github/workflows", ".git", "a/.git"])
def test_a_project_lies_in_no_folder_that_others_run(folder: str, tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(f'project = "mine"\n[projects.mine]\nsource = "{folder}"\n', encoding="utf-8")
    with pytest.raises(BadInput, match="more in it than a file's own"):
        matrix_file.below(matrix)


@pytest.mark.skipif(sys.platform != "linux", reason="the variables are of Linux")
def test_no_folder_of_ours_depends_on_where_one_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, "here")
    for place in (paths.cache_folder(), paths.data_folder(), paths.config_folder()):
        assert place.is_absolute() and place.is_relative_to(os.environ["HOME"])


def _torch(folder: Path, card: str = "sm_61", cuda: str = "12.6") -> Path:
    version = f"2.7.1+cu{cuda.replace('.', '')}"
    return torch_like.wheel(folder, libraries={"torch/lib/k.fatbin": ((card,),)}, version=version, cuda=cuda)


MATRIX = 'torch="2.7.1"\ncuda="12.6"\ngpu="GTX 1080"\npython="3.11"\n[[override]]\nwhen={torch="2.7.1"}\nalways=true\n'


def test_a_job_is_done_only_while_its_wheel_lies_there(tmp_path: Path) -> None:
    matrix, folder = tmp_path / "matrix.toml", tmp_path / "shelf"
    matrix.write_text(MATRIX, encoding="utf-8")
    lock = planning.make(matrix).plan.jobs[0].lock
    assert lock is not None
    (entry,) = shelf.add(folder, [_torch(tmp_path)])
    made = shelved.ShelvedJob(key=lock.key, wheel=entry.file, sha256=entry.sha256, lock=lock)
    shelved.record(folder, made)
    assert shelved.jobs_on(folder)
    wheel = folder / "wheels" / entry.file
    wheel.write_bytes(b"another")
    assert not shelved.jobs_on(folder) and entry.file in shelf.offers(folder).set_aside
    wheel.unlink()
    assert not shelved.jobs_on(folder) and entry.file in shelf.offers(folder).set_aside


def test_a_plan_does_not_pin_an_exchanged_wheel(tmp_path: Path) -> None:
    (entry,) = shelf.add(tmp_path / "shelf", [_torch(tmp_path, "sm_35", "11.8")])
    wheel = tmp_path / "shelf" / "wheels" / entry.file
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"x")
    card = ("--gpu", "K40c", "--os", "linux", "--arch", "x86_64", "--python", "3.11", "--driver", "470.57.02")
    more = ("--shelf", str(tmp_path / "shelf"), "-o", str(tmp_path / "plan.toml"))
    seen = rekindle_command("plan", *card, *more)
    assert "is not the file that was added" in seen.err and not (tmp_path / "plan.toml").exists(), seen


def test_a_folder_does_not_go_back_to_an_older_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, key = tmp_path / "shelf", signing.own_key() or signing.make_key()
    (entry,) = shelf.add(folder, [_torch(tmp_path)])
    names = (index.LISTING, index.SIGNED_LISTING)
    before = {name: (folder / name).read_bytes() for name in names}
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(index.time, "time", lambda: 4e9)
    shelf.yank(folder, entry.file, "wrong numbers")
    assert index.signed_listing(folder, [key.public]).wheels[0].yanked
    for name, data in before.items():
        (folder / name).write_bytes(data)
    with pytest.raises(ChecksFailed, match="older than the one you saw last"):
        index.signed_listing(folder, [key.public])
