"""Records that nobody can work with: they leave the way of others, who go on as if they had never been."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from penstock.transactions.model import Limit
from tests.places import until
from tests.transactions.conftest import LONG_MS, Desk, put_pipeline

Break: TypeAlias = Callable[[Desk, str], Awaitable[None]]


async def wrong_type(desk: Desk, tx: str) -> None:
    await desk.execute("DEL", f"stateH:{tx}")
    await desk.execute("SET", f"stateH:{tx}", "something else")


async def no_owner(desk: Desk, tx: str) -> None:
    await desk.execute("HDEL", f"stateH:{tx}", "owner")


async def no_names(desk: Desk, tx: str) -> None:
    await desk.execute("HDEL", f"stateH:{tx}", "owner", "pipeline", "group", "queue", "step", "priority")


async def garbage_numbers(desk: Desk, tx: str) -> None:
    names = ("priority", "losses", "created_ms", "queued_ms", "deadline_ms", "watched_ms", "pending", "step")
    await desk.execute("HSET", f"stateH:{tx}", *[word for name in names for word in (name, "\x00nonsense")])


async def no_record(desk: Desk, tx: str) -> None:
    await desk.execute("DEL", f"stateH:{tx}")


BREAKS: list[Break] = [wrong_type, no_owner, no_names, garbage_numbers, no_record]
every_break = pytest.mark.parametrize("broken_by", BREAKS, ids=lambda one: one.__name__)


async def is_put_away(desk: Desk, tx: str) -> bool:
    """It is nowhere, but for where people look for it."""
    return await desk.places(tx) <= {"deadZ", "toArchiveZ"}


async def finds_work(desk: Desk, *wanted: str) -> None:
    """Workers get these and can end them; what is broken may come along if it can be worked with."""
    missing = set(wanted)

    async def work() -> bool:
        for record in await desk.take():
            answer = await desk.end(record)
            if record.id in wanted:
                assert answer == "ok"
                missing.discard(record.id)
        return not missing

    await until(work)


@every_break
async def test_in_the_queue(desk: Desk, broken_by: Break) -> None:
    before, broken, after = [await desk.start() for _ in range(3)]
    await broken_by(desk, broken)
    await finds_work(desk, before, after)
    assert await is_put_away(desk, broken)


@every_break
async def test_while_it_sleeps(desk: Desk, broken_by: Break) -> None:
    broken, sound = await desk.start(delay_ms=1), await desk.start(delay_ms=2)
    await broken_by(desk, broken)
    await finds_work(desk, sound)
    await until(lambda: is_put_away(desk, broken))


@every_break
async def test_while_it_waits_for_a_switch(desk: Desk, broken_by: Break) -> None:
    broken, sound = [await desk.begun() for _ in range(2)]
    for record in (broken, sound):
        assert await desk.settle(record, "wait", "go", 1, "-") == "ok"
    await broken_by(desk, broken.id)
    await finds_work(desk, sound.id)
    await until(lambda: is_put_away(desk, broken.id))


@every_break
async def test_while_its_worker_falls_silent(desk: Desk, broken_by: Break) -> None:
    await desk.start()
    await desk.start()
    broken, sound = await desk.take(lease_ms=1)
    await broken_by(desk, broken.id)
    await desk.pass_ms(2)
    await finds_work(desk, sound.id)
    assert await is_put_away(desk, broken.id)


@every_break
async def test_while_its_worker_settles_it_with_others(desk: Desk, broken_by: Break) -> None:
    for _ in range(3):
        await desk.start()
    first, broken, last = await desk.take(lease_ms=1)
    await broken_by(desk, broken.id)
    words: list[Any] = []
    for record in (first, broken, last):
        words += ["end", record.id, record.token, 1, "", 0, 0, 0, 2, "success", 0]
    answers = await desk.store.run("settle", 0, *words)
    assert (answers[0], answers[2]) == (b"ok", b"ok")
    assert answers[1] in (b"ok", b"lost") or answers[1].startswith(b"error ")
    for record in (first, last):
        assert await desk.places(record.id) == {"toArchiveZ"}
    # Whatever became of it, its lease ends, and nobody takes it for running after that.
    await desk.pass_ms(2)
    await desk.dequeue()
    assert await is_put_away(desk, broken.id)


@every_break
async def test_while_it_is_held(desk: Desk, broken_by: Break) -> None:
    await desk.store.set_limit("p:noop", Limit(concurrency=1))
    first, broken, sound = [await desk.start() for _ in range(3)]
    (record,) = await desk.take()
    assert record.id == first
    assert await desk.members("heldZ:p:noop") == [broken, sound]
    await broken_by(desk, broken)
    assert await desk.end(record) == "ok"
    assert await desk.places(first) == {"toArchiveZ"}
    await finds_work(desk, sound)
    assert await is_put_away(desk, broken)


@every_break
async def test_while_it_waits_for_its_children(desk: Desk, broken_by: Break) -> None:
    parent = await desk.begun()
    assert await desk.settle(parent, "join", 0, "0", "noop", "", "", "", b"1", 1) == "ok"
    child = await desk.take_one()
    await broken_by(desk, parent.id)
    assert await desk.end(child) == "ok"
    assert await desk.places(child.id) == {"toArchiveZ"}
    await finds_work(desk, await desk.start())


@every_break
async def test_a_child_whose_parent_is_broken_stops_nobody(desk: Desk, broken_by: Break) -> None:
    parent = await desk.begun()
    assert await desk.settle(parent, "join", 0, "0", "noop", "", "", "", b"1", 1) == "ok"
    await broken_by(desk, parent.id)
    await finds_work(desk, await desk.start())
    assert await is_put_away(desk, f"{parent.id}.1.0")


@every_break
async def test_on_its_way_to_the_archive(desk: Desk, broken_by: Break) -> None:
    await desk.store.configure(archive_delay_ms=0)
    broken, sound = await desk.ended(), await desk.ended()
    await broken_by(desk, broken)
    _, _, *items = await desk.store.run("to_archive", 0, "n1", 10, LONG_MS, LONG_MS)
    handed_out = [bytes(item[0]).decode() for item in items]
    assert sound in handed_out
    words = [word for tx in handed_out for word in (tx, 0)]
    assert await desk.store.run("to_archive", 0, "n1", 10, LONG_MS, LONG_MS, *words) == [1, 0]
    assert await desk.members("toArchiveZ") == []


async def test_a_trail_of_another_type_does_not_stop_the_archive(desk: Desk) -> None:
    await desk.store.configure(archive_delay_ms=0)
    broken, sound = await desk.ended(), await desk.ended()
    await desk.execute("DEL", f"trailL:{broken}")
    await desk.execute("SET", f"trailL:{broken}", "no list")
    _, _, *items = await desk.store.run("to_archive", 0, "n1", 10, LONG_MS, LONG_MS)
    assert {bytes(item[0]).decode() for item in items} == {broken, sound}


@every_break
async def test_on_its_way_to_a_webhook(desk: Desk, broken_by: Break) -> None:
    hook = {"webhook": "https://a.b"}
    broken, sound = await desk.ended(fields=hook), await desk.ended(fields=hook)
    await broken_by(desk, broken)
    _, *items = await desk.store.run("webhooks_to_process", 0, 10, 0, 0)
    assert sound in [bytes(item[0]).decode() for item in items]
    words = (broken, "complete.0", "delivered", "", sound, "complete.0", "delivered", "")
    await desk.store.run("webhooks_to_process", 0, 10, 0, 2, *words)
    assert await desk.field(sound, "webhook_status") == "delivered"
    assert await desk.members("webhooksZ") == []


async def test_a_webhook_that_nobody_can_read_leaves_the_list(desk: Desk) -> None:
    tx = await desk.ended(fields={"webhook": "https://a.b"})
    await desk.execute("ZADD", "webhooksZ", 0, "nonsense")
    _, *items = await desk.store.run("webhooks_to_process", 0, 10, LONG_MS, 0)
    assert [bytes(item[0]).decode() for item in items] == [tx]
    assert await desk.members("webhooksZ") == [f"{tx} complete.0"]


@pytest.mark.parametrize("broken_by", [wrong_type, no_owner, no_names], ids=lambda one: one.__name__)
async def test_why_it_was_given_up_can_be_read(desk: Desk, broken_by: Break) -> None:
    tx = await desk.start()
    await broken_by(desk, tx)
    assert await desk.take() == []
    reason = await desk.execute("HGET", "brokenH", tx)
    assert b"WRONGTYPE" in reason or b"lacks owner" in reason
    assert await desk.members("deadZ") == [tx]


async def test_queues_of_another_type_stop_only_their_group(desk: Desk) -> None:
    await put_pipeline(desk.store, "mail", group="post")
    await desk.execute("SET", "qInZ:post", "no queue")
    with pytest.raises(Exception, match="WRONGTYPE"):
        await desk.start("mail")
    tx = await desk.start()
    assert [record.id for record in await desk.take()] == [tx]
