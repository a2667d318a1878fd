"""A scripted server, links to it, and an owner who notes what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.client.config import Settings
from penstock.client.connection import Slot
from penstock.client.link import Link
from penstock.client.policies import Constant
from penstock.client.transports.scripted import ScriptedServer
from penstock.errors import CommandError

SOON = Constant(base_ms=1)
NEVER = Constant(base_ms=1_000_000)


class Owner:
    """Notes what the link says."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.pushes: list[list[Any]] = []
        self.redirect: Callable[[Slot], None] | None = None

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        if self.redirect is None:
            return False
        self.redirect(slot)
        return True

    def on_push(self, link: Link, push: list[Any]) -> None:
        self.pushes.append(list(push))

    def on_state(self, link: Link) -> None:
        self.states.append(link.state.value)


class Setting:
    """A scripted server and links to it, closed at the end of the test."""

    def __init__(self) -> None:
        self.server = ScriptedServer()
        self.server.on("ECHO").reply(lambda arguments: arguments[1])
        self.server.on("GET").reply(b"v")
        self.server.on("INCR").reply(1)
        self.owner = Owner()
        self.links: list[Link] = []

    def link(self, dial: Any = None, **settings: Any) -> Link:
        settings.setdefault("reconnect", SOON)
        settings.setdefault("close_timeout_ms", 0)
        link = Link("server:1", self.owner, dial or self.server.dial, Settings(**settings))
        self.links.append(link)
        return link

    async def open(self, **settings: Any) -> Link:
        link = self.link(**settings)
        await link.wait_open()
        return link

    @property
    def sent(self) -> list[str]:
        return [b" ".join(arguments).decode() for arguments in self.server.sent]
