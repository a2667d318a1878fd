"""One server: every command goes the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.client.config import Address, Settings
from penstock.client.connection import ReplyFuture, Slot
from penstock.client.dialing import Dialer
from penstock.client.link import Dial, Link
from penstock.client.router.base import PushHandler
from penstock.client.transports.base import Arguments
from penstock.errors import CommandError


class StandaloneRouter:
    """A router with one link. ``address`` None is the unix socket of the target."""

    def __init__(
        self, dialer: Dialer, address: Address | None, settings: Settings, on_push: PushHandler
    ) -> None:
        self._dialer = dialer
        self._address = address
        self._push = on_push
        self._open_within_s = (settings.connect_timeout_ms + settings.handshake_timeout_ms) / 1000
        self._link = Link(dialer.name_of(address), self, dialer.to(address), settings)
        #: the hot path: no frame of ours between caller and link
        self.call: Callable[[Arguments], ReplyFuture] = self._link.call

    async def open(self) -> None:
        await self._link.wait_open(self._open_within_s)

    async def close(self) -> None:
        await self._link.close()

    def dial_for(self, arguments: Arguments) -> tuple[str, Dial]:
        return self._link.name, self._dialer.to(self._address)

    def statistics(self) -> Mapping[str, Any]:
        return {self._link.name: self._link.statistics()}

    # ------------------------------------------------------ what the link reports

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        return False

    def on_push(self, link: Link, push: list[Any]) -> None:
        self._push(push)

    def on_state(self, link: Link) -> None:
        """There is nowhere else to go: commands wait in the link."""

    def __repr__(self) -> str:
        return f"<StandaloneRouter {self._link!r}>"
