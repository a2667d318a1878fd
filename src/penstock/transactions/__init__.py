"""Transactions: pipelines of steps that run for milliseconds or weeks and survive whatever dies.

=====================  ======================================================================
``keys``               names of keys, topics and transactions
``model``              states and endings, records, what users see
``lua/``               every change, each a script that happens whole or not at all
``store``              the scripts, typed
``pipelines/``         definitions and their versions
``listing``, ``looking``, ``statistics``, ``workers_registry``   what people look at
``outbox_messages``, ``outbox``   messages that are written with the end of a step
``notifying``          webhooks
``archive/``           what ended long ago, in Parquet
``schedules/``         starts by time
``worker/``            who runs the steps
``waiting``, ``handle``, ``facility``   ``ps.transactions``
=====================  ======================================================================

Each knows those above it in the table. None knows streams, channels or HTTP servers.
"""

from penstock.transactions.facility import Transactions
from penstock.transactions.handle import Handle
from penstock.transactions.listing import Page, Query
from penstock.transactions.model import Ending, Limit, State, TrailEntry, Transaction
from penstock.transactions.pipelines import (
    CheckFields,
    Child,
    Delay,
    FieldCheck,
    Function,
    Http,
    Map,
    MapFields,
    Parallel,
    Pipeline,
    Progress,
    Reply,
    Retry,
    Router,
    Step,
    Wait,
)
from penstock.transactions.schedules import Schedule
from penstock.transactions.worker import App, StepContext, Worker, step

__all__ = [
    "App",
    "CheckFields",
    "Child",
    "Delay",
    "Ending",
    "FieldCheck",
    "Function",
    "Handle",
    "Http",
    "Limit",
    "Map",
    "MapFields",
    "Page",
    "Parallel",
    "Pipeline",
    "Progress",
    "Query",
    "Reply",
    "Retry",
    "Router",
    "Schedule",
    "State",
    "Step",
    "StepContext",
    "TrailEntry",
    "Transaction",
    "Transactions",
    "Wait",
    "Worker",
    "step",
]
