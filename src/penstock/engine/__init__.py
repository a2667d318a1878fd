"""The embedded keyspace: Redis data types on LMDB, Lua, pub/sub between processes.

Synchronous. Doors into this room are ``server/`` and ``host/``, which drives it on an event loop.
"""

from penstock.engine.engine import Engine
from penstock.engine.local import LocalSession
from penstock.engine.session import Session

__all__ = ["Engine", "LocalSession", "Session"]
