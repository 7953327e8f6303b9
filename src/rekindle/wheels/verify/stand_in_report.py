"""A run on a stand-in as a person reads it."""

from __future__ import annotations

import msgspec

from rekindle.core import console
from rekindle.core.findings import State
from rekindle.wheels.verify.operators import Operators
from rekindle.wheels.verify.stand_in import StandIn

_SHOWN = 12


def text(done: StandIn) -> str:
    parts = [console.paint(console.clean(done.subject), "bold"), ""]
    for number, line in enumerate(done.lines, start=1):
        named = msgspec.structs.replace(line, found=f"{line.id}: {console.clean(line.found)}")
        parts.append(f"{number:>2} {console.finding(named, indent='   ').strip()}")
    if done.operators is not None and done.operators.problem is None:
        parts += ["", *_operators("Operators", done.operators)]
    if done.masked_operators is not None and done.masked_operators.problem is None:
        parts += ["", *_operators(f"Operators, with a runtime that reports {done.old_card}", done.masked_operators)]
    took = f" in {done.seconds:.0f} s" if done.seconds is not None else ""
    failed = [line.id for line in done.lines if line.state is State.FAIL]
    end = done.headline + (f"; failed: {', '.join(failed)}" if failed else "") + took
    return "\n".join([*parts, "", console.wrap(console.clean(end))])


def _operators(title: str, found: Operators) -> list[str]:
    lines = [
        console.paint(title, "bold"),
        f"  entries in the table  {found.table}",
        f"  passed                {found.passed}",
        f"  failed                {found.failed}",
        f"  crashed               {found.crashed}",
        f"  not reached           {found.not_reached}",
        f"  skipped               {sum(found.skipped.values())}",
    ]
    lines += [f"    {number:>6}  {console.clean(why)}" for why, number in found.skipped.items()]
    wrong = [one for one in found.results if one.result in ("failed", "crashed")]
    for one in wrong[:_SHOWN]:
        what = " ".join(word for word in (one.op, one.dtype, one.part) if word)
        lines.append(console.wrap(f"{what}: {console.clean(one.why)}", indent="      ").replace("      ", "    ", 1))
    if len(wrong) > _SHOWN:
        lines.append(f"    … and {len(wrong) - _SHOWN} more; `--json` lists them all")
    return lines
