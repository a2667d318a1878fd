"""Bodies and answers of ``/v1/webhooks`` and ``/v1/deliveries`` as types, and what documentation says.

Secrets are shown when they are made and never again. Values of headers that an owner defined may be
secrets, too, so they come back masked; whoever sends the mask keeps the value.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from penstock.gateway.v1.documents import Body, Doc, Parameter, Reply
from penstock.gateway.v1.reading import DEFAULT_PAGE, MAX_PAGE
from penstock.webhooks.endpoints import MAX_TIMEOUT_MS
from penstock.webhooks.model import EndpointState, LogEntry, Status
from penstock.webhooks.schedule import MAX_ATTEMPTS, MAX_DELAY_MS

MASK: Final = "********"
MAX_PATTERNS: Final = 64
MAX_IN_FLIGHT: Final = 1_000

Glob = Annotated[str, Meta(min_length=1, max_length=200)]

# ------------------------------------------------------------------------- bodies


class RetrySchedule(msgspec.Struct):
    """The pause before each attempt; as many attempts as pauses."""

    delays_ms: Annotated[
        list[Annotated[int, Meta(ge=0, le=MAX_DELAY_MS)]], Meta(min_length=1, max_length=MAX_ATTEMPTS)
    ]
    #: up to this share of a pause is added to it
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1


class WebhookDefinition(msgspec.Struct):
    """``channels`` are globs. Without ``schedule`` it is tried for about three days."""

    url: Annotated[str, Meta(min_length=1, max_length=2048)]
    channels: Annotated[list[Glob], Meta(min_length=1, max_length=MAX_PATTERNS)]
    method: Annotated[str, Meta(pattern="^(POST|PUT|PATCH)$")] = "POST"
    headers: dict[str, str] = {}
    timeout_ms: Annotated[int, Meta(ge=1, le=MAX_TIMEOUT_MS)] = 20_000
    schedule: RetrySchedule | None = None
    max_in_flight: Annotated[int, Meta(ge=1, le=MAX_IN_FLIGHT)] = 8


class Disabling(msgspec.Struct):
    reason: Annotated[str, Meta(min_length=1, max_length=500)] = "an administrator disabled it"


class ReplayWish(msgspec.Struct):
    #: only what failed since then, in milliseconds since 1970
    since_ms: Annotated[int, Meta(ge=0, le=2**53 - 1)] = 0


# ------------------------------------------------------------------------- answers


class Webhook(msgspec.Struct):
    """``is_configured``: the gateway's configuration defines it, so that it cannot be changed here."""

    id: str
    url: str
    channels: list[str]
    method: str
    headers: dict[str, str]
    timeout_ms: int
    schedule: RetrySchedule
    max_in_flight: int
    secrets: int
    is_configured: bool
    state: EndpointState


class NewWebhook(msgspec.Struct):
    webhook: Webhook
    #: shown this once
    secret: str


class NewSecret(msgspec.Struct):
    #: shown this once
    secret: str


class WebhookSummary(msgspec.Struct, omit_defaults=True):
    id: str
    url: str
    channels: list[str]
    is_configured: bool = False


class WebhookPage(msgspec.Struct):
    webhooks: list[WebhookSummary]
    cursor: str | None


class Changed(msgspec.Struct):
    """False: it was so already."""

    changed: bool


class WebhookDelivery(msgspec.Struct):
    """Times are those of the store, in milliseconds since 1970."""

    id: str
    webhook: str
    event: str
    status: Status
    attempts: int
    created_ms: int
    due_ms: int
    finished_ms: int | None
    replays: int
    code: int | None
    error: str | None
    reason: str | None
    #: what is sent, where it is still kept
    body: str | None = None


class AttemptPage(msgspec.Struct):
    attempts: list[LogEntry]
    cursor: str | None


class WaitingPage(msgspec.Struct):
    deliveries: list[WebhookDelivery]
    cursor: str | None


class Replayed(msgspec.Struct):
    replayed: int


# ------------------------------------------------------------------------- routes

