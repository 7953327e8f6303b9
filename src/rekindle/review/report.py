"""A review as a person reads it, and as code hosts read it (SARIF)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rekindle.core.console import paint, sentence, table, width, wrap
from rekindle.core.findings import State
from rekindle.review.remark import Remark
from rekindle.review.review import Review, Reviewed

_WORD = {State.FAIL: ("wrong", "red"), State.WARN: ("careful", "yellow"), State.PASS: ("note", "dim")}
_LEVEL = {State.FAIL: "error", State.WARN: "warning", State.PASS: "note"}


def text(answer: Review) -> str:
    parts = [_script(one, answer.gpus) for one in answer.scripts]
    if len(answer.scripts) > 1:
        parts.append(comparison(answer))
    if not answer.gpus:
        parts.append(wrap("pass `--gpu NAME` to check it against your GPU, too"))
    return "\n\n".join(parts)


def comparison(answer: Review) -> str:
    """Several scripts side by side."""
    rows = []
    for one in answer.scripts:
        count = [sum(remark.state is state for remark in one.remarks) for state in (State.FAIL, State.WARN)]
        rows.append(
            (
                one.script.replace("\\", "/").rpartition("/")[2],
                one.torch or "?",
                one.cuda or "?",
                ",".join(one.architectures) or "?",
                one.toolset or "?",
                f"{count[0]} wrong, {count[1]} careful",
                _verdict(one, answer.gpus).partition(":")[0],
            )
        )
    return table(rows, head=("script", "torch", "CUDA", "code for", "toolset", "found", "verdict"))


def _verdict(one: Reviewed, gpus: Sequence[str]) -> str:
    """Accepted is what was asked and fits; a text in which nothing was recognised is not accepted for that."""
    if one.refused:
        return "refused"
    if not one.recognised:
        return "UNVERIFIED: nothing in it installs torch or compiles CUDA code, so nothing was checked"
    if not gpus:
        return "no fault found; no card was named"
    if not one.questions:
        return "accepted"
    first, more = re.sub(r"^line \d+: ", "", one.questions[0]), len(one.questions) - 1
    known = f"{'; '.join(one.settled)}; " if one.settled else ""
    return f"UNVERIFIED: {known}not known: {first}{f', and {more} more' if more else ''}"


def sarif(answer: Review) -> dict[str, Any]:
    """The form that code hosts show beside the lines."""
    results = [
        {
            "ruleId": remark.id,
            "level": _LEVEL.get(remark.state, "none"),
            "message": {"text": f"{remark.found}. {remark.why}".strip()},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": one.script.replace("\\", "/")},
                        "region": {"startLine": max(1, remark.line)},
                    }
                }
            ],
        }
        for one in answer.scripts
        for remark in one.remarks
    ]
    rules = [{"id": name} for name in sorted({remark.id for one in answer.scripts for remark in one.remarks})]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": {"name": "rekindle review", "rules": rules}}, "results": results}],
    }


def _script(one: Reviewed, gpus: Sequence[str]) -> str:
    known = {"torch": one.torch, "CUDA": one.cuda, "code for": ", ".join(one.architectures), "Python": one.python}
    facts = [f"{name} {value}" for name, value in known.items() if value]
    facts += ["built by `rekindle build`"] if one.by_rekindle else []
    colour = "red" if one.refused else "green" if one.answered else "yellow"
    verdict, said = _verdict(one, gpus), f"({'; '.join(filter(None, [one.dialect, ', '.join(facts)]))})"
    head = sentence(f"{one.script}: {verdict}", indent="  ")
    # The verdict is one line, which scripts take; what is known goes below where there is no room.
    said = f" {said}" if len(head) + len(said) < width() else "\n" + wrap(said, indent="  ")
    head = head.replace(f": {verdict}", f": {paint(verdict, colour)}", 1) + said
    groups: dict[tuple[str, str], list[Remark]] = {}
    for remark in one.remarks:
        groups.setdefault((remark.id, remark.found), []).append(remark)
    lines = [head, *(_remark(same) for same in groups.values())]
    if one.questions:
        lines.append("\n  Not answered, so not accepted:")
        lines += [wrap(each, indent=" " * 4) for each in one.questions]
    if one.not_understood:
        lines.append("\n  Not understood, so not reviewed:")
        lines += [
            wrap(f"line {item.line}: {item.why}{': ' if item.text else ''}{item.text}", indent=" " * 4)
            for item in one.not_understood[:20]
        ]
        if len(one.not_understood) > 20:
            lines.append(f"    and {len(one.not_understood) - 20} more lines")
    return "\n".join(lines)


def _remark(same: Sequence[Remark]) -> str:
    """One remark, or the same one for several lines."""
    remark = same[0]
    word, style = _WORD.get(remark.state, ("note", "dim"))
    label = f"line {remark.line}"
    narrow = width() < 80
    gap = " " * (4 if narrow else 21)
    found = wrap(remark.found, indent=gap)
    lines = [f"\n  {label:<9} {paint(word, style)}{chr(10) + found if narrow else ' ' * (8 - len(word)) + found[20:]}"]
    if remark.state is not State.PASS:
        lines.append(wrap(remark.why, indent=gap))
        lines.append(wrap(f"({remark.source})", indent=gap))
    if len(same) > 1:
        others = ", ".join(str(other.line) for other in same[1:])
        lines.append(wrap(f"the same on line {others}", indent=gap))
    if remark.text and remark.state is not State.PASS:
        lines.append(f"{gap}- {remark.text}")
        if remark.corrected is not None:
            sign = "+" if remark.certain else "?"  # what `--fix` writes, and what you decide
            rows = remark.corrected.strip().split("\n")
            lines += [f"{gap}{sign} {row or '(delete this line)'}" for row in rows]
            lines += [f"{gap}{sign} line {line}: {row.strip()}" for line, row in remark.more.items()]
    return "\n".join(lines)
