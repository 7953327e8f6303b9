"""Tests of what only Windows does. They run as win32: under Wine by `tools/windows_bench.py`, or on a real Windows.

Each module's docstring says what Wine cannot vouch for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from support.artefacts import unverified


@pytest.fixture(autouse=True)
def on_windows() -> Iterator[None]:
    """Elsewhere these say nothing; and wherever they run, they leave the process's environment as it was."""
    if sys.platform != "win32":
        unverified("this needs Windows; `python tools/windows_bench.py test` runs it under Wine")
    before = _variables()
    yield
    assert _variables() == before, "a test or the code under test changed os.environ"


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
