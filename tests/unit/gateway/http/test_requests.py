"""A request is read as far as it is asked for, and no further."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.http.requests import Disconnected, Request, parse_query
from penstock.gateway.http.responses import Refusal, retry_after

LIMIT = 10


def request(*chunks: bytes, length: int | None = None, is_cut: bool = False) -> Request:
    def messages() -> Iterator[dict[str, Any]]:
        for at, chunk in enumerate(chunks):
            is_last = at == len(chunks) - 1 and not is_cut
            yield {"type": "http.request", "body": chunk, "more_body": not is_last}
        while True:
            yield {"type": "http.disconnect"}

    coming = messages()

    async def receive() -> dict[str, Any]:
        return next(coming)

    headers = [] if length is None else [(b"content-length", b"%d" % length)]
    scope = {"method": "PUT", "path": "/", "headers": headers, "query_string": b""}
    return Request(scope, receive, {}, LIMIT)


@pytest.mark.parametrize("chunks", [(b"",), (b"0123456789",), (b"01", b"", b"23456789"), (b"0",) * 10])
async def test_a_body_up_to_the_limit(chunks: tuple[bytes, ...]) -> None:
    assert await request(*chunks).body() == b"".join(chunks)


@pytest.mark.parametrize(
    "over", [request(b"x" * 11), request(b"x" * 6, b"x" * 5), request(b"", length=11), request(*[b"x"] * 11)]
)
async def test_a_body_above_the_limit_is_refused(over: Request) -> None:
    with pytest.raises(Refusal) as refused:
        await over.body()
    assert refused.value.status == 413


@pytest.mark.parametrize("cut", [request(is_cut=True), request(b"01", is_cut=True)])
async def test_a_client_that_goes_in_the_middle(cut: Request) -> None:
    with pytest.raises(Disconnected):
        await cut.body()


async def test_waiting_for_the_client_to_go() -> None:
    asked = request(b"")
    await asked.body()
    await asked.disconnected()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b"a=1&b=2", {"a": "1", "b": "2"}),
        (b"a=1&a=2", {"a": "1"}),
        (b"a", {"a": ""}),
        (b"&&a=b=c&", {"a": "b=c"}),
        (b"a=x+y%2Bz", {"a": "x y+z"}),
        (b"%C3%A4=%E2%82%AC", {"ä": "€"}),
    ],
)
def test_queries(text: bytes, values: dict[str, str]) -> None:
    assert parse_query(text) == values


@given(st.binary(max_size=200))
def test_any_query_is_parsed_or_refused(text: bytes) -> None:
    try:
        values = parse_query(text)
    except Refusal:
        return
    assert all(isinstance(value, str) for value in values.values())


@pytest.mark.parametrize(("seconds", "text"), [(0, b"1"), (0.2, b"1"), (1, b"1"), (1.01, b"2"), (30, b"30")])
def test_retry_after_is_whole_seconds_and_never_none(seconds: float, text: bytes) -> None:
    assert retry_after(seconds) == (b"retry-after", text)
