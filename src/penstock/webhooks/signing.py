"""Signatures of Standard Webhooks 1.0: who sent this, when, and that nothing of it was changed.

What is signed is ``id.timestamp.body``; the header ``webhook-signature`` holds one signature for each secret,
separated by spaces, so that a receiver who has only the old or only the new secret finds one that fits.

=========  ============================  =======================  =================================
version    secret                        public part              algorithm
=========  ============================  =======================  =================================
``v1``     ``whsec_`` + base64           the secret itself        HMAC-SHA256; 24 to 64 bytes
``v1a``    ``whsk_`` + base64            ``whpk_`` + base64       ed25519; 32 bytes (seed), or 64
                                                                  (seed and public key)
=========  ============================  =======================  =================================

Rules: secrets are compared in constant time and appear in no message and no ``repr``. A receiver's clock is
injected. ed25519 needs the package ``cryptography``, which is looked for only when such a key is used. This
module knows nothing of HTTP.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets as random_secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from penstock.clock import Clock
from penstock.errors import AuthenticationError, ConfigError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

HEADER_ID: Final = "webhook-id"
HEADER_TIMESTAMP: Final = "webhook-timestamp"
HEADER_SIGNATURE: Final = "webhook-signature"

MIN_SECRET_BYTES: Final = 24
MAX_SECRET_BYTES: Final = 64
DEFAULT_TOLERANCE_S: Final = 300
#: Secrets of one endpoint: the current one, and those that receivers may still have.
MAX_SECRETS: Final = 8

_SYMMETRIC: Final = "whsec_"
_PRIVATE: Final = "whsk_"
_PUBLIC: Final = "whpk_"
_SEED_BYTES: Final = 32
#: Signatures that are looked at in one header: a sender has few secrets, an attacker many guesses.
_MAX_SIGNATURES: Final = 32
#: Visible ASCII without a dot and a comma.
_SAFE_ID: Final = re.compile(r"[!-+/-~-]{1,256}")
_TIMESTAMP: Final = re.compile(r"[0-9]{1,15}")

Kind = Literal["v1", "v1a"]


@dataclass(frozen=True, slots=True)
class Key:
    """A secret, or a public key, taken apart."""

    kind: Kind
    raw: bytes = field(repr=False)
    is_public: bool = False


# --------------------------------------------------------------------------------------------- secrets


def new_secret(size_bytes: int = 32) -> str:
    """A secret for ``v1``."""
    if not MIN_SECRET_BYTES <= size_bytes <= MAX_SECRET_BYTES:
        raise ConfigError(f"size_bytes must be {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES}, not {size_bytes}")
    return _SYMMETRIC + _encoded(random_secrets.token_bytes(size_bytes))


def new_key_pair() -> tuple[str, str]:
    """A private key for ``v1a``, and the public key that its receivers get."""
    seed = random_secrets.token_bytes(_SEED_BYTES)
    return _PRIVATE + _encoded(seed), public_key(_PRIVATE + _encoded(seed))


def public_key(private: str) -> str:
    """The ``whpk_`` of a ``whsk_``."""
    key = parse_key(private)
    if key.kind != "v1a" or key.is_public:
        raise ConfigError("private must be a key that begins with whsk_")
    return _PUBLIC + _encoded(_private_key(key.raw).public_key().public_bytes_raw())


@lru_cache(maxsize=1024)
def parse_key(text: str) -> Key:
    """A secret as it is configured; raises ``ConfigError`` for one that is too weak or no secret at all.

    A text without a prefix is refused: nobody should sign with a passphrase by mistake.
    """
    if text.startswith(_SYMMETRIC):
        raw = _decoded(text, _SYMMETRIC)
        if not MIN_SECRET_BYTES <= len(raw) <= MAX_SECRET_BYTES:
            raise ConfigError(
                f"a whsec_ secret must hold {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes, this one has"
                f" {len(raw)}: make one with new_secret()"
            )
        return Key("v1", raw)
    if text.startswith(_PRIVATE):
        raw = _decoded(text, _PRIVATE)
        if len(raw) not in (_SEED_BYTES, 2 * _SEED_BYTES):
            raise ConfigError(f"a whsk_ key must hold 32 or 64 bytes, this one has {len(raw)}")
        key = Key("v1a", raw[:_SEED_BYTES])
        if len(raw) > _SEED_BYTES and _private_key(key.raw).public_key().public_bytes_raw() != raw[32:]:
            raise ConfigError("the two halves of a whsk_ key do not belong together")
        return key
    if text.startswith(_PUBLIC):
        raw = _decoded(text, _PUBLIC)
        if len(raw) != _SEED_BYTES:
            raise ConfigError(f"a whpk_ key must hold 32 bytes, this one has {len(raw)}")
        return Key("v1a", raw, is_public=True)
    raise ConfigError("a secret must begin with whsec_ or whsk_; make one with new_secret()")


def _decoded(text: str, prefix: str) -> bytes:
    encoded = text.removeprefix(prefix).rstrip("=")
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"what follows {prefix} is not base64") from None


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


# --------------------------------------------------------------------------------------------- signing


def webhook_id(event_id: str) -> str:
    """What stands in ``webhook-id`` for an event: its own id, or a digest of it where it has a dot or is odd.

    A dot would let parts of a signed text change places; spaces and the like do not belong into headers.
    """
    if _SAFE_ID.fullmatch(event_id):
        return event_id
    return "msg_" + hashlib.sha256(event_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def sign(secrets: Sequence[str], message_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of ``webhook-signature``: one signature for each secret, in their order."""
    if not secrets or len(secrets) > MAX_SECRETS:
        raise UsageError(f"secrets must be 1 to {MAX_SECRETS}, not {len(secrets)}")
    if "." in message_id:
        raise UsageError("message_id must not contain a dot; webhook_id() makes one of any event id")
    signed = _signed_text(message_id, timestamp_s, body)
    return " ".join(_signature(parse_key(secret), signed) for secret in secrets)


