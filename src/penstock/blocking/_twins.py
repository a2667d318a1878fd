"""The twins: one line for each class that synchronous code meets.

To add one, add its line, export it from ``penstock.blocking`` and run
``python scripts/make_blocking_stub.py``, which reads the lines and writes ``_twins.pyi``:
the types are those of the originals, with nothing to await.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.blocking._commands import BlockingCommands
from penstock.blocking.twins import make_twin
from penstock.channels import channel
from penstock.client import client, exclusive, monitoring, pipelines, pubsub, scripts
from penstock.client._batch_commands import BatchCommands
from penstock.streams import consumer, groups, messages, producing, stream
from penstock.transactions import (
    facility,
    handle,
    looking,
    schedules,
    statistics,
    workers_registry,
)
from penstock.transactions.pipelines import registry

Using = make_twin(client.Using, bases=(BlockingCommands,))
Batch = make_twin(pipelines.Batch, bases=(BatchCommands,), direct=("_call", "execute", "clear"))
Pipeline = make_twin(pipelines.Pipeline, bases=(Batch,))
Transaction = make_twin(pipelines.Transaction, bases=(Batch,))
ExclusiveConnection = make_twin(exclusive.ExclusiveConnection, bases=(BlockingCommands,))
# Its transact() wants an async function; Client.transact() takes a plain one.
Exclusive = make_twin(exclusive.Exclusive, without=("transact",))
Subscriber = make_twin(pubsub.Subscriber)
Monitor = make_twin(monitoring.Monitor)
Script = make_twin(scripts.Script, direct=("queue",))
ScriptLibrary = make_twin(scripts.ScriptLibrary, bases=(Mapping,))
Stream = make_twin(stream.Stream)
Producer = make_twin(producing.Producer)
# Its run() wants an async function; loop over consume(), in as many threads as you like.
Group = make_twin(groups.Group, without=("run",))
Consumer = make_twin(consumer.Consumer)
GroupMessage = make_twin(messages.GroupMessage)
Channel = make_twin(channel.Channel)
Subscription = make_twin(channel.Subscription)
# Workers are asyncio programs of their own: `penstock worker`.
Transactions = make_twin(facility.Transactions, without=("worker",))
Handle = make_twin(handle.Handle)
PipelineRegistry = make_twin(registry.PipelineRegistry)
Looking = make_twin(looking.Looking)
Statistics = make_twin(statistics.Statistics)
WorkerRegistry = make_twin(workers_registry.WorkerRegistry)
Schedules = make_twin(schedules.Schedules)
