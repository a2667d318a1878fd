"""The crews of the chaos program: what is done to a store while everything happens to it.

================  ====================================================================================
``streams``       writers, producers, readers of groups
``channels``      publishers and subscribers that acknowledge
``pubsub``        publishers and subscribers that only hear
``transactions``  starters, workers, switches, webhooks, archivers
``spark``         the data pipeline: a writer, and a Spark driver
================  ====================================================================================

A crew knows its store by ``Scene`` alone and runs unchanged on every kind of it. While the store is away,
what a member tries is unknown or not done, which its log tells by what is missing there. All of them can
share a store: their names do not collide. ``members`` has how they live.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.chaos.crews.channels import ChannelCrew
from tests.chaos.crews.pubsub import PubSubCrew
from tests.chaos.crews.spark import SparkCrew
from tests.chaos.crews.streams import StreamCrew
from tests.chaos.crews.transactions import TransactionCrew
from tests.chaos.model import Crew

__all__ = ["CREWS"]

CREWS: Final[dict[str, Callable[[], Crew]]] = {
    "streams": StreamCrew,
    "channels": ChannelCrew,
    "pubsub": PubSubCrew,
    "transactions": TransactionCrew,
    "spark": SparkCrew,
}
