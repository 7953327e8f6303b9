"""The wheels on shelves, your own and other people's, as offers for the resolver."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.core import codec, console, files, paths, signing
from rekindle.core.errors import ChecksFailed, FetchFailed, RekindleError, UsageError
from rekindle.core.paths import shelf_folder
from rekindle.core.signing import PublicKey
from rekindle.core.untrusted import Sha256
from rekindle.knowledge.tables import Evidence
from rekindle.stack.offers import Offer


class Shelves(msgspec.Struct, frozen=True, kw_only=True):
    """Which shelves to look at. `addresses` are folders or URLs; none means the configured ones and your own.

    `trust` are public keys, or files with them. With `signed`, wheels of your own shelf need a signature, too.
    """

    addresses: tuple[str, ...] = ()
    trust: tuple[str, ...] = ()
    signed: bool = False


def on_shelves(asked: Shelves) -> tuple[Offer, ...]:
    """The torch wheels of every shelf asked for. What cannot be used is said, and why."""
    keys = tuple(signing.public_key(text) for text in asked.trust)
    found: list[Offer] = []
    for address, key in _addresses(asked):
        found += _offers(address, (*keys, *((key,) if key else ())), asked)
    return tuple(found)


def require_signed(wheel: Path, trust: Sequence[str]) -> Sha256:
    """The hash that a trusted key signed, in the statement beside a wheel; an error where it is not this file's."""
    from rekindle.wheels.shelf import provenance, store
    from rekindle.wheels.shelf.provenance import believed

    place = wheel.with_name(wheel.name + store.STATEMENT)
    if not place.is_file():
        message = f"`{wheel.name}` has no signed statement beside it"
        raise ChecksFailed(message, hint="leave `--require-signed` out, or take it from a shelf that signs")
    keys = believed(tuple(signing.public_key(text) for text in trust))
    name = f"the statement of `{wheel.name}`"
    said = provenance.opened(signing.read_envelope(files.read_bytes(place), name=name), keys, name=name)
    if said.entry.sha256 != paths.sha256_of(wheel):
        raise ChecksFailed(f"{name} is of another file: the hash differs", hint="get both again")
    return said.entry.sha256


def _addresses(asked: Shelves) -> list[tuple[str, PublicKey | None]]:
    configured = user_settings().shelf
    known = {each.address.rstrip("/"): each.key for each in configured}
    named = list(asked.addresses)
    if not named:
        said = paths.shelf_variable()
        named = [word for word in said.split() if _is_address(word)] if "://" in said else []
        named += [each.address for each in configured]
        named.append(str(shelf_folder()))
    return [(address, known.get(address.rstrip("/"))) for address in dict.fromkeys(named)]


def _is_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _offers(address: str, keys: tuple[PublicKey, ...], asked: Shelves) -> tuple[Offer, ...]:
    if _is_address(address):
        from rekindle.wheels.shelf import remote
        from rekindle.wheels.shelf.provenance import believed

        try:
            read = remote.offers(address, believed(keys))
        except RekindleError as error:
            if isinstance(error, FetchFailed) and address in asked.addresses:
                raise
            hint = f"; {error.hint}" if error.hint else ""
            console.say(f"not considered: the shelf {address}: {error}{hint}")
            return ()
    else:
        where = Path(address)
        if where.exists() and not where.is_dir():
            raise UsageError(f"`{where}` is a file, not a shelf", hint="`--shelf` takes a folder or an address")
        if not where.is_dir():
            return ()
        from rekindle.wheels.shelf import shelf
        from rekindle.wheels.shelf.provenance import believed

        own = where.resolve() == shelf_folder().resolve()
        read = shelf.offers(where, None if own else believed(keys))
    for file, why in read.set_aside.items():
        console.say(f"not considered: `{console.clean(file)}` on the shelf: {console.clean(why)}")
    if asked.signed and not _is_address(address):
        return tuple(offer for offer in read.offers if _signed(offer, asked))
    return read.offers


def _signed(offer: Offer, asked: Shelves) -> bool:
    try:
        require_signed(Path(str(offer.location)), asked.trust)
        if offer.evidence is Evidence.NOTES:  # of somebody's folder: an entry can lose its mark
            name = Path(str(offer.location)).name
            raise ChecksFailed(f"no list that a key of yours has signed says that `{name}` is not withdrawn")
    except RekindleError as error:
        console.say(f"not considered: {error}")
        return False
    return True


class ShelfSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A shelf to look at: a folder or an address, and the key that its owner signs with."""

    address: str
    key: PublicKey | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    shelf: tuple[ShelfSetting, ...] = ()


def user_settings() -> Settings:
    """What the user has set; nothing when there is no file. A file that cannot be read is an error, never ignored."""
    named = os.environ.get("REKINDLE_CONFIG")
    path = Path(named) if named else paths.config_folder() / "config.toml"
    if not path.is_file():
        return Settings()
    return codec.from_toml(files.read_bytes(path, limit=1 << 20), Settings, name=f"`{path}`")
