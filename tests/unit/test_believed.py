"""What is believed of a folder, a file or a variable that somebody else made, where it could have been asked."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rekindle.core import paths
from rekindle.core.errors import BadInput
from rekindle.fleet import matrix_file


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
