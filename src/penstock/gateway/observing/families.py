"""What is measured: every family of series, as a table.

Rules: a label takes few values (route templates and codes, never paths or names of channels); a duration is
in seconds. Names are promises to dashboards: add, do not rename.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

#: Upper bounds of durations. From a publish (a millisecond) to the longest poll (a minute).
BOUNDS_S: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
#: A count for each bound and one beyond, then the sum.
HISTOGRAM_WIDTH: Final = len(BOUNDS_S) + 2


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


REQUESTS: Final = Family(
    "penstock_http_requests", "counter", "Requests answered.", ("method", "route", "code", "class")
)
DURATIONS: Final = Family(
    "penstock_http_request_duration_seconds",
    "histogram",
    "From the first byte of a request to the last of its answer.",
    ("method", "route"),
)
PUBLISHED: Final = Family("penstock_messages_published", "counter", "Messages taken from publishers.")
DUPLICATES: Final = Family(
    "penstock_messages_duplicate", "counter", "Messages published again and therefore not stored."
)
DELIVERED: Final = Family("penstock_messages_delivered", "counter", "Messages handed to subscribers.")
ACKED: Final = Family("penstock_messages_acked", "counter", "Messages that subscribers acknowledged.")
WAITING_POLLS: Final = Family("penstock_polls_waiting", "gauge", "Long polls that wait for a message.")
OPEN_SSE: Final = Family("penstock_event_streams_open", "gauge", "Server-sent event streams that are open.")
OPEN_WEBSOCKETS: Final = Family("penstock_websockets_open", "gauge", "WebSockets that are open.")
WEBHOOKS: Final = Family(
    "penstock_webhook_attempts", "counter", "Calls of webhooks, by what came of them.", ("outcome",)
)
WEBHOOK_DURATIONS: Final = Family(
    "penstock_webhook_duration_seconds", "histogram", "How long calls of webhooks took."
)
AUTH_REJECTIONS: Final = Family(
    "penstock_auth_rejections", "counter", "Requests whose credentials were not accepted.", ("reason",)
)
RATE_LIMITED: Final = Family(
    "penstock_rate_limited", "counter", "Requests refused because their client came too often.", ("limit",)
)
STORE_ERRORS: Final = Family("penstock_store_errors", "counter", "Failures of storages.", ("storage", "kind"))
GUARDED: Final = Family(
    "penstock_http_connections_refused",
    "counter",
    "Connections that the server's guards ended: too slow, too big, too many, not HTTP.",
    ("reason",),
)
LOG_LINES_DROPPED: Final = Family(
    "penstock_log_lines_dropped", "counter", "Lines of logs that were not written because nobody took them."
)

#: All that workers keep in cells, in the order of a scrape.
FAMILIES: Final = (
    REQUESTS,
    DURATIONS,
    PUBLISHED,
    DUPLICATES,
    DELIVERED,
    ACKED,
    WAITING_POLLS,
    OPEN_SSE,
    OPEN_WEBSOCKETS,
    WEBHOOKS,
    WEBHOOK_DURATIONS,
    AUTH_REJECTIONS,
    RATE_LIMITED,
    STORE_ERRORS,
    GUARDED,
    LOG_LINES_DROPPED,
)
#: Kept for each worker, not as a sum.
READY: Final = Family("penstock_ready", "gauge", "Whether the worker takes requests.", ("worker",))
