"""Envelopes against securesystemslib, an independent reader and writer of DSSE, and against tampering."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import msgspec
import pytest
from securesystemslib.dsse import Envelope as OtherEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from rekindle.core import codec, signing
from rekindle.core.errors import BadInput, ChecksFailed, UsageError
from rekindle.core.signing import Envelope, PublicKey, SigningKey
from rekindle.wheels.verify.signed_report import key_to_sign
from support.command import rekindle_command

PAYLOAD = b'{"_type": "https://in-toto.io/Statement/v1"}'


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return signing.make_key(tmp_path / "keys" / "own.pem")


def _theirs(public: PublicKey) -> SSlibKey:
    return SSlibKey(public.id, "ed25519", "ed25519", {"public": public.raw.hex()})


def test_securesystemslib_verifies_what_we_sign(key: SigningKey, tmp_path: Path) -> None:
    envelope = key.sign(PAYLOAD)
    theirs = OtherEnvelope.from_dict(codec.to_builtins(envelope))
    assert set(theirs.verify([_theirs(key.public)], 1)) == {key.public.id}
    other = signing.make_key(tmp_path / "other.pem")
    with pytest.raises(VerificationError):
        theirs.verify([_theirs(other.public)], 1)


def test_we_verify_what_securesystemslib_signs() -> None:
    signer = CryptoSigner.generate_ed25519()
    theirs = OtherEnvelope(PAYLOAD, signing.IN_TOTO, {})
    theirs.sign(signer)
    envelope = codec.from_builtins(theirs.to_dict(), Envelope)
    public = (
        PublicKey(bytes.fromhex(signer.public_key.keyval["public"]))
        if len(signer.public_key.keyval["public"]) == 64
        else None
    )
    assert public is not None
    assert signing.opened(envelope, [public]) == (PAYLOAD, public)


def test_what_was_changed_after_signing_is_refused(key: SigningKey, tmp_path: Path) -> None:
    good = key.sign(PAYLOAD)
    stranger = signing.make_key(tmp_path / "stranger.pem")
    other = base64.b64encode(PAYLOAD + b" ").decode()
    for changed, said in (
        (msgspec.structs.replace(good, payload=other), "was changed"),
        (msgspec.structs.replace(good, payload_type="text/plain"), "was changed"),
        (msgspec.structs.replace(good, signatures=()), "is not signed"),
        (stranger.sign(PAYLOAD), "do not trust"),
        (
            msgspec.structs.replace(good, signatures=stranger.sign(PAYLOAD).signatures),
            "do not trust",
        ),
    ):
        with pytest.raises(ChecksFailed, match=said):
            signing.opened(changed, [key.public])
    with pytest.raises(ChecksFailed, match="do not trust"):
        signing.opened(good, [])
    with pytest.raises(BadInput, match="base64"):
        signing.opened(msgspec.structs.replace(good, payload="%%%"), [key.public])


def test_type_and_payload_cannot_flow_into_each_other() -> None:
    assert signing.encoded("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_a_key_is_one_line_and_comes_back(key: SigningKey, tmp_path: Path) -> None:
    text = str(key.public)
    assert PublicKey.parse(text) == key.public
    (tmp_path / "friend.txt").write_text(f"{text}\n", encoding="utf-8")
    assert signing.public_key(str(tmp_path / "friend.txt")) == key.public
    for wrong in ("ed25519:AAAA", "rsa:x", "", "ed25519:" + "!" * 44):
        with pytest.raises(UsageError):
            signing.public_key(wrong)


def test_a_key_is_the_users_alone_and_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "k.pem"))
    assert signing.own_key() is None
    made = signing.make_key()
    if os.name != "nt":
        assert stat.S_IMODE((tmp_path / "k.pem").stat().st_mode) == 0o600
    found = signing.own_key()
    assert found is not None and found.public == made.public
    with pytest.raises(UsageError, match="already"):
        signing.make_key()
    (tmp_path / "k.pem").write_bytes(b"rubbish")
    with pytest.raises(BadInput):
        signing.own_key()


@pytest.mark.parametrize(
    "y", ["00" * 32, "01" + "00" * 31, "01" + "00" * 30 + "80", "ec" + "ff" * 30 + "7f", "ee" + "ff" * 30 + "7f"]
)
def test_a_key_of_small_order_is_no_key(y: str) -> None:
    """Anybody can make a signature that such a key accepts, for any statement."""
    with pytest.raises(UsageError, match="is not a public key"):
        PublicKey.parse("ed25519:" + base64.b64encode(bytes.fromhex(y)).decode())


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    signing.make_key(tmp_path / "own.pem")
    (tmp_path / "own.pem").chmod(0o644)
    with pytest.raises(BadInput, match="others can read"):
        signing.read_key(tmp_path / "own.pem")


def test_a_key_that_is_named_signs_or_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A factory with a broken key published an unsigned list, and ended with 0."""
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "k.pem"))
    (tmp_path / "k.pem").write_text("garbage\n", encoding="utf-8")
    (tmp_path / "k.pem").chmod(0o600)
    with pytest.raises(BadInput, match="is not a private key"):
        key_to_sign()


def test_the_private_key_can_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "k.pem"))
    for _ in range(2):
        seen = rekindle_command("shelf", "key")
        assert seen.out.startswith("ed25519:") and f"`{tmp_path / 'k.pem'}`" in " ".join(seen.err.split())
    told = rekindle_command("shelf", "key", "--json").json()
    assert told == {"schema": "rekindle.key/1", "public": seen.out.strip(), "file": str(tmp_path / "k.pem")}
