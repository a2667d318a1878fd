"""The first good answer of several servers that may all know it.

The next is asked when the one before it has failed, or has been silent for a moment: who waits for an answer
does not wait for the timeout of a dead server. When one has answered, the others are let go.

This module does not know what is asked, nor what becomes of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from penstock.client.targets import Address

T = TypeVar("T")

#: What one has for itself before the next is asked as well.
_HEAD_START_S: Final = 0.25


async def first_answer(
    candidates: Iterable[Address],
    ask: Callable[[Address], Coroutine[Any, Any, T]],
    no_answer: Callable[[dict[Address, Exception]], Exception],
) -> tuple[Address, T]:
    """Who answered, and what. If nobody did: the error that ``no_answer`` makes of all of theirs."""
    waiting = list(dict.fromkeys(candidates))
    asked: dict[asyncio.Task[T], Address] = {}
    failures: dict[Address, Exception] = {}
    try:
        while waiting or asked:
            if waiting:
                address = waiting.pop(0)
                asked[asyncio.create_task(ask(address))] = address
            done, _ = await asyncio.wait(
                asked, timeout=_HEAD_START_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                address = asked.pop(task)
                try:
                    return address, task.result()
                except Exception as error:  # noqa: BLE001 - whatever it is, another may answer
                    failures[address] = error
    finally:
        for task in asked:
            task.cancel()
        # Their errors are seen here: another was faster.
        await asyncio.gather(*asked, return_exceptions=True)
    raise no_answer(failures)
