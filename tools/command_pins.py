"""Every command that the scenarios and questions print, pin by pin: how it is known that the thing exists.

    python -m tools.command_pins

Asked of the tables' rows (tests/support/pins.py), not of the code that made the commands. `UNVERIFIED` is a pin that no
row has. The figures in docs/concepts/routes.md are of this program.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(PROJECT / "src"), str(PROJECT / "tests"), str(PROJECT / "tests" / "unit")]

from rekindle.core import codec  # noqa: E402
from support import pins, questions  # noqa: E402


def main() -> int:
    commands: Counter[str] = Counter()
    clean: Counter[str] = Counter()
    known: Counter[str] = Counter()
    bad: dict[str, list[str]] = {}
    for name, route in routes():
        kind = route["route"]
        if kind in ("none", "installed"):
            continue
        found = pins.states(route, route["system"], route["machine"])
        commands[kind] += 1
        known.update(how for _, how in found)
        lost = [pin for pin, how in found if how == "UNVERIFIED"]
        clean[kind] += not lost
        if lost:
            bad[f"{name} ({kind})"] = lost
    total = sum(commands.values())
    for kind, count in commands.most_common():
        print(f"{kind:<15} {clean[kind]:>4} of {count} answers without an UNVERIFIED pin")
    share = sum(clean.values()) / total
    print(f"{'all':<15} {sum(clean.values()):>4} of {total}: {100 * share:.1f} %")
    print("pins: " + ", ".join(f"{count} {how}" for how, count in known.most_common()))
    for name, lost in bad.items():
        print(f"  {name}: {', '.join(lost)}")
    return 0 if share >= 0.9 else 1


def routes() -> list[tuple[str, dict[str, Any]]]:
    """What each scenario and question recommends, and what stands beside it at the top."""
    import test_resolver as scenarios  # type: ignore[import-not-found]

    found: list[tuple[str, dict[str, Any]]] = []
    for row in scenarios.SCENARIOS:
        verdict = scenarios._resolved(row)
        where = {"system": verdict.situation.system, "machine": verdict.situation.arch}
        both = [verdict.recommended, *(each.route for each in verdict.alternatives)]
        found += [(row["id"], {**json.loads(codec.to_json(route)), **where}) for route in both]
    for row in questions.questions():
        with pytest.MonkeyPatch.context() as patch:
            route = questions.recommended(row, patch)
        if route:
            found.append((row["id"], route))
    return found


if __name__ == "__main__":
    sys.exit(main())
