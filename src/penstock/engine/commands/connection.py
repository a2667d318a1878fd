"""Commands about the connection itself."""

from __future__ import annotations

from penstock.engine.commands.registry import Argv, command
from penstock.engine.session import Session
from penstock.protocol.replies import PONG, Push, Reply


@command("PING")
def ping(s: Session, argv: Argv) -> Reply:
    if s.protocol == 2 and s.is_subscribed:
        return [b"pong", argv[1] if len(argv) > 1 else b""]
    return argv[1] if len(argv) > 1 else PONG
