"""What users need to test their own code: real servers, and a scripted one.

Public names only; nothing in here is imported by the rest of the package.
"""

from __future__ import annotations

from penstock.client.transports.scripted import ScriptedServer
from penstock.testing.clusters import RealCluster, start_cluster
from penstock.testing.scripted import open_scripted
from penstock.testing.sentinels import RealSentinel, RealSentinels, start_sentinels
from penstock.testing.servers import (
    RealServer,
    ServerBinary,
    ServerUnavailableError,
    find_server,
    find_servers,
)

__all__ = [
    "RealCluster",
    "RealSentinel",
    "RealSentinels",
    "RealServer",
    "ScriptedServer",
    "ServerBinary",
    "ServerUnavailableError",
    "find_server",
    "find_servers",
    "open_scripted",
    "start_cluster",
    "start_sentinels",
]
