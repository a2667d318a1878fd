"""What users need to test their own code against real servers.

Public names only; nothing in here is imported by the rest of the package.
"""

from __future__ import annotations

from penstock.testing.servers import (
    RealCluster,
    RealServer,
    ServerBinary,
    ServerUnavailableError,
    find_server,
    find_servers,
    start_cluster,
)

__all__ = [
    "RealCluster",
    "RealServer",
    "ServerBinary",
    "ServerUnavailableError",
    "find_server",
    "find_servers",
    "start_cluster",
]
