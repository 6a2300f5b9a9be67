"""Keys and a password made for one run: a private authority, one certificate, one SCRAM user."""

from __future__ import annotations

import base64
import hashlib
import secrets
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

from penstock.testbed.nodes import SecurityFiles

_ITERATIONS = 4096  # the least that Kafka accepts; the password is random, so more buys nothing


def make_keys(directory: Path, addresses: list[str]) -> SecurityFiles:
    """Write the authority's and the nodes' PEM files; only this user can read them."""
    directory.mkdir(mode=0o700, exist_ok=True)
    authority = trustme.CA(organization_name="Penstock testbed")
    certificate = authority.issue_cert(*addresses)
    # Kafka reads PKCS#8 only.
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    write_private(directory / "ca.pem", authority.cert_pem.bytes())
    write_private(directory / "node.pem", key_pem + chain)
    write_private(directory / "password", secrets.token_urlsafe(24).encode())
    return load_keys(directory)


def load_keys(directory: Path) -> SecurityFiles:
    """The keys that `make_keys` wrote there."""
    return SecurityFiles(
        ca_pem=directory / "ca.pem",
        node_pem=directory / "node.pem",
        user="penstock",
        password=(directory / "password").read_text(),
    )


def write_private(path: Path, content: bytes) -> None:
    """Write a file that is never readable by others, not even for a moment."""
    path.touch(mode=0o600)
    path.write_bytes(content)


def scram_argument(files: SecurityFiles) -> str:
    """The user as `StorageTool --add-scram` takes it. As secret as the password itself."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha512", files.password.encode(), salt, _ITERATIONS)
    return (
        f'SCRAM-SHA-512=[name="{files.user}",iterations={_ITERATIONS},'
        f'salt="{base64.b64encode(salt).decode()}",'
        f'saltedpassword="{base64.b64encode(salted).decode()}"]'
    )
