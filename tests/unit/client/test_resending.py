"""Trying again: after which errors, and for how long."""

from __future__ import annotations

import pytest

from penstock.client.resending import is_outage, persistently
from penstock.errors import (
    BackpressureError,
    ClosedError,
    CommandError,
    CommandTimeoutError,
    NotSentError,
    OutcomeUnknownError,
    PenstockError,
    StoreFullError,
    UsageError,
)


async def test_patience() -> None:
    failures: list[PenstockError] = [NotSentError(""), CommandTimeoutError("")]

    async def call() -> int:
        if failures:
            raise failures.pop()
        return 7

    assert await persistently("it", call, limit_ms=10_000, is_cause=is_outage) == 7
    failures[:] = [UsageError("not an outage")]
    with pytest.raises(UsageError):
        await persistently("it", call, limit_ms=10_000, is_cause=is_outage)
    failures[:] = [NotSentError("")] * 1_000
    with pytest.raises(NotSentError):
        await persistently("it", call, limit_ms=10, is_cause=is_outage)


def test_what_counts_as_an_outage() -> None:
    may_work_later = [
        NotSentError(""), OutcomeUnknownError(""), BackpressureError(""), StoreFullError(""),
        CommandTimeoutError(""), CommandError("CLUSTERDOWN x"), CommandError("READONLY x"),
        CommandError("OOM x"), CommandError("EXECABORT Transaction discarded because of: MISCONF no room"),
    ]  # fmt: skip
    assert all(is_outage(error) for error in may_work_later)
    will_not = [
        UsageError(""), ClosedError(""), CommandError("ERR x"), CommandError("WRONGTYPE x"),
        CommandError("EXECABORT Transaction discarded because of previous errors."),
    ]  # fmt: skip
    assert not any(is_outage(error) for error in will_not)
