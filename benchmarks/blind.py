"""How `rekindle diagnose` does on threads it was not made for: `python benchmarks/blind.py tests/data/blind/*.toml`."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from rekindle.diagnose.diagnosis import diagnose_text  # noqa: E402
from rekindle.knowledge.logs.signatures import cause  # noqa: E402


def first_label(log: str) -> str:
    found = diagnose_text(log)
    return found.causes[0].label if found.causes else found.outcome.value


def family(label: str) -> str:
    row = cause(label)
    return row.family if row else "no cause"


def main() -> int:
    for name in sys.argv[1:]:
        cases = tomllib.loads(Path(name).read_text(encoding="utf-8")).get("case")
        if not cases:
            continue
        classes: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for case in cases:
            found = first_label(case["log"])
            row = classes[case.get("family") or family(case["label"])]
            row[0] += found == case["label"]
            row[1] += found == case["label"] or found in case.get("also", ())
            row[2] += 1
            if found != case["label"] and found not in case.get("also", ()):
                print(f"  {case['id']}: {case['label']} -> {found}")
        for what, (strict, right, total) in sorted(classes.items()):
            print(f"{what:<28} right {right:>2} of {total:<2} (strictly {strict})")
        strict, right, total = (sum(row[index] for row in classes.values()) for index in range(3))
        print(f"{Path(name).name}: right {right} of {total} ({100 * right / total:.1f} %), strictly {strict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
