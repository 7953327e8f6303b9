from __future__ import annotations

from pathlib import Path

import pytest

from support.artefacts import unverified
from support.windows_python import WindowsPython
from support.wine import Bench, CannotSetUp


@pytest.fixture(scope="session")
def windows() -> WindowsPython:
    """A real Windows Python; where there can be none, the test says UNVERIFIED and why."""
    try:
        bench = Bench()
        bench.set_up()
        found = WindowsPython(bench)
        found.set_up(Path(__file__).resolve().parent.parent.parent)
    except CannotSetUp as error:
        unverified(str(error))
    return found
