"""Asking sentinels: who is the primary, who are its replicas, which sentinels are there.

Rules
-----
A1  A question goes to the sentinel first in line. The next is asked when it has failed, or has
    been silent for a moment: a sentinel often dies together with the primary it shared a machine
    with, and nobody should wait for a timeout then. The first good answer counts.
A2  Who answered stands first from then on; who named a server that turned out not to be the
    primary (``doubt``) stands last. Sentinels that were configured are never forgotten, those
    learnt from others are, when these do not list them any more.
A3  Each question has a connection of its own, which ends with the answer.

What comes out when nobody has a good answer:

=======================  ==============================================================
``ConfigError``          one that answered does not know the service, or is no sentinel
``AuthenticationError``  one that answered refused the credentials
``NotSentError``         nobody answered
=======================  ==============================================================

This module does not know what becomes of the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from penstock.client.config import Settings
from penstock.client.connection import Slot
from penstock.client.dialing import Dialer
from penstock.client.link import Dial, Link
from penstock.client.policies import NoReconnect
from penstock.client.router.racing import first_answer
from penstock.client.router.sentinel_replies import (
    ReplicaPeer,
    SentinelRole,
    ServerRole,
    parse_primary_address,
    parse_replicas,
    parse_role,
    parse_sentinels,
)
from penstock.client.targets import Address
from penstock.errors import AuthenticationError, CommandError, ConfigError, NotSentError, PenstockError

_Answer = TypeVar("_Answer")


class Word(NamedTuple):
    """Who is the primary, and who says so."""

    primary: Address
    sentinel: Address


class Sentinels:
    """The sentinels of one service, in the order they are asked."""

    def __init__(
        self, dialer: Dialer, configured: Sequence[Address], service: str, settings: Settings
    ) -> None:
        self._dialer = dialer
        self._configured = tuple(configured)
        self._order = list(dict.fromkeys(configured))
        self._service = service
        # A conversation that breaks is over: another sentinel may be the better one to ask.
        self._settings = replace(settings, reconnect=NoReconnect(), fail_fast=True)

    @property
    def order(self) -> tuple[Address, ...]:
        return tuple(self._order)

    def prefer(self, sentinel: Address) -> None:
        """Ask this one first from now on."""
        self._order = list(dict.fromkeys([sentinel, *self._order]))

    def doubt(self, sentinel: Address) -> None:
        """Ask this one last from now on."""
        self._order = [*(each for each in self._order if each != sentinel), sentinel]

    async def find_primary(self) -> Word:
        """What the first sentinel says that answers."""
        return await self._first_answer(self.ask_primary)

    async def find_replicas(self) -> list[ReplicaPeer]:
        """All replicas, as the first sentinel sees them that answers."""
        return await self._first_answer(self._ask_replicas)

    async def ask_primary(self, sentinel: Address) -> Word:
        """What this sentinel says; also learns from it which others there are."""
        async with self._talk(self._dialer.to_sentinel(sentinel), sentinel) as link:
            named, peers = await asyncio.gather(
                link.call(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)),
                link.call(("SENTINEL", "SENTINELS", self._service)),
                return_exceptions=True,
            )
            if isinstance(named, BaseException):
                raise named
            address = parse_primary_address(named)
            if address is None:
                raise ConfigError(await self._unknown_service(link))
        if not isinstance(peers, BaseException):  # the primary alone matters; peers are a convenience
            self._learn([Address(*peer.address) for peer in parse_sentinels(peers) if not peer.is_down])
        return Word(Address(*address), sentinel)

    async def ask_role(self, server: Address) -> ServerRole:
        """What a server, of whatever kind, says of itself."""
        async with self._talk(self._dialer.to(server), server) as link:
            return parse_role(await link.call(("ROLE",)))

    async def _ask_replicas(self, sentinel: Address) -> list[ReplicaPeer]:
        async with self._talk(self._dialer.to_sentinel(sentinel), sentinel) as link:
            return parse_replicas(await link.call(("SENTINEL", "REPLICAS", self._service)))

    async def _unknown_service(self, link: Link) -> str:
        text = f"the sentinel does not watch {self._service!r}"
        try:
            role = parse_role(await link.call(("ROLE",)))
        except PenstockError:
            return text
        names = ", ".join(map(repr, role.names)) if isinstance(role, SentinelRole) else ""
        return f"{text}, only {names}" if names else f"{text}, nor any other service"

    def _learn(self, peers: list[Address]) -> None:
        known = {*self._configured, *peers}
        self._order = list(dict.fromkeys([*(each for each in self._order if each in known), *peers]))

    # ------------------------------------------------------------- conversations

    @asynccontextmanager
    async def _talk(self, dial: Dial, address: Address) -> AsyncIterator[Link]:
        """A connection for a few words, within the time of a handshake."""
        link = Link(str(address), _NOBODY, dial, self._settings)
        timeout_ms = self._settings.handshake_timeout_ms
        try:
            await link.wait_open()
            async with asyncio.timeout(timeout_ms / 1000):
                yield link
        except TimeoutError as error:
            raise NotSentError(f"no answer within {timeout_ms} ms") from error
        finally:
            await link.close(at_once=True)

    async def _first_answer(self, ask: Callable[[Address], Coroutine[Any, Any, _Answer]]) -> _Answer:
        """Ask one after the other (A1)."""
        sentinel, answer = await first_answer(self._order, ask, self._no_answer)
        self.prefer(sentinel)
        return answer

    def _no_answer(self, failures: dict[Address, Exception]) -> Exception:
        reasons = "; ".join(
            str(error) if str(sentinel) in str(error) else f"{sentinel}: {error}"
            for sentinel, error in failures.items()
        )
        text = f"no sentinel can tell about {self._service!r} ({reasons})"
        errors = failures.values()
        if any(isinstance(error, ConfigError) for error in errors):
            return ConfigError(text)
        if any(isinstance(error, AuthenticationError) for error in errors):
            return AuthenticationError(f"{text}: set sentinel_username and sentinel_password")
        return NotSentError(text)


class _Nobody:
    """Who talks to a sentinel hears the answers; there is nothing else to tell."""

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        return False

    def on_push(self, link: Link, push: list[Any]) -> None: ...

    def on_state(self, link: Link) -> None: ...


_NOBODY: Final = _Nobody()
