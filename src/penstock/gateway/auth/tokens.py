"""API tokens that are made and revoked while the gateway runs: ``pen_<id>_<secret>``.

    penstock.token.ID    string, JSON: name, scopes, patterns, times, and the SHA-256 of the secret;
                         lives until the token expires
    penstock.tokens      sorted set, all scores 0: the ids, for listing. Ids begin with their time, so
                         the order is that of creation

Rules
-----
T1  The secret is shown once, by ``create``; only its hash is kept.
T2  Verifying is one GET of a fresh record, so a token that was revoked is refused everywhere at once.
T3  A record is written before its id is listed, and removed before its id is: an id without a record is
    rubbish, which ``list`` sweeps. A record without an id can only be one whose secret nobody was given.
T4  Nothing but ``create`` makes a record: the time of last use is written only over one that is there.

It must not know HTTP, nor which action is asked for.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from penstock.client.client import Client
from penstock.clock import Clock, SystemClock
from penstock.errors import PenstockError, UsageError
from penstock.gateway.auth.decisions import Action, AuthRejected, Rejection
from penstock.gateway.auth.fresh import read_fresh
from penstock.gateway.auth.grants import Grant, digest_of, is_secret_of, problem_of, scopes_of

TOKEN_PREFIX: Final = "pen_"
MAX_PAGE: Final = 200
#: The time of last use is written when the one that is known is older than this.
USED_EVERY_MS: Final = 60_000

_SCOPES: Final = frozenset[str](Action)
_INDEX: Final = "penstock.tokens"
_FORM: Final = re.compile(r"pen_([0-9a-f]{28})_([0-9a-f]{64})")
_ID: Final = re.compile(r"[0-9a-f]{28}")


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token as it is stored."""

    name: str
    scopes: list[str]
    sha256: str
    created_ms: int
    channels: list[str] = []
    streams: list[str] = []
    owner: str = ""
    expires_ms: int | None = None
    used_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ApiToken:
    """What is known of a token; its secret is not."""

    id: str
    grant: Grant
    created_ms: int
    expires_ms: int | None
    #: within a minute; None: never
    used_ms: int | None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token and, this once, the text that its holder sends."""

    token: ApiToken
    bearer: str

    def __repr__(self) -> str:
        return f"NewToken({self.token!r})"  # the secret must not end in a log


@dataclass(frozen=True, slots=True)
class TokenPage:
    """Some tokens, oldest first, and where to go on; None: that was the last page."""

    tokens: tuple[ApiToken, ...]
    cursor: str | None


class TokenStore:
    """The tokens of one store."""

    def __init__(self, client: Client, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        #: ids whose time of use is being written by this process; as many as requests are running
        self._marking: set[str] = set()

    async def create(
        self,
        name: str,
        scopes: Iterable[str],
        *,
        channels: Iterable[str] = (),
        streams: Iterable[str] = (),
        owner: str = "",
        expires_ms: int | None = None,
    ) -> NewToken:
        """Make a token. ``expires_ms`` is a time since 1970; None: it holds until it is revoked."""
        now_ms = self._clock.now_ms()
        grant = _checked_grant(name, scopes, channels, streams, owner)
        if expires_ms is not None and expires_ms <= now_ms:
            raise UsageError("expires_ms lies in the past; give a time that is still to come")
        token_id = f"{now_ms:012x}{secrets.token_hex(8)}"
        secret = secrets.token_hex(32)
        record = _Record(
            name=grant.name,
            scopes=sorted(grant.scopes),
            sha256=digest_of(secret),
            created_ms=now_ms,
            channels=list(grant.channels),
            streams=list(grant.streams),
            owner=grant.owner,
            expires_ms=expires_ms,
        )
        await self._client.set(_key(token_id), msgspec.json.encode(record), pxat=expires_ms)
        try:
            await self._client.zadd(_INDEX, {token_id: 0})
        except PenstockError:
            await self._delete_quietly(token_id)
            raise
        return NewToken(_token(token_id, record), f"{TOKEN_PREFIX}{token_id}_{secret}")

    async def get(self, token_id: str) -> ApiToken | None:
        """What is known of a token; None if it never was, has expired or was revoked."""
        if _ID.fullmatch(token_id) is None:
            return None
        record = _decoded(await read_fresh(self._client, _key(token_id)))
        return None if record is None or self._is_over(record) else _token(token_id, record)

    async def list(self, cursor: str | None = None, limit: int = 100) -> TokenPage:
        """Up to ``limit`` tokens after the cursor of the page before."""
        if not 1 <= limit <= MAX_PAGE:
            raise UsageError(f"limit must be from 1 to {MAX_PAGE}, not {limit}")
        if cursor is not None and _ID.fullmatch(cursor) is None:
            raise UsageError("cursor must be one that a page had")
        start = "-" if cursor is None else f"({cursor}"
        found = await self._client.zrange(_INDEX, start, "+", bylex=True, limit=(0, limit + 1))
        ids = [member.decode() for member in found]
        page = ids[:limit]
        tokens = await asyncio.gather(*(self.get(token_id) for token_id in page))
        rubbish = [token_id for token_id, token in zip(page, tokens, strict=True) if token is None]
        if rubbish:
            await self._client.zrem(_INDEX, *rubbish)
        return TokenPage(
            tuple(token for token in tokens if token is not None), page[-1] if len(ids) > limit else None
        )

    async def revoke(self, token_id: str) -> bool:
        """Make a token worthless, everywhere and at once; False if there was none."""
        if _ID.fullmatch(token_id) is None:
            return False
        was_there = await self._client.delete(_key(token_id)) == 1
        try:
            await self._client.zrem(_INDEX, token_id)
        except PenstockError:
            pass  # the token is revoked, which is what was asked for; ``list`` sweeps its id
        return was_there

    async def verify(self, bearer: str) -> ApiToken:
        """The token that this text is; raises ``AuthRejected`` if it is none, or cannot be looked up."""
        form = _FORM.fullmatch(bearer)
        if form is None:
            raise AuthRejected("the API token is malformed")
        token_id, secret = form[1], form[2]
        try:
            stored = await read_fresh(self._client, _key(token_id))
        except PenstockError as error:
            raise AuthRejected("the API token could not be looked up", Rejection.UNAVAILABLE) from error
        record = _decoded(stored)
        if record is None or self._is_over(record) or not is_secret_of(secret, record.sha256):
            raise AuthRejected("the API token is unknown, expired or revoked")
        await self._mark_used(token_id, record)
        return _token(token_id, record)

    async def _mark_used(self, token_id: str, record: _Record) -> None:
        """Write the time of use, now and then. Nobody is refused because that failed."""
        now_ms = self._clock.now_ms()
        if token_id in self._marking or (record.used_ms or 0) > now_ms - USED_EVERY_MS:
            return
        used = msgspec.structs.replace(record, used_ms=now_ms)
        self._marking.add(token_id)
        try:
            await self._client.set(_key(token_id), msgspec.json.encode(used), xx=True, keepttl=True)
        except PenstockError:
            pass
        finally:
            self._marking.discard(token_id)

    def _is_over(self, record: _Record) -> bool:
        return record.expires_ms is not None and record.expires_ms <= self._clock.now_ms()

    async def _delete_quietly(self, token_id: str) -> None:
        try:
            await self._client.delete(_key(token_id))
        except PenstockError:
            pass  # nobody was given its secret


def _key(token_id: str) -> str:
    return f"penstock.token.{token_id}"


def _checked_grant(
    name: str, scopes: Iterable[str], channels: Iterable[str], streams: Iterable[str], owner: str
) -> Grant:
    for argument, words in (("scopes", scopes), ("channels", channels), ("streams", streams)):
        if isinstance(words, str):
            raise UsageError(f"{argument} must be a list, not one text")
    try:
        grant = Grant(name, scopes_of(scopes), tuple(channels), tuple(streams), owner)
    except ValueError as error:
        raise UsageError(f"scopes: {error}; use {', '.join(Action)}") from error
    problem = problem_of(grant)
    if problem is not None:
        raise UsageError(problem)
    return grant


def _decoded(stored: bytes | None) -> _Record | None:
    """A record; one that does not decode permits nothing."""
    if stored is None:
        return None
    try:
        return msgspec.json.decode(stored, type=_Record)
    except msgspec.DecodeError:
        return None


def _token(token_id: str, record: _Record) -> ApiToken:
    # A scope of a later version means nothing here, and must not stop the others.
    scopes = scopes_of(word for word in record.scopes if word in _SCOPES)
    grant = Grant(record.name, scopes, tuple(record.channels), tuple(record.streams), record.owner)
    return ApiToken(token_id, grant, record.created_ms, record.expires_ms, record.used_ms)
