"""The build file: what a user writes by hand is read whole or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.build.configure import request
from rekindle.core.errors import BadInput


def test_a_table_that_a_build_file_does_not_have_is_named(tmp_path: Path) -> None:
    """`[settings]` for `[options]` went unnoticed, and a build began with none of what was asked."""
    path = tmp_path / "build.toml"
    path.write_text('torch = "1.13.1"\n[settings]\nUSE_DISTRIBUTED = "OFF"\n', encoding="utf-8")
    with pytest.raises(BadInput, match="there is no key `settings`") as caught:
        request.read(path)
    assert " options," in (caught.value.hint or "")


def test_options_are_what_the_build_is_told(tmp_path: Path) -> None:
    path = tmp_path / "build.toml"
    path.write_text('torch = "1.13.1"\n[options]\nUSE_DISTRIBUTED = "OFF"\n', encoding="utf-8")
    assert request.read(path).options == {"USE_DISTRIBUTED": "OFF"}


def test_a_file_of_another_kind_is_called_that_and_not_wrong_in_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('schema = "rekindle.plan/99"\nroute = "official-wheel"\n', encoding="utf-8")
    with pytest.raises(BadInput, match=r"is not a build file: its schema is `rekindle\.plan/99`"):
        request.read(path)
