"""Every kind of step, from its definition to what comes out of it."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

import penstock
from penstock.transactions import (
    App,
    CheckFields,
    Child,
    Delay,
    FieldCheck,
    Function,
    Http,
    Map,
    MapFields,
    Parallel,
    Progress,
    Reply,
    Router,
    Wait,
)
from penstock.transactions.pipelines import AnyStep
from penstock.transactions.worker.http_calls import HttpCaller
from penstock.webhooks.addresses import policy
from tests.places import until
from tests.transactions.conftest import only_on
from tests.transactions.running import Shop, statuses
from tests.webhooks.receiver import Receiver


@pytest.fixture
async def shop(ps: penstock.Penstock) -> Shop:
    return Shop(ps)


def pid_of(tx: Any) -> Any:
    """In another process; at the top of its module, so that it can be found there."""
    return {"pid": os.getpid(), "input": tx.input, "name": tx.name, "key": tx.idempotency_key}


# ------------------------------------------------------------------------------------------- functions


async def test_functions_run_on_the_loop_in_threads_and_in_processes(shop: Shop) -> None:
    @shop.step("loop")
    async def on_loop(tx: Any) -> Any:
        asyncio.get_running_loop()
        return {"thread": threading.get_ident()}

    @shop.step("thread")
    def in_thread(tx: Any) -> Any:
        tx.log("from a thread")
        tx.progress({"half": True})
        return {**tx.input, "other": threading.get_ident(), "once": tx.once("x", threading.get_ident)}

    shop.step("process", runs_in="process")(pid_of)
    ended = await shop.run("loop", "thread", "process")
    assert ended.is_success, ended
    given = ended.output["input"]
    assert given["thread"] == threading.get_ident() != given["other"]
    assert given["once"] == given["other"]  # what may block is called where it may
    assert ended.output["pid"] != os.getpid()
    assert ended.output["name"] == "process"
    assert ended.output["key"] == f"{ended.id}:0:2"
    assert ended.progress == {"half": True}
    assert [text for _, _, text in ended.trail[1].logs] == ["from a thread"]


@only_on("embedded")
async def test_functions_get_their_arguments_and_pass_their_input_on(shop: Shop) -> None:
    seen: list[Any] = []

    @shop.step("look")
    async def look(tx: Any) -> None:
        seen.append((tx.args, tx.input, tx.name, tx.number, tx.pipeline, tx.owner, tx.external_id))

    await shop.deploy(Function("look", id="first", args={"a": 1}), "look")
    async with shop.working():
        handle = await shop.start(input={"n": 1}, owner="acme", external_id="o-1")
        ended = await shop.ended(handle)
    assert seen == [
        ({"a": 1}, {"n": 1}, "first", 0, "main", "acme", "o-1"),
        ({}, {"n": 1}, "look", 1, "main", "acme", "o-1"),
    ]
    assert ended.output == {"n": 1}


# --------------------------------------------------------------------------------------- delay and wait


async def test_a_delay_sleeps_in_the_store(shop: Shop) -> None:
    await shop.deploy("add", Delay(200), Delay(min_ms=10, max_ms=20), "add")
    async with shop.working() as worker:
        handle = await shop.start()
        await shop.reaches(handle, "sleeping")
        await until(lambda: worker.statistics().running == 0)
        assert (await handle.get()).state == "sleeping"
        ended = await shop.ended(handle)
    assert ended.output == {"n": 2}
    slept = [entry for entry in ended.trail if entry.name == "delay"]
    assert [entry.status for entry in slept] == ["sleep", "success"]
    assert 200 <= slept[1].started_ms - slept[0].at_ms < 1_200
    assert statuses(ended)[3:5] == ["delay-2 sleep", "delay-2 success"]


@pytest.mark.parametrize("when", ["before", "during", "after"])
async def test_a_wait_goes_on_with_its_switch(shop: Shop, when: str) -> None:
    hold = asyncio.Event()

    @shop.step("hold")
    async def held(tx: Any) -> None:
        await hold.wait()

    await shop.deploy("hold", Wait("go", into="said"))
    handle = await shop.start()
    if when == "before":
        assert await handle.set_switch("go", True) == "updated"
    async with shop.working():
        await shop.reaches(handle, "running")
        if when == "during":
            assert await handle.set_switch("go", True) == "updated"
        hold.set()
        if when == "after":
            await shop.reaches(handle, "waiting")
            assert (await handle.get()).awaits == "go"
            assert await handle.set_switch("go", True) == "woken"
        ended = await shop.ended(handle)
    assert ended.output == {"said": "true"}
    assert ("wait wait" in statuses(ended)) == (when == "after")


async def test_a_wait_ends_with_its_time(shop: Shop) -> None:
    await shop.deploy(Wait("go", timeout_ms=40), name="strict")
    await shop.deploy(Wait("go", timeout_ms=40, on_timeout="continue", into="said"), "add", name="easy")
    async with shop.working():
        strict, easy = [await shop.start(name) for name in ("strict", "easy")]
        ended = await shop.ended(strict)
        assert (ended.status, ended.note) == ("timeout", "switch 'go' was not set within 40 ms")
        assert ended.trail[-1].started_ms - ended.trail[0].at_ms >= 40
        assert (await shop.ended(easy)).output == {"said": None, "n": 1}


# ------------------------------------------------------------------------- progress, reply, fields, HTTP


@only_on("embedded", "cluster")
async def test_progress_is_told(shop: Shop) -> None:
    ended = await shop.run(Progress({"percent": 50}), "add")
    assert ended.progress == {"percent": 50}
    assert ended.output == {"n": 1}


@only_on("embedded", "server")
@pytest.mark.parametrize("status", ["success", "failed", "aborted"])
async def test_a_reply_ends_it(shop: Shop, status: Any) -> None:
    ended = await shop.run("add", Reply({"sorry": 1}, status, note="as agreed"), "throw")
    assert (ended.status, ended.output, ended.note) == (status, {"sorry": 1}, "as agreed")
    assert ended.step == (2 if status == "success" else 1)
    bare = await shop.run("add", Reply(status=status), name="main")
    assert bare.output == ({"n": 1} if status == "success" else None)


@only_on("embedded")
async def test_fields_are_mapped_and_checked(shop: Shop) -> None:
    steps: list[AnyStep] = [
        MapFields(copy={"total": "cart.sum"}, set={"currency": "EUR"}, drop=["cart"]),
        CheckFields({"total": FieldCheck("integer", max=100)}),
    ]
    ended = await shop.run(*steps, input={"cart": {"sum": 7}})
    assert (ended.status, ended.output) == ("success", {"total": 7, "currency": "EUR"})
    ended = await shop.run(*steps, input={"cart": {"sum": 700}})
    assert ended.status == "failed"
    assert "total" in ended.note
    assert len(ended.output["problems"]) == 1


@only_on("embedded")
async def test_the_input_of_a_pipeline_is_checked_first(shop: Shop) -> None:
    wanted = CheckFields({"n": FieldCheck("integer")})
    await shop.deploy("add", name="checked", input=wanted)
    async with shop.working():
        refused = await shop.ended(await shop.start("checked", {"n": "many"}))
        assert (refused.status, refused.step, statuses(refused)) == ("failed", 0, [])
        assert "n" in refused.note
        assert (await shop.ended(await shop.start("checked", {"n": 1}))).output == {"n": 2}


@only_on("embedded")
async def test_http_calls_a_url(shop: Shop) -> None:
    async with Receiver(lambda _: (200, {"content-type": "application/json"}, b'{"paid": true}')) as receiver:
        url = f"http://127.0.0.1:{receiver.port}/pay/{{order}}"
        await shop.deploy(Http(url, into="answer"))
        caller = HttpCaller(policy(["127.0.0.0/8"]))
        async with shop.working(http=caller):
            ended = await shop.ended(await shop.start(input={"order": "a/b"}))
    assert ended.output == {"order": "a/b", "answer": {"paid": True}}, ended.note
    assert receiver.received[0].target == "/pay/a%2Fb"


# ------------------------------------------------------------------------------------ children and routers


async def test_a_child_runs_on_its_own_group_and_version(shop: Shop) -> None:
    other = App()

    @other.step("who")
    async def who(tx: Any) -> Any:
        return {"group": "other", "id": tx.id}

    @other.step("me")
    async def me(tx: Any) -> Any:
        return tx.input["n"]

    old = await shop.deploy("who", name="child", group="other")
    await shop.deploy("me", name="child", group="other")
    await shop.deploy("add", Child("child", version=old, into="child"), Child("child", into="new"))
    async with shop.working(), shop.worker(other, group="other"):
        handle = await shop.start()
        ended = await shop.ended(handle)
    assert ended.output == {"n": 1, "child": {"group": "other", "id": f"{handle.id}.1.0"}, "new": 1}
    children = await shop.transactions.children(handle.id)
    assert [(one.parent, one.node_group) for one in children] == [(handle.id, "other")] * 2
    assert {one.version == old for one in children} == {True, False}


async def test_a_child_that_is_not_there_or_fails_fails_the_step(shop: Shop) -> None:
    await shop.deploy("fail", name="bad")
    await shop.deploy(Child("bad"), name="fails")
    await shop.deploy(Child("nowhere"), name="lacks")
    await shop.deploy(Child("bad", version="0" * 20), name="old")
    async with shop.working():
        handles = [await shop.start(name) for name in ("fails", "lacks", "old")]
        fails, lacks, old = [await shop.ended(handle) for handle in handles]
    assert (fails.status, fails.note) == ("failed", "bad: no money")
    assert lacks.status == old.status == "failed"
    assert "there is no pipeline nowhere" in lacks.note
    assert "not this version" in old.note


@only_on("embedded", "cluster")
async def test_a_router_chooses_by_a_field(shop: Shop) -> None:
    for name in ("eu", "us"):

        @shop.step(name)
        async def mark(tx: Any, name: str = name) -> Any:
            return name

        await shop.deploy(name, name=name)
    await shop.deploy(Router("zone", {"eu": "eu", "true": "us", "7": "us"}, into="by"), name="strict")
    await shop.deploy(Router("zone", {"eu": "eu"}, default="us", into="by"), name="easy")
    async with shop.working():
        for pipeline, zone, chosen in [
            ("strict", "eu", "eu"),
            ("strict", True, "us"),
            ("strict", 7, "us"),
            ("easy", "mars", "us"),
            ("easy", None, "us"),
        ]:
            ended = await shop.ended(await shop.start(pipeline, {"zone": zone}))
            assert ended.output == {"zone": zone, "by": chosen}, ended
        for data in ({"zone": "mars"}, {}):
            ended = await shop.ended(await shop.start("strict", data))
            assert (ended.status, ended.note) == (
                "failed",
                "zone leads to no pipeline, and there is no default",
            )


# ---------------------------------------------------------------------------------------- parallel and map


async def test_branches_run_at_the_same_time_and_nest(shop: Shop) -> None:
    together = asyncio.Barrier(3)

    @shop.step("meet")
    async def meet(tx: Any) -> Any:
        async with asyncio.timeout(10):
            await together.wait()
        return {**tx.input, "met": True}

    inner = Parallel({"x": ["meet", "add"], "y": ["meet"]})
    ended = await shop.run("add", Parallel({"a": ["meet"], "b": [inner]}), input={"n": 1})
    met = {"n": 2, "met": True}
    assert ended.output == {"a": met, "b": {"x": {**met, "n": 3}, "y": met}}, ended.note


@pytest.mark.parametrize("on_failure", ["fast", "wait"])
async def test_a_branch_that_fails(shop: Shop, on_failure: Any) -> None:
    hold = asyncio.Event()

    @shop.step("hold")
    async def held(tx: Any) -> None:
        await hold.wait()

    await shop.deploy(Parallel({"slow": ["hold"], "bad": ["fail"]}, on_failure))
    async with shop.working():
        handle = await shop.start()
        if on_failure == "wait":
            await until(lambda: _has_ended(shop, f"{handle.id}.1.0"))  # "bad" comes before "slow"
            assert (await handle.get()).state == "joining"
            hold.set()
        ended = await shop.ended(handle)
        hold.set()
    assert (ended.status, ended.note) == ("failed", "bad: no money")


async def _has_ended(shop: Shop, tx: str) -> bool:
    found = await shop.transactions.store.get(tx)
    return found is not None and found[0].state == "ended"


async def test_many_items_in_waves(shop: Shop) -> None:
    items = [{"n": place} for place in range(250)]
    await shop.deploy(Map("items", steps=["add"], at_once=60, into="items"), name="steps")
    await shop.deploy("add", name="one")
    await shop.deploy(Map("items", "one"), name="pipeline")
    async with shop.working():
        handle = await shop.start("steps", {"items": items, "more": 1})
        few = await shop.start("pipeline", {"items": items[:3]})
        ended = await shop.ended(handle)
        assert (await shop.ended(few)).output == [{"n": place + 1} for place in range(3)]
    assert ended.output == {"items": [{"n": place + 1} for place in range(250)], "more": 1}, ended.note
    assert statuses(ended) == ["map join"] * 5 + ["map success"]


@only_on("embedded", "server")
async def test_no_items_no_array_and_an_item_that_fails(shop: Shop) -> None:
    @shop.step("odd")
    async def odd(tx: Any) -> Any:
        if tx.input % 2:
            raise ValueError(f"{tx.input} is odd")
        return tx.input

    await shop.deploy(Map("items", steps=["odd"], at_once=2, on_failure="wait"))
    async with shop.working():
        assert (await shop.ended(await shop.start(input={"items": []}))).output == []
        ended = await shop.ended(await shop.start(input={"items": [0, 2, 4, 5, 7, 9]}))
        assert (ended.status, ended.note) == ("internal-error", "item 3: ValueError: 5 is odd")
        assert len(await shop.transactions.children(ended.id)) == 4  # the third wave was never asked for
        for data in ({"items": 7}, {}):
            ended = await shop.ended(await shop.start(input=data))
            assert (ended.status, ended.note) == ("failed", "items must be an array for this step")


@only_on("embedded", "server")
async def test_children_are_not_nested_for_ever(shop: Shop) -> None:
    await shop.deploy(Child("main"))
    async with shop.working():
        ended = await shop.ended(await shop.start())
    assert ended.status == "internal-error"
    assert ended.note.endswith("children are nested more than 16 deep")
