"""What clients bring back that we, or somebody we trust, have given out: receipts, cursors, signed tokens.

The first byte of an input says which, the rest is the text. A text that was not given out is refused with the
error of its kind: none is taken, none raises anything else.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import penstock
from penstock.channels.receipts import Mark, Seal, unwrap, wrap
from penstock.clock import ManualClock
from penstock.errors import AuthenticationError, ReceiptError, UsageError
from penstock.gateway.auth.decisions import AuthRejected
from penstock.gateway.auth.jwt import JwtRule, JwtVerifier
from penstock.gateway.auth.tokens import TokenStore
from penstock.gateway.http.responses import Refusal
from penstock.gateway.v1.reading import cursor, to_cursor
from penstock.transactions.listing import Query, _cursor_of, _place_from
from penstock.webhooks.signing import signed_headers, verify
from tests.fuzz.running import Target

_NOW_S: Final = 1_700_000_000
_SECRET: Final = b"a secret that is long enough for every hash, sixty-four bytes...!"
_PRIVATE: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
_PEM: Final = _PRIVATE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
_CLAIMS: Final = {"iss": "issuer", "aud": "here", "room": "lobby", "exp": _NOW_S + 60, "nbf": _NOW_S - 60}
_RULE: Final = JwtRule(
    ["issuer"], ["here"], {"HS256": [_SECRET], "EdDSA": [_PEM]}, {"room": ["lobby"]}, leeway_s=5
)
_HOOK_SECRET: Final = "whsec_" + base64.b64encode(bytes(range(32))).decode()
_CHANNEL, _SUBSCRIBER, _MARK = "room", "ann", Mark(17, "m-1")


def _b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _jwt(header: dict[str, Any], claims: dict[str, Any], sign: Callable[[bytes], bytes]) -> str:
    signed = f"{_b64(json.dumps(header).encode())}.{_b64(json.dumps(claims).encode())}"
    return f"{signed}.{_b64(sign(signed.encode()))}"


def _hs(secret: bytes) -> Callable[[bytes], bytes]:
    return lambda signed: hmac.digest(secret, signed, "sha256")


_GOOD_JWTS: Final = (
    _jwt({"alg": "HS256", "typ": "JWT", "kid": "../../dev/null"}, _CLAIMS, _hs(_SECRET)),
    _jwt({"alg": "EdDSA"}, _CLAIMS, _PRIVATE.sign),
)
_BAD_JWTS: Final = (
    _jwt({"alg": "none"}, _CLAIMS, lambda _: b""),
    _jwt({"alg": "nOnE"}, _CLAIMS, lambda _: b""),
    _jwt({"alg": "HS256"}, _CLAIMS, lambda _: b""),
    _jwt({"alg": "HS256"}, _CLAIMS, _hs(_PEM)),
    _jwt({"alg": "HS256"}, _CLAIMS, _hs(_PEM.strip())),
    _jwt({"alg": "HS256"}, _CLAIMS, _hs(b"")),
    _jwt({"alg": "HS384"}, _CLAIMS, _hs(_SECRET)),
    _jwt({"alg": "EdDSA"}, _CLAIMS, _hs(_SECRET)),
    _jwt({"alg": "HS256", "crit": ["exp"], "exp": 1}, _CLAIMS, _hs(_SECRET)),
    _jwt({"alg": "HS256", "jwk": {"kty": "oct", "k": _b64(b"mine")}}, _CLAIMS, _hs(b"mine")),
    _jwt({"alg": "HS256"}, {**_CLAIMS, "exp": _NOW_S - 60}, _hs(_SECRET)),
    _jwt({"alg": "HS256"}, {**_CLAIMS, "exp": "9999999999"}, _hs(_SECRET)),
    _jwt({"alg": "HS256"}, {**_CLAIMS, "nbf": _NOW_S + 600}, _hs(_SECRET)),
    _jwt({"alg": "HS256"}, {**_CLAIMS, "iss": ["issuer"]}, _hs(_SECRET)),
    _jwt({"alg": "HS256"}, {**_CLAIMS, "room": {"lobby": 1}}, _hs(_SECRET)),
    _jwt({"alg": ["HS256"]}, _CLAIMS, _hs(_SECRET)),
)
_BODY: Final = b'{"type":"message"}'
_HEADERS: Final = signed_headers([_HOOK_SECRET], "msg_1", _NOW_S, _BODY)
_QUERY: Final = Query()
_SEAL: Final = Seal("default", hashlib.sha256(b"store").digest())
_RECEIPT: Final = wrap({"default": _SEAL.issue(_CHANNEL, _SUBSCRIBER, _MARK)})


class Tickets(Target):
    name = "tickets"
    tries = 6_000

    def __init__(self) -> None:
        self._verifier = JwtVerifier(cache_entries=16)
        self._clock = ManualClock(_NOW_S * 1000)
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-fuzz-")
        self._runner = asyncio.Runner()
        self._runner.run(self._open())
        self._kinds: tuple[Callable[[bytes], None], ...] = (
            self._receipt, self._part, self._cursor, self._jwt, self._hook, self._place, self._bearer,
        )  # fmt: skip

    async def _open(self) -> None:
        path = Path(self._folder.name) / "store.pen"
        self._client = await penstock.open(path, durability="relaxed").__aenter__()
        self._tokens = TokenStore(self._client)
        #: an API token is made by chance, so that this one is another in each run
        self._issued = (await self._tokens.create("fuzz", ["read"], channels=["*"])).bearer

    async def _end(self) -> None:
        await self._client.__aexit__(None, None, None)

    def close(self) -> None:
        self._runner.run(self._end())
        self._runner.close()
        self._folder.cleanup()

    def seeds(self) -> Sequence[bytes]:
        part = unwrap(_RECEIPT)["default"]
        hook = "\n".join(f"{name}: {value}" for name, value in _HEADERS.items()).encode() + b"\n\n" + _BODY
        texts: list[tuple[int, bytes]] = [
            (0, _RECEIPT.encode()),
            (0, wrap({"other": part}).encode()),
            (1, part.encode()),
            (2, to_cursor("name").encode()),
            (2, to_cursor([1, {"a": b"x" * 50}]).encode()),
            *((3, token.encode()) for token in (*_GOOD_JWTS, *_BAD_JWTS)),
            (4, hook),
            (5, _cursor_of((_NOW_S, "tx"), _QUERY).encode()),
            (6, self._issued.encode()),
            (6, b"pen_" + b"0" * 28 + b"_" + b"0" * 64),
        ]
        return [bytes((kind,)) + text for kind, text in texts]

    def words(self) -> Sequence[bytes]:
        return (
            b".",
            b"..",
            b"=",
            b"-",
            b"_",
            b"{",
            b"}",
            b'"',
            b"\\ud800",
            b"\xff",
            b"\x00",
            b"A" * 20,
            b"v1,",
            b"v1a,",
            b" ",
        )

    def make(self, dice: Random, seeds: Sequence[bytes]) -> bytes:
        """The kind stays; sometimes what is inside of the Base64 is what changes."""
        seed = dice.choice(seeds)
        of_kind = [other[1:] for other in seeds if other[0] == seed[0]]
        text = seed[1:]
        if dice.random() < 0.4:
            parts = text.split(b".")
            at = dice.randrange(len(parts))
            try:
                inside = base64.urlsafe_b64decode(parts[at] + b"=" * (-len(parts[at]) % 4))
            except ValueError:
                inside = parts[at]
            changed = super().make(dice, [inside])
            parts[at] = base64.urlsafe_b64encode(changed).rstrip(b"=")
            return seed[:1] + b".".join(parts)
        return seed[:1] + super().make(dice, of_kind or [text])

    def check(self, data: bytes) -> None:
        if data:
            self._kinds[data[0] % len(self._kinds)](data[1:])

    # ------------------------------------------------------------------ kinds

    def _receipt(self, data: bytes) -> None:
        try:
            parts = unwrap(data.decode("utf-8", "surrogateescape"))
        except ReceiptError:
            return
        for part in parts.values():
            self._part(part.encode("utf-8", "surrogatepass"))

    def _part(self, data: bytes) -> None:
        try:
            mark = _SEAL.open(_CHANNEL, _SUBSCRIBER, data.decode("utf-8", "surrogateescape"))
        except ReceiptError:
            return
        assert mark == _MARK, f"a receipt for {mark} was taken"

    def _cursor(self, data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        for kind, default in ((str, ""), (tuple[int, str], (0, "")), (int, 0)):
            try:
                place = cursor(SimpleNamespace(query={"cursor": text}), kind, default)  # type: ignore[arg-type,type-var]
            except Refusal:
                continue
            assert isinstance(place, str | tuple | int)

    def _jwt(self, data: bytes) -> None:
        token = data.decode("utf-8", "surrogateescape")
        self._verifier.jti_of(token)
        try:
            self._verifier.verify(token, [_RULE], _NOW_S)
        except AuthRejected:
            assert token not in _GOOD_JWTS
            return
        assert token in _GOOD_JWTS, "a token that nobody has signed was taken"

    def _hook(self, data: bytes) -> None:
        head, _, body = data.partition(b"\n\n")
        lines = (line.partition(": ") for line in head.decode("utf-8", "surrogateescape").split("\n"))
        headers = {name: value for name, _, value in lines}
        try:
            verify([_HOOK_SECRET], headers, body, clock=self._clock)
        except AuthenticationError:
            return
        small = {name.lower(): value for name, value in headers.items()}
        assert (small["webhook-id"], small["webhook-timestamp"], body) == ("msg_1", str(_NOW_S), _BODY)

    def _place(self, data: bytes) -> None:
        try:
            _place_from(data.decode("utf-8", "surrogateescape"), _QUERY)
        except UsageError:
            return

    def _bearer(self, data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        try:
            self._runner.run(self._tokens.verify(text))
        except AuthRejected:
            assert text != self._issued
            return
        assert text == self._issued, "an API token that nobody was given was taken"
