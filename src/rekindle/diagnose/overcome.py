"""Failures that the log itself overcomes: a passing test run that prints errors, a second try that worked."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rekindle.core.regex import re2
from rekindle.diagnose.events import Event, LineKind

_PASSED = re2.compile(
    r"^=+ (?:\d+ \w+, )*\d+ passed[^=]* =+$|^\d+ passed\b.* in [\d.]+|^OK(?: \(.*\))?$|^100% tests passed"
    r"|^test result: ok\."
)
_NOT_PASSED = re2.compile(r"(?i)\b[1-9]\d* (?:failed|errors?)\b|FAILED")
_BEGUN = re2.compile(r"^=+ test session starts =+$|^Test project |^running \d+ tests?$|^\[=+\] Running \d+ tests")
# A prompt and a command that builds or installs: the user tried again.
_TRIED = re2.compile(
    r"^\s*(?:\([\w.-]+\)\s*)?(?:PS )?(?:[\w.~-]+@[\w.-]+[:\s]?\S*|[A-Za-z]:\\[^>]*|\[[^\]]+\]|)\s?[$#>]\s?"
    r"(?:[A-Z_]+=\S+ )*(?:sudo )?(?:python\S* |py )?(?:-m )?"
    r"(?:pip3?|uv|conda|mamba|make|ninja|cmake|docker|cargo|npm|setup\.py|build\.py|bash|sh|\./\S+|\w+\.(?:sh|bat|ps1))\b"
    r"|^(?i:retry(?:ing)? (?:attempt|with|the)|trying again|attempt [2-9])"
)
_SOON = 400


def passed_tests(events: Sequence[Event]) -> list[Event]:
    """The events with everything inside a test run that passed taken as quoted."""
    out = list(events)
    for index, event in enumerate(events):
        if not _PASSED.match(event.text) or _NOT_PASSED.search(event.text):
            continue
        for back in range(index - 1, -1, -1):
            before = out[back]
            if _TRIED.match(before.raw) or (_NOT_PASSED.search(before.text) and before.kind is LineKind.WRAPPER):
                break
            if before.text:
                out[back] = msgspec.structs.replace(before, kind=LineKind.QUOTE, tool="pytest")
            if _BEGUN.match(before.text):
                break
    return out


def tried_again(events: Sequence[Event], failures: Sequence[int]) -> bool:
    """Whether a later command built or installed what failed before. `failures` are the lines of what went wrong."""
    last = max(failures, default=0)
    again = next((event.number for event in events if event.number > last and _TRIED.match(event.raw)), 0)
    if not last or not again:
        return False
    # Other work may end well long after: what counts is the first success that follows the second try.
    return any(event.kind is LineKind.SUCCESS and again < event.number <= again + _SOON for event in events)
