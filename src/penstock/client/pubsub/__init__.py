"""PUB/SUB: what is wanted is kept apart from what a server has confirmed, and the one follows the other.

    async with ps.pubsub() as subscriber:
        await subscriber.subscribe("news", "chat")      # returns when the server has confirmed
        await subscriber.psubscribe("room.*")
        async for item in subscriber:                   # Message, Gap or Dropped
            ...
        async for message in subscriber.messages():     # for those who do not care what was lost
            ...

Promises
--------
P1  A client has one connection for all channels and patterns, and in a cluster one for each
    node that owns wanted shard channels; none of them carries other commands.
P2  Two subscribers of one channel are one SUBSCRIBE at the server, and each gets each
    message. The last that leaves is an UNSUBSCRIBE.
P3  A subscriber sees messages from its own confirmation on. What was published before
    ``subscribe`` was called never reaches it, also where others had the channel already.
P4  After the loss of a connection, and when a slot moves, everything that is still wanted is
    subscribed again. Each subscriber finds a :class:`Gap` in its stream, at the place where
    messages may be missing.
P5  A subscriber holds at most ``pubsub_queue_len`` messages. What ``pubsub_overflow`` drops
    is told by one :class:`Dropped` at the place of the loss; with ``close`` the subscriber
    ends with ``BackpressureError`` after what it holds.
P6  A ``subscribe`` that raises (refused, timed out, cancelled) leaves the subscriptions as they
    were before. A cancelled ``get`` takes nothing.
P7  After ``close`` nothing is pending: iteration ends, ``get`` raises ``ClosedError``.

==============  ======================================================================
``items``       what a stream is made of
``inbox``       the bounded queue of one subscriber
``topics``      one channel, pattern or shard channel: who wants it, how far it is
``station``     the topics of one server, on one link
``desk``        who wants what, and which server has it
``subscriber``  what users hold
``hub``         one for each client: makes subscribers, ends them
``keyspace``    keyspace notifications read
==============  ======================================================================

Each knows those above it in the table. Nothing here knows sockets: a connection comes from
``Place.dial``.
"""

from penstock.client.pubsub.hub import PubSub
from penstock.client.pubsub.items import Dropped, Gap, Item, Message
from penstock.client.pubsub.keyspace import KeyspaceEvent, parse_keyspace
from penstock.client.pubsub.subscriber import Subscriber

__all__ = [
    "Dropped",
    "Gap",
    "Item",
    "KeyspaceEvent",
    "Message",
    "PubSub",
    "Subscriber",
    "parse_keyspace",
]
