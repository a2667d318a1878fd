"""A client that talks to a script instead of a server, for tests of your own code.

    server = ScriptedServer()
    server.on("GET", "k").reply(b"v")
    server.on("INCR").drop()                    # the connection ends without a reply
    async with open_scripted(server) as ps:
        assert await ps.get("k") == b"v"

See :class:`ScriptedServer` for what a server can be told to do.
"""

from __future__ import annotations

from typing import Any

from penstock.client.client import Client
from penstock.client.config import Settings, open_settings
from penstock.client.dialing import Dialer
from penstock.client.link import Dial
from penstock.client.targets import Address, Target
from penstock.client.transports.scripted import ScriptedServer

_NAME = "scripted:0"


class _ScriptedDialer(Dialer):
    """Every address leads to the script."""

    def __init__(self, server: ScriptedServer, target: Target, settings: Settings) -> None:
        super().__init__(target, settings)
        self._server = server

    def to(
        self, address: Address | None, *, reads_from_replica: bool = False, is_shared: bool = False
    ) -> Dial:
        return self._server.dial

    def name_of(self, address: Address | None) -> str:
        return _NAME


def open_scripted(server: ScriptedServer, **settings: Any) -> Client:
    """A client of a scripted server; the settings are those of ``penstock.open``."""
    target, checked = open_settings("redis://scripted:1", **settings)
    return Client(target, checked, _ScriptedDialer(server, target, checked))
