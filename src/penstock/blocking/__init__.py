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
    Monitor,
    Pipeline,
    Producer,
    Script,
    ScriptLibrary,
    Stream,
    Subscriber,
    Subscription,
    Transaction,
    Using,
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
    "Monitor",
    "Pipeline",
    "Producer",
    "Script",
    "ScriptLibrary",
    "Stream",
    "Subscriber",
    "Subscription",
    "Transaction",
    "Using",
    "open",
]
