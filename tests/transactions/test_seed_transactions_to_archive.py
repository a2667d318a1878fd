"""transactionsToArchive: what has ended leaves the store, by one node at a time; two locks, three states."""

from __future__ import annotations

from typing import Any

import pytest

from tests.places import until
from tests.transactions.conftest import LONG_MS, Desk


@pytest.fixture(autouse=True)
async def no_delay(desk: Desk) -> None:
    await desk.store.configure(archive_delay_ms=0)


async def ask(
    desk: Desk,
    node: str,
    *done: Any,
    most: int = 10,
    role_ms: int = LONG_MS,
    grace_ms: int = LONG_MS + 60_000,
) -> tuple[bool, int, list[Any]]:
    """Whether this node has the role, number of the batch, what there is to archive."""
    has_role, batch, *items = await desk.store.run("to_archive", 0, node, most, role_ms, grace_ms, *done)
    return has_role == 1, batch, items


def ids(items: list[Any]) -> list[str]:
    return [bytes(item[0]).decode() for item in items]


# ------------------------------------------------------------------------------------------ the role


async def test_state_1_nobody_has_the_role_and_who_asks_gets_it(desk: Desk) -> None:
    tx = await desk.ended()
    has_role, batch, items = await ask(desk, "n1", role_ms=5_000, grace_ms=60_000)
    assert (has_role, batch, ids(items)) == (True, 1, [tx])
    assert await desk.execute("GET", "toArchiveLock1") == b"n1"
    assert 0 < await desk.execute("PTTL", "toArchiveLock1") <= 5_000
    assert 5_000 < await desk.execute("PTTL", "toArchiveLock2") <= 60_000


async def test_state_2_who_has_the_role_gets_work_and_others_get_none(desk: Desk) -> None:
    assert (await ask(desk, "n1"))[0]
    tx = await desk.ended()
    assert await ask(desk, "n2") == (False, 0, [])
    assert ids((await ask(desk, "n1"))[2]) == [tx]


async def test_state_3_in_the_grace_period_nobody_gets_work(desk: Desk) -> None:
    tx = await desk.ended()
    assert ids((await ask(desk, "n1", role_ms=1, grace_ms=LONG_MS))[2]) == [tx]
    await until(lambda: _is_gone(desk, "toArchiveLock1"))
    assert await ask(desk, "n1") == (False, 0, [])
    assert await ask(desk, "n2") == (False, 0, [])
    # … but whoever had the role can still say what it has done.
    assert await ask(desk, "n1", tx, 0) == (False, 0, [])
    assert await desk.execute("EXISTS", f"stateH:{tx}") == 0


async def test_after_the_grace_period_somebody_else_gets_what_was_not_done(desk: Desk) -> None:
    tx = await desk.ended()
    assert ids((await ask(desk, "n1", role_ms=1, grace_ms=200))[2]) == [tx]
    await until(lambda: _is_gone(desk, "toArchiveLock2"))
    has_role, batch, items = await ask(desk, "n2")
    assert (has_role, batch, ids(items)) == (True, 2, [tx])
    assert await desk.execute("GET", "toArchiveLock1") == b"n2"


async def _is_gone(desk: Desk, key: str) -> bool:
    return await desk.execute("EXISTS", key) == 0


# --------------------------------------------------------------------------------------- handing out


async def test_the_whole_record_and_its_trail_are_handed_out(desk: Desk) -> None:
    record = await desk.begun(data=b'{"cart": 1}')
    assert await desk.end(record, trail=[b'{"kind":"step"}']) == "ok"
    stored = await desk.record(record.id)
    ((tx, flat, trail),) = (await ask(desk, "n1"))[2]
    words = [bytes(word).decode() for word in flat]
    assert bytes(tx).decode() == record.id
    assert dict(zip(words[::2], words[1::2], strict=True)) == stored
    assert trail == [b'{"kind":"step"}']


