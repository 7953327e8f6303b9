"""Turn the files that owners of cards sent into rows of `torch/field_reports.json`.

    python -m tools.observe.field_reports FILE... --source URL

`URL` is where the report was sent publicly: a row without a pointer is nobody's word. A report that already exists is
replaced by its hash.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rekindle.core import codec
from rekindle.core.errors import BadInput
from rekindle.core.findings import State, worst
from rekindle.wheels.verify.signed_report import SCHEMA, FieldReport
from tools.observe import table

NAME = "torch/field_reports"
_MOST_BYTES = 256 << 10


def rows_of(report: FieldReport, source: str) -> list[dict[str, Any]]:
    """One row per card of the machine."""
    rows = []
    for number, card in enumerate(report.cards):
        # `0: Tesla K40c`, as verify writes it.
        checks = [check for check in report.checks if check.card and check.card.partition(":")[0] == str(number)]
        if not checks:
            continue
        rows.append(
            {
                "report": report.report_sha256,
                "wheel": report.wheel,
                "wheel_sha256": report.wheel_sha256,
                "torch": report.torch,
                "system": report.system,
                "machine": report.machine,
                "card": card.name,
                "capability": str(card.capability),
                "driver": str(report.driver) if report.driver else None,
                "cuda": str(report.cuda) if report.cuda else None,
                "passed": sum(check.state is State.PASS for check in checks),
                "failed": [check.id for check in checks if check.state is State.FAIL],
                "state": worst(checks).value,  # type: ignore[arg-type]
                "source": source,
                "observed_at": report.made_at,
                "evidence": "field",
            }
        )
    return rows


def merged(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    known = {(row["report"], row["card"]): row for row in (*old, *new)}
    return [known[key] for key in sorted(known)]


def read_share(place: Path) -> FieldReport:
    """A report that somebody sent: small, of this schema, and about something that ran on a card."""
    size = place.stat().st_size if place.is_file() else 0
    if not 0 < size <= _MOST_BYTES:
        raise BadInput(f"`{place.name}` is no field report: {size} bytes", hint="ask for the file of `--share`")
    report = codec.from_json(place.read_text(encoding="utf-8"), FieldReport, name=place.name)
    if report.schema != SCHEMA:
        raise BadInput(f"`{place.name}` is of schema `{report.schema[:40]}`", hint=f"expected `{SCHEMA}`")
    if not any(check.card for check in report.checks) or not report.cards:
        raise BadInput(f"`{place.name}` says nothing about a card", hint="ask for a run on the card")
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--source", required=True, metavar="URL")
    asked = parser.parse_args()
    if not asked.source.startswith("https://"):
        parser.error("--source: an https:// address that others can open")
    new = [row for file in asked.files for row in rows_of(read_share(file), asked.source)]
    path = table.KNOWLEDGE / f"{NAME}.json"
    path.write_text(
        table.render({"reports": merged(table.read("field_reports")["reports"], new)}), encoding="utf-8", newline="\n"
    )
    print(f"{len(new)} row(s) from {len(asked.files)} file(s) in {path.name}")


if __name__ == "__main__":
    main()
