"""A browser that dies is no fault of our pages, and no pass either: it is started anew, and its test repeated, once.

What it died of (its exit code and the last it wrote) stands in the summary at the end. A page that crashes leaves the
browser alive, so such a test fails at once; so does one whose browser dies twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from support import browser as browsers

_SAID = "browser died"


@pytest.fixture(scope="module")
def chromium() -> Iterator[browsers.Chromium]:
    with browsers.chromium() as found:
        yield found


@pytest.fixture
def browser(chromium: browsers.Chromium) -> Iterator[Any]:
    yield chromium.browser()
    chromium.note_death()


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not isinstance(item, pytest.Function) or "browser" not in item.fixturenames:
        return None
    hooks = item.ihook
    hooks.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    before = len(browsers.DEATHS)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    deaths = browsers.DEATHS[before:]
    if deaths and any(report.failed for report in reports):
        item._initrequest()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        outcome = "passed" if all(not report.failed for report in reports) else "failed again"
        for report in reports:
            if report.when == "call":
                report.user_properties.append((_SAID, f"{deaths[0]}; started anew, and the test {outcome}"))
    for report in reports:
        hooks.pytest_runtest_logreport(report=report)
    hooks.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [each for every in terminalreporter.stats.values() for each in every]
    for report in reports:
        for name, text in getattr(report, "user_properties", ()):
            if name == _SAID:
                terminalreporter.write_line(f"{report.nodeid}: {text}", yellow=True)
