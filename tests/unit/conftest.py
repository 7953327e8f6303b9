from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests remember of shelves is nothing that the user's own Rekindle should know."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))
