"""What a shelf makes of a wheel and its report, and what it states of it and its owner signs: SLSA provenance in-toto.

Of what it cannot run (a card elsewhere) the shelf says UNVERIFIED, whatever an unsigned text says. Its statement names
the wheel by its hash and says how it was built (as far as the build told), what was checked and with what result, and
what `repair` put in (bill of materials, licences). The facts a stranger's resolver goes by are inside as well: the
index around it is not signed and need not be believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rekindle import __version__
from rekindle.core import codec, console, files, signing
from rekindle.core.command import rekindle
from rekindle.core.errors import BadInput, ChecksFailed, NotFound, RekindleError
from rekindle.core.findings import State, worst
from rekindle.core.signing import Envelope, PublicKey, SigningKey
from rekindle.wheels.inspect.inspection import Reading
from rekindle.wheels.shelf import store
from rekindle.wheels.shelf.store import ShelvedWheel
from rekindle.wheels.verify import signed_report, verify
from rekindle.wheels.verify.verify import STATIC, NumberedCheck, Verification, report_beside

STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
_BUILD = "urn:rekindle:build:1"
_SHELVED = "urn:rekindle:shelved:1"


class BuildFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a build knows of itself: `parameters` were asked for, `tools` were used, without names of people or hosts.

    `sources` and `patches` map an address or a name to a commit or a SHA-256.
    """

    parameters: dict[str, Any] = {}
    tools: dict[str, str] = {}
    sources: dict[str, str] = {}
    patches: dict[str, str] = {}


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What a statement says, once its signature has been checked."""

    entry: ShelvedWheel
    verification: Verification
    build: BuildFacts | None
    signed_by: PublicKey


def sign(
    key: SigningKey,
    entry: ShelvedWheel,
    verification: Verification,
    *,
    build: BuildFacts | None = None,
    inside: Mapping[str, str] | None = None,
) -> Envelope:
    """`inside` are the bill of materials and the licences in the wheel, each with its SHA-256."""
    return key.sign(_payload(entry, verification, build, inside or {}), signing.IN_TOTO)


def opened(envelope: Envelope, trusted: Sequence[PublicKey], *, name: str) -> Statement:
    """The statement, if a trusted key signed it and it is one."""
    payload, key = signing.opened(envelope, trusted, name=name)
    if envelope.payload_type != signing.IN_TOTO:
        raise BadInput(f"{name} is not an in-toto statement", hint="get it again")
    try:
        text = codec.from_json(payload, dict[str, Any], name=name)
        predicate = text["predicate"]
        if text["_type"] != STATEMENT or text["predicateType"] != PROVENANCE:
            raise ValueError(text["predicateType"])
        entry = codec.from_builtins(predicate["rekindle_wheel"], ShelvedWheel, name=name)
        verification = codec.from_builtins(predicate["rekindle_verification"], Verification, name=name)
        build = predicate.get("rekindle_build")
        subjects = text["subject"]
        named = [(one["name"], one["digest"]["sha256"]) for one in subjects]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"{name} is not a statement of a shelf", hint="get it again") from error
    if named != [(entry.file, entry.sha256)]:
        raise ChecksFailed(f"{name} speaks of two different wheels", hint="get it again")
    facts = codec.from_builtins(build, BuildFacts, name=name) if build else None
    return Statement(entry=entry, verification=verification, build=facts, signed_by=key)


def of_file(path: Path, trusted: Sequence[PublicKey]) -> Statement:
    """The statement that lies in a file."""
    name = f"`{path.name}`"
    return opened(signing.read_envelope(files.read_bytes(path), name=name), trusted, name=name)


def _payload(
    entry: ShelvedWheel, verification: Verification, build: BuildFacts | None, inside: Mapping[str, str]
) -> bytes:
    facts = build or BuildFacts()
    dependencies = [{"uri": uri, "digest": {"gitCommit": commit}} for uri, commit in sorted(facts.sources.items())]
    dependencies += [{"name": name, "digest": {"sha256": sha}} for name, sha in sorted(facts.patches.items())]
    if entry.original:
        dependencies.append({"name": "the wheel before it was labelled", "digest": {"sha256": entry.original}})
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": entry.file, "digest": {"sha256": entry.sha256}}],
        "predicateType": PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD if build else _SHELVED,
                "externalParameters": facts.parameters,
                "internalParameters": {"tools": facts.tools},
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": {"id": "urn:rekindle:local", "version": {"rekindle": __version__}},
                "metadata": {"finishedOn": entry.added_at},
                "byproducts": [{"name": name, "digest": {"sha256": sha}} for name, sha in sorted(inside.items())],
            },
            "rekindle_wheel": codec.to_builtins(entry),
            "rekindle_verification": codec.to_builtins(verification),
            "rekindle_build": codec.to_builtins(build) if build else None,
        },
    }
    return json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def checked(
    wheel: Path,
    report: Path | None,
    *,
    own: Path,
    trusted: Sequence[PublicKey] = (),
    against: Path | None = None,
    run: bool = False,
    reading: Reading | None = None,
) -> Verification:
    """The shelf's own checks, completed by those of a report that a trusted key signed. An error if any failed.

    `own` is the shelf's copy of the wheel, which is what is checked, and `reading` what was read of it."""
    seen = verify.verify(own, run=run, against=against, reading=reading)
    _refuse(f"`{wheel.name}`", seen)
    place = report or report_beside(wheel)
    if not place.is_file():
        if report is not None:
            raise NotFound.path(report)
        return seen
    found = signed_report.read(place, trusted=believed(trusted))
    if found.report.sha256 != seen.sha256:
        message = f"the report is not of this file: `{wheel.name}` has another hash"
        raise BadInput(message, hint=f"run `{rekindle('verify', str(wheel))}` again")
    _refuse(f"`{wheel.name}`, by `{place.name}`,", found.report)
    if run or found.signed_by is None:
        if found.signed_by is None and not run:
            console.say(f"`{place.name}` is not believed: {found.why}; what it says was run is UNVERIFIED")
        return seen
    return _together(seen, found.report)


