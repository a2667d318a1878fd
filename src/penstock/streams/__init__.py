"""Streams over any client: logs that are read from anywhere, and groups that share them.

==================  ==================================================================
``stream``          :class:`Stream`: write, read, follow, look after
``groups``          :class:`Group`: share messages until each is acknowledged
``consumer``        :class:`Consumer`: what ``async for`` steps through
``consuming``       what is read ahead, renewed, given back; ``running`` handlers
``settling``        acknowledgements of one tick in one command
``producing``       :class:`Producer`: exactly-once writing
``scanning``        :class:`Columns`: messages as columns, for analysis
``messages``        messages as values; ``infos`` everything else that is answered
``arguments``       what is judged before it is sent; ``writing`` cuts writes into commands
``commands``        :class:`StreamCommands`: the T* commands where the server has them, else as
                    scripts over Redis's streams (``scripts``, ``keys``, ``lua``)
==================  ==================================================================

:mod:`penstock.front` puts this before users: ``ps.stream(name)``.
"""

from __future__ import annotations

from penstock.streams.commands import StreamCommands
from penstock.streams.consumer import Consumer
from penstock.streams.groups import Group
from penstock.streams.infos import (
    ConsumerInfo,
    GroupInfo,
    PendingMessage,
    PendingSummary,
    Policy,
    ProducerInfo,
    StreamInfo,
)
from penstock.streams.messages import GroupMessage, Message
from penstock.streams.producing import Producer
from penstock.streams.scanning import Columns, Page
from penstock.streams.stream import Stream

__all__ = [
    "Columns",
    "Consumer",
    "ConsumerInfo",
    "Group",
    "GroupInfo",
    "GroupMessage",
    "Message",
    "Page",
    "PendingMessage",
    "PendingSummary",
    "Policy",
    "Producer",
    "ProducerInfo",
    "Stream",
    "StreamCommands",
    "StreamInfo",
]
