from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_key(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests sign with a key of their own, never with the user's."""
    os.environ["REKINDLE_CONFIG"] = str(tmp_path_factory.mktemp("config") / "none.toml")
    os.environ["REKINDLE_KEY"] = str(tmp_path_factory.mktemp("keys") / "own.pem")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What could not be checked is said in a line of its own, so that nobody takes it for a pass."""
    skipped = terminalreporter.stats.get("skipped", [])
    unverified = [report for report in skipped if "UNVERIFIED" in str(report.longrepr)]
    if unverified:
        terminalreporter.write_line(
            f"UNVERIFIED: {len(unverified)} tests could not be carried out (reasons above)", yellow=True
        )
