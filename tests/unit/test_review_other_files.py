"""Files that a script runs in its own shell are read with it: what they set counts, and nothing outside is opened."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rekindle.core.findings import State
from rekindle.review.correct import corrected
from rekindle.review.document import load, read
from rekindle.review.question import question_from_options
from rekindle.review.review import Reviewed, review, review_script

BUILD = "cd pytorch\npython setup.py bdist_wheel\n"


def _review(path: Path) -> Reviewed:
    return review_script(load(path))


def _rules(path: Path) -> set[str]:
    return {remark.id for remark in _review(path).remarks if remark.state is not State.PASS}


def _written(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


@pytest.mark.parametrize("spelled", ["env.sh", "./env.sh", '$(dirname "$0")/env.sh', "${SCRIPT_DIR}/env.sh"])
def test_what_a_sourced_file_sets_counts(tmp_path: Path, spelled: str) -> None:
    _written(tmp_path, env_dot_sh="export MAX_JOBS=4\nexport TORCH_CUDA_ARCH_LIST=8.6\n")
    (tmp_path / "build.sh").write_text(f"set -e\nsource {spelled}\n{BUILD}", encoding="utf-8", newline="\n")
    answer = _review(tmp_path / "build.sh")
    assert answer.architectures == ("sm_86",)
    assert "jobs-unset" not in _rules(tmp_path / "build.sh")


def test_a_fault_in_a_sourced_file_is_told_at_the_line_that_runs_it(tmp_path: Path) -> None:
    _written(tmp_path, lib__env_dot_sh="# list\n\nexport TORCH_CUDA_ARCH_LIST=sm_86 MAX_JOBS=2\n")
    (tmp_path / "build.sh").write_text(f"set -e\n. lib/env.sh\n{BUILD}", encoding="utf-8", newline="\n")
    remark = next(each for each in _review(tmp_path / "build.sh").remarks if each.id == "architecture-list")
    assert remark.line == 2 and "lib/env.sh" in remark.why and remark.corrected is None
    assert corrected(tmp_path / "build.sh").difference == ""


def test_a_called_batch_file_loads_the_compiler_and_sets(tmp_path: Path) -> None:
    _written(
        tmp_path,
        setenv_dot_bat='call "C:\\VS\\VC\\vcvars64.bat"\nset MAX_JOBS=4\nset TORCH_CUDA_ARCH_LIST=8.6\n',
        build_dot_bat="call %~dp0setenv.bat || exit /b 1\ncd pytorch\npython setup.py bdist_wheel || exit /b 1\n",
    )
    assert not _rules(tmp_path / "build.bat") & {"no-vcvars", "jobs-unset"}
    _written(tmp_path, setenv_dot_bat="@echo off\nsetlocal\nset MAX_JOBS=4\n")
    assert "jobs-unset" in _rules(tmp_path / "build.bat")


def test_a_dot_sourced_powershell_file_sets(tmp_path: Path) -> None:
    _written(tmp_path, env_dot_ps1="$env:MAX_JOBS = '4'\n$env:TORCH_CUDA_ARCH_LIST = '8.6'\n")
    (tmp_path / "build.ps1").write_text(
        ". .\\env.ps1\nSet-Location pytorch\npython setup.py bdist_wheel\n", encoding="utf-8"
    )
    assert _review(tmp_path / "build.ps1").architectures == ("sm_86",)


def test_nothing_outside_of_the_folder_is_opened(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "out.sh").write_text("export TORCH_CUDA_ARCH_LIST=sm_99\n", encoding="utf-8", newline="\n")
    if os.name != "nt":
        (inside / "link.sh").symlink_to(tmp_path / "out.sh")
    lines = f"source ../out.sh\nsource {tmp_path}/out.sh\nsource link.sh\nsource /etc/passwd\n. lib/../../out.sh\n"
    (inside / "build.sh").write_text(f"set -e\n{lines}{BUILD}", encoding="utf-8", newline="\n")
    assert "architecture-list" not in _rules(inside / "build.sh")


def test_files_that_run_each_other_and_large_ones_cost_nothing(tmp_path: Path) -> None:
    _written(tmp_path, a_dot_sh="source b.sh\n", b_dot_sh="source a.sh\nsource big.sh\n")
    (tmp_path / "big.sh").write_text("export X=1\n" * 100_000, encoding="utf-8", newline="\n")
    assert not _rules(tmp_path / "a.sh")
    for number in range(30):
        (tmp_path / f"s{number}.sh").write_text(f"source s{number + 1}.sh\n", encoding="utf-8", newline="\n")
    assert not _review(tmp_path / "s0.sh").refused


def test_a_file_that_was_not_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "build.sh").write_text(f"set -e\nsource ../common/settings.sh\n{BUILD}", encoding="utf-8", newline="\n")
    remark = next(each for each in _review(tmp_path / "build.sh").remarks if each.id == "other-file")
    assert remark.state is State.PASS and remark.line == 2 and "settings.sh" in remark.found


PROJECT = {
    "Dockerfile": "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN apt-get install -y python3-pip\n"
    "RUN pip install torch==2.5.1 --index-url https://download.pytorch.org/whl/cu124\n",
    "requirements.txt": "torch==2.6.0\ntorchvision==0.21.0\n",
    "train.sh": "conda create -n a -c pytorch -c nvidia python=3.10 pytorch=2.4.1 pytorch-cuda=12.4\n",
}


def proposed(folder: Path, gpu: str, *names: str) -> list[str]:
    answer = review([folder / name for name in names], question_from_options((gpu,)))
    whys = [each.why for script in answer.scripts for each in script.remarks if "has code for it" in each.why]
    return [re.findall(r"torch ([\d.]+(?:\+cu\d+)?)(?= of conda-forge \(|.has code for it)", why)[-1] for why in whys]


@pytest.mark.parametrize("gpu", ["RTX 5090", "Tesla K80", "GTX 1080 Ti", "Tesla V100"])
def test_the_files_of_a_project_get_one_answer(tmp_path: Path, gpu: str) -> None:
    """A Dockerfile and a list beside it were told two releases and two CUDAs."""
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for names in (("Dockerfile", "requirements.txt"), tuple(PROJECT)):
        both = proposed(tmp_path, gpu, *names)
        assert len(set(both)) == 1 if both else gpu in ("GTX 1080 Ti", "Tesla V100"), both
    apart = {each for name in PROJECT for each in proposed(tmp_path, gpu, name)}
    assert gpu != "RTX 5090" or len(apart) > 1, "there is something to agree on"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("environment.yml", "channels: [pytorch, nvidia]\ndependencies:\n  - pytorch=2.5.1\n  - pytorch-cuda=12.4\n",
         "`pytorch=2.5.1`, `pytorch-cuda=11.8` of pytorch and nvidia"),
        ("environment.yml", "channels: [conda-forge]\ndependencies:\n  - pytorch=2.9\n",
         "in place of conda's, under `- pip:`, `--index-url https://download.pytorch.org/whl/cu118` and `torch=="),
        ("a.sh", "conda create -n x -c conda-forge pytorch=2.9 python=3.12\n",
         "in its environment, `python -m pip install torch==2.3.1+cu118 --index-url "),
        ("requirements.txt", "torch==2.9.0\n", "torch 2.3.1+cu118 has code for it: --index-url "),
    ],
)  # fmt: skip
def test_what_is_named_instead_is_for_the_installer_of_the_file(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    """conda was told an index of pip's."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    (script,) = review([tmp_path / name], question_from_options(("Tesla K80",))).scripts
    assert any(said in each.why for each in script.remarks), [each.why for each in script.remarks]


