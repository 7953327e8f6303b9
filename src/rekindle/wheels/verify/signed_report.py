"""A verification's report on disk, signed with the user's own key; and the part of it that may travel (`--share`).

Without a signature a report is only a text beside a wheel that anybody could have edited. What is shared has the wheel
and the report by their hashes, the card, the driver and the state of each check; not in it are paths, user and host
names, serial numbers, and every sentence of a check that passed.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Sequence
from datetime import date
from pathlib import Path, PureWindowsPath

import msgspec

from rekindle import __version__
from rekindle.core import codec, console, files, signing
from rekindle.core.errors import BadInput, RekindleError, UsageError
from rekindle.core.findings import State
from rekindle.core.redact import redact
from rekindle.core.signing import PublicKey
from rekindle.core.untrusted import Sha256
from rekindle.core.version import Version
from rekindle.machine.probe import graphics
from rekindle.model.card import NamedCard
from rekindle.wheels.verify.verify import NumberedCheck, Verification

KIND = "application/vnd.rekindle.verify+json"


class SignedReport(msgspec.Struct, frozen=True, kw_only=True):
    """`signed_by` is the trusted key that signed it; None: nobody whom the reader trusts did, and `why` says more."""

    report: Verification
    signed_by: PublicKey | None = None
    why: str = ""


def signature_beside(report: Path) -> Path:
    return report.with_name(report.name + ".dsse.json")


def write(report: Path, done: Verification) -> None:
    """The report, and its signature beside it. A key is made the first time, which is said."""
    text = codec.to_json(done) + "\n"
    files.write_text(report, text)
    key = key_to_sign()
    if key is not None:
        envelope = key.sign(text.encode("utf-8"), KIND)
        files.write_text(signature_beside(report), codec.to_json(envelope) + "\n")


def key_to_sign() -> signing.SigningKey | None:
    """The user's own key, made if there is none. None where none can be kept: what follows is then not signed.

    A key that REKINDLE_KEY names is meant to sign: if it cannot, that is an error.
    """
    try:
        key = signing.own_key()
        if key is None:
            key = signing.make_key()
            console.say(f"made a key to sign with: `{signing.key_file()}`")
    except RekindleError as error:
        if os.environ.get("REKINDLE_KEY"):
            raise
        console.say(f"not signed: {error}")
        return None
    return key


def read(report: Path, *, trusted: Sequence[PublicKey]) -> SignedReport:
    """A report, and who signed exactly these bytes."""
    data = files.read_bytes(report)
    found = codec.from_json(data, Verification, name=f"`{report}`")
    place = signature_beside(report)
    if not place.is_file():
        return SignedReport(report=found, why="it is not signed")
    try:
        envelope = signing.read_envelope(files.read_bytes(place), name=f"`{place.name}`")
        payload, key = signing.opened(envelope, trusted, name=f"the report `{report.name}`")
        if envelope.payload_type != KIND or payload != data:
            raise BadInput("the signature is of another report", hint="verify the wheel again")
    except RekindleError as error:
        return SignedReport(report=found, why=str(error))
    return SignedReport(report=found, signed_by=key)


SCHEMA = "rekindle.field-report/1"
_LONGEST = 300


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
    report = codec.like(
        FieldReport,
        done,
        made_at=made_at,
        wheel=PureWindowsPath(done.subject).name,
        wheel_sha256=Sha256(done.sha256),
        report_sha256=Sha256(whole),
        system=platform.system().lower(),
        machine=platform.machine().lower(),
        driver=driver,
        cards=tuple(NamedCard(name=card.name, capability=card.capability) for card in done.cards),
        checks=tuple(_shared(check) for check in done.checks),
    )
    # Whatever its wheel and its driver say: a version or a card can be called after a person, too.
    return codec.from_builtins(codec.with_texts(codec.to_builtins(report), redact), FieldReport)


def write_share(done: Verification, place: Path) -> None:
    seen = graphics()
    report = field_report(done, driver=seen.driver.version if seen.driver else None, made_at=date.today().isoformat())
    files.write_text(place, codec.to_json(report) + "\n")


def _shared(check: NumberedCheck) -> SharedCheck:
    found = "" if check.state is State.PASS else redact(check.found)[:_LONGEST]
    return codec.like(SharedCheck, check, found=found)
