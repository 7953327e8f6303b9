"""Writes a page for every cause that `rekindle diagnose` knows, and their index, from the signature data.

They are made when the documentation is built: mkdocs calls `on_pre_build`. `python -m tools.causes` makes them too.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from rekindle.knowledge.logs.signatures import CauseRow, FixStep, LogSignature, cause, causes

PAGES = Path(__file__).parents[1] / "docs" / "reference" / "causes"


def pages() -> dict[str, str]:
    """File name -> text."""
    return {"index.md": _index(), **{f"{row.id}.md": _page(row) for row in causes()}}


def _index() -> str:
    parts = ["# Causes\n", "What `rekindle diagnose` can find. Generated from the signature data.\n"]
    for family, rows in groupby(causes(), key=lambda row: row.family):
        parts.append(f"## {family[0].upper()}{family[1:]}\n")
        parts.append("\n".join(f"- [`{row.id}`]({row.id}.md): {row.title}" for row in rows) + "\n")
    return "\n".join(parts)


def _page(row: CauseRow) -> str:
    parts = [f"# {row.title}\n", f"`{row.id}`, in the family *{row.family}*. Generated from the signature data.\n"]
    parts += [
        "## What it means\n",
        f"{row.explanation}\n",
        "## How to see it by hand\n",
        f"{row.by_hand}\n",
        "## What to do\n",
    ]
    parts.append("\n".join(_step(step) for step in row.fix) + "\n")
    parts.append("## How it looks in a log\n")
    parts += [_sample(signature) for signature in row.signature]
    if row.over:
        parts.append("## What follows from it\n")
        parts.append("When this cause is there, messages of these are set aside:\n")
        parts.append("\n".join(f"- [`{label}`]({label}.md): {_title(label)}" for label in row.over) + "\n")
    if row.links:
        parts.append("## See also\n")
        parts.append("\n".join(f"- <{link}>" for link in row.links) + "\n")
    parts.append(f"Source: {row.source} ({row.evidence.value}, {row.observed_at}).\n")
    return "\n".join(parts)


def _sample(signature: LogSignature) -> str:
    """As it must stand in a log to be read as this cause; where it has other causes too, the page says so."""
    shown = f"```text\n{(signature.sample or signature.example).strip()}\n```\n"
    if not signature.vague:
        return shown
    return f"{shown}\nThis line has other causes too: without facts about the machine it is only possible.\n"


def _step(step: FixStep) -> str:
    where = {"windows": "On Windows: ", "linux": "On Linux: "}.get(step.os or "", "")
    text = f"- {where}{step.text}" + (" (The command is the one that `rekindle plan` prints.)" if step.plan else "")
    return _plain(f"{text}\n\n        {step.command}\n" if step.command else text)


def _plain(text: str) -> str:
    """What is filled from the log or the tables stands as a word in capitals."""
    return re.sub(r"\{(\w+)\}", lambda match: match[1].upper(), text)


def _title(label: str) -> str:
    row = cause(label)
    return row.title if row else ""


def on_pre_build(config: object) -> None:
    wanted = pages()
    PAGES.mkdir(parents=True, exist_ok=True)
    for path in PAGES.glob("*.md"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (PAGES / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    on_pre_build(None)
