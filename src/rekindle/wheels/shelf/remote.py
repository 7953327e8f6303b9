"""Somebody else's shelf, over HTTP: nothing counts that its owner did not sign.

The list (what there is, what was withdrawn) is signed with a number that may not fall and a day on which it ends. Every
fact of a wheel that the resolver goes by (torch, CUDA, GPU code, what was checked) is taken from its own statement, and
the wheel is pinned by the hash in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from urllib.parse import quote

import msgspec

from rekindle.core import codec, fetch, signing
from rekindle.core.errors import ChecksFailed, FetchFailed, RekindleError
from rekindle.core.signing import PublicKey
from rekindle.wheels.shelf import provenance, store
from rekindle.wheels.shelf.index import LISTING, SIGNED_LISTING, Listing, signed_state
from rekindle.wheels.shelf.shelf import ShelfOffers, offers_of
from rekindle.wheels.shelf.store import ShelvedWheel

_LIMIT, _MOST = 16 << 20, 400
_PATIENCE = 120


def offers(address: str, trusted: Sequence[PublicKey], get: Callable[[str], bytes] | None = None) -> ShelfOffers:
    """The torch wheels of a shelf that a trusted key has signed, and for each of the others the reason."""
    get = get or _get
    root = address.rstrip("/").removesuffix("/simple")
    name = f"the list of the shelf {root}"
    data = get(f"{root}/{LISTING}")
    try:
        signature = get(f"{root}/{SIGNED_LISTING}")
    except FetchFailed as error:
        message = f"the list of the shelf {root} is not signed: {error.message}"
        raise ChecksFailed(message, hint="its owner signs it with `rekindle shelf mend`") from error
    signed_state(data, signature, trusted, name=name, place=root)
    listing = codec.from_json(data, Listing, name=name)
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
            if (said.entry.file, said.entry.sha256) != (file, listed.sha256):
                message = f"the statement of `{file}` is of another file than the signed list names"
                raise ChecksFailed(message, hint="do not install it; tell the owner of the shelf")
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
        raise FetchFailed(error.message, hint=f"is this the address of a shelf? {error.hint or ''}".strip()) from error
