"""Commands that expire, and silence that means a dead peer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client.connection import Slot
from penstock.errors import CommandTimeoutError
from tests.unit.client.connection.harness import echo, start
from tests.unit.client.waiting import settle


async def test_expired_commands_leave_tombstones() -> None:
    it = await start()
    gate = it.server.on("SLOW").hold()
    future = it.call(("SLOW",))
    await settle()
    it.connection.expire(asyncio.get_running_loop().time() + 1)
    with pytest.raises(CommandTimeoutError, match="no reply to SLOW"):
        await future
    later = it.call(echo(1))
    gate.release(b"too late")
    assert await later == b"1"
    assert it.connection.discarded == 1


async def test_what_expires_before_the_write_is_not_sent() -> None:
    it = await start()
    future = it.call(echo(1))
    it.connection.expire(asyncio.get_running_loop().time() + 1)
    with pytest.raises(CommandTimeoutError):
        await future
    await settle()
    assert it.sent == []


async def test_an_older_command_behind_a_newer_one_expires_in_time() -> None:
    it = await start()
    it.server.on("SLOW").hold()
    now_s = asyncio.get_running_loop().time()
    newer = it.call(("SLOW", "newer"))
    older: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    it.connection.resume(Slot(older, ("SLOW", "older"), now_s - 100, 1))
    await settle()
    it.connection.expire(now_s - 50)
    assert not newer.done()
    with pytest.raises(CommandTimeoutError):
        await older


async def test_silence_counts_from_the_oldest_unanswered_not_from_the_last_write() -> None:
    it = await start()
    it.server.on("SLOW").hold()
    it.call(("SLOW",))
    await settle()
    since_s = it.connection.silent_since_s
    for _ in range(3):
        it.call(("SLOW",))
        await asyncio.sleep(0.001)
    assert it.connection.silent_since_s == since_s


async def test_a_first_command_after_a_long_rest_does_not_inherit_its_silence() -> None:
    it = await start()
    await it.call(echo(1))
    await asyncio.sleep(0.002)
    it.server.on("SLOW").hold()
    issued_s = asyncio.get_running_loop().time()
    it.call(("SLOW",))
    await settle()
    assert it.connection._silent_since_s >= issued_s - 0.001


async def test_silence_ends_when_anything_is_heard() -> None:
    it = await start()
    gate = it.server.on("SLOW").hold()
    first = it.call(("SLOW",))
    it.call(("SLOW",))
    await asyncio.sleep(0.001)
    since_s = it.connection.silent_since_s
    gate.release(b"x")
    await first
    assert it.connection.silent_since_s > since_s


async def test_a_command_that_may_block_first_in_line_excuses_silence() -> None:
    it = await start()
    it.server.on("BLPOP").hold()
    until_s = asyncio.get_running_loop().time() + 60
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    it.connection.resume(Slot(future, ("BLPOP", "q", "60"), until_s, 1))
    await settle()
    assert it.connection.silent_since_s == until_s
    it.connection.expire(until_s - 1)
    assert not future.done()
