"""Tokens that were taken back before their time.

    jwt.{JTI}.revoke    string: the token's exp, decimal; the key lives until then

Rules: the store is asked every time, so a token is revoked on every worker as soon as ``revoke`` has
answered. Revoking a token that has expired does nothing, and revoking again never shortens. With several
stores a token is revoked if any of them says so; ``revoke`` tells how many took it, and whether that is
enough is the caller's judgement. A store that does not answer is not a no. It must not know signatures,
headers or leeways: whoever revokes adds the largest leeway to ``exp_s``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from penstock.client.client import Client
from penstock.errors import ConfigError, PenstockError, UsageError
from penstock.gateway.auth.decisions import AuthRejected, Rejection
from penstock.gateway.auth.fresh import read_fresh

MAX_JTI_BYTES: Final = 16 * 1024
#: A deadline that every store can keep in milliseconds; the year is 287,000.
_LAST_DEADLINE_S: Final = 9_000_000_000_000
_INT64: Final = 2**63


@dataclass(frozen=True, slots=True)
class RevocationOutcome:
    """How many stores took a revocation, and why the others did not."""

    stored: int
    failures: tuple[PenstockError, ...] = ()


class Revocations:
    """Which tokens are revoked, kept in one store or in several."""

    def __init__(self, *clients: Client, needed_answers: int | None = None) -> None:
        """``needed_answers`` stores must answer a lookup; all of them unless it is given.

        A revocation that ``w`` of ``n`` stores took is seen by every lookup if ``w + needed_answers > n``.
        """
        if not clients:
            raise ConfigError("clients is empty: revocations need at least one store")
        if needed_answers is not None and not 1 <= needed_answers <= len(clients):
            raise ConfigError(f"needed_answers must be from 1 to {len(clients)}, not {needed_answers}")
        self._clients = clients
        self._scripts = [client.script(_revoke_source()) for client in clients]
        self._needed_answers = needed_answers or len(clients)

    async def revoke(self, jti: str, exp_s: int) -> RevocationOutcome:
        """Take a token back on every store that can be reached; raises if none could."""
        _check_jti(jti)
        if not -_INT64 <= exp_s < _INT64:
            raise UsageError(f"exp_s must be a 64-bit number of seconds, not {exp_s}")
        deadline_s = max(0, min(exp_s, _LAST_DEADLINE_S))
        calls = (script(keys=[_key(jti)], args=[str(exp_s), deadline_s]) for script in self._scripts)
        failures: list[PenstockError] = []
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, PenstockError):
                failures.append(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
        if len(failures) == len(self._clients):
            raise failures[0]
        return RevocationOutcome(len(self._clients) - len(failures), tuple(failures))

    async def is_revoked(self, jti: str) -> bool:
        """Whether a token was taken back; raises ``AuthRejected`` if too few stores answer."""
        key = _key(jti)
        if len(self._clients) == 1:
            return await _is_held(self._clients[0], key)
        lookups = {asyncio.create_task(_is_held(client, key)) for client in self._clients}
        try:
            return await self._ask(lookups)
        finally:
            for lookup in lookups:
                lookup.cancel()
            await asyncio.gather(*lookups, return_exceptions=True)

    async def _ask(self, lookups: set[asyncio.Task[bool]]) -> bool:
        """True at the first yes; False once enough stores said no."""
        denials = 0
        waiting = lookups
        refusal: BaseException | None = None
        while waiting and denials < self._needed_answers:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for lookup in done:
                refusal = lookup.exception() or refusal
                if lookup.exception() is None:
                    if lookup.result():
                        return True
                    denials += 1
        if denials < self._needed_answers and refusal is not None:
            raise refusal
        return False

    def __repr__(self) -> str:
        return f"<Revocations in {len(self._clients)} stores, {self._needed_answers} must answer>"


async def _is_held(client: Client, key: str) -> bool:
    try:
        return await read_fresh(client, key) is not None
    except PenstockError as error:
        raise AuthRejected(
            "whether the token is revoked could not be looked up", Rejection.UNAVAILABLE
        ) from error


def _key(jti: str) -> str:
    return f"jwt.{{{jti}}}.revoke"


def _check_jti(jti: str) -> None:
    try:
        size_bytes = len(jti.encode())
    except UnicodeEncodeError:
        raise UsageError("jti must be text that UTF-8 can encode") from None
    if not 0 < size_bytes <= MAX_JTI_BYTES:
        raise UsageError(f"jti must be a text of 1 to {MAX_JTI_BYTES} bytes")


@cache
def _revoke_source() -> str:
    return (resources.files("penstock.gateway.auth") / "lua" / "revoke.lua").read_text("utf-8")
