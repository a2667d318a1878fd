"""Keys that signatures are checked with, each bound to one algorithm when it is loaded.

=====================  ===================================================================
HS256 HS384 HS512      a secret, as raw bytes
RS… and PS… 256–512    an RSA public key of 2048 bits or more, PEM, or an X.509 certificate
ES256 ES384 ES512      a public key on the algorithm's own curve, likewise
EdDSA                  an Ed25519 or Ed448 public key, likewise
none                   no key; the signature must be empty
=====================  ===================================================================

Rules: a key never changes its algorithm, and what is a public key in any wrapping is never a secret, so a
token cannot choose to be checked the wrong way. A key that does not fit is a ``ConfigError`` at once, not a
rejection later. It must not know tokens or claims. Foreign exceptions end here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key
from jwt.algorithms import Algorithm, get_default_algorithms
from jwt.exceptions import PyJWTError

from penstock.errors import ConfigError

UNSIGNED: Final = "none"
_SECRET_ALGORITHMS: Final = frozenset({"HS256", "HS384", "HS512"})
_PUBLIC_ALGORITHMS: Final = frozenset("RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA".split())
#: Every algorithm that a rule may name.
ALGORITHMS: Final = _SECRET_ALGORITHMS | _PUBLIC_ALGORITHMS | {UNSIGNED}

_IMPLEMENTATIONS: Final[Mapping[str, Algorithm]] = get_default_algorithms()


class VerifyingKey:
    """One key for one algorithm."""

    __slots__ = ("_check", "algorithm", "digest")

    def __init__(self, algorithm: str, digest: bytes, check: Callable[[bytes, bytes], bool]) -> None:
        self.algorithm = algorithm
        #: what tells keys apart without showing them
        self.digest = digest
        self._check = check

    def verifies(self, signed: bytes, signature: bytes) -> bool:
        """Whether the signature is this key's."""
        return self._check(signed, signature)

    def __repr__(self) -> str:
        return f"<VerifyingKey {self.algorithm}>"


#: A key as a configuration has it (the content of its file), or one that is loaded already.
KeyLike: TypeAlias = str | bytes | VerifyingKey


def load_keys(keys: Mapping[str, Sequence[KeyLike]]) -> dict[str, tuple[VerifyingKey, ...]]:
    """The keys of a rule by algorithm; raises ``ConfigError`` for the first that cannot be used."""
    if not keys:
        raise ConfigError("keys: name at least one algorithm with its keys")
    loaded: dict[str, tuple[VerifyingKey, ...]] = {}
    for algorithm, candidates in keys.items():
        if algorithm not in ALGORITHMS:
            raise ConfigError(
                f"keys: {algorithm!r} is no algorithm; use one of {', '.join(sorted(ALGORITHMS))}"
            )
        if isinstance(candidates, str | bytes):
            raise ConfigError(f"keys.{algorithm} must be a list of keys")
        if algorithm == UNSIGNED:
            if any(not isinstance(key, VerifyingKey) for key in candidates):
                raise ConfigError("keys.none must be an empty list, since unsigned tokens have no key")
            loaded[algorithm] = (_NO_KEY,)
            continue
        if not candidates:
            raise ConfigError(f"keys.{algorithm} is empty; give at least one key")
        loaded[algorithm] = tuple(load_key(algorithm, key) for key in candidates)
    return loaded


def load_key(algorithm: str, key: KeyLike) -> VerifyingKey:
    """One key, ready for use with this algorithm and no other."""
    if isinstance(key, VerifyingKey):
        if key.algorithm != algorithm:
            raise ConfigError(f"keys.{algorithm}: the key was loaded for {key.algorithm}")
        return key
    content = key.encode("utf-8") if isinstance(key, str) else bytes(key)
    implementation = _IMPLEMENTATIONS[algorithm]
    if algorithm in _SECRET_ALGORITHMS:
        prepared: Any = _secret(algorithm, content)
    else:
        prepared = _public_key(algorithm, content)
    try:
        prepared = implementation.prepare_key(prepared)
    except (PyJWTError, TypeError, ValueError) as error:
        raise ConfigError(f"keys.{algorithm}: the key is not one for this algorithm") from error
    if algorithm in _PUBLIC_ALGORITHMS and implementation.check_key_length(prepared) is not None:
        raise ConfigError(f"keys.{algorithm}: the key is too short; use one of 2048 bits or more")

    def check(signed: bytes, signature: bytes) -> bool:
        return implementation.verify(signed, prepared, signature)

    return VerifyingKey(algorithm, hashlib.sha256(algorithm.encode() + b"\0" + content).digest(), check)


def _is_empty_signature(_: bytes, signature: bytes) -> bool:
    return signature == b""


_NO_KEY: Final = VerifyingKey(UNSIGNED, b"", _is_empty_signature)


def _secret(algorithm: str, content: bytes) -> bytes:
    """A secret, if that is what it is: public keys are known to attackers, in every spelling."""
    if not content.strip():
        raise ConfigError(f"keys.{algorithm}: the secret is empty")
    if b"-----BEGIN" in content or _is_der_key(content) or _is_der_key(_from_base64(content)):
        raise ConfigError(f"keys.{algorithm}: this is a key pair's key or a certificate, not a shared secret")
    return content


def _from_base64(content: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(content.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _is_der_key(content: bytes) -> bool:
    for load in (load_der_public_key, x509.load_der_x509_certificate):
        try:
            load(content)
        except (TypeError, ValueError, UnsupportedAlgorithm):
            continue
        return True
    return False


def _public_key(algorithm: str, content: bytes) -> Any:
    if b"PRIVATE KEY-----" in content:
        raise ConfigError(f"keys.{algorithm}: this is a private key; give its public key, which is enough")
    try:
        if b"-----BEGIN CERTIFICATE-----" in content:
            return x509.load_pem_x509_certificate(content).public_key()
        return load_pem_public_key(content)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"keys.{algorithm}: the key is not a public key in PEM form") from error
