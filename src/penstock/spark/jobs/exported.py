"""What the table ``messages`` knows of the streams of a store: how far it has each, and where it begins.

    progress_app("3f81c2…", "orders")            # its progress is the next offset that the lake wants
    streams_like(client, ["orders", "audit.*"])  # names, in order

Two applications of Delta tell it, so that it is committed together with the messages themselves:

==================================  ===================================================================
``messages:<store id>:<stream>``    everything below this offset that the stream had is in the lake
``begin:<store id>:<stream>``       the first offset that it ever wanted; committed once
==================================  ===================================================================

Rules: a lake has the streams of one store under their names, since rows do not tell their store. Nothing
here reads messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.blocking import Client
    from penstock.lake.table import LakeTable

TABLE: Final = "messages"
_WILD: Final = frozenset("*?[")


def progress_app(store: str, stream: str) -> str:
    """By which the table knows how far it has a stream."""
    return f"messages:{store}:{stream}"


def begin_app(store: str, stream: str) -> str:
    """By which it knows where that began."""
    return f"begin:{store}:{stream}"


def streams_in(table: LakeTable) -> list[str]:
    """Those that the lake has messages of."""
    return sorted({name for file in table.files() if (name := file.partition.get("stream")) is not None})


def check_patterns(option: str, patterns: Sequence[str]) -> None:
    """Names and patterns of streams, as somebody has written them."""
    for pattern in patterns:
        if not pattern:
            raise ConfigError(f"{option} has an empty name: write one, or leave it out")


def streams_like(client: Client, patterns: Sequence[str]) -> list[str]:
    """Streams by name or by pattern (``*``, ``?``, ``[a-z]``), in order.

    One that is named need not be there. Of those that match, names that are no UTF-8 are left out: no table
    can spell them.
    """
    wild = [pattern for pattern in patterns if _WILD & set(pattern)]
    found = {pattern for pattern in patterns if not _WILD & set(pattern)}
    if wild:
        for key in client.scan_iter(type="stream", count=1_000):
            try:
                name = key.decode()
            except UnicodeDecodeError:
                continue
            if any(fnmatchcase(name, pattern) for pattern in wild):
                found.add(name)
    return sorted(found)