async def test_what_is_handed_out_stays_until_it_is_done(desk: Desk) -> None:
    tx = await desk.ended()
    for batch in (1, 2):
        assert (await ask(desk, "n1"))[1:] != (0, [])
        assert await desk.field(tx, "archive_batch") == str(batch)
        assert await desk.places(tx) == {"toArchiveZ"}


async def test_no_more_than_asked_for_and_the_oldest_first(desk: Desk) -> None:
    for _ in range(5):
        await desk.ended()
    oldest = await desk.members("toArchiveZ")
    assert ids((await ask(desk, "n1", most=3))[2]) == oldest[:3]


async def test_nothing_is_handed_out_before_its_time(desk: Desk) -> None:
    await desk.store.configure(archive_delay_ms=LONG_MS)
    await desk.ended()
    assert await ask(desk, "n1") == (True, 0, [])


async def test_one_that_waits_for_its_webhook_is_not_handed_out_before_that_is_done_with(desk: Desk) -> None:
    tx = await desk.ended(fields={"webhook": "https://a.b"})
    assert ids((await ask(desk, "n1"))[2]) == []
    await desk.store.run("webhooks_to_process", 0, 0, 1_000, 1, tx, "complete.0", "failed", "410")
    assert ids((await ask(desk, "n1"))[2]) == [tx]


async def test_one_without_a_record_leaves_the_list(desk: Desk) -> None:
    gone, there = await desk.ended(), await desk.ended()
    await desk.execute("DEL", f"stateH:{gone}")
    assert ids((await ask(desk, "n1"))[2]) == [there]
    assert await desk.members("toArchiveZ") == [there]


# ----------------------------------------------------------------------------------------- removing


async def test_what_is_done_leaves_no_key_behind(desk: Desk) -> None:
    empty = set(await desk.everything())
    record = await desk.begun()
    assert await desk.settle(record, "end", "internal-error", 1, trail=[b"{}"]) == "ok"
    assert await ask(desk, "n1", record.id, 0, most=0) == (False, 0, [])
    left = {name for name in await desk.everything() if not name.startswith("stats")}
    assert left == empty


async def test_saying_what_is_done_needs_neither_the_role_nor_asking_for_more(desk: Desk) -> None:
    tx = await desk.ended()
    assert await ask(desk, "n1", most=0) == (False, 0, [])
    assert await desk.execute("EXISTS", "toArchiveLock1", desk.prefix + "toArchiveLock2") == 0
    assert await ask(desk, "n9", tx, 0, most=0) == (False, 0, [])
    assert await desk.execute("EXISTS", f"stateH:{tx}") == 0


async def test_both_at_once(desk: Desk) -> None:
    first, second = await desk.ended(), await desk.ended()
    handed_out = ids((await ask(desk, "n1", most=1))[2])
    assert handed_out in ([first], [second])
    (other,) = {first, second} - set(handed_out)
    assert ids((await ask(desk, "n1", handed_out[0], 0))[2]) == [other]


async def test_one_that_began_again_meanwhile_stays(desk: Desk) -> None:
    tx = await desk.ended()
    assert ids((await ask(desk, "n1"))[2]) == [tx]
    await desk.store.control("replay", tx, "ann", argument=0)
    await ask(desk, "n1", tx, 0)
    assert await desk.field(tx, "state") == "queued"
    # … also if it has ended again since: what was archived is not what it is now.
    assert await desk.end(await desk.take_one()) == "ok"
    await ask(desk, "n1", tx, 0, most=0)
    assert await desk.field(tx, "state") == "ended"
    assert await desk.places(tx) == {"toArchiveZ"}
    assert await ask(desk, "n1", tx, 1, most=0) == (False, 0, [])
    assert await desk.execute("EXISTS", f"stateH:{tx}") == 0


async def test_saying_it_twice_is_harmless(desk: Desk) -> None:
    tx = await desk.ended()
    await ask(desk, "n1", tx, 0, most=0)
    before = await desk.everything()
    await ask(desk, "n1", tx, 0, most=0)
    assert await desk.everything() == before
