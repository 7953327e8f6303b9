"""Signed statements: a DSSE envelope with an ed25519 signature, made and checked without any network.

Shelves and bundles of data use it alike. A public key is written `ed25519:BASE64` (the 32 raw bytes), so that it fits
on one line of a message or a configuration file. The user's own private key is a PEM file that only the user can read.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from rekindle.core import codec, files, own
from rekindle.core.command import Command
from rekindle.core.errors import BadInput, ChecksFailed, NotWritable, UsageError
from rekindle.core.paths import data_folder
from rekindle.core.version import Keyed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

IN_TOTO = "application/vnd.in-toto+json"
_PREFIX = "ed25519:"
_LIMIT = 16 << 20
_FIELD = 2**255 - 19
# The second coordinates of the eight points of the curve whose order divides 8 (RFC 7748, section 7).
_EIGHTH = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD83D3D706A17C7
_SMALL_ORDER = (0, 1, _FIELD - 1, _EIGHTH, _FIELD - _EIGHTH)


class PublicKey(Keyed):
    """`raw` are the 32 bytes of an ed25519 key. In files it is text."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = self._key = raw

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        plain = text.strip()
        try:
            raw = base64.b64decode(plain.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if not plain.startswith(_PREFIX) or len(raw) != 32 or _weak(raw):
            message = f"`{plain[:60]}` is not a public key"
            raise UsageError(message, hint="`rekindle shelf key` prints one; it begins with `ed25519:`")
        return cls(raw)

    @property
    def id(self) -> str:
        """What signatures name the key by."""
        import hashlib

        return hashlib.sha256(self.raw).hexdigest()

    def __str__(self) -> str:
        return _PREFIX + base64.b64encode(self.raw).decode("ascii")


def _weak(raw: bytes) -> bool:
    """A point of small order: whatever is signed, a signature for it can be made up. The sign is the top bit."""
    y = int.from_bytes(raw, "little") & ((1 << 255) - 1)
    return y % _FIELD in _SMALL_ORDER


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    keyid: str = ""
    sig: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """DSSE: the payload's type and bytes, and who signed the two together."""

    payload_type: str
    payload: str
    signatures: tuple[Signature, ...]


class OwnKey(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle shelf key`. `file` holds the private key."""

    schema: str = "rekindle.key/1"
    public: str
    file: str


class SigningKey:
    """A private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @property
    def public(self) -> PublicKey:
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, payload: bytes, kind: str = IN_TOTO) -> Envelope:
        sig = self._key.sign(encoded(kind, payload))
        return Envelope(
            payload_type=kind,
            payload=base64.b64encode(payload).decode("ascii"),
            signatures=(Signature(keyid=self.public.id, sig=base64.b64encode(sig).decode("ascii")),),
        )


def encoded(kind: str, payload: bytes) -> bytes:
    """DSSE's encoding: type and payload with their lengths, so that neither can flow into the other."""
    name = kind.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(name), name, len(payload), payload)


def opened(envelope: Envelope, trusted: Sequence[PublicKey], *, name: str = "the statement") -> tuple[bytes, PublicKey]:
    """The payload, and the trusted key that signed it. An error if none did, whatever the envelope says of itself."""
    _library()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    payload = _decoded(envelope.payload, name)
    if not envelope.signatures:
        raise ChecksFailed(f"{name} is not signed", hint="ask its owner to sign it: `rekindle shelf key`")
    message = encoded(envelope.payload_type, payload)
    for signature in envelope.signatures[:16]:
        sig = _decoded(signature.sig, name)
        for key in trusted:
            with contextlib.suppress(InvalidSignature):
                Ed25519PublicKey.from_public_bytes(key.raw).verify(sig, message)
                return payload, key
    known = {key.id for key in trusted}
    if any(signature.keyid in known for signature in envelope.signatures):
        raise ChecksFailed(f"the signature of {name} is wrong: it was changed after it was signed", hint="get it again")
    message_text = f"{name} is signed by a key that you do not trust"
    raise ChecksFailed(message_text, hint="if you know the owner, name the public key with `--trust`")


def read_envelope(data: bytes, *, name: str) -> Envelope:
    if len(data) > _LIMIT:
        raise BadInput(f"{name} is too large for a statement", hint="get it again")
    return codec.from_json(data, Envelope, name=name)


def public_key(text: str) -> PublicKey:
    """A public key as written, or in a file that holds one."""
    if text.startswith(_PREFIX):
        return PublicKey.parse(text)
    path = Path(text)
    if not path.is_file():
        message = f"`{text[:60]}` is neither a public key nor a file with one"
        raise UsageError(message, hint="`rekindle shelf key` prints one; it begins with `ed25519:`")
    return PublicKey.parse(files.read_bytes(path, limit=4096).decode("utf-8", "replace"))


def key_file() -> Path:
    """Where the user's own private key is; `REKINDLE_KEY` names another place."""
    named = os.environ.get("REKINDLE_KEY")
    return Path(named) if named else data_folder("keys", "own.pem")


def own_key() -> SigningKey | None:
    """The user's own key; None when there is none yet."""
    path = key_file()
    return read_key(path) if path.is_file() else None


def read_key(path: Path) -> SigningKey:
    serialization = _library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise BadInput(f"others can read the private key `{path}`", hint=f"`{Command('chmod', '600', str(path))}`")
    try:
        key = serialization.load_pem_private_key(files.read_bytes(path, limit=1 << 16), password=None)
    except (ValueError, TypeError) as error:
        raise BadInput(f"`{path}` is not a private key: {error}", hint="`rekindle shelf key` makes one") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise BadInput(f"`{path}` is not an ed25519 key", hint="`rekindle shelf key` makes one")
    return SigningKey(key)


def make_key(path: Path | None = None) -> SigningKey:
    """A new key, written so that only the user can read it. An existing one is never overwritten."""
    serialization = _library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    place = path or key_file()
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except FileExistsError as error:
        raise UsageError(f"there is a key already: `{place}`", hint="move it away first if you want another") from error
    except OSError as error:
        raise NotWritable(
            f"cannot write `{place}`: {error.strerror}", hint="name another place: REKINDLE_KEY"
        ) from error
    with os.fdopen(handle, "wb") as stream:
        stream.write(text)
    return SigningKey(key)


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput(f"{name} is damaged: it is not base64", hint="get it again") from error


def _library() -> ModuleType:
    """cryptography's serialization, or an error that says how to get the package."""
    own.need("sign", "cryptography")
    from cryptography.hazmat.primitives import serialization

    return serialization