_LIMIT: Final = Parameter(
    "limit",
    "How many at most.",
    {"type": "integer", "default": DEFAULT_PAGE, "minimum": 1, "maximum": MAX_PAGE},
)
_CURSOR: Final = Parameter("cursor", "Where to go on: the cursor of the page before.")
_NEXT_PAGE: Final = {"Link": "The next page, if there is one."}
_BAD: Final = {400: "A value is not what it should be, or the address must not be called."}
_NONE: Final = {404: "There is no such webhook."}
_NO_DELIVERY: Final = {404: "There is no such delivery (any more)."}
_CONFIGURED: Final = {409: "The configuration of the gateway defines it; change it there."}


def _doc(
    summary: str,
    replies: dict[int, Reply],
    description: str = "",
    *,
    parameters: tuple[Parameter, ...] = (),
    body: Body | None = None,
    refusals: dict[int, str] | None = None,
) -> Doc:
    return Doc(
        "webhooks", summary, replies, description, parameters, body, {**_BAD, **(refusals or {})}, "admin"
    )


CREATE: Final = _doc(
    "Make a webhook",
    {
        201: Reply(
            "It is made. Its secret is shown this once.", NewWebhook, headers={"Location": "The webhook."}
        )
    },
    "Messages of channels that a glob matches are sent to the address, signed as Standard Webhooks describe.",
    body=Body(WebhookDefinition),
)
LIST: Final = _doc(
    "List webhooks",
    {200: Reply("Those that were made here, by id.", WebhookPage, headers=_NEXT_PAGE)},
    parameters=(
        _LIMIT,
        _CURSOR,
        Parameter(
            "configured",
            "Those of the gateway's configuration as well, once they have had a message.",
            {"type": "boolean"},
        ),
    ),
)
LOOK: Final = _doc("Look at a webhook", {200: Reply("The webhook and how it is.", Webhook)}, refusals=_NONE)
REPLACE: Final = _doc(
    "Change a webhook",
    {200: Reply("It is so now. Secrets stay.", Webhook)},
    f"A header whose value is `{MASK}` keeps the value it had.",
    body=Body(WebhookDefinition),
    refusals={**_NONE, **_CONFIGURED},
)
DELETE: Final = _doc(
    "Delete a webhook",
    {204: Reply("It is gone, with all that waited for it.")},
    refusals={**_NONE, **_CONFIGURED},
)
ENABLE: Final = _doc(
    "Send again",
    {200: Reply("Whether something had hindered it.", Changed)},
    "At once, whatever it was disabled or spared for.",
    refusals=_NONE,
)
DISABLE: Final = _doc(
    "Send nothing",
    {200: Reply("False: it was disabled already.", Changed)},
    "What waits is kept.",
    body=Body(Disabling, description="May be empty."),
    refusals=_NONE,
)
ROTATE: Final = _doc(
    "Make a new secret",
    {200: Reply("The new secret, shown this once.", NewSecret)},
    "The one before goes on signing beside it until the next rotation, so that receivers have time.",
    refusals={**_NONE, **_CONFIGURED},
)
TEST: Final = _doc(
    "Send a test event",
    {202: Reply("It is on its way.", WebhookDelivery, headers={"Location": "The delivery."})},
    refusals=_NONE,
)
ATTEMPTS: Final = _doc(
    "Look at attempts to deliver",
    {200: Reply("Newest first.", AttemptPage, headers=_NEXT_PAGE)},
    parameters=(_LIMIT, _CURSOR),
    refusals=_NONE,
)
WAITING: Final = _doc(
    "Look at what waits for delivery",
    {200: Reply("The first due first.", WaitingPage, headers=_NEXT_PAGE)},
    parameters=(_LIMIT, _CURSOR),
    refusals=_NONE,
)
REPLAY_FAILED: Final = _doc(
    "Send again what has failed",
    {200: Reply("How many are on their way again.", Replayed)},
    body=Body(ReplayWish, description="May be empty."),
    refusals=_NONE,
)
DELIVERY: Final = _doc(
    "Look at a delivery", {200: Reply("The delivery as it is now.", WebhookDelivery)}, refusals=_NO_DELIVERY
)
REPLAY: Final = _doc(
    "Send a delivery again",
    {202: Reply("It is on its way, under the same id.", WebhookDelivery)},
    refusals={**_NO_DELIVERY, 409: "It is being sent right now."},
)
