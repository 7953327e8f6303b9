"""The build file: what a user writes by hand is read whole or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.build import request
from rekindle.errors import BadInput


def test_a_table_that_a_build_file_does_not_have_is_named(tmp_path: Path) -> None:
    """`[settings]` for `[options]` went unnoticed, and a build began with none of what was asked."""
    path = tmp_path / "build.toml"
    path.write_text('torch = "1.13.1"\n[settings]\nUSE_DISTRIBUTED = "OFF"\n', encoding="utf-8")
    with pytest.raises(BadInput, match="a build file has no `settings`") as caught:
        request.read(path)
    assert "`options`" in (caught.value.hint or "")


def test_options_are_what_the_build_is_told(tmp_path: Path) -> None:
    path = tmp_path / "build.toml"
    path.write_text('torch = "1.13.1"\n[options]\nUSE_DISTRIBUTED = "OFF"\n', encoding="utf-8")
    assert request.read(path).options == {"USE_DISTRIBUTED": "OFF"}
