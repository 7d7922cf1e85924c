"""The key of one pool: by it, its agents know one another when they exchange values.

Each pool has its own, made by its client, told to agents over the line to each, and kept in their
memory: with the pool it is gone. Its holder may read and write values. A client that reaches an
agent by a second way has another one for each agent.
"""

from __future__ import annotations

import datetime
import os
import socket
import ssl
import tempfile
from pathlib import Path

from skyward_nb.store.value_messages import PoolKey

AGENT = "agent.skyward-nb.invalid"
"""The name in every certificate: who connects asks for it."""
_AGE = datetime.timedelta(days=3650)
"""Clocks of machines differ; what ends a key is the end of its pool."""


def new_key() -> PoolKey:
    """A new key, and a certificate that it signed itself: a holder of the key trusts that certificate alone.

    Source: RFC 5280, sections 4.2.1.2, 4.2.1.3 and 4.2.1.9, for what a strict reader asks for.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, AGENT)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _AGE)
        .not_valid_after(now + _AGE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(AGENT)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return PoolKey(certificate.public_bytes(pem).decode(), secret.decode())


class MutualTLS:
    """Both ends of streams between those that have the same key: each proves that it has it.

    With `other`, a certificate, the other end has that one's key. The key is in a file of `folder`, that nobody else may
    enter, only while it is read.
    """

    def __init__(self, key: PoolKey, folder: Path, other: str = "") -> None:
        trusted = other or key.certificate
        self.inner: ssl.SSLContext = _context(ssl.PROTOCOL_TLS_SERVER, key, folder, trusted)
        """Of the end that is connected to."""
        self.outer: ssl.SSLContext = _context(ssl.PROTOCOL_TLS_CLIENT, key, folder, trusted)
        """Of the end that connects, to `AGENT`."""

    def welcome(self, connection: socket.socket) -> ssl.SSLSocket:
        """The server's end of an encrypted stream; raises OSError if the other end lacks the key."""
        return self.inner.wrap_socket(connection, server_side=True)

    def enter(self, connection: socket.socket) -> ssl.SSLSocket:
        """The client's end of an encrypted stream; raises OSError if the other end lacks the key."""
        return self.outer.wrap_socket(connection, server_hostname=AGENT)


def _context(side: int, key: PoolKey, folder: Path, trusted: str) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=trusted)
    handle, name = tempfile.mkstemp(dir=folder, prefix=".key-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(key.certificate + key.key)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()
    return context