def signed_headers(secrets: Sequence[str], message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The three headers of a message; without secrets it is not signed, but has its id and time."""
    headers = {HEADER_ID: message_id, HEADER_TIMESTAMP: str(timestamp_s)}
    if secrets:
        headers[HEADER_SIGNATURE] = sign(secrets, message_id, timestamp_s, body)
    return headers


def _signed_text(message_id: str, timestamp_s: int, body: bytes) -> bytes:
    return f"{message_id}.{timestamp_s}.".encode() + body


def _signature(key: Key, signed: bytes) -> str:
    if key.is_public:
        raise ConfigError("secrets must not contain a whpk_ key: it verifies, and the whsk_ key signs")
    if key.kind == "v1":
        return "v1," + _encoded(hmac.digest(key.raw, signed, "sha256"))
    return "v1a," + _encoded(_private_key(key.raw).sign(signed))


# ------------------------------------------------------------------------------------------- verifying


def verify(
    keys: Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    clock: Clock,
    tolerance_s: int = DEFAULT_TOLERANCE_S,
) -> str:
    """The id of a message that one of these keys has signed lately; else ``AuthenticationError``.

    ``keys`` are ``whsec_`` secrets and ``whpk_`` (or ``whsk_``) keys; one that fits is enough. Whether
    the id was seen before is the receiver's business.
    """
    small = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in (HEADER_ID, HEADER_TIMESTAMP, HEADER_SIGNATURE) if not small.get(name)]
    if missing:
        raise AuthenticationError(f"the webhook has no header {missing[0]}")
    if not _TIMESTAMP.fullmatch(small[HEADER_TIMESTAMP]):
        raise AuthenticationError("the header webhook-timestamp is not a number of seconds")
    timestamp_s = int(small[HEADER_TIMESTAMP])
    if abs(clock.now_ms() // 1000 - timestamp_s) > tolerance_s:
        raise AuthenticationError(f"the webhook is more than {tolerance_s} s away from this clock")
    # The text as it came: a timestamp with leading zeros was signed with them.
    signed = f"{small[HEADER_ID]}.{small[HEADER_TIMESTAMP]}.".encode("utf-8", "surrogatepass") + body
    signatures = _signatures(small[HEADER_SIGNATURE])
    # Every key meets every signature: how long this takes tells nothing about which of them fits.
    fits = [
        _matches(key, kind, signature, signed)
        for key in map(parse_key, keys)
        for kind, signature in signatures
    ]
    if not any(fits):
        raise AuthenticationError("no signature of the webhook fits any of the keys")
    return small[HEADER_ID]


def _signatures(header: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for part in header.split(" ", _MAX_SIGNATURES)[:_MAX_SIGNATURES]:
        kind, _, encoded = part.partition(",")
        try:
            found.append((kind, base64.b64decode(encoded, validate=True)))
        except (binascii.Error, ValueError):
            continue  # of a version to come, perhaps
    return found


def _matches(key: Key, kind: str, signature: bytes, signed: bytes) -> bool:
    if kind != key.kind:
        return False
    if key.kind == "v1":
        return hmac.compare_digest(hmac.digest(key.raw, signed, "sha256"), signature)
    from cryptography.exceptions import InvalidSignature

    public = _public_key(key.raw) if key.is_public else _private_key(key.raw).public_key()
    try:
        public.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _private_key(seed: bytes) -> Ed25519PrivateKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise ConfigError("whsk_ keys need the package cryptography: install penstock[gateway]") from None
    return Ed25519PrivateKey.from_private_bytes(seed)


def _public_key(raw: bytes) -> Ed25519PublicKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise ConfigError("whpk_ keys need the package cryptography: install penstock[gateway]") from None
    return Ed25519PublicKey.from_public_bytes(raw)
