"""Writes docs/reference/checks.md from the catalogue of checks: what each means, and what in the seeds it answers.

`--check` only says whether the committed page is current.
"""

from __future__ import annotations

import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT / "src"))

from rekindle.knowledge.builds import checks  # noqa: E402

PAGE = PROJECT / "docs" / "reference" / "checks.md"
GROUPS = {
    "gpu": "The card",
    "driver": "The driver",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "msvc": "MSVC",
    "gcc": "GCC",
    "intel": "Intel",
    "python": "Python",
    "tools": "Build tools",
    "torch": "The torch that is installed",
}
DOCUMENTS = {
    "000": "Building for Kepler on Windows (K40c, CUDA 11.4, PyTorch 1.12)",
    "001": "PyTorch on Windows for older GPUs (1.12 to 2.7, CUDA 11.4 to 11.8)",
    "002": "A build log for an RTX 5070 with CUDA 12.3",
    "003": "A playbook for CUDA builds on Windows",
    "004": "Three build scripts for an RTX 5070 compared",
}


def render() -> str:
    lines = [
        "# Checks",
        "",
        "What `rekindle doctor` looks at. `rekindle doctor --explain ID` says the same for this machine; `--only ID`",
        "or `--only GROUP` runs a part. A check that does not apply to a machine is not shown.",
        "",
        "*Written by `tools/checks.py` from `knowledge/builds/checks.toml`.*",
    ]
    group = ""
    for row in checks.checks():
        title = GROUPS.get(row.id.split(".")[0], "The computer")
        if title != group:
            group = title
            lines += ["", f"## {group}"]
        lines += ["", f"### `{row.id}`", "", f"**{row.title}.** {sentence(row.why)}", ""]
        lines += [
            f"- What to do: {row.fix}",
            f"- How we know: {row.source}{'' if row.evidence.confirmed else f' ({row.evidence.phrase})'}",
        ]
    lines += ["", "## What the five documents ask for, and the check that answers it", ""]
    lines += ["Rekindle began with five documents in which people wrote down how they built PyTorch for a card that no"]
    lines += ["wheel served. Everything they tell the reader to verify, install or avoid is a check.", ""]
    for number, title in DOCUMENTS.items():
        lines += [f"**{number}**: {title}", "", "| What it says | Check |", "|---|---|"]
        lines += [f"| {said} | `{name}` |" for said, name in answered(number)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def answered(number: str) -> list[tuple[str, str]]:
    """What one document says, each with its check. An entry may name several documents: `000, 001: test the wheel`."""
    found = []
    for row in checks.checks():
        for seed in row.seeds:
            head, _, said = seed.partition(":")
            if said and number in head:
                place = head.replace("and", ",")
                for other in DOCUMENTS:
                    place = place.replace(other, "")
                place = place.strip(" ,")
                found.append((f"{place}: {said.strip()}" if place else said.strip(), row.id))
    return found


def sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def main() -> int:
    text = render()
    current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
    if "--check" not in sys.argv and not current:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, encoding="utf-8", newline="\n")
    print("docs/reference/checks.md is current" if current else "docs/reference/checks.md was stale")
    return int(not current and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
