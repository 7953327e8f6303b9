"""Whose terms hold for what is downloaded: shown before, and the acceptance kept with its date."""

from __future__ import annotations

import time

import msgspec

from rekindle.core import codec, files
from rekindle.core.errors import UsageError
from rekindle.knowledge.cuda.toolchains import LicenceTerms, licence_terms
from rekindle.toolchain.store import Store


class AcceptedLicence(msgspec.Struct, frozen=True, kw_only=True):
    licence: str
    title: str
    at: str
    how: str


class _Acceptances(msgspec.Struct, frozen=True, kw_only=True):
    accepted: tuple[AcceptedLicence, ...] = ()


def terms(names: tuple[str, ...]) -> tuple[LicenceTerms, ...]:
    return tuple(row for row in licence_terms() if row.id in names)


def open_ones(store: Store, names: tuple[str, ...]) -> tuple[LicenceTerms, ...]:
    """Those that nobody has accepted here yet."""
    known = {one.licence for one in _read(store).accepted}
    return tuple(row for row in terms(names) if row.id not in known)


def accept(store: Store, rows: tuple[LicenceTerms, ...], how: str) -> None:
    if not rows:
        return
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    more = tuple(AcceptedLicence(licence=row.id, title=row.title, at=now, how=how) for row in rows)
    kept = _Acceptances(accepted=(*_read(store).accepted, *more))
    files.write_text(store.root / "licences.json", codec.to_json(kept) + "\n")


def refused(rows: tuple[LicenceTerms, ...]) -> UsageError:
    titles = ", ".join(row.title for row in rows)
    return UsageError(
        f"nothing was downloaded: {titles} was not accepted",
        hint="read it (the address is above), then add `--accept-licence`",
    )


def _read(store: Store) -> _Acceptances:
    path = store.root / "licences.json"
    if not path.is_file():
        return _Acceptances()
    return codec.from_json(files.read_bytes(path, limit=1 << 20), _Acceptances, name=f"`{path}`")
