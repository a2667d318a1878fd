"""Tokens for tests: honest ones by PyJWT, crooked ones by hand."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

NOW_S = 1_700_000_000
ISSUER = "https://issuer.example"
SECRET = b"a secret that is long enough for every hash, sixty-four bytes...!"
OTHER_SECRET = b"another secret, just as long as the first one: sixty-four bytes!!"


def private_key(kind: str, number: int = 0) -> Any:
    """A key pair; ``number`` tells pairs of one kind apart."""
    return _made(kind, number)


@cache
def _made(kind: str, _number: int) -> Any:
    match kind:
        case "rsa":
            return rsa.generate_private_key(65537, 2048)
        case "short-rsa":
            return rsa.generate_private_key(65537, 1024)
        case "p256":
            return ec.generate_private_key(ec.SECP256R1())
        case "p384":
            return ec.generate_private_key(ec.SECP384R1())
        case "p521":
            return ec.generate_private_key(ec.SECP521R1())
        case "ed25519":
            return ed25519.Ed25519PrivateKey.generate()
        case "ed448":
            return ed448.Ed448PrivateKey.generate()
    raise ValueError(kind)


def public_pem(kind: str, number: int = 0) -> bytes:
    public = private_key(kind, number).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def public_der(kind: str) -> bytes:
    return private_key(kind).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def private_pem(kind: str) -> bytes:
    return private_key(kind).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def sign(claims: dict[str, Any], algorithm: str = "HS256", key: Any = SECRET, **headers: Any) -> str:
    """An honest token."""
    return jwt.encode(claims, key, algorithm, headers=headers)


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def crooked(
    claims: str | bytes | dict[str, Any],
    header: str | bytes | dict[str, Any] = '{"alg":"HS256"}',
    secret: bytes = SECRET,
) -> str:
    """A token of any JSON, or of what is none, with a good HS256 signature."""
    parts = [
        b64(
            part
            if isinstance(part, bytes)
            else (part if isinstance(part, str) else json.dumps(part)).encode()
        )
        for part in (header, claims)
    ]
    signed = ".".join(parts)
    return f"{signed}.{b64(hmac.digest(secret, signed.encode(), hashlib.sha256))}"
