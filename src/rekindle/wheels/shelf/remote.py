"""Somebody else's shelf, over HTTP. What its index says is a hint; what its owner signed is what counts.

Every fact that the resolver goes by (torch, CUDA, GPU code, what was checked) is taken from the signed statement of a
wheel, and the wheel itself is pinned by the hash in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from urllib.parse import quote

import msgspec

from rekindle.core import codec, fetch, signing
from rekindle.core.errors import FetchFailed, RekindleError
from rekindle.core.signing import PublicKey
from rekindle.model.wheel import WheelIdentity
from rekindle.wheels.shelf import provenance, store
from rekindle.wheels.shelf.entry import ShelvedWheel
from rekindle.wheels.shelf.index import LISTING
from rekindle.wheels.shelf.shelf import ShelfOffers, offers_of

_LIMIT, _MOST = 16 << 20, 400
_PATIENCE = 120


class _ListedWheel(WheelIdentity, frozen=True, kw_only=True):
    """A listing is not signed: it says which statements to ask for, and one odd name does not hide the others."""

    file: str
    yanked: str | None = None


class _Listing(msgspec.Struct, frozen=True, kw_only=True):
    schema: str
    wheels: tuple[_ListedWheel, ...] = ()
    base: str | None = None
    """Where the wheels lie, if not beside their statements: their hashes are signed, their place need not be."""


def offers(address: str, trusted: Sequence[PublicKey], get: Callable[[str], bytes] | None = None) -> ShelfOffers:
    """The torch wheels of a shelf that a trusted key has signed, and for each of the others the reason."""
    get = get or _get
    root = address.rstrip("/").removesuffix("/simple")
    listing = codec.from_json(get(f"{root}/{LISTING}"), _Listing, name=f"`{root}/{LISTING}`")
    until = time.monotonic() + _PATIENCE
    good: list[ShelvedWheel] = []
    aside: dict[str, str] = {}
    for listed in [entry for entry in listing.wheels if entry.is_torch and entry.cuda is not None][:_MOST]:
        if time.monotonic() > until:
            aside[listed.file] = f"the shelf answers too slowly: its statement was not read within {_PATIENCE} s"
            continue
        try:
            file = store.file_name(listed.file)
            data = get(f"{root}/wheels/{quote(file)}{store.STATEMENT}")
            envelope = signing.read_envelope(data, name=f"the statement of `{file}`")
            said = provenance.opened(envelope, trusted, name=f"the statement of `{file}`")
            store.file_name(said.entry.file)
            good.append(msgspec.structs.replace(said.entry, yanked=listed.yanked))
        except RekindleError as error:
            aside[listed.file] = str(error)
    base = listing.base if listing.base and listing.base.startswith(("http://", "https://")) else f"{root}/wheels"
    found = offers_of(good, lambda entry: f"{base}/{quote(entry.file)}#sha256={entry.sha256}", f"at {root}")
    return ShelfOffers(offers=found.offers, set_aside={**aside, **found.set_aside})


def _get(url: str) -> bytes:
    try:
        return fetch.fetch_small(url, most=_LIMIT)
    except FetchFailed as error:
        raise FetchFailed(error.message, hint="is this the address of a shelf?") from error
