"""Hearing of a failover when it happens, instead of finding out by errors.

One connection to one sentinel, on which it announces what it sees:

=====================================  =============================================
``+switch-master``                     another primary: told with its address
``+slave``, ``+sdown``, ``-sdown``, …  replicas come and go: told that something has
                                       changed, where anybody wants to know
=====================================  =============================================

Rules: the sentinel is asked once more after it has confirmed the subscription, so that nothing
falls between a question and the first announcement. A watch never gives up: while it has no
sentinel, commands find out by themselves, only later. It tells; it decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from penstock.client.config import Settings
from penstock.client.connection import Connection, Slot
from penstock.client.dialing import Dialer
from penstock.client.facts import to_bytes
from penstock.client.handshake import ServerFacts
from penstock.client.link import Link, LinkState
from penstock.client.policies import Exponential
from penstock.client.router.sentinel_asking import Sentinels, Word
from penstock.client.router.sentinel_replies import SWITCH_CHANNEL, parse_switch
from penstock.client.targets import Address
from penstock.errors import CommandError, NotSentError, PenstockError

log = logging.getLogger("penstock.client")

#: What may change the list of replicas.
_REPLICA_CHANNELS: Final = (b"+slave", b"+sdown", b"-sdown", b"+convert-to-slave", b"+slave-reconf-done")


class FailoverWatch:
    """Tells of failovers of one service, from ``start`` to ``close``."""

    def __init__(
        self,
        dialer: Dialer,
        sentinels: Sentinels,
        service: str,
        settings: Settings,
        *,
        on_switch: Callable[[Word], None],
        on_word: Callable[[Word], Awaitable[None]],
        on_replicas: Callable[[], None] | None,
    ) -> None:
        self._dialer = dialer
        self._sentinels = sentinels
        self._service = service
        self._timeout_ms = settings.handshake_timeout_ms
        self._on_switch = on_switch
        #: told what the sentinel says at the beginning, which may be old news or wrong
        self._on_word = on_word
        self._on_replicas = on_replicas
        self._sentinel = sentinels.order[0]
        # Whatever the user's policy is for data, hearing of failovers must come back.
        patient = replace(settings, reconnect=Exponential(), fail_fast=False)
        self._link = Link(f"the sentinels of {service}", self, self._dial, patient)

    def start(self) -> None:
        """Begin, without waiting for it. Harmless when repeated."""
        self._link.start()

    async def close(self) -> None:
        await self._link.close(at_once=True)

    @property
    def is_listening(self) -> bool:
        return self._link.state is LinkState.OPEN

    async def _dial(self, connection: Connection) -> ServerFacts:
        self._sentinel = sentinel = self._sentinels.order[0]
        try:
            facts = await self._dialer.to_sentinel(sentinel)(connection)
            async with asyncio.timeout(self._timeout_ms / 1000):
                await connection.call(("SUBSCRIBE", *self._channels))
            await self._on_word(await self._sentinels.ask_primary(sentinel))
        except (PenstockError, TimeoutError) as error:
            self._sentinels.doubt(sentinel)
            raise NotSentError(f"cannot watch through {sentinel}: {error}") from error
        return facts

    @property
    def _channels(self) -> tuple[bytes, ...]:
        return (SWITCH_CHANNEL, *(_REPLICA_CHANNELS if self._on_replicas else ()))

    # ------------------------------------------------------ what the link reports

    def on_push(self, link: Link, push: list[Any]) -> None:
        if len(push) != 3 or to_bytes(push[0]) != b"message":
            return
        if to_bytes(push[1]) == SWITCH_CHANNEL:
            switch = parse_switch(push[2])
            if switch.name == self._service:
                self._on_switch(Word(Address(*switch.new), self._sentinel))
        elif self._on_replicas is not None:
            self._on_replicas()

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        return False

    def on_state(self, link: Link) -> None:
        log.debug("%s: %s %s", link.name, link.state.value, link.last_error or "")
