"""What the shelf makes of a wheel and of the report beside it: its own checks, and a report only if it is signed.

Of what it cannot run (a card elsewhere) the shelf says UNVERIFIED, whatever an unsigned text says.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.core import console, signing
from rekindle.core.command import rekindle
from rekindle.core.errors import BadInput, ChecksFailed, NotFound, RekindleError
from rekindle.core.findings import State, worst
from rekindle.core.signing import PublicKey
from rekindle.wheels.verify import signed_report, verify
from rekindle.wheels.verify.verify import STATIC, NumberedCheck, Verification, report_beside


def checked(
    wheel: Path,
    report: Path | None,
    *,
    own: Path,
    trusted: Sequence[PublicKey] = (),
    against: Path | None = None,
    run: bool = False,
) -> Verification:
    """The shelf's own checks, completed by those of a report that a trusted key signed. An error if any failed.

    `own` is the shelf's copy of the wheel, which is what is checked."""
    seen = verify.verify(own, run=run, against=against)
    _refuse(wheel, seen)
    place = report or report_beside(wheel)
    if not place.is_file():
        if report is not None:
            raise NotFound.path(report)
        return seen
    found = signed_report.read(place, trusted=believed(trusted))
    if found.report.sha256 != seen.sha256:
        message = f"the report is not of this file: `{wheel.name}` has another hash"
        raise BadInput(message, hint=f"run `{rekindle('verify', str(wheel))}` again")
    _refuse(wheel, found.report)
    if run or found.signed_by is None:
        if found.signed_by is None and not run:
            console.say(f"`{place.name}` is not believed: {found.why}; what it says was run is UNVERIFIED")
        return seen
    return _together(seen, found.report)


def believed(trusted: Sequence[PublicKey]) -> tuple[PublicKey, ...]:
    """The keys that were named, and the user's own."""
    try:
        mine = signing.own_key()
    except RekindleError:
        mine = None
    return (*trusted, *((mine.public,) if mine else ()))


def _together(own: Verification, theirs: Verification) -> Verification:
    """Read here, run there: the checks that only read are always the shelf's own."""
    read = [check for check in own.checks if check.id in STATIC and _better(check, theirs) is check]
    kept = [_better(check, theirs) for check in own.checks if check.id in STATIC and check not in read]
    ran = [check for check in theirs.checks if check.id not in STATIC]
    checks = tuple(sorted([*read, *kept, *ran], key=lambda check: check.number))
    return msgspec.structs.replace(
        own, checks=checks, state=worst(checks), cards=theirs.cards, python=theirs.python or own.python
    )


def _better(check: NumberedCheck, theirs: Verification) -> NumberedCheck:
    """What could not be read here (no card named, no torch at hand) may have been there."""
    if check.state is not State.UNVERIFIED:
        return check
    return next((other for other in theirs.checks if other.id == check.id and other.state is not State.FAIL), check)


def _refuse(wheel: Path, verification: Verification) -> None:
    if verification.state is State.FAIL:
        failed = [check for check in verification.checks if check.state is State.FAIL]
        why = "; ".join(f"{check.id}: {check.found}" for check in failed) or "its report says so"
        fix = next((check.fix.text for check in failed if check.fix), "`rekindle verify` says more")
        raise ChecksFailed(f"`{wheel.name}` failed its verification: {why}", hint=fix)
