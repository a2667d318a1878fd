"""Drives an engine on an event loop: all commands of a tick as one batch.

What stands between the engine, which is synchronous, and those who speak to it from a
loop: the server's sockets and the client's embedded transport. It knows asyncio and the
engine, nothing of sockets, futures or the wire.
"""

# What a session's sink gets beside replies; whoever brings a guest must obey it.
from penstock.engine.control import Close, Control, Overflow, ReplyMode, SwitchProtocol
from penstock.host.executor import Executor
from penstock.host.guest import Guest
from penstock.host.registry import Host, open_host

__all__ = [
    "Close",
    "Control",
    "Executor",
    "Guest",
    "Host",
    "Overflow",
    "ReplyMode",
    "SwitchProtocol",
    "open_host",
]
