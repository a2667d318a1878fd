"""The same names for synchronous code and notebooks.

    import penstock.blocking

    with penstock.blocking.open("./shop.pen") as ps:
        ps.set("greeting", "hello")
        for message in ps.stream("orders").read(): …

============  ==================================================================
module        role
============  ==================================================================
``client``    :func:`open`, and the client itself
``_twins``    the synchronous sides of what it answers: pipelines, subscribers, …
``_commands`` the helpers of commands
``twins``     makes the synchronous side of any asyncio class
``portal``    the event loop behind it, in a thread of its own
============  ==================================================================

``_commands`` and ``_twins`` have generated stubs for type checkers.
"""

from penstock.blocking._twins import (
    Batch,
    Channel,
    Consumer,
    Exclusive,
    ExclusiveConnection,
    Group,
    GroupMessage,
    Handle,
    Looking,
    Monitor,
    Pipeline,
    PipelineRegistry,
    Producer,
    Schedules,
    Script,
    ScriptLibrary,
    Statistics,
    Stream,
    Subscriber,
    Subscription,
    Transaction,
    Transactions,
    Using,
    WorkerRegistry,
)
from penstock.blocking.client import Client, open

__all__ = [
    "Batch",
    "Channel",
    "Client",
    "Consumer",
    "Exclusive",
    "ExclusiveConnection",
    "Group",
    "GroupMessage",
    "Handle",
    "Looking",
    "Monitor",
    "Pipeline",
    "PipelineRegistry",
    "Producer",
    "Schedules",
    "Script",
    "ScriptLibrary",
    "Statistics",
    "Stream",
    "Subscriber",
    "Subscription",
    "Transaction",
    "Transactions",
    "Using",
    "WorkerRegistry",
    "open",
]
