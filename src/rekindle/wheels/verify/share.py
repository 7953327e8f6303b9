"""`rekindle verify --share FILE`: what the owner of a card can send, small and without names.

What stays out: paths, user and host names, serial numbers, and every sentence of a check that passed. What is in: the
wheel and the report by their hashes, the card, the driver, and the state of each check.
"""

from __future__ import annotations

import hashlib
import platform
from datetime import date
from pathlib import Path

import msgspec

from rekindle import __version__
from rekindle.core import codec, files
from rekindle.core.errors import BadInput, UsageError
from rekindle.core.findings import State
from rekindle.core.redact import redact
from rekindle.core.untrusted import Sha256
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import NamedCard
from rekindle.machine.gpu import cards
from rekindle.machine.host import Host
from rekindle.wheels.verify.verify import NumberedCheck, Verification

SCHEMA = "rekindle.field-report/1"
_LONGEST = 300
_MOST_BYTES = 256 << 10


class SharedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """`found` only of a check that did not pass, and without names and paths of the machine."""

    id: str
    state: State
    card: str | None = None
    found: str = ""


class FieldReport(msgspec.Struct, frozen=True, kw_only=True):
    """What travels. `report_sha256` is that of the whole report, which stays with its owner."""

    schema: str = SCHEMA
    made_by: str = f"rekindle {__version__}"
    made_at: str
    wheel: str
    wheel_sha256: Sha256
    report_sha256: Sha256
    torch: str
    cuda: Version | None = None
    cudnn: str | None = None
    targets: dict[str, int] = {}
    system: str
    machine: str
    python: str | None = None
    driver: Version | None = None
    cards: tuple[NamedCard, ...]
    checks: tuple[SharedCheck, ...]
    state: State


def field_report(done: Verification, *, driver: Version | None, made_at: str) -> FieldReport:
    """The part of a verification that may travel. Only what ran on a card is worth it."""
    if done.kind != "wheel" or done.sha256 is None:
        raise UsageError("`--share` takes a wheel", hint="name the `.whl` that you installed: its hash is what counts")
    if done.torch is None or not done.is_torch:
        raise UsageError("`--share` takes a wheel of torch", hint="name the torch wheel")
    if not any(check.card for check in done.checks):
        raise UsageError("nothing ran on a card, so there is nothing to share", hint="run it where the card is")
    whole = hashlib.sha256((codec.to_json(done) + "\n").encode("utf-8")).hexdigest()
    return codec.like(
        FieldReport,
        done,
        made_at=made_at,
        wheel=done.subject,
        wheel_sha256=Sha256(done.sha256),
        report_sha256=Sha256(whole),
        system=platform.system().lower(),
        machine=platform.machine().lower(),
        driver=driver,
        cards=tuple(NamedCard(name=card.name, capability=card.capability) for card in done.cards),
        checks=tuple(_shared(check) for check in done.checks),
    )


def write(done: Verification, place: Path) -> FieldReport:
    seen = cards.probe(Host(), time_limit=30.0)
    report = field_report(done, driver=seen.driver.version if seen.driver else None, made_at=date.today().isoformat())
    files.write_text(place, codec.to_json(report) + "\n")
    return report


def read(place: Path) -> FieldReport:
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


def _shared(check: NumberedCheck) -> SharedCheck:
    found = "" if check.state is State.PASS else redact(check.found)[:_LONGEST]
    return codec.like(SharedCheck, check, found=found)
