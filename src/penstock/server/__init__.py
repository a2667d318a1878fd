"""RESP listener over the engine: sockets in front, batches behind.

A door into the engine; knows asyncio and connections, nothing of commands or storage.
"""

from penstock.server.listener import Server
from penstock.server.run import run
from penstock.server.settings import ServerSettings

__all__ = ["Server", "ServerSettings", "run"]
