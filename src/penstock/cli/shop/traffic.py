"""Whoever makes something happen: customers who order, a clerk who approves, somebody who tells news.

    customers  ->  stream ``orders``                       more of them at one time, fewer at another
    clerk      ->  switch ``approved``, and now and then a cancelled order
    news desk  ->  channel ``news``, over HTTP as a program elsewhere would

Rules: nothing is remembered here. What an order needs is in the order; what the clerk does follows from the
transaction's id and age; so whoever starts anew goes on where the last one was. Each is a coroutine that runs
until it is cancelled.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import zlib
from typing import Any, Final

import httpx

from penstock.cli.shop.pipelines import APPROVED, CHECKOUT
from penstock.cli.shop.steps import CARDS, PRICES
from penstock.clock import SystemClock
from penstock.errors import TransactionEndedError, TransactionNotFoundError
from penstock.front import Penstock
from penstock.transactions import Query, Transaction

ORDERS: Final = "orders"
NEWS: Final = "news"
COUNTRIES: Final = {"de": 5, "fr": 3, "at": 2, "it": 1, "pl": 1}

#: Orders a second at the quietest and at the busiest, and how long it takes there and back.
_QUIET: Final = 0.6
_BUSY: Final = 2.6
_DAY_S: Final = 180
#: One order in so many is for something that the shop never had, or goes where no carrier finds it.
_ODD: Final = 150
_LOST: Final = 60

#: Of so many orders that wait, one is left for a person, one is cancelled by its customer.
_FOR_A_PERSON: Final = 20
_CHANGED_MIND: Final = 50
_CLERK_S: Final = 1.5
_LONGEST_THOUGHT_MS: Final = 20_000
_NEWS_S: Final = (3.0, 9.0)

_chance = random.Random()
_clock = SystemClock()


# --------------------------------------------------------------------------------- customers


async def order_things(ps: Penstock) -> None:
    """Write orders to the stream, tagged with their country, at the rate of the hour."""
    orders = ps.stream(ORDERS)
    while True:
        order = new_order()
        await orders.write(order["country"], json.dumps(order))
        await asyncio.sleep(_chance.expovariate(rate(_clock.now_ms() / 1_000)))


def rate(at_s: float) -> float:
    """Orders a second at a moment: up and down, as days go."""
    share = (1 - math.cos(2 * math.pi * at_s / _DAY_S)) / 2
    return _QUIET + (_BUSY - _QUIET) * share


def new_order() -> dict[str, Any]:
    return {
        "customer": f"customer-{_chance.randint(1, 400)}",
        "country": _one_of(COUNTRIES),
        "product": "unicorn" if _chance.randrange(_ODD) == 0 else _chance.choice(list(PRICES)),
        "pieces": _chance.randint(1, 3),
        "card": _one_of(CARDS),
        "address": "unknown" if _chance.randrange(_LOST) == 0 else f"street {_chance.randint(1, 99)}",
    }


def _one_of(weights: dict[str, int]) -> str:
    return _chance.choices(list(weights), list(weights.values()))[0]


# --------------------------------------------------------------------------------- the clerk


async def approve_orders(ps: Penstock) -> None:
    """Set the switch of most orders that wait for it; some are left for whoever looks at the console."""
    while True:
        page = await ps.transactions.list(Query(state="waiting", pipeline=CHECKOUT.name), limit=500)
        for order in page.items:
            await _decide(ps, order)
        await asyncio.sleep(_CLERK_S)


async def _decide(ps: Penstock, order: Transaction) -> None:
    try:
        match decision(order.id, _clock.now_ms() - order.created_ms):
            case "approve":
                await ps.transactions.set_switch(order.id, APPROVED, "by the clerk", by="clerk")
            case "cancel":
                await ps.transactions.cancel(order.id, "the customer wants something else", by="clerk")
    except (TransactionEndedError, TransactionNotFoundError):
        pass  # somebody else was faster


def decision(tx: str, age_ms: int) -> str:
    """What the clerk does with an order of this age: approve, cancel, wait. Always the same."""
    number = zlib.crc32(tx.encode())
    if number % _FOR_A_PERSON == 0:
        return "wait"
    if age_ms < number % _LONGEST_THOUGHT_MS:
        return "wait"
    return "cancel" if number % _CHANGED_MIND == 1 else "approve"


# --------------------------------------------------------------------------------- the news


async def tell_news(gateway: str) -> None:
    """Publish to a channel with nothing but HTTP; the gateway also calls the channel's webhook."""
    async with httpx.AsyncClient(base_url=gateway, timeout=10) as http:
        while True:
            await asyncio.sleep(_chance.uniform(*_NEWS_S))
            product = _chance.choice(list(PRICES))
            news = {"product": product, "price": round(PRICES[product] * _chance.uniform(0.7, 1.1))}
            # The id makes a repetition harmless: publishing it twice is publishing it once.
            told = await http.put(f"/channel/{NEWS}/message/news-{_clock.now_ms()}", json=news)
            told.raise_for_status()
