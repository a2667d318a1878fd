"""Whoever reads: consumer groups of the stream ``orders``, subscribers of the channels.

==================  ===============  =================================================================
reader              of               does
==================  ===============  =================================================================
``checkout``        orders           starts a transaction for each order
``billing``         orders           takes its time: its lag grows in busy hours, and goes again
``website``         channel news     shows news at once
``newsletter``      channel news     looks every half minute, so that something is unread
``tracking``        channel parcels  hears of each parcel that leaves
==================  ===============  =================================================================

Rules: each goes on where it was when it comes back; that is kept by the store. Each is a coroutine that runs
until it is cancelled, and what was handed out by then is given back.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

from penstock.cli.shop.pipelines import CHECKOUT
from penstock.cli.shop.traffic import NEWS, ORDERS
from penstock.front import Penstock
from penstock.streams.messages import GroupMessage

PARCELS: Final = "parcels"

#: A bill takes so long: fewer fit into a second than are ordered in a busy one.
_BILL_S: Final = 0.6
_NEWSLETTER_S: Final = 30
#: Every third customer wants to hear by webhook, every ninth also of what happens in between.
_TOLD: Final = 3
_TOLD_ALL: Final = 9


async def sell(ps: Penstock, webhook: str) -> None:
    """A transaction for each order. A message that comes again finds the one that it had started."""

    async def start(message: GroupMessage) -> None:
        number = message.offset
        await ps.transactions.start(
            CHECKOUT.name,
            json.loads(message.entry or b"{}"),
            external_id=f"order-{number}",
            webhook=webhook if number % _TOLD == 0 else None,
            webhook_progress=number % _TOLD_ALL == 0,
            metadata={"offset": number},
            priority=9 if number % 25 == 0 else None,
        )

    await ps.stream(ORDERS).group("checkout").run(start, concurrency=4)


async def bill(ps: Penstock) -> None:
    """One order after the other, slowly."""

    async def write_bill(message: GroupMessage) -> None:
        await asyncio.sleep(_BILL_S)

    await ps.stream(ORDERS).group("billing").run(write_bill, concurrency=1, prefetch=5)


async def show_news(ps: Penstock) -> None:
    website = await ps.channel(NEWS).subscribe("website")
    async for _ in website.consume():
        pass  # a page would change here


async def send_newsletters(ps: Penstock) -> None:
    newsletter = await ps.channel(NEWS).subscribe("newsletter")
    while True:
        await asyncio.sleep(_NEWSLETTER_S)
        batch = await newsletter.fetch()
        if batch.receipt is not None:
            await newsletter.ack(batch)


async def track_parcels(ps: Penstock) -> None:
    tracking = await ps.channel(PARCELS).subscribe("tracking")
    async for _ in tracking.consume():
        pass  # a map would change here
