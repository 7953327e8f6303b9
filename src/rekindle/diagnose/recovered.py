"""What the log itself overcomes, or tried in vain: a passing test run that prints errors, a second try, a remedy."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rekindle.core.command import Command
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
# What somebody did, and what somebody only advises.
_ATTEMPT = re2.compile(r"\b[A-Z][A-Z0-9_]{4,}=\S|\binstall ")
_DID = re2.compile(
    r"(?i)\b(?:tried|even (?:with|when|if|after)|already|I (?:have |had |also )?(?:set|added|ran|used|installed)|still"
    r"|after (?:setting|running|installing|adding))\b|^\W*export |[$#>] ?\w"
)
_ADVISES = re2.compile(
    r"(?i)\b(?:please|try|should|could|can|need|consider|recommend\w*|may|might|solution|instead|suggest\w*|hint)\b"
)


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


def attempts(events: Sequence[Event]) -> tuple[str, ...]:
    """The lines in which somebody says, or shows, what they set or installed."""
    lines = (event.raw for event in events if event.kind is not LineKind.ERROR and _ATTEMPT.search(event.raw))
    return tuple(line for line in lines if _DID.search(line) or not _ADVISES.search(line))


# Options that make another try of the same package.
_TELLING = frozenset({"--extra-index-url", "--no-build-isolation", "--only-binary", "--upgrade"})


def tried(command: Command, done: Sequence[str]) -> bool:
    """Whether one of these lines holds all that a command sets, or names what it installs."""
    essential = [f"{name}={value}" for name, value in command.environment.items() if value is not None]
    words = [str(word) for word in command.words if isinstance(word, str) and not word.startswith("-")]
    asked = words[words.index("install") + 1 :] if "install" in words and words[0] != "rekindle" else []
    telling = [str(word) for word in command.words if word in _TELLING]
    essential += ["install", *asked, *telling] if asked else []
    return bool(essential) and any(all(_holds(line, each) for each in essential) for line in done)


def _holds(line: str, word: str) -> bool:
    """Whole: `/usr/local/cuda` is not `/usr/local/cuda/bin/nvcc`, and torch is not torch-scatter."""
    return any(not _goes_on(rest) for rest in line.split(word)[1:])


def _goes_on(rest: str) -> bool:
    return rest[:1].isalnum() or rest[:1] in {"/", "\\", "-", "_"} or (rest[:1] == "." and rest[1:2].isalnum())
