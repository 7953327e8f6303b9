from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.artefacts import unverified, wheel
from support.browser_again import (  # noqa: F401  (fixtures and hooks of the browser's tests)
    browser,
    chromium,
    pytest_runtest_protocol,
    pytest_terminal_summary,
)
from support.windows_python import TORCH_NEEDS, WindowsPython
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


@pytest.fixture(scope="module")
def site(windows: WindowsPython) -> Iterator[Path]:
    """A folder of Windows packages: torch 2.7.1 as the index gives it, and what it requires."""
    folder = windows.bench.drive / "torch-2.7.1"
    shutil.rmtree(folder, ignore_errors=True)
    for requirement in ("torch==2.7.1", *TORCH_NEEDS):
        with zipfile.ZipFile(wheel(requirement, platform="win_amd64")) as archive:
            archive.extractall(folder)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
