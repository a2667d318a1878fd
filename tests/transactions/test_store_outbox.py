"""The outbox: written with a step or not at all, numbered a destination, sent by one at a time."""

from __future__ import annotations

from typing import Any

from tests.places import until
from tests.transactions.conftest import LONG_MS, Desk


async def write(desk: Desk, *words: Any) -> None:
    record = await desk.begun()
    assert await desk.end(record, outbox=words) == "ok"


async def take(desk: Desk, who: str, most: int = 10, lock_ms: int = LONG_MS) -> list[tuple[int, str, bytes]]:
    flat = await desk.store.run("outbox", 0, "take", who, lock_ms, most)
    return [
        (int(flat[at]), bytes(flat[at + 1]).decode(), bytes(flat[at + 2])) for at in range(0, len(flat), 3)
    ]


async def done(desk: Desk, who: str, count: int) -> bool:
    return bool(await desk.store.run("outbox", 0, "done", who, count))


async def test_messages_are_numbered_by_destination_in_their_order(desk: Desk) -> None:
    await write(desk, "stream:a", b"1", "stream:b", b"2", "stream:a", b"3")
    await write(desk, "stream:a", b"4")
    assert await take(desk, "s1") == [
        (1, "stream:a", b"1"), (1, "stream:b", b"2"), (2, "stream:a", b"3"), (3, "stream:a", b"4"),
    ]  # fmt: skip


async def test_who_has_lost_the_lease_writes_no_message(desk: Desk) -> None:
    await desk.start()
    record = await desk.take_one(lease_ms=1)
    await desk.pass_ms(2)
    await desk.take(1)
    assert await desk.end(record, outbox=["stream:a", b"1"]) == "lost"
    assert await take(desk, "s1") == []


async def test_what_is_done_is_not_given_again_and_numbers_go_on(desk: Desk) -> None:
    await write(desk, "stream:a", b"1", "stream:a", b"2", "stream:a", b"3")
    assert len(await take(desk, "s1", most=2)) == 2
    assert await done(desk, "s1", 2)
    assert await take(desk, "s1") == [(3, "stream:a", b"3")]
    assert await done(desk, "s1", 1)
    assert await take(desk, "s1") == []
    await write(desk, "stream:a", b"4")
    assert await take(desk, "s1") == [(4, "stream:a", b"4")]


async def test_one_sends_at_a_time(desk: Desk) -> None:
    await write(desk, "stream:a", b"1")
    assert len(await take(desk, "s1")) == 1
    assert await take(desk, "s2") == []
    assert not await done(desk, "s2", 1)
    assert len(await take(desk, "s1")) == 1
    assert await done(desk, "s1", 1)


async def test_whoever_leaves_makes_room_for_the_next(desk: Desk) -> None:
    await write(desk, "stream:a", b"1")
    await take(desk, "s1")
    assert await desk.store.run("outbox", 0, "leave", "s2") == 0
    assert await desk.store.run("outbox", 0, "leave", "s1") == 1
    assert await take(desk, "s2") == [(1, "stream:a", b"1")]


async def test_a_sender_that_died_is_followed_by_another_and_changes_nothing_when_it_comes_back(
    desk: Desk,
) -> None:
    await write(desk, "stream:a", b"1", "stream:a", b"2")
    assert len(await take(desk, "s1", most=1, lock_ms=50)) == 1

    async def has_taken_over() -> bool:
        return bool(await take(desk, "s2"))

    await until(has_taken_over)
    # It has sent the first; the other sends it again, by the same number.
    assert not await done(desk, "s1", 1)
    assert [number for number, _, _ in await take(desk, "s2")] == [1, 2]
    assert await done(desk, "s2", 2)


async def test_whoever_finds_nothing_does_not_keep_others_away(desk: Desk) -> None:
    await write(desk, "stream:a", b"1")
    await take(desk, "s1")
    await done(desk, "s1", 1)
    assert await take(desk, "s1") == []
    await write(desk, "stream:a", b"2")
    assert await take(desk, "s2") == [(2, "stream:a", b"2")]


async def test_what_comes_while_some_are_sent_is_not_lost(desk: Desk) -> None:
    await write(desk, "stream:a", b"1")
    await take(desk, "s1")
    await write(desk, "stream:a", b"2")
    assert await done(desk, "s1", 1)
    assert await take(desk, "s1") == [(2, "stream:a", b"2")]
