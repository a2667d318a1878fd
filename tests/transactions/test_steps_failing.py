"""Attempts, limits of time, undoing, cancelling, and beginning again."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

import penstock
from penstock.errors import StepFailedError, TransactionEndedError, UsageError
from penstock.transactions import (
    App,
    Child,
    Delay,
    Function,
    Handle,
    Map,
    Parallel,
    Reply,
    Retry,
    Transaction,
    Wait,
)
from penstock.transactions.worker import flow
from tests.places import until
from tests.transactions.conftest import only_on
from tests.transactions.running import GROUP, Shop, statuses, undone


@pytest.fixture
async def shop(ps: penstock.Penstock) -> Shop:
    return Shop(ps)


# ------------------------------------------------------------------------------------------------ retries


@only_on("embedded", "server")
async def test_attempts_and_their_pauses(shop: Shop) -> None:
    retry = Retry(limit=4, backoff_ms=20, factor=2.0, max_backoff_ms=50, jitter=0.0)
    ended = await shop.run("add", Function("throw", retry=retry))
    assert (ended.status, ended.step, ended.attempt) == ("internal-error", 1, 3)
    tries = ended.trail[1:]
    assert [entry.attempt for entry in tries] == [1, 2, 3, 4]
    pauses_ms = [after.started_ms - before.at_ms for before, after in pairwise(tries)]
    assert all(pause >= wanted for pause, wanted in zip(pauses_ms, (20, 40, 50), strict=True)), pauses_ms


@only_on("embedded")
async def test_chance_shortens_pauses(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow.random, "random", lambda: 1.0)
    retry = Retry(limit=2, backoff_ms=600_000, jitter=1.0)
    assert statuses(await shop.run(Function("throw", retry=retry))) == ["throw internal-error"] * 2


@only_on("embedded")
@pytest.mark.parametrize(
    ("step", "retry", "attempts"),
    [
        ("throw", Retry(limit=2, backoff_ms=1, on=("ValueError",)), 2),
        ("throw", Retry(limit=2, backoff_ms=1, on=("Exception",)), 2),
        ("throw", Retry(limit=2, backoff_ms=1, on=("internal-error",)), 2),
        ("throw", Retry(limit=2, backoff_ms=1, on=("failed",)), 1),
        ("throw", Retry(limit=2, backoff_ms=1, never=("ValueError",)), 1),
        ("fail", Retry(limit=2, backoff_ms=1, on=("failed",)), 2),
        ("fail", Retry(limit=2, backoff_ms=1, never=("StepError",)), 1),
        ("fail", Retry(limit=1), 1),
        ("abort", Retry(limit=2, backoff_ms=1, on=("aborted",)), 1),
    ],
)
async def test_which_errors_are_tried_again(shop: Shop, step: str, retry: Retry, attempts: int) -> None:
    ended = await shop.run(Function(step, retry=retry))
    assert len(ended.trail) == attempts
    # The policy of a pipeline counts for steps that have none.
    assert len((await shop.run(step, retry=retry)).trail) == attempts


@only_on("embedded")
async def test_a_join_that_fails_is_tried_with_new_children(shop: Shop) -> None:
    calls: list[str] = []

    @shop.step("second")
    async def second(tx: Any) -> Any:
        calls.append(tx.id)
        if len(calls) < 2:
            raise ValueError("the first time")
        return {"by": tx.id}

    await shop.deploy("second", name="child")
    ended = await shop.run(Child("child", retry=Retry(limit=2, backoff_ms=1)))
    assert calls == [f"{ended.id}.1.0", f"{ended.id}.2.0"]
    assert ended.output == {"by": f"{ended.id}.2.0"}


# ------------------------------------------------------------------------------------------ limits of time


@only_on("embedded", "server")
async def test_a_step_that_takes_too_long(shop: Shop) -> None:
    interrupted: list[int] = []

    @shop.step("hang")
    async def hang(tx: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            interrupted.append(tx.attempt)
            raise

    @shop.step("block")
    def block(tx: Any) -> None:
        time.sleep(0.2)

    retry = Retry(limit=2, backoff_ms=1, on=("timeout",))
    ended = await shop.run(Function("hang", timeout_ms=20, retry=retry))
    assert (ended.status, ended.note) == ("timeout", "it took more than 20 ms")
    assert interrupted == [1, 2]
    ended = await shop.run(Function("block", timeout_ms=20))
    assert (ended.status, ended.note) == ("timeout", "it took more than 20 ms")


async def test_the_deadline_ends_it_wherever_it_is(shop: Shop) -> None:
    @shop.step("hang")
    async def hang(tx: Any) -> None:
        await asyncio.Event().wait()

    await shop.deploy("noop", name="queued", group="nobody")
    await shop.deploy("hang", name="running")
    await shop.deploy(Delay(600_000), name="sleeping")
    await shop.deploy(Wait("go"), name="waiting")
    await shop.deploy("noop", name="child", group="nobody")
    await shop.deploy(Child("child"), name="joining")
    await shop.deploy(Function("throw", retry=Retry(limit=9, backoff_ms=600_000)), name="retrying")
    # The one that nobody looks at first, so that its time is over when that of the others is.
    names = ("queued", "running", "sleeping", "waiting", "joining", "retrying")
    async with shop.working():
        handles = [await shop.start(name, deadline_ms=150) for name in names]
        ended = [await shop.ended(handle) for handle in handles[1:]]
        assert [(one.status, one.note) for one in ended] == [("timeout", "its deadline has passed")] * 5
        for one in ended:
            assert one.ended_ms - one.created_ms >= 150
        # Of those who wait for a worker nobody asks; the first who comes finds out.
        async with shop.worker(group="nobody"):
            late = await shop.ended(handles[0])
        assert (late.status, statuses(late)) == ("timeout", [])


@only_on("embedded", "server")
async def test_children_that_take_too_long(shop: Shop) -> None:
    await shop.deploy("noop", name="child", group="nobody")
    await shop.deploy(Child("child", timeout_ms=50))
    async with shop.working():
        assert (await (await shop.start()).wait(1_000)).status == "timeout"


# ------------------------------------------------------------------------------------------------- undoing


def undoing(shop: Shop) -> list[Any]:
    """Steps that say what they undo."""
    seen: list[Any] = []

    @shop.step("undo")
    async def undo(tx: Any) -> None:
        seen.append((tx.input["n"], tx.output["n"]))

    return seen


async def test_what_was_done_is_undone_in_reverse(shop: Shop) -> None:
    seen = undoing(shop)
    add = Function("add", compensate="undo")
    ended = await shop.run(add, "noop", Function("add", compensate="undo"), "fail", input={"n": 0})
    assert seen == [(1, 2), (0, 1)]
    assert (ended.status, ended.note, ended.output) == ("failed", "no money", {"why": 1})
    assert undone(ended) == ["undo success"] * 2
    assert [dead.id for dead in await shop.transactions.looking.dead()] == []


@only_on("embedded", "server")
async def test_undoing_after_a_reply_an_abort_and_a_deadline(shop: Shop) -> None:
    seen = undoing(shop)

    @shop.step("hang")
    async def hang(tx: Any) -> None:
        await asyncio.Event().wait()

    add = Function("add", compensate="undo")
    for last, status in (
        (Reply(status="failed"), "failed"),
        ("abort", "aborted"),
        ("throw", "internal-error"),
    ):
        assert (await shop.run(add, last, input={"n": 0})).status == status
    ended = await shop.run(add, "hang", deadline_ms=500, input={"n": 0})
    assert (ended.status, ended.note) == ("timeout", "its deadline has passed")
    assert seen == [(0, 1)] * 4
    assert (await shop.run(add, Reply(status="success"), input={"n": 0})).status == "success"
    assert len(seen) == 4


@only_on("embedded", "server")
async def test_an_undoing_that_sleeps_and_fails_at_first(shop: Shop) -> None:
    tries: list[int] = []

    @shop.step("undo")
    async def undo(tx: Any) -> None:
        tries.append(tx.attempt)
        await tx.once("call", lambda: tries.append(0))
        await tx.sleep(30)
        if tx.attempt < 2:
            raise ValueError("not yet")

    add = Function("add", compensate="undo", retry=Retry(limit=3, backoff_ms=20, jitter=0.0))
    # A deadline that has passed is not one for undoing, or its pauses would end at once.
    ended = await shop.run(add, Delay(600_000), deadline_ms=500)
    assert ended.status == "timeout"
    assert tries == [1, 0, 1, 2]
    assert undone(ended) == ["undo internal-error", "undo success"]
    first, second = [entry for entry in ended.trail if entry.kind == "undo"]
    assert second.started_ms - first.at_ms >= 20


@only_on("embedded", "server")
async def test_an_undoing_that_fails_is_somebody_s_affair(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = undoing(shop)
    monkeypatch.setattr(flow, "_UNDO_RETRY", Retry(limit=2, backoff_ms=1))
    ended = await shop.run(
        Function("add", compensate="undo"), Function("add", compensate="throw"), "fail", input={"n": 0}
    )
    assert (ended.status, ended.note) == ("failed", "no money; throw could not undo: ValueError: boom")
    assert undone(ended) == ["throw internal-error"] * 2 + ["undo success"]
    assert seen == [(0, 1)]
    assert [dead.id for dead in await shop.transactions.looking.dead()] == [ended.id]


@only_on("embedded", "server")
async def test_undoing_happens_where_the_step_was_done(shop: Shop) -> None:
    there = App()
    seen: list[str] = []

    @there.step("book")
    async def book(tx: Any) -> None:
        seen.append("book")

    @there.step("unbook")
    async def unbook(tx: Any) -> None:
        seen.append("unbook")

    await shop.deploy(Function("book", node_group="there", compensate="unbook"), "fail")
    async with shop.working(), shop.worker(there, group="there"):
        ended = await shop.ended(await shop.start())
    assert (ended.status, seen) == ("failed", ["book", "unbook"])
    assert [entry.group for entry in ended.trail] == ["there", GROUP, "there"]


# ---------------------------------------------------------------------------------------------- cancelling


async def test_cancelling_in_every_state(shop: Shop) -> None:
    begun, interrupted = asyncio.Event(), asyncio.Event()

    @shop.step("hang")
    async def hang(tx: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            interrupted.set()
            raise

    await shop.deploy("noop", name="queued", group="nobody")
    await shop.deploy("hang", name="running")
    await shop.deploy(Delay(600_000), name="sleeping")
    await shop.deploy(Wait("go"), name="waiting")
    await shop.deploy(Child("waiting"), name="joining")
    async with shop.working():
        for state in ("queued", "sleeping", "waiting", "joining", "running"):
            handle = await shop.start(state)
            await shop.reaches(handle, state)
            if state == "running":
                await begun.wait()
            was_ended = await shop.transactions.cancel(handle.id, "too late", by="bob")
            assert was_ended == (state != "running")
            ended = await shop.ended(handle)
            assert (ended.status, ended.note) == ("cancelled", "bob: too late"), state
            with pytest.raises(TransactionEndedError, match="it has ended already"):
                await handle.cancel()
            for child in await shop.transactions.children(handle.id):
                assert child.status == "cancelled"
        assert interrupted.is_set()


async def test_cancelling_undoes_first(shop: Shop) -> None:
    seen = undoing(shop)

    @shop.step("hang")
    async def hang(tx: Any) -> None:
        await asyncio.Event().wait()

    add = Function("add", compensate="undo")
    await shop.deploy(add, Delay(600_000), name="sleeping")
    await shop.deploy(Delay(600_000), name="child")
    await shop.deploy(add, Child("child"), name="joining")
    await shop.deploy(add, "hang", name="running")
    async with shop.working():
        for state in ("sleeping", "running", "joining"):
            handle = await shop.start(state, {"n": 0})
            await shop.reaches(handle, state)
            await until(lambda at=handle: _is_at(at, 1))
            assert await handle.cancel("stop") is False
            ended = await shop.ended(handle)
            assert (ended.status, ended.note) == ("cancelled", "somebody: stop")
            assert undone(ended) == ["undo success"]
            for child in await shop.transactions.children(handle.id):
                await shop.ended(shop.transactions.handle(child.id))
    assert len(seen) == 3


async def _is_at(handle: Handle, step: int) -> bool:
    return (await handle.get()).step == step


@only_on("embedded", "server")
async def test_cancelling_undoes_children_too(shop: Shop) -> None:
    seen = undoing(shop)
    await shop.deploy(Function("add", compensate="undo"), Delay(600_000), name="child")
    await shop.deploy(Child("child"))
    async with shop.working():
        handle = await shop.start(input={"n": 0})
        child = shop.transactions.handle(f"{handle.id}.1.0")
        await shop.reaches(handle, "joining")
        await shop.reaches(child, "sleeping")
        await handle.cancel()
        assert (await shop.ended(child)).status == "cancelled"
    assert seen == [(0, 1)]


@only_on("embedded", "server")
async def test_cancelling_does_not_stop_what_is_being_undone(shop: Shop) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @shop.step("undo")
    async def undo(tx: Any) -> None:
        begun.set()
        await go_on.wait()

    await shop.deploy(Function("add", compensate="undo"), "fail")
    async with shop.working(lease_ms=300):
        handle = await shop.start()
        await begun.wait()
        token = (await shop.transactions.store.get(handle.id))[0].number(b"token")
        assert await handle.cancel("now") is False
        # It is told again and again, by each renewal of the lease.
        await until(lambda: _is_renewed(shop, handle.id, 2))
        go_on.set()
        ended = await shop.ended(handle)
    assert (ended.status, ended.note, undone(ended)) == ("failed", "no money", ["undo success"])
    assert (await shop.transactions.store.get(handle.id))[0].number(b"token") == token


_lease_seen: dict[str, list[float]] = {}


async def _is_renewed(shop: Shop, tx: str, times: int) -> bool:
    score = await shop.ps.execute("ZSCORE", "{p0}.leasesZ", tx)
    seen = _lease_seen.setdefault(tx, [])
    if not seen or seen[-1] != float(score):
        seen.append(float(score))
    return len(seen) > times


@only_on("embedded", "server")
async def test_one_that_goes_to_sleep_while_somebody_cancels_it(shop: Shop) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @shop.step("nap")
    async def nap(tx: Any) -> None:
        begun.set()
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                pass  # it does not listen
        await tx.sleep(600_000)

    await shop.deploy("nap")
    async with shop.working():
        handle = await shop.start()
        await begun.wait()
        assert await handle.cancel("now") is False
        go_on.set()
        ended = await shop.ended(handle)
    assert (ended.status, ended.note) == ("cancelled", "somebody: now")


@only_on("embedded", "server")
async def test_a_worker_that_learns_of_it_by_its_own_write_is_interrupted_too(shop: Shop) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @shop.step("work")
    async def work(tx: Any) -> None:
        begun.set()
        await asyncio.shield(go_on.wait())
        await tx.progress({"half": True})
        await asyncio.Event().wait()

    await shop.deploy("work")
    async with shop.working(lease_ms=300) as worker:
        handle = await shop.start()
        await begun.wait()
        # As if the message to the worker were late: only the record says it.
        worker._interrupt = lambda tx: None  # type: ignore[method-assign]
        assert await handle.cancel("now") is False
        go_on.set()
        await until(lambda: _has_progress(handle))
        del worker._interrupt
        ended = await shop.ended(handle)
    assert (ended.status, ended.note) == ("cancelled", "somebody: now")


async def _has_progress(handle: Any) -> bool:
    return (await handle.get()).progress is not None


# ----------------------------------------------------------------------------------- retrying and replaying


async def test_retrying_goes_on_where_it_failed(shop: Shop) -> None:
    is_broken = [True]

    @shop.step("flaky")
    async def flaky(tx: Any) -> Any:
        if is_broken[0]:
            raise StepFailedError("broken", {"sorry": 1})
        return {**tx.input, "done": True}

    await shop.deploy("add", "flaky", "add")
    async with shop.working():
        handle = await shop.start(input={"n": 0})
        first = await shop.ended(handle)
        assert (first.status, first.step, first.output) == ("failed", 1, {"sorry": 1})
        await handle.retry("once more")
        again = await shop.ended(handle)
        assert (again.status, again.run) == ("failed", 1)
        is_broken[0] = False
        await handle.retry()
        ended = await shop.ended(handle)
        assert (ended.output, ended.run) == ({"n": 2, "done": True}, 2)
        assert statuses(ended) == [
            "add success", "flaky failed", "flaky failed", "flaky success", "add-2 success",
        ]  # fmt: skip
        with pytest.raises(TransactionEndedError, match="has succeeded: replay it from a step"):
            await handle.retry()


@only_on("embedded", "server")
async def test_retrying_a_reply_comes_to_it_again(shop: Shop) -> None:
    await shop.deploy("add", Reply(status="failed"), "add")
    async with shop.working():
        handle = await shop.start()
        assert (await shop.ended(handle)).status == "failed"
        await handle.retry()
        ended = await shop.ended(handle)
    assert (ended.status, statuses(ended)) == ("failed", ["add success", "reply success", "reply success"])


@only_on("embedded", "server")
async def test_retrying_what_was_undone_begins_again(shop: Shop) -> None:
    seen = undoing(shop)
    is_broken = [True]

    @shop.step("flaky")
    async def flaky(tx: Any) -> None:
        if is_broken[0]:
            raise StepFailedError("broken")

    await shop.deploy(Function("add", compensate="undo"), "flaky", Delay(1), "flaky")
    async with shop.working():
        handle = await shop.start(input={"n": 0})
        await shop.ended(handle)
        is_broken[0] = False
        await handle.retry()
        ended = await shop.ended(handle)
    assert ended.output == {"n": 1}
    assert seen == [(0, 1)]
    assert statuses(ended)[:4] == ["add success", "flaky failed", "add success", "flaky success"]


@only_on("embedded", "server")
async def test_retrying_a_join_runs_its_children_again(shop: Shop) -> None:
    is_broken = [True]

    @shop.step("flaky")
    async def flaky(tx: Any) -> Any:
        if is_broken[0]:
            raise StepFailedError("broken")
        return tx.id

    await shop.deploy("flaky", name="child")
    await shop.deploy("add", Child("child"), name="child-step")
    await shop.deploy("add", Parallel({"a": ["flaky"], "b": ["noop"]}), name="parallel-step")
    await shop.deploy(Wait("go"), name="forever")
    await shop.deploy(Child("forever"), name="cancelled-step")
    async with shop.working():
        handles = [await shop.start(name) for name in ("child-step", "parallel-step", "cancelled-step")]
        await shop.reaches(handles[2], "joining")
        await handles[2].cancel()
        for handle in handles:
            assert not (await shop.ended(handle)).is_success
        is_broken[0] = False
        for handle in handles:
            await handle.retry()
        assert (await shop.ended(handles[0])).output == f"{handles[0].id}.2.0"
        assert (await shop.ended(handles[1])).output["a"] == f"{handles[1].id}.2.0"
        child = shop.transactions.handle(f"{handles[2].id}.2.0")
        await until(lambda: _is_waiting(shop, child.id))
        await child.set_switch("go", 1)
        assert (await shop.ended(handles[2])).is_success


async def _is_waiting(shop: Shop, tx: str) -> bool:
    found = await shop.transactions.store.get(tx)
    return found is not None and found[0].state == "waiting"


async def test_replaying_from_a_step_with_the_data_of_then(shop: Shop) -> None:
    calls: list[Any] = []

    @shop.step("call")
    async def call(tx: Any) -> Any:
        await tx.sleep(1)
        await tx.once("call", lambda: calls.append(dict(tx.input)))
        return {**tx.input, "calls": len(calls)}

    await shop.deploy("add", "call", "add", "call")
    async with shop.working():
        handle = await shop.start(input={"n": 0})
        first = await shop.ended(handle)
        assert first.output == {"n": 2, "calls": 2}
        await handle.replay(2)
        assert (await shop.ended(handle)).output == {"n": 2, "calls": 3}
        await handle.replay(1)
        assert (await shop.ended(handle)).output == {"n": 2, "calls": 5}
        with pytest.raises(UsageError, match="step must be 0 to 4, the last that was reached, not 5"):
            await handle.replay(5)
    given = [{"n": 1}, {"n": 2, "calls": 1}, {"n": 2, "calls": 1}, {"n": 1}, {"n": 2, "calls": 4}]
    assert calls == given


@only_on("embedded")
async def test_a_child_is_replayed_with_its_parent(shop: Shop) -> None:
    await shop.deploy("noop", name="child")
    ended: Transaction = await shop.run(Child("child"), Map("items", "child"), input={"items": []})
    with pytest.raises(TransactionEndedError, match=f"it is a part of another: replay {ended.id}"):
        await shop.transactions.replay(f"{ended.id}.1.0")


@only_on("embedded", "server")
async def test_a_replay_remembers_what_earlier_steps_did(shop: Shop) -> None:
    seen = undoing(shop)
    fails: list[bool] = [False]

    @shop.step("perhaps")
    async def perhaps(tx: Any) -> None:
        if fails[0]:
            raise StepFailedError("not this time")

    await shop.deploy(Function("add", compensate="undo"), "perhaps")
    async with shop.working():
        handle = await shop.start(input={"n": 0})
        assert (await shop.ended(handle)).is_success
        fails[0] = True
        await handle.replay(1)
        assert (await shop.ended(handle)).status == "failed"
    assert seen == [(0, 1)]


@only_on("embedded", "server")
async def test_children_that_wait_for_ever_end_with_their_parent(shop: Shop) -> None:
    await shop.deploy(Parallel({"good": [Wait("never")], "bad": [Delay(500), "fail"]}, on_failure="fast"))
    async with shop.working():
        handle = await shop.start(input={"n": 0})
        patient = shop.transactions.handle(f"{handle.id}.1.1")
        await shop.reaches(handle, "joining")
        await shop.reaches(patient, "waiting")
        assert (await shop.ended(handle)).status == "failed"
        assert (await shop.ended(patient)).status == "cancelled"
