"""The store that Spark's processes read and write: one open client a process and URL.

    orders = store(url).stream("orders")
    store_id(client)                             # "3f81c2…": by which a lake knows the store

Spark forks its Python workers and gives them task after task; a store is opened at the first need and stays
open for the next task. What is left open is closed when the process ends, or by ``close_stores``; a worker
that Spark kills leaves nothing that a store would mind.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from penstock import blocking
from penstock.blocking.portal import PORTAL
from penstock.client.targets import parse_url
from penstock.errors import StoreError
from penstock.transactions.archive.handing_out import source_of

#: By process, since a client must not be used by a child of the one that opened it.
_clients: Final[dict[tuple[int, str], blocking.Client]] = {}
_lock = threading.Lock()


def store(url: str, *, create: bool = True) -> blocking.Client:
    """The client of this process. Without ``create`` a directory without a store is a ``StoreError``."""
    key = os.getpid(), url
    with _lock:
        client = _clients.get(key)
        if client is None:
            if not create:
                _require_store(url)
            client = blocking.open(url).connect()
            _clients[key] = client
    return client


def close_stores() -> None:
    """Close what this process has open; the next task opens its store anew."""
    with _lock:
        mine = [key for key in _clients if key[0] == os.getpid()]
        clients = [_clients.pop(key) for key in mine]
    for client in clients:
        client.close()


def store_id(client: blocking.Client) -> str:
    """The name of a store in archives and lakes; the first who asks makes it up."""
    return PORTAL.run(source_of(client.transactions.store.client))


def _require_store(url: str) -> None:
    """Opening would make a new one, in which there is nothing to read."""
    target = parse_url(url)
    if target.kind == "embedded" and not (Path(target.path or "") / "data.mdb").exists():
        raise StoreError(
            f"there is no store at {target.path}: check the option url (every machine must see the directory)"
        )


def _renew_lock() -> None:
    """In a forked child: another thread may have held it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
