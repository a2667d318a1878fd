"""Names: of keys, topics, transactions, and of what users name.

Every key of a partition begins with its prefix, ``{p0}.``, so that all of them lie in one slot of a cluster;
``lua/common.lua`` has the table of them. The id of a transaction tells its partition:

    tx-3-018c2f5a7b3e91d0…          partition 3, then the time of its start and 80 random bits, hex
    tx-3-018c2f5a7b3e91d0….2.0      a child of it: of its second join, at place 0

Topics (PUB/SUB): ``tx.work.<group>`` (a queue stopped being empty; says which partition), ``tx.agenda``
(something becomes due earlier than workers know), ``tx.worker.<worker>`` (a transaction it has is to end),
``tx.events.<tx>`` (something happened to it, for those who listen), ``tx.webhooks``, ``tx.pipelines`` (a
name: drop what you know).

Nothing here sends anything.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from penstock.errors import UsageError
from penstock.protocol.slots import key_slot

#: Keys outside partitions: ``tx.archive`` (the name of this store in archives), ``{tx}.workersH`` and
#: ``{tx}.schedulesH`` with their neighbours, ``{tx.hooks}:…`` (receivers), ``{pipelines}.…`` (definitions).
#: How many partitions this store has; written once, by the first who needs it.
PARTITIONS: Final = "tx.partitions"
#: What was asked for as limits; partitions have their shares.
LIMITS: Final = "tx.limits"
MAX_PARTITIONS: Final = 1_024
TOPIC_WORK: Final = "tx.work."
TOPIC_AGENDA: Final = "tx.agenda"
TOPIC_WORKER: Final = "tx.worker."
TOPIC_EVENTS: Final = "tx.events."
TOPIC_WEBHOOKS: Final = "tx.webhooks"
TOPIC_PIPELINES: Final = "tx.pipelines"
#: Says the name of each group whose wish has changed (workers_registry.py).
TOPIC_WISHES: Final = "tx.wishes"

_NAME: Final = re.compile(r"[A-Za-z0-9_.@:/+-]{1,128}")
_ID: Final = re.compile(r"tx-(\d{1,4})-[0-9a-f]{31}((?:\.\d{1,10}\.\d{1,10})*)")
_MAX_EXTERNAL_ID: Final = 256


def prefix_of(partition: int) -> str:
    return f"{{p{partition}}}."


def new_id(partition: int, now_ms: int) -> str:
    """Ids of one partition sort by the time of their start."""
    return f"tx-{partition}-{now_ms:011x}{secrets.token_hex(10)}"


def partition_of(tx: str) -> int:
    """The partition of a transaction; ``UsageError`` for what is no id."""
    found = _ID.fullmatch(tx)
    if found is None:
        raise UsageError(f"{tx!r} is not the id of a transaction: those look like tx-0-018c2f5a7b3…")
    return int(found[1])


def root_of(tx: str) -> str:
    """The transaction that somebody started, of it or of one of its children."""
    return tx.partition(".")[0]


def created_ms_of(tx: str) -> int:
    """When it was started, by the clock of whoever did."""
    return int(tx.split("-", 2)[2][:11], 16)


def home_of(owner: str, external_id: str, partitions: int) -> int:
    """The partition of an external id: always the same, so that it can be taken once only."""
    return key_slot(f"{owner} {external_id}".encode()) % partitions


def is_name(text: str) -> bool:
    """Whether it may name a pipeline, a node group, an owner, a step, a switch."""
    return _NAME.fullmatch(text) is not None


def check_name(what: str, value: object) -> str:
    if not isinstance(value, str) or not is_name(value):
        raise UsageError(f"{what} must be 1 to 128 letters, digits or any of _ . @ : / + -, not {value!r}")
    return value


def check_external_id(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_EXTERNAL_ID or not value.isprintable():
        raise UsageError(f"external_id must be 1 to {_MAX_EXTERNAL_ID} printable characters, not {value!r}")
    return value
