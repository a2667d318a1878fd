"""In which order the shop does things: pipelines of the steps in ``steps``, and schedules.

Any worker runs them, from any process that has the store:

    penstock worker penstock.cli.shop.pipelines:app --store ./penstock-demo/store.pen

Rules: pipelines are values. Workers deploy them when they start; one that did not change stays the version it
is, and transactions under way keep theirs.
"""

from __future__ import annotations

from typing import Final

from penstock.cli.shop.steps import app
from penstock.transactions import (
    CheckFields,
    Child,
    Delay,
    FieldCheck,
    Function,
    Map,
    Parallel,
    Pipeline,
    Progress,
    Retry,
    Router,
    Schedule,
    Wait,
)

#: ``app`` is named so that workers find it here.
__all__ = ["APPROVED", "CHECKOUT", "SCHEDULES", "SHOP", "WAREHOUSE", "app"]

SHOP: Final = "shop"
WAREHOUSE: Final = "warehouse"

#: What somebody has to set before an order is packed: `penstock tx switch ID approved=yes`.
APPROVED: Final = "approved"
_PATIENCE_MS: Final = 10 * 60_000

#: For what others are: away for a moment.
_soon_again = Retry(limit=4, backoff_ms=700, on=("ConnectionError", "timeout"))

#: Which pipeline tells the tax of a country; every other one is abroad.
_TAXES: Final = {"de": "tax-de", "fr": "tax-fr", "at": "tax-at"}

CHECKOUT: Final = app.pipeline(
    Pipeline(
        "checkout",
        [
            "validate",
            Function("reserve", compensate="release"),
            Function("charge-card", retry=_soon_again, timeout_ms=10_000, compensate="refund"),
            Wait(
                APPROVED,
                into=APPROVED,
                id="approval",
                timeout_ms=_PATIENCE_MS,
                note="by the clerk, or by you",
            ),
            Router("country", _TAXES, default="tax-abroad", into="tax", id="taxes"),
            Progress({"stage": "packing"}, id="tell"),
            Delay(min_ms=2_000, max_ms=15_000, id="packing"),
            Child("ship", into="parcel", id="shipping"),
            Parallel(
                {"invoice": ["write-invoice"], "mail": ["mail-customer"], "points": ["book-points"]},
                id="afterwards",
            ),
        ],
        node_group=SHOP,
        description="Sells what is in an order of the stream orders.",
        input=CheckFields(
            {
                "customer": FieldCheck("string"),
                "country": FieldCheck("string", max_length=2),
                "product": FieldCheck("string"),
                "pieces": FieldCheck("integer", max=100),
            }
        ),
    )
)

#: Runs on other machines than the shop: its group is another one.
app.pipeline(
    Pipeline(
        "ship",
        [Function("pick", retry=_soon_again), Delay(min_ms=300, max_ms=2_000), "hand-over"],
        node_group=WAREHOUSE,
        description="Gets an order out of the door.",
        is_startable=False,
    )
)

for country in ("de", "fr", "at", "abroad"):
    app.pipeline(
        Pipeline(
            f"tax-{country}",
            [Function("tax", args={"country": country})],
            node_group=SHOP,
            description="What the state gets.",
            is_startable=False,
        )
    )

app.pipeline(
    Pipeline(
        "stock-take",
        [
            Progress({"stage": "counting"}),
            Map("shelves", steps=["count-shelf"], at_once=2, into="shelves"),
            "sum-up",
        ],
        node_group=WAREHOUSE,
        description="Counts what is on the shelves.",
    )
)

_shelves = [f"shelf-{number}" for number in range(1, 7)]

#: Workers start what is due. Fires that nobody was there for are left out: a count is of now.
SCHEDULES: Final = (
    Schedule("stock-take", "stock-take", {"shelves": _shelves[:3]}, cron="* * * * *", catch_up="skip"),
    Schedule("inventory", "stock-take", {"shelves": _shelves}, cron="0 3 * * *", catch_up="skip"),
)
