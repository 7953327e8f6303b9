"""Time limits in tests, on machines that are slower than a desk: emulated, or shared with others."""

from __future__ import annotations

import os


def seconds(limit: float) -> float:
    """`limit`, times REKINDLE_TEST_PACE (the Windows bench sets it: there x86-64 code may be translated)."""
    return limit * float(os.environ.get("REKINDLE_TEST_PACE") or 1)
