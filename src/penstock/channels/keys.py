"""The keys of channels. All keys of one channel share its hash tag, so that one script may touch them all.

==========================  =======================================  ============================
key                         holds                                    lives
==========================  =======================================  ============================
``c.{CH}.clock``            clock of the last message                ttl, from any use
``c.{CH}.r.SUB``            clock up to which SUB acknowledged       ttl, from create, fetch, ack
``c.{CH}.r.SUB~start``      clock at which SUB began, with several   as SUB
                            stores (``fetching``)
``c.{CH}.m.CLOCK``          ``{"id":…,"content":…}``                 ttl, from publish
``c.{CH}.mid.ID``           clock of the message ID                  ttl, from publish
``c.{CH}.nack.SUB``         clock that SUB gave back                 the delay it asked for
``c.{CH}.out``              list of ``CLOCK body`` for webhooks      until forwarded
``channels.outboxes``       channels that may have ``out``, by time  until idle
``channels.secret``         key of the receipts of this store        for ever
==========================  =======================================  ============================

Topics: ``dsps.c.{CH}`` wakes who waits for the channel; ``channels.outboxes`` says the name of a channel
whose outbox got something. ``ttl`` is the channel's expiry and :data:`GRACE_MS`, in whole seconds, rounded
up. Nothing here sends anything.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import UsageError

#: What is kept longer than promised, for whoever is in the middle of something.
GRACE_MS: Final = 15_000
#: The pattern that reaches every wake-up, and what a wake-up says.
TOPICS: Final = "dsps.c.*"
OUTBOXES: Final = "channels.outboxes"
SECRET: Final = "channels.secret"

_ID: Final = re.compile(r"[0-9a-z][0-9a-z_-]{0,62}")


def is_id(text: str) -> bool:
    """Whether it may name a channel, a subscriber or a message."""
    return _ID.fullmatch(text) is not None


def check_id(name: str, value: object) -> str:
    if not isinstance(value, str) or not is_id(value):
        raise UsageError(
            f"{name} must be 1 to 63 of the characters 0-9 a-z _ -, a digit or letter first, not {value!r}"
        )
    return value


def prefix_of(channel: str) -> str:
    return f"c.{{{channel}}}."


def topic_of(channel: str) -> str:
    return f"dsps.c.{{{channel}}}"


def channel_of_topic(topic: str) -> str:
    return topic.removeprefix("dsps.c.{").removesuffix("}")


def ttl_s(expire_ms: int) -> int:
    return -(-(expire_ms + GRACE_MS) // 1_000)
