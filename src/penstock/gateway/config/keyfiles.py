"""Keys that JSON Web Tokens are verified with, read from files when the configuration is loaded.

============================== =========================================================
algorithm                      the file holds
============================== =========================================================
``HS256`` ``HS384`` ``HS512``  the secret: its bytes as they are, or as Base64 if the file's
                               name ends in ``.b64`` or ``encoding: base64`` says so
``RS…`` ``PS…`` ``ES…``        a public key or certificate as PEM
``EdDSA``                      the same
``none``                       there is no key; the list is empty
============================== =========================================================

Rules: a file that cannot be of use is a ``ValueError`` of one sentence that never shows its content. A
PEM file as the secret of an HMAC is refused: a public key is no secret, and whoever has it could sign.
Whether a PEM parses is for whoever verifies with it to say.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

Algorithm: TypeAlias = Literal[
    "HS256",
    "HS384",
    "HS512",
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "none",
]
Encoding: TypeAlias = Literal["raw", "base64", "pem"]

_PEM_MARK: Final = b"-----BEGIN "
_BASE64_SUFFIX: Final = ".b64"
#: A key is a few kilobytes; a bound keeps a slip of the path from filling the memory.
_MAX_FILE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A key and where it came from. ``content`` is ready for use: decoded bytes, or the PEM text."""

    file: Path
    encoding: Encoding
    content: bytes = field(repr=False)


def default_encoding(algorithm: Algorithm, file: Path) -> Encoding:
    if not algorithm.startswith("HS"):
        return "pem"
    return "base64" if file.suffix == _BASE64_SUFFIX else "raw"


def read_key(algorithm: Algorithm, file: Path, encoding: Encoding | None) -> KeyFile:
    """The key in ``file``; ``None`` as encoding: by the algorithm and the file's name."""
    if encoding is not None and (encoding == "pem") is algorithm.startswith("HS"):
        allowed = "raw or base64" if encoding == "pem" else "pem"
        raise ValueError(f"encoding {encoding} is not for {algorithm}: use {allowed}")
    encoding = encoding or default_encoding(algorithm, file)
    content = read_bytes(file)
    if not content.strip():
        raise ValueError(f'"{file}" is empty: it must hold a key')
    if encoding == "pem":
        if _PEM_MARK not in content:
            raise ValueError(f'"{file}" is not PEM: {algorithm} needs a public key or certificate as PEM')
        return KeyFile(file, encoding, content)
    if _PEM_MARK in content:
        raise ValueError(f'"{file}" is PEM, but {algorithm} needs a secret that nobody else knows')
    return KeyFile(file, encoding, _decode_base64(file, content) if encoding == "base64" else content)


def read_bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ValueError(f'cannot read "{file}": {reason}') from None
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f'"{file}" is larger than {_MAX_FILE_BYTES} bytes, which no key is')
    return content


def _decode_base64(file: Path, content: bytes) -> bytes:
    """Standard or URL alphabet, with or without padding, over several lines if need be."""
    text = b"".join(content.split()).translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
    try:
        key = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise ValueError(f'"{file}" is not Base64: use encoding raw if its bytes are the key') from None
    if not key:
        raise ValueError(f'"{file}" holds an empty key')
    return key
