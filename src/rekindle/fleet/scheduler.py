"""`rekindle fleet scheduler`: Dask's scheduler with what builds need, and without what a fleet has no use for.

Dask's scheduler unpickles what its clients send: whoever holds a key of `rekindle fleet certs` can run code on every
machine of the fleet. TLS with client certificates is the boundary; nothing but loopback starts without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import logging
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rekindle.core import files, own
from rekindle.core.errors import NotFound, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, Name

ROLES = ("scheduler", "worker", "client")
AUTHORITY = "ca"
_DAYS = 365


class FleetCerts(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle fleet certs`."""

    schema: str = "rekindle.fleet-certs/1"
    folder: str
    authority: str
    roles: tuple[str, ...]
    hosts: tuple[str, ...]
    days: int


def make(folder: Path, hosts: Sequence[str] = (), *, days: int = _DAYS) -> FleetCerts:
    """New keys in an empty folder. What is there is never overwritten: machines may be using it."""
    own.need("fleet", "cryptography", "distributed")
    if folder.exists() and any(folder.iterdir()):
        message = f"`{folder}` is not empty"
        raise UsageError(message, hint="name a new folder with `-o`; certificates in use are not overwritten")
    folder.mkdir(parents=True, exist_ok=True)
    if os.name != "nt":
        folder.chmod(0o700)
    from cryptography.hazmat.primitives.asymmetric import ec

    named = tuple(dict.fromkeys(("localhost", "127.0.0.1", *hosts)))
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("Rekindle fleet", authority_key, None, None, named, days)
    _write(folder, AUTHORITY, authority, authority_key)
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder, role, _certificate(role, key, authority.subject, authority_key, named, days), key)
    return FleetCerts(
        folder=str(folder), authority=str(folder / f"{AUTHORITY}.pem"), roles=ROLES, hosts=named, days=days
    )


def secured(folder: Path | None, role: str) -> dict[str, Any]:
    """Dask's own settings for this role: its certificate, and nobody who has none of the same authority.

    Nothing starts without: on loopback, too, another user of the same computer could run code.
    """
    if folder is None:
        message = "without certificates anybody who reaches this fleet could run code here"
        hint = "make them with `rekindle fleet certs -o DIR --host NAME`, then pass `--certs DIR`"
        raise UsageError(message, hint=hint)
    wanted = [folder / name for name in (f"{AUTHORITY}.pem", f"{role}.pem", f"{role}-key.pem")]
    if lost := [path.name for path in wanted if not path.is_file()]:
        message = f"`{folder}` lacks {', '.join(lost)}"
        raise NotFound(message, hint="`rekindle fleet certs -o DIR` makes a set; copy it to every machine of the fleet")
    if os.name != "nt" and wanted[2].stat().st_mode & 0o077:
        message = f"others may read `{wanted[2]}`"
        raise UsageError(message, hint=f"chmod 600 {wanted[2]}: whoever has it can run code on every machine")
    tls = dict(zip(("ca-file", f"{role}.cert", f"{role}.key"), map(str, wanted), strict=True))
    return {"distributed.comm.require-encryption": True} | {f"distributed.comm.tls.{key}": tls[key] for key in tls}


def dask_distributed() -> Any:
    """Dask's `distributed`, or an error that says how to get it."""
    own.need("fleet", "cryptography", "distributed")
    import distributed

    if not os.environ.get("REKINDLE_TRACE"):
        # It tells of every connection that breaks, with a trace; what matters of that is in the journal.
        for name in ("distributed", "distributed.client", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    return distributed


def _certificate(
    name: str,
    key: EllipticCurvePrivateKey,
    issuer: Name | None,
    signer: EllipticCurvePrivateKey | None,
    hosts: Sequence[str],
    days: int,
) -> Certificate:
    """Signed by the authority; without one it is the authority itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} {os.urandom(4).hex()}")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of machines differ.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=0 if signer is None else None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )
    if signer is None:
        builder = builder.add_extension(_usage(x509, signs=True), True)
    else:
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        names: list[Any] = [_name(x509, host) for host in hosts]
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        builder = (
            builder.add_extension(x509.ExtendedKeyUsage(both), False)
            .add_extension(x509.SubjectAlternativeName(names), False)
            .add_extension(authority, False)
            .add_extension(_usage(x509, signs=False), True)
        )
    return builder.sign(signer or key, hashes.SHA256())


def _usage(x509: Any, *, signs: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _name(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(folder: Path, name: str, certificate: Certificate, key: EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives import serialization

    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    place = folder / f"{name}-key.pem"
    # Never readable by others, not for a moment.
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(secret)
    files.write_bytes(folder / f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM))


ALLOWED_FAILURES = 1000
"""Dask gives up a task after three dead workers, guilty or not. The fleet counts deaths itself, job by job."""


def settings() -> dict[str, Any]:
    """Dask's settings for builds, which run for hours in processes of their own."""
    return {
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
        "distributed.scheduler.worker-ttl": "60s",
        # A build is never given to another worker because that one is idle.
        "distributed.scheduler.work-stealing": False,
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
        "distributed.comm.timeouts.connect": "10s",
        "distributed.comm.timeouts.tcp": "60s",
        "distributed.admin.system-monitor.gil.enabled": False,
        "distributed.admin.system-monitor.disk": False,
    }


def configured(folder: Path | None, role: str) -> Any:
    """Dask's `distributed`, set up for builds and with the certificates of this role."""
    safe = secured(folder, role)
    distributed = dask_distributed()
    import dask

    dask.config.set(settings() | safe)
    return distributed


def started(host: str, port: int, folder: Path | None) -> Any:
    """A scheduler to be awaited."""
    distributed = configured(folder, "scheduler")
    # Its web server shows pages to everybody who asks: it gets no pages, and only loopback.
    return distributed.Scheduler(host=host, port=port, dashboard=False, dashboard_address="127.0.0.1:0", protocol="tls")


def serve(host: str, port: int, folder: Path | None, *, address_file: Path | None, tell: Callable[[str], None]) -> None:
    """Until it is stopped."""

    async def served() -> None:
        scheduler = started(host, port, folder)
        stop = stopper()
        async with scheduler:
            tell(f"scheduler at {scheduler.address}")
            if address_file is not None:
                files.write_text(address_file, scheduler.address + "\n")
            await stop.wait()

    asyncio.run(served())


def stopper() -> asyncio.Event:
    """An event that SIGTERM and Ctrl-C set; where signals are not available, Ctrl-C ends the program itself."""
    stop = asyncio.Event()
    for name in ("SIGTERM", "SIGINT"):
        with contextlib.suppress(NotImplementedError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(getattr(signal, name), stop.set)
    return stop