@pytest.mark.parametrize(
    ("image", "gpu", "driver", "wrong"),
    [
        ("nvidia/cuda:13.0.1-runtime-ubuntu22.04", "GTX 1080 Ti", "535", True),
        ("nvidia/cuda:12.6.3-devel-ubuntu22.04", "RTX 3090", "535", True),
        ("nvidia/cuda:12.2.2-devel-ubuntu22.04", "RTX 3090", "535", False),
        ("nvidia/cuda:12.6.3-devel-ubuntu22.04", "A100", "535", False),
        ("nvidia/cuda:13.0.1-runtime-ubuntu22.04", "GTX 1080 Ti", "", False),
        ("python:3.12-slim", "GTX 1080 Ti", "535", False),
    ],
)
def test_an_image_that_asks_for_a_newer_driver_does_not_start(image: str, gpu: str, driver: str, wrong: bool) -> None:
    """The torch inside of it was accepted: nvidia-container-cli stops with `unsatisfied condition: cuda>=13.0`."""
    pip = "pip install torch==2.14.1 --index-url https://download.pytorch.org/whl/cu126"
    document = read(f"FROM {image}\nRUN apt-get install -y python3-pip && {pip}\n", name="Dockerfile")
    answer = review_script(document, question_from_options((gpu,), driver=driver or None))
    assert ("image-needs-a-driver" in {each.id for each in answer.remarks}) is wrong
