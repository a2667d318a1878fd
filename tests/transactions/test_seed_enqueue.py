"""Enqueue: a start saves the state of a transaction and queues it. A test for each numbered step of it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import BackpressureError, DuplicateError, UnknownPipelineError
from penstock.transactions import keys
from penstock.transactions.model import HOUR_MS, Limit
from tests.transactions.conftest import LONG_MS, Desk, put_pipeline


async def test_step_1_an_external_id_is_claimed_for_its_period(desk: Desk) -> None:
    tx = await desk.start(external_id="order-42")
    claim = "externalId:acme order-42"
    holder, _, fingerprint = bytes(await desk.execute("GET", claim)).decode().partition(" ")
    assert holder == tx
    assert fingerprint
    assert 6 * HOUR_MS - 60_000 < await desk.execute("PTTL", claim) <= 6 * HOUR_MS
    assert await desk.field(tx, "external_id") == "order-42"
    assert await desk.store.find_external("acme", "order-42") == tx


async def test_step_1_an_external_id_that_exists_is_refused(desk: Desk) -> None:
    tx = await desk.start(data=b'{"cart": 1}', external_id="order-42")
    before = await desk.everything()
    with pytest.raises(DuplicateError, match=f"'order-42' belongs to {tx}") as caught:
        await desk.start(data=b'{"cart": 2}', external_id="order-42")
    assert caught.value.transaction == tx
    assert await desk.everything() == before


async def test_step_2_a_transaction_that_is_there_is_not_queued_again(desk: Desk) -> None:
    tx = await desk.start()
    before = await desk.everything()
    words = (tx, "acme", "", 1_000, "print", "noop", "", "", 0, "", "d:0", b"{}")
    assert await desk.store.run("enqueue", 0, *words) == [b"exists", tx.encode()]
    assert await desk.everything() == before


async def test_step_3_the_pipeline_says_which_group_runs_it(desk: Desk) -> None:
    await put_pipeline(desk.store, "mail", group="post", version="abc", priority=7)
    tx = await desk.start("mail")
    record = await desk.record(tx)
    assert (record["group"], record["version"], record["priority"]) == ("post", "abc", "7")
    assert await desk.members("qInZ:post") == [tx]
    assert await desk.members("qInZ:shop") == []


async def test_step_3_a_version_may_be_asked_for(desk: Desk) -> None:
    await put_pipeline(desk.store, "mail", group="old-post", version="v1")
    await put_pipeline(desk.store, "mail", group="post", version="v2")
    old, new = await desk.start("mail", version="v1"), await desk.start("mail")
    assert (await desk.field(old, "group"), await desk.field(old, "version")) == ("old-post", "v1")
    assert (await desk.field(new, "group"), await desk.field(new, "version")) == ("post", "v2")


@pytest.mark.parametrize(
    ("pipeline", "options", "message"),
    [
        ("nope", {}, "there is no pipeline 'nope'"),
        ("nope", {"version": "v1"}, "there is no pipeline 'nope'"),
        ("noop", {"version": "v9"}, "has no version 'v9'"),
        ("part", {}, "'part' is a part of others"),
        ("asleep", {}, "there is no pipeline 'asleep'"),
    ],
    ids=["unknown", "unknown-with-version", "unknown-version", "not-startable", "not-active"],
)
async def test_step_3_what_cannot_be_started_leaves_nothing_behind(
    desk: Desk, pipeline: str, options: dict[str, Any], message: str
) -> None:
    await put_pipeline(desk.store, "part", is_startable=False)
    await put_pipeline(desk.store, "asleep", is_active=False)
    before = await desk.everything()
    with pytest.raises(UnknownPipelineError, match=message):
        await desk.start(pipeline, external_id="order-42", **options)
    assert await desk.everything() == before


async def test_step_4_who_begins_waits_in_the_queue_of_those_who_begin(desk: Desk) -> None:
    tx = await desk.start()
    assert await desk.field(tx, "queue") == "In"
    assert await desk.places(tx) == {"qInZ:shop"}


async def test_step_4_a_queue_that_is_full_refuses(desk: Desk) -> None:
    await desk.store.set_limit("g:shop", Limit(max_queued=2))
    await desk.start()
    await desk.start()
    before = await desk.everything()
    with pytest.raises(BackpressureError, match=r"2 transactions wait for node group 'shop'.*max_queued"):
        await desk.start(external_id="order-42")
    assert await desk.everything() == before
    await desk.take(1)
    await desk.start(external_id="order-42")


async def test_step_5_the_record_has_every_field(desk: Desk) -> None:
    before_ms = await desk.now_ms()
    tx = await desk.start(
        data=b'{"cart": 1}', external_id="x", priority=3, deadline_ms=5_000, fields={"webhook": "https://a.b"}
    )
    record = await desk.record(tx)
    created_ms = int(record.pop("created_ms"))
    assert before_ms <= created_ms <= await desk.now_ms()
    assert record == {
        "state": "queued", "status": "running", "owner": "acme", "pipeline": "noop", "version": "v1",
        "group": "shop", "queue": "In", "priority": "3", "token": "0", "step": "0", "data": "0",
        "queued_ms": str(created_ms), "external_id": "x", "deadline_ms": str(created_ms + 5_000),
        "d:0": '{"cart": 1}', "webhook": "https://a.b",
    }  # fmt: skip
    assert await desk.score("indexZ", tx) == await desk.score("ownerZ:acme", tx) == created_ms


async def test_step_5_the_deadline_comes_from_the_pipeline_if_nobody_says_otherwise(desk: Desk) -> None:
    await put_pipeline(desk.store, "slow", deadline_ms=60_000)
    usual, none, delayed = (
        await desk.record(await desk.start("slow")),
        await desk.record(await desk.start("slow", deadline_ms=0)),
        await desk.record(await desk.start("slow", delay_ms=LONG_MS)),
    )
    assert int(usual["deadline_ms"]) == int(usual["created_ms"]) + 60_000
    assert "deadline_ms" not in none
    assert int(delayed["deadline_ms"]) == int(delayed["created_ms"]) + LONG_MS + 60_000


async def test_step_6_without_a_delay_it_is_pushed(desk: Desk) -> None:
    first, second = await desk.start(), await desk.start()
    assert await desk.members("qInZ:shop") == [first, second]


async def test_step_6_with_a_delay_it_sleeps_first(desk: Desk) -> None:
    tx = await desk.start(delay_ms=LONG_MS)
    record = await desk.record(tx)
    assert record["state"] == "sleeping"
    assert await desk.places(tx) == {"sleepingZ"}
    assert await desk.score("sleepingZ", tx) == int(record["created_ms"]) + LONG_MS


async def test_step_7_nobody_has_it(desk: Desk) -> None:
    tx = await desk.start()
    assert await desk.members("processingZ") == await desk.members("leasesZ") == []
    record = await desk.take_one()
    assert await desk.settle(record, "queue", "Out", "shop") == "ok"
    assert await desk.members("processingZ") == await desk.members("leasesZ") == []
    assert await desk.places(tx) == {"qOutZ:shop"}


async def test_step_7_the_claim_is_the_last_write(desk: Desk) -> None:
    """A start whose record cannot be written does not use up its external id."""
    words = ("acme", "order-42", HOUR_MS, "print", "noop", "", "", 0, "", "d:0")  # a name without its value
    with pytest.raises(Exception, match="wrong number of arguments"):
        await desk.store.run("enqueue", 0, keys.new_id(0, 1_700_000_000_000), *words)
    assert await desk.store.find_external("acme", "order-42") is None
    assert await desk.execute("EXISTS", "externalId:acme order-42") == 0
    await desk.start(external_id="order-42")


async def test_step_8_it_is_counted_for_its_pipeline_group_and_owner(desk: Desk) -> None:
    await desk.start()
    await desk.start()
    await desk.start(owner="umbrella")
    found = await desk.everything()
    slots = {name: value for name, value in found.items() if name.startswith("stats")}
    for level, kept_s, slot_s in (("stats1H", 300, 5), ("stats2H", 7_200, 60), ("stats3H", 86_400, 600)):
        mine = {name: value for name, value in slots.items() if name.startswith(level)}
        assert all(int(name.partition(":")[2]) % slot_s == 0 for name in mine)
        assert sum(int(value.get("q noop shop acme", 0)) for value in mine.values()) == 2
        assert sum(int(value.get("q noop shop umbrella", 0)) for value in mine.values()) == 1
        for name in mine:
            assert kept_s < await desk.execute("TTL", name) <= kept_s + slot_s
