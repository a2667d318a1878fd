"""What the shop does with an order, step by step. Which comes when is in ``pipelines``.

A step gets a context and returns what the next one gets; None passes its own input on. Three ways to fail:

=====================  ===========================================================================
``ConnectionError``    somebody else is away: the step's retry policy tries again
``StepFailedError``    it did not work, and trying again would not help
``StepAbortedError``   it must end now, whatever policies say
any other exception    a mistake of ours: the transaction is put on the list of the dead
=====================  ===========================================================================

Rules: what must not happen twice (charging a card) is behind ``once``. Messages to streams and channels go
out with the success of their step, or not at all. Work is played here: it takes its time by sleeping.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from penstock.errors import StepAbortedError, StepFailedError
from penstock.transactions import App, StepContext

PRICES: Final = {"lamp": 49, "chair": 120, "table": 310, "rug": 75, "mirror": 95}
#: Shares of an order's total that states take.
TAXES: Final = {"de": 0.19, "fr": 0.20, "at": 0.20}
ABROAD: Final = 0.25
#: How a card behaves is written on it.
CARDS: Final = {"good": 88, "shaky": 7, "empty": 4, "stolen": 1}

app = App()
_chance = random.Random()


async def _work(least_s: float, most_s: float) -> None:
    await asyncio.sleep(_chance.uniform(least_s, most_s))


# ------------------------------------------------------------------------------- the order


@app.step("validate")
async def validate(tx: StepContext) -> Any:
    order = tx.input
    if order["pieces"] < 1:
        raise StepFailedError("an order has at least one piece")
    # A product that the shop never had is a KeyError, which nobody expected: it ends on the list of the dead.
    total = order["pieces"] * PRICES[order["product"]]
    return {**order, "total": total}


@app.step("reserve")
async def reserve(tx: StepContext) -> Any:
    await _work(0.01, 0.05)
    shelf = await tx.once("reserve", lambda: f"shelf-{_chance.randint(1, 40)}")
    tx.log(f"{tx.input['pieces']} × {tx.input['product']} reserved on {shelf}")
    return {**tx.input, "shelf": shelf}


@app.step("release")
async def release(tx: StepContext) -> None:
    """Undoes ``reserve``."""
    tx.log(f"{tx.output['shelf']} is free again")


@app.step("charge-card")
async def charge_card(tx: StepContext) -> Any:
    await _work(0.05, 0.3)
    card = tx.input["card"]
    if card == "stolen":
        raise StepAbortedError("the card was stolen", {"card": card})
    if card == "empty":
        raise StepFailedError("the card is empty")
    if card == "shaky" and tx.attempt < 3:
        raise ConnectionError("the bank does not answer")
    # The bank is given a key by which it recognises a repetition; ``once`` keeps what it answered.
    receipt = await tx.once("charge", lambda: f"receipt of {tx.idempotency_key}")
    tx.write_stream(
        "payments", {"order": tx.external_id, "total": tx.input["total"]}, tag=tx.input["country"]
    )
    await tx.progress({"stage": "paid", "total": tx.input["total"]})
    return {**tx.input, "receipt": receipt}


@app.step("refund")
async def refund(tx: StepContext) -> None:
    """Undoes ``charge-card``: the card gets its money back."""
    tx.write_stream(
        "payments", {"order": tx.external_id, "total": -tx.output["total"]}, tag=tx.output["country"]
    )
    tx.log(f"refunded {tx.output['receipt']}")


@app.step("tax")
async def tax(tx: StepContext) -> Any:
    share = TAXES.get(tx.args["country"], ABROAD)
    return {"country": tx.args["country"], "amount": round(tx.input["total"] * share, 2)}


# ----------------------------------------------------------------------------- the warehouse


@app.step("pick")
async def pick(tx: StepContext) -> None:
    await _work(0.2, 0.8)
    if _chance.random() < 0.08:
        raise ConnectionError("the robot is stuck")
    await tx.progress({"stage": "picked", "shelf": tx.input["shelf"]})


@app.step("hand-over")
async def hand_over(tx: StepContext) -> Any:
    await _work(0.1, 0.4)
    if tx.input["address"] == "unknown":
        raise StepFailedError("the carrier does not know the address")
    parcel = await tx.once("label", lambda: f"parcel-{_chance.randrange(16**8):08x}")
    tx.publish("parcels", {"parcel": parcel, "country": tx.input["country"]})
    return {"parcel": parcel, "country": tx.input["country"]}


# ------------------------------------------------------------------------------- afterwards


@app.step("write-invoice")
def write_invoice(tx: Any) -> Any:
    """Not async, so it runs in a thread, where ``tx`` has the same names without ``await``."""
    total = tx.input["total"] + tx.input["tax"]["amount"]
    return {"invoice": f"invoice of {tx.input['parcel']['parcel']}", "total": total}


@app.step("mail-customer")
async def mail_customer(tx: StepContext) -> Any:
    await _work(0.02, 0.1)
    return {"mailed": tx.input["customer"]}


@app.step("book-points")
async def book_points(tx: StepContext) -> Any:
    return {"customer": tx.input["customer"], "points": tx.input["total"] // 10}


# ------------------------------------------------------------------------------ by the clock


@app.step("count-shelf")
async def count_shelf(tx: StepContext) -> Any:
    await _work(0.1, 0.6)
    return {"shelf": tx.input, "pieces": _chance.randint(0, 60)}


@app.step("sum-up")
async def sum_up(tx: StepContext) -> Any:
    pieces = sum(shelf["pieces"] for shelf in tx.input["shelves"])
    await tx.progress({"stage": "counted", "pieces": pieces})
    return tx.succeed({"pieces": pieces}, note=f"{pieces} pieces on {len(tx.input['shelves'])} shelves")
