"""A verification's report on disk, signed with the user's own key, and read again by who trusts that key.

Without a signature a report is only a text beside a wheel that anybody could have edited.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.core import codec, console, files, signing
from rekindle.core.errors import BadInput, RekindleError
from rekindle.core.signing import PublicKey
from rekindle.wheels.verify.verify import Verification

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
