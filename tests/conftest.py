from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What could not be checked is said in a line of its own, so that nobody takes it for a pass."""
    skipped = terminalreporter.stats.get("skipped", [])
    unverified = [report for report in skipped if "UNVERIFIED" in str(report.longrepr)]
    if unverified:
        terminalreporter.write_line(
            f"UNVERIFIED: {len(unverified)} tests could not be carried out (reasons above)", yellow=True
        )