def doubt(place: Path, entry: ShelvedWheel, keys: Sequence[PublicKey]) -> str | None:
    """Why an entry of this folder is nobody's word; None: one of these keys signed exactly this, and its report."""
    path, name = place / f"{entry.file}{store.STATEMENT}", f"the statement of `{entry.file}`"
    if files.is_link(path) or not path.is_file():
        return f"`{entry.file}` has no signed statement"
    try:
        said = opened(signing.read_envelope(files.read_bytes(path), name=name), keys, name=name)
        report = codec.from_json(files.read_bytes(place / f"{entry.file}{store.REPORT}"), Verification)
    except RekindleError as error:
        return str(error)
    if said.entry != msgspec.structs.replace(entry, yanked=said.entry.yanked):
        return f"what the shelf says of `{entry.file}` is not what was signed"
    return None if report == said.verification else f"the report of `{entry.file}` is not the one that was signed"


def contradiction(place: Path, entry: ShelvedWheel) -> str | None:
    """The same, where the key that the entry itself names will do: nobody has to be trusted, but all must agree."""
    try:
        named = [PublicKey.parse(entry.signed_by)] if entry.signed_by else []
    except RekindleError as error:
        return str(error)
    return doubt(place, entry, (*named, *believed(())))


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


def _refuse(named: str, verification: Verification) -> None:
    if verification.state is State.FAIL:
        failed = [check for check in verification.checks if check.state is State.FAIL]
        why = "; ".join(f"{check.id}: {check.found}" for check in failed) or "its report says so"
        fix = next((check.fix.text for check in failed if check.fix), "`rekindle verify` says more")
        raise ChecksFailed(f"{named} failed its verification: {why}", hint=fix)
