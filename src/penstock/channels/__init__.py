"""Durable channels: publish by id, fetch without losing, acknowledge by receipt.

============  ==========================================================
``keys``      names of keys, and what may be a name
``clocks``    the arithmetic of clocks, across their wrap
``model``     messages, batches, JSON text
``receipts``  what an acknowledgement must bring
``port``      what a keeper of channels can do
``store``     … in one store; ``lua/`` has the steps that must not be divided
``merging``   what several stores gave, as one
``members``   several stores, each behind a breaker
``fetching``  a fetch over several stores
``stores``    … in several at once
``channel``   what users hold
============  ==========================================================

Each knows those above it. Nothing here knows HTTP, streams or transactions.
"""

from penstock.channels.channel import Channel, Subscription
from penstock.channels.model import Backlog, Batch, ChannelInfo, Message
from penstock.channels.port import Channels
from penstock.channels.store import ChannelStore
from penstock.channels.stores import ChannelStores

__all__ = [
    "Backlog",
    "Batch",
    "Channel",
    "ChannelInfo",
    "ChannelStore",
    "ChannelStores",
    "Channels",
    "Message",
    "Subscription",
]
