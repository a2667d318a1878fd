"""What a unit of work changed that others must learn: events, watches, trackers, blocked clients.

Keyspaces fill it, the dispatcher empties it before the commit (``Dispatcher.settle``). The hot path
looks at ``observed`` and ``awaited`` alone.
"""

from __future__ import annotations

from typing import Final

# Classes of keyspace events, as the letters of notify-keyspace-events.
EVENT_GENERIC: Final = "g"
EVENT_STRING: Final = "$"
EVENT_LIST: Final = "l"
EVENT_SET: Final = "s"
EVENT_HASH: Final = "h"
EVENT_ZSET: Final = "z"
EVENT_EXPIRED: Final = "x"
EVENT_STREAM: Final = "t"
EVENT_NEW: Final = "n"


class Changes:
    """What a unit changed that others must learn: filled by keyspaces, emptied by the dispatcher."""

    __slots__ = (
        "awaited", "events", "notify_classes", "observed", "ready", "touched", "tracked", "unsettled",
        "watching",
    )  # fmt: skip

    def __init__(self) -> None:
        #: letters of the event classes somebody asked for
        self.notify_classes: frozenset[str] = frozenset()
        #: whether any key of the store is under WATCH
        self.watching = False
        #: whether any session of any process tracks keys (see ``tracking``)
        self.tracked = False
        #: any of the three: the only thing the hot path looks at
        self.observed = False
        #: whether any client of any process is blocked on a key
        self.awaited = False
        #: (database, event, key) in order
        self.events: list[tuple[int, bytes, bytes]] = []
        #: (database, key, False): new content may serve blocked clients;
        #: (database, key, True): the stream that was there is gone, and who waits in it has to learn
        self.ready: list[tuple[int, bytes, bool]] = []
        #: keys that changed, for those who track them; None stands for all keys
        self.touched: list[bytes | None] = []
        #: set by whoever adds to one of the three lists
        self.unsettled = False

    def begin(self, notify_classes: frozenset[str], watching: bool, awaited: bool, tracked: bool) -> None:
        self.notify_classes = notify_classes
        self.watching = watching
        self.awaited = awaited
        self.tracked = tracked
        self.refresh()
        self.events.clear()
        self.ready.clear()
        self.touched.clear()
        self.unsettled = False

    def refresh(self) -> None:
        """After one of the three reasons to observe has changed."""
        self.observed = self.watching or self.tracked or bool(self.notify_classes)

    def touch_all(self) -> None:
        """Every key may have changed."""
        if self.tracked and (not self.touched or self.touched[-1] is not None):
            self.touched.append(None)
            self.unsettled = True
