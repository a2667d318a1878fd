"""Scan iterators: page by page, server after server, and an end to every walk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.client.commands.scanning import (
    hscan,
    hscan_iter,
    scan,
    scan_iter,
    scan_pages,
    sscan_iter,
    walk,
    walk_blocking,
    zscan_iter,
)
from penstock.client.transports.base import Arguments
from penstock.errors import CommandError, ProtocolError


class Pages:
    """A server that answers these pages in turn, and notes what it was asked."""

    def __init__(self, *pages: tuple[Any, Any]) -> None:
        self.asked: list[Arguments] = []
        self._pages: Iterator[tuple[Any, Any]] = iter(pages)

    def answer(self, arguments: Arguments) -> list[Any]:
        self.asked.append(arguments)
        return list(next(self._pages))

    async def call(self, arguments: Arguments) -> Any:
        return self.answer(arguments)


async def test_pages_are_asked_for_as_the_caller_moves_on() -> None:
    server = Pages((b"5", [b"a", b"b"]), (b"3", []), (b"0", [b"c"]))
    keys = scan_iter([server.call], match="*", count=2, type="set")
    options = ("MATCH", "*", "COUNT", 2, "TYPE", "set")
    assert server.asked == []
    assert await anext(keys) == b"a"
    assert await anext(keys) == b"b"
    assert server.asked == [("SCAN", 0, *options)]
    assert await anext(keys) == b"c"
    assert server.asked[1:] == [("SCAN", 5, *options), ("SCAN", 3, *options)]
    with pytest.raises(StopAsyncIteration):
        await anext(keys)
    assert len(server.asked) == 3


async def test_a_cluster_is_walked_one_server_after_the_other() -> None:
    servers = [Pages(("1", [b"a"]), ("0", [b"b"])), Pages(("0", [])), Pages(("9", [b"c"]), ("0", [b"d"]))]
    calls = [server.call for server in servers]
    assert [page async for page in scan_pages(calls)] == [[b"a"], [b"b"], [], [b"c"], [b"d"]]
    assert [server.asked for server in servers] == [
        [("SCAN", 0), ("SCAN", 1)],
        [("SCAN", 0)],
        [("SCAN", 0), ("SCAN", 9)],
    ]
    assert [key async for key in scan_iter([])] == []


async def test_fields_and_members_come_as_values() -> None:
    one, two = b"1", b"0"
    server = Pages((one, [b"f", b"v"]), (two, {b"g": b"w"}))
    assert [item async for item in hscan_iter(server.call, "h")] == [(b"f", b"v"), (b"g", b"w")]
    assert server.asked == [("HSCAN", "h", 0), ("HSCAN", "h", 1)]
    server = Pages((two, [b"m", b"1.5", b"n", b"2"]))
    assert [item async for item in zscan_iter(server.call, "z", count=9)] == [(b"m", 1.5), (b"n", 2.0)]
    assert server.asked == [("ZSCAN", "z", 0, "COUNT", 9)]
    server = Pages((two, [b"m"]))
    assert [item async for item in sscan_iter(server.call, "s", match="m*")] == [b"m"]
    assert server.asked == [("SSCAN", "s", 0, "MATCH", "m*")]


async def test_whoever_stops_early_asks_for_nothing_more() -> None:
    server = Pages((b"5", [b"a"]), (b"0", [b"b"]))
    async for key in scan_iter([server.call]):
        assert key == b"a"
        break
    assert server.asked == [("SCAN", 0)]


async def test_an_error_ends_the_walk_and_is_the_callers() -> None:
    async def refuse(arguments: Arguments) -> Any:
        raise CommandError("NOPERM")

    with pytest.raises(CommandError):
        await anext(scan_iter([refuse]))
    broken = Pages((b"0", None))
    with pytest.raises(ProtocolError, match="unknown shape"):
        await anext(scan_iter([broken.call]))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("before", [0, 1, 5, 100])
async def test_a_circle_of_cursors_is_noticed(before: int, length: int) -> None:
    """Cursors 1, 2, … lead into a circle; the server would answer for ever."""
    asked = 0

    async def call(arguments: Arguments) -> Any:
        nonlocal asked
        asked += 1
        assert asked < 10 * (before + length) + 10, "nobody noticed"
        cursor = int(arguments[1])
        return [b"%d" % (cursor + 1 if cursor < before + length else before + 1), [b"x"]]

    with pytest.raises(ProtocolError, match=r"SCAN came back to cursor \d+ and would never end"):
        async for _ in scan_iter([call]):
            pass


async def test_a_long_walk_is_no_circle() -> None:
    async def call(arguments: Arguments) -> Any:
        return [b"%d" % ((int(arguments[1]) + 1) % 5000), [b"x"]]

    assert [key async for key in scan_iter([call])] == [b"x"] * 5000


def test_blocking_calls_are_walked_by_the_same_rules() -> None:
    servers = [Pages((b"2", [b"a"]), (b"0", [b"b"])), Pages((b"0", [b"c"]))]
    keys = walk_blocking([server.answer for server in servers], lambda: scan(match="*"))
    assert next(keys) == b"a"
    assert len(servers[0].asked) == 1
    assert list(keys) == [b"b", b"c"]
    same = Pages((b"2", []), (b"2", []))
    with pytest.raises(ProtocolError, match="HSCAN came back to cursor 2"):
        list(walk_blocking([same.answer], lambda: hscan("h")))


async def test_walks_take_any_awaitable_call() -> None:
    server = Pages((b"0", [b"a"]))
    call: Callable[[Arguments], Awaitable[Any]] = server.call
    assert [item async for item in walk([call], scan)] == [b"a"]
