"""Files that a script runs in its own shell are read with it: what they set counts, and nothing outside is opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rekindle.core.findings import State
from rekindle.review.correct import corrected
from rekindle.review.document import load
from rekindle.review.review import Reviewed, review_script

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
