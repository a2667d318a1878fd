"""Penstock: durable streams, channels and transaction pipelines for Python.

Embedded like SQLite, speaking Redis.

    import penstock

    async with penstock.open("./shop.pen") as ps:     # or redis://, redis-cluster://, …
        await ps.set("greeting", "hello")
        await ps.stream("orders").write("eu", b'{"id": 1}')
        await ps.channel("room-7").publish("msg-1", {"text": "hi"})

:mod:`penstock.blocking` has the same names for code without ``await``,
:mod:`penstock.server` puts a RESP listener in front of a store.
"""

from penstock.client.client import Client
from penstock.client.routes import ByKey, BySlot, ToAll, ToAny, ToServer
from penstock.front import Penstock, open
from penstock.version import __version__

__all__ = ["ByKey", "BySlot", "Client", "Penstock", "ToAll", "ToAny", "ToServer", "__version__", "open"]
