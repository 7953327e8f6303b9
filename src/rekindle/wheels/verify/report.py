"""A verification as a person reads it, and as JUnit's XML for machines that collect tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from xml.etree import ElementTree

from rekindle.core import console
from rekindle.core.findings import State
from rekindle.wheels.verify.verify import NumberedCheck, Verification

_WORDS = {
    State.PASS: "all checks passed",
    State.WARN: "works, with warnings",
    State.UNVERIFIED: "no failures, but some checks could not be run",
    State.FAIL: "failed",
}


def text(done: Verification) -> str:
    head = console.paint(console.clean(done.subject), "bold")
    lines = []
    for card, checks in groupby(done.checks, key=lambda check: check.card):
        if card is not None:
            lines.append("\n" + console.paint(console.clean(card), "bold"))
        lines += _lines(list(checks))
    counts = [f"{sum(check.state is state for check in done.checks)} {state.value}" for state in State]
    took = f" in {done.seconds:.0f} s" if done.seconds is not None else ""
    end = console.wrap(f"{_WORDS[done.state]}: {', '.join(counts)}{took}")
    return f"{head}\n\n" + "\n".join(lines) + f"\n\n{end}"


def junit(done: Verification) -> str:
    suite = ElementTree.Element(
        "testsuite",
        name="rekindle verify",
        tests=str(len(done.checks)),
        failures=str(sum(check.state is State.FAIL for check in done.checks)),
        skipped=str(sum(check.state is State.UNVERIFIED for check in done.checks)),
        errors="0",
        time=f"{done.seconds or 0:.3f}",
    )
    for check in done.checks:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_xml(f"{done.subject}.{check.card or 'all'}"),
            name=f"{check.number:02} {check.id}",
            time=f"{check.seconds or 0:.3f}",
        )
        if check.state is State.FAIL:
            ElementTree.SubElement(case, "failure", message=_xml(check.found)).text = _xml(check.why)
        elif check.state is State.UNVERIFIED:
            ElementTree.SubElement(case, "skipped", message=_xml(f"UNVERIFIED: {check.found}"))
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(f"{check.state.value}: {check.found}")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _lines(checks: Sequence[NumberedCheck]) -> Iterator[str]:
    """One line a check; a run of those that could not be carried out for the same reason is one."""
    for key, group in groupby(checks, key=lambda check: (check.state, check.found)):
        same = list(group)
        if key[0] is State.UNVERIFIED and len(same) > 2:
            names = ", ".join(check.id for check in same)
            label = console.paint(f"{State.UNVERIFIED.value:<10}", "cyan")
            body = console.wrap(f"{names}: {console.clean(key[1])}", indent=" " * 14).strip()
            yield f"{same[0].number:>2} {label} {body}"
        else:
            for check in same:
                yield f"{check.number:>2} {console.finding(_named(check), indent='   ').strip()}"


def _named(check: NumberedCheck) -> NumberedCheck:
    import msgspec

    took = f" ({check.seconds:.1f} s)" if check.seconds is not None and check.seconds >= 0.5 else ""
    return msgspec.structs.replace(check, found=f"{check.id}: {console.clean(check.found)}{took}")


def _xml(text: str) -> str:
    """Without what XML cannot hold."""
    return "".join(letter for letter in console.clean(text) if letter.isprintable() or letter in "\n\t")
