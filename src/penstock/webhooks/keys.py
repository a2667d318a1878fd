"""The keys of a queue of webhooks. All share one hash tag, so one script may touch all of them in a cluster.

=============================  =================================================================
key                            holds
=============================  =================================================================
``{webhooks}:endpoints``       hash: id -> definition of an endpoint (``endpoint_store.py``)
``{webhooks}:<name>``          one for each of :data:`SCRIPT_KEYS`; ``lua/common.lua`` tells what
=============================  =================================================================

``webhooks`` is the name of the queue: queues of other names live beside it, on slots of their own.
Nothing here sends anything.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from penstock.errors import ConfigError

#: In the order of KEYS.
SCRIPT_KEYS: Final = (
    "deliveries", "payloads", "waiting", "agenda", "leases", "states", "dead", "finished", "log", "counters",
)  # fmt: skip

_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class WebhookKeys:
    """The names of one queue."""

    def __init__(self, name: str = "webhooks") -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"name must be 1 to 64 letters, digits or any of _ . : -, not {name!r}")
        self.name = name
        #: KEYS of every script
        self.all: tuple[str, ...] = tuple(f"{{{name}}}:{key}" for key in SCRIPT_KEYS)
        self.deliveries, self.payloads = self.all[:2]
        self.endpoints = f"{{{name}}}:endpoints"
        #: pub/sub: something became due earlier than workers knew
        self.topic = f"{name}.due"


def delivery_id(endpoint: str, event_id: str) -> str:
    """The id of the delivery of one event to one endpoint: whoever asks twice gets the same."""
    digest = hashlib.sha256(f"{endpoint} {event_id}".encode("utf-8", "surrogatepass"))
    return f"dlv_{digest.hexdigest()[:40]}"
