"""Regular expressions that cannot run away: RE2 where it is installed, else Python's own engine with the same answers.

RE2 has no wheels for the newest Pythons at first. There the fallback reads the same patterns: slower, and without RE2's
promise that no line takes long, which is why lines are cut before they are searched.
"""

from __future__ import annotations

LONGEST = 12_000
"""How much of a line is searched."""

try:
    import re2
except ModuleNotFoundError:  # pragma: no cover - the tests take RE2 away in a process of its own
    from rekindle.core import regex_fallback as re2

    # The worst pattern of the catalogue takes less than 10 ms on this many; its time grows with their square.
    LONGEST = 500

__all__ = ["LONGEST", "re2"]
