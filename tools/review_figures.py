"""How much `review` finds: scripts with their faults written down beforehand, read once.

    python tools/review_figures.py FOLDER

Every `NAME.faults.json` of the folder names a script beside it, the GPU, and the faults with their lines. A fault
counts as found when a finding on one of its lines says one of its words. A finding that belongs to no fault is a wrong
alarm (state FAIL) or a warning too many (state WARN), unless its line is one of `allowed_lines` (both answers are
defensible there). Lines that were not understood are counted too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any


def main(folder: Path, *, details: bool = True) -> int:
    total = {"faults": 0, "found": 0, "wrong": 0, "careful": 0, "lines": 0, "unread": 0, "scripts": 0}
    for listed in sorted(folder.glob("*.faults.json")):
        known = json.loads(listed.read_text(encoding="utf-8"))
        path = folder / known["script"]
        findings, unread = reviewed(path, known)
        allowed = known.get("allowed_lines", ())
        findings = [item for item in findings if item["line"] not in allowed or counts(item, known)]
        found, missed, wrong, careful = judged(known["faults"], findings)
        total["scripts"] += 1
        total["lines"] += len(path.read_text(encoding="utf-8", errors="replace").splitlines())
        total["faults"] += len(known["faults"])
        total["found"] += found
        total["wrong"] += len(wrong)
        total["careful"] += len(careful)
        total["unread"] += unread
        if details:
            show(known["script"], found, known["faults"], missed, wrong, careful)
    print(json.dumps(total))
    return 0


def reviewed(path: Path, known: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    command = [sys.executable, "-m", "rekindle", "review", str(path), "--json"]
    if known.get("gpu"):
        command += ["--gpu", known["gpu"]]
    ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    if not ran.stdout.strip():
        print(f"{path.name}: {ran.stderr.strip()}")
        return [], 0
    answer = json.loads(ran.stdout)["scripts"][0]
    unread = len(answer.get("not_understood", ()))
    return [item for item in answer["remarks"] if item["state"] in ("FAIL", "WARN")], unread


def counts(finding: dict[str, Any], known: dict[str, Any]) -> bool:
    """Whether a finding on a line that may have one belongs to a fault of that line."""
    return judged(known["faults"], [finding])[0] > 0


def judged(faults: list[dict[str, Any]], findings: list[dict[str, Any]]) -> tuple[int, list[Any], list[Any], list[Any]]:
    used: set[int] = set()
    missed = []
    for fault in faults:
        lines = {fault["line"], *fault.get("also_lines", ())}
        hits = [
            index
            for index, item in enumerate(findings)
            if item["line"] in lines
            and any(re.search(word, f"{item['found']} {item['why']} {item['text']}") for word in fault["words"])
        ]
        used.update(hits)
        if not hits:
            missed.append(fault)
    left = [item for index, item in enumerate(findings) if index not in used]
    wrong = [item for item in left if item["state"] == "FAIL"]
    return len(faults) - len(missed), missed, wrong, [item for item in left if item["state"] == "WARN"]


def show(name: str, found: int, faults: list[Any], missed: list[Any], wrong: list[Any], careful: list[Any]) -> None:
    print(f"{name}: {found} of {len(faults)} found, {len(wrong)} wrong alarms, {len(careful)} warnings too many")
    for fault in missed:
        print(f"  missed  line {fault['line']}: {fault['what']}")
    for label, items in (("alarm", wrong), ("careful", careful)):
        for item in items:
            print(f"  {label:<7} line {item['line']}: {item['id']}: {item['found']}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
