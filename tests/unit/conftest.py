from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from urllib3.util import retry

from rekindle.core import console, fetch


class Sleepless:
    """Time without waiting between tries; `slept` has what was asked for."""

    monotonic, time = staticmethod(time.monotonic), staticmethod(time.time)

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture(autouse=True, scope="session")
def waits() -> Iterator[Sleepless]:
    """No test waits before a download is tried again, and a slow machine makes nobody say what is waited for."""
    with pytest.MonkeyPatch.context() as patched:
        found = Sleepless()
        for module in (fetch, retry):
            patched.setattr(module, "time", found)
        patched.setattr(console, "_PATIENCE", 3600.0)
        yield found


@pytest.fixture(autouse=True, scope="session")
def own_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests remember of shelves and files is nothing that the user's own Rekindle should know."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def as_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a log does not say of its system is spelled for the computer that asks; expectations are of one."""
    monkeypatch.setattr("rekindle.core.paths.system", lambda: "linux")
