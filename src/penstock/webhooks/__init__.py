"""Outgoing webhooks: durable, signed, and not to be abused for calling what is not public.

Above the client, below the facilities that send events. It knows nothing of channels, HTTP servers or
configuration files: whoever uses it makes endpoints and puts bytes.

``HttpSender`` is in ``penstock.webhooks.sending``, apart because it needs ``penstock[gateway]``.
"""

from penstock.webhooks.addresses import AddressPolicy, check_url
from penstock.webhooks.breaker import BreakerPolicy, BreakerState, CircuitBreaker
from penstock.webhooks.endpoint_store import EndpointStore
from penstock.webhooks.endpoints import ConfiguredEndpoints, Endpoint, EndpointSource
from penstock.webhooks.model import (
    Attempt,
    Claim,
    Claimed,
    Delivery,
    EndpointState,
    Health,
    LogEntry,
    LogPage,
    Outcome,
    OutcomeKind,
    Payload,
    Put,
    QueueStatistics,
    Request,
    Sender,
    Settled,
    Status,
    WaitingPage,
    event_body,
)
from penstock.webhooks.queue import QueueSettings, WebhookQueue
from penstock.webhooks.schedule import AnswerRules, Schedule, growing, judge
from penstock.webhooks.signing import new_key_pair, new_secret, public_key, sign, verify, webhook_id
from penstock.webhooks.worker import WebhookWorker, WorkerSettings, WorkerStatistics

__all__ = [
    "AddressPolicy",
    "AnswerRules",
    "Attempt",
    "BreakerPolicy",
    "BreakerState",
    "CircuitBreaker",
    "Claim",
    "Claimed",
    "ConfiguredEndpoints",
    "Delivery",
    "Endpoint",
    "EndpointSource",
    "EndpointState",
    "EndpointStore",
    "Health",
    "LogEntry",
    "LogPage",
    "Outcome",
    "OutcomeKind",
    "Payload",
    "Put",
    "QueueSettings",
    "QueueStatistics",
    "Request",
    "Schedule",
    "Sender",
    "Settled",
    "Status",
    "WaitingPage",
    "WebhookQueue",
    "WebhookWorker",
    "WorkerSettings",
    "WorkerStatistics",
    "check_url",
    "event_body",
    "growing",
    "judge",
    "new_key_pair",
    "new_secret",
    "public_key",
    "sign",
    "verify",
    "webhook_id",
]
