"""A company's proxy: it opens what is encrypted with certificates of its own, and asks for a password if told to.

The hosts behind it exist nowhere else: whoever gets an answer came through it.
"""

from __future__ import annotations

import base64
import contextlib
import ssl
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Who signs; `file` is what its people are told to trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("A Company's CA")
        made = self._unsigned(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        identity = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        made = made.add_extension(usage, critical=True).add_extension(identity, critical=False)
        self.file = folder / "company.pem"
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def context(self, host: str) -> ssl.SSLContext:
        """A server that says that it is `host`."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = self._unsigned(_named(host), key).add_extension(names, critical=False)
        made = made.add_extension(issuer, critical=False)
        both = self._folder / f"{host}.pem"
        plain = serialization.NoEncryption()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        public = made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        both.write_bytes(private + public)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(both)
        return context

    def _unsigned(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=2))
        )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Proxy:
    def __init__(self, authority: Authority, pages: Mapping[str, bytes], password: str) -> None:
        self.authority, self.pages, self.password = authority, pages, password
        self.address = ""
        self.asked: list[str] = []


@contextlib.contextmanager
def proxy(folder: Path, pages: Mapping[str, bytes], *, password: str = "") -> Iterator[Proxy]:
    """`pages` are those of the world behind it: `host/path` and what is there."""
    told = Proxy(Authority(folder), pages, password)
    handler = type("Handler", (_Handler,), {"told": told})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    told.address = f"127.0.0.1:{server.server_address[1]}"
    yield told
    server.shutdown()
    server.server_close()
    thread.join()


class _Handler(BaseHTTPRequestHandler):
    told: Proxy
    host = ""

    def do_CONNECT(self) -> None:
        known = "Basic " + base64.b64encode(self.told.password.encode()).decode()
        if self.told.password and self.headers.get("Proxy-Authorization") != known:
            self.send_error(407)
            return
        self.send_response(200)
        self.end_headers()
        host = self.path.partition(":")[0]
        with contextlib.suppress(OSError):
            secret = self.told.authority.context(host).wrap_socket(self.connection, server_side=True)
            type("Inside", (type(self),), {"host": host})(secret, self.client_address, self.server)
            secret.close()

    def do_GET(self) -> None:
        self.told.asked.append(self.host + self.path)
        page = self.told.pages.get(self.host + self.path)
        if page is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        pass
