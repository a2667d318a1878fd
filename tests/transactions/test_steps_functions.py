"""What a step function is given and may do: outputs, ``once``, sleeps, switches, reports, messages."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
import pytest

import penstock
from penstock.errors import StepAbortedError, StepFailedError, UsageError
from penstock.transactions import Function, Retry, Transaction
from tests.places import until
from tests.transactions.conftest import only_on
from tests.transactions.running import Shop, statuses

AGAIN = Retry(limit=3, backoff_ms=1)


@pytest.fixture
async def shop(ps: penstock.Penstock) -> Shop:
    return Shop(ps)


def unreadable(tx: Any) -> Any:
    """Throws what cannot travel between processes."""

    class StrangeError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"strange {one}")

    raise StrangeError(1, 2)


def dies(tx: Any) -> Any:
    sys.exit(3)


def refuses(tx: Any) -> Any:
    raise StepFailedError("not here", {"pid": 1})


def exhausted(tx: Any) -> Any:
    next(iter(()))


# --------------------------------------------------------------------------------- what comes out of it


@only_on("embedded")
@pytest.mark.parametrize(
    ("given", "output"),
    [
        (None, {"in": 1}),
        (0, 0),
        ([], []),
        ("ä", "ä"),
        ({"a": [1, None, 1.5]}, {"a": [1, None, 1.5]}),
        (msgspec.Raw(b'{"raw":1}'), {"raw": 1}),
    ],
)
async def test_what_is_returned_is_the_output(shop: Shop, given: Any, output: Any) -> None:
    @shop.step("give")
    async def give(tx: Any) -> Any:
        return given

    ended = await shop.run("give", input={"in": 1})
    assert (ended.status, ended.output) == ("success", output)


@only_on("embedded")
@pytest.mark.parametrize(
    ("given", "why"), [(object(), "must be JSON"), ("x" * 1_048_577, "at most 1048576 bytes")]
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_garbage_is_an_internal_error(shop: Shop, given: Any, why: str, is_async: bool) -> None:
    async def on_loop(tx: Any) -> Any:
        return given

    def in_thread(tx: Any) -> Any:
        return given

    shop.step("give")(on_loop if is_async else in_thread)
    ended = await shop.run("add", "give")
    assert (ended.status, ended.output, ended.step) == ("internal-error", None, 1)
    assert ended.note.startswith("step 'give': what it returned must")
    assert why in ended.note
    assert [dead.id for dead in await shop.transactions.looking.dead()] == [ended.id]


@only_on("embedded", "cluster")
async def test_success_with_a_note(shop: Shop) -> None:
    @shop.step("note")
    async def note(tx: Any) -> Any:
        return tx.succeed({"ok": 1}, "as ordered")

    @shop.step("bare")
    async def bare(tx: Any) -> Any:
        return tx.succeed(note="half \ud800 of a character")

    ended = await shop.run("note", "bare")
    assert (ended.status, ended.output) == ("success", {"ok": 1})
    assert [entry.note for entry in ended.trail] == ["as ordered", "half ? of a character"]
    assert ended.note == "half ? of a character"


@only_on("embedded", "cluster")
async def test_failing_and_aborting_with_an_output(shop: Shop) -> None:
    ended = await shop.run("add", Function("fail", retry=AGAIN))
    assert (ended.status, ended.note, ended.output) == ("failed", "no money", {"why": 1})
    assert statuses(ended) == ["add success"] + ["fail failed"] * 3
    ended = await shop.run("add", Function("abort", retry=AGAIN))
    assert (ended.status, ended.note, ended.output) == ("aborted", "fraud", {"who": "bob"})
    assert statuses(ended) == ["add success", "abort aborted"]
    ended = await shop.run("throw")
    assert (ended.status, ended.note, ended.output) == ("internal-error", "ValueError: boom", None)


@only_on("embedded")
async def test_errors_that_can_hardly_be_told(shop: Shop) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    errors = [
        (StepFailedError("\ud800" * 3_000), "failed", "?" * 2_000),
        (StepFailedError("no JSON", object()), "failed", "no JSON"),
        (MuteError(), "internal-error", "MuteError"),
        (SystemExit(3), "internal-error", "SystemExit: 3"),
        (asyncio.CancelledError(), "internal-error", "CancelledError: "),
        (TimeoutError("slow"), "timeout", "TimeoutError: slow"),
        (StopIteration(), "internal-error", "RuntimeError: coroutine raised StopIteration"),
    ]
    raising: list[BaseException] = []

    @shop.step("raise")
    async def raise_(tx: Any) -> Any:
        tx.log("\udfff" + "x" * 3_000)
        raise raising[0]

    await shop.deploy("raise")
    async with shop.working():
        for error, status, note in errors:
            raising[:] = [error]
            ended = await shop.ended(await shop.start())
            assert (ended.status, ended.note) == (status, note)
            assert ended.trail[0].logs[0][2] == "?" + "x" * 1_999


@only_on("embedded")
@pytest.mark.parametrize("runs_in", ["thread", "process"])
async def test_errors_elsewhere_leave_the_worker_alone(shop: Shop, runs_in: Any) -> None:
    for function in (unreadable, dies, refuses, exhausted):
        shop.step(function.__name__, runs_in=runs_in)(function)
        await shop.deploy(function.__name__, name=function.__name__)
    async with shop.working(processes=1) as worker:
        handles = [await shop.start(name) for name in ("unreadable", "dies", "refuses", "exhausted")]
        ended = [await shop.ended(handle) for handle in handles]
        assert [(one.status, one.note) for one in ended] == [
            ("internal-error", "StrangeError: strange 1"),
            ("internal-error", "SystemExit: 3"),
            ("failed", "not here"),
            ("internal-error", "StopIteration: "),
        ]
        assert ended[2].output == {"pid": 1}
        assert worker.statistics().ended == 4


# --------------------------------------------------------------------------------------------------- facts


@only_on("embedded", "server")
async def test_metadata_attempts_and_a_key_that_stays(shop: Shop) -> None:
    seen: list[Any] = []

    @shop.step("try")
    async def try_(tx: Any) -> None:
        seen.append((tx.attempt, tx.idempotency_key, tx.metadata))
        if tx.attempt < 3:
            raise ValueError("again")

    await shop.deploy(Function("try", retry=AGAIN), "try")
    async with shop.working():
        ended = await shop.ended(await shop.start(metadata={"trace": "abc"}))
        assert ended.status == "internal-error"  # the second "try" has no policy
        await shop.transactions.replay(ended.id, 0)
        again = await shop.ended(shop.transactions.handle(ended.id))
    first, second = f"{ended.id}:0:0", f"{ended.id}:0:1"
    assert [(attempt, key) for attempt, key, _ in seen[:4]] == [
        (1, first),
        (2, first),
        (3, first),
        (1, second),
    ]
    assert seen[4][:2] == (1, f"{ended.id}:1:0")  # another run is another key
    assert all(metadata == {"trace": "abc"} for _, _, metadata in seen)
    assert again.metadata == {"trace": "abc"}


# ---------------------------------------------------------------------------------------------------- once


async def test_once_is_called_once_whatever_comes_after(shop: Shop) -> None:
    calls: list[str] = []

    async def charge(key: str) -> Any:
        calls.append(key)
        return {"receipt": len(calls)}

    @shop.step("pay")
    async def pay(tx: Any) -> Any:
        receipt = await tx.once("charge", charge, tx.idempotency_key)
        assert await tx.once("plain", lambda: 7) == 7
        await tx.sleep(5)
        if tx.attempt == 1:
            raise ValueError("after the sleep")
        return receipt

    await shop.deploy(Function("pay", retry=AGAIN), Function("pay", retry=AGAIN))
    handle = await shop.start()
    async with shop.working():
        ended = await shop.ended(handle)
    assert calls == [f"{handle.id}:0:0", f"{handle.id}:0:1"]  # each step has its own
    assert ended.output == {"receipt": 2}


async def test_once_is_known_to_the_next_worker(shop: Shop) -> None:
    calls: list[str] = []
    hold = asyncio.Event()

    @shop.step("pay")
    async def pay(tx: Any) -> Any:
        receipt = await tx.once("charge", lambda: calls.append(tx.id) or "paid")
        if not hold.is_set():
            hold.set()
            await asyncio.Event().wait()
        return receipt

    await shop.deploy("pay")
    handle = await shop.start()
    async with shop.working(grace_ms=0):
        await hold.wait()
    async with shop.working():
        ended = await shop.ended(handle)
    assert calls == [handle.id]
    assert ended.output == "paid"
    assert ended.trail[-1].attempt == 1


@only_on("embedded")
async def test_once_wants_json_and_a_name(shop: Shop) -> None:
    @shop.step("bad")
    async def bad(tx: Any) -> Any:
        await tx.once("x", object)

    @shop.step("unnamed")
    async def unnamed(tx: Any) -> Any:
        await tx.once("no spaces", int)

    ended = await shop.run("bad")
    assert ended.status == "internal-error"
    assert "the result of once('x') must be JSON" in ended.note
    ended = await shop.run("unnamed")
    assert "name must be 1 to 128 letters" in ended.note


# --------------------------------------------------------------------------------------------------- sleeps


async def test_several_sleeps_to_the_millisecond(shop: Shop) -> None:
    delays_ms = (0, 1, 50, 120)

    @shop.step("nap")
    async def nap(tx: Any) -> Any:
        for delay_ms in delays_ms:
            await tx.sleep(delay_ms)
        return {"awake": True}

    ended = await shop.run("nap")
    assert statuses(ended) == ["nap sleep"] * 4 + ["nap success"]
    for delay_ms, before, after in zip(delays_ms, ended.trail, ended.trail[1:], strict=False):
        # Both by the store's time: when it was decided, and when it went on.
        assert delay_ms <= after.started_ms - before.at_ms, (delay_ms, before, after)
    late_ms = sorted(
        after.started_ms - before.at_ms - delay_ms
        for delay_ms, before, after in zip(delays_ms, ended.trail, ended.trail[1:], strict=False)
    )
    assert late_ms[0] <= 10  # the others may have met a busy machine


@only_on("embedded", "server")
async def test_one_that_sleeps_can_be_woken(shop: Shop) -> None:
    @shop.step("nap")
    async def nap(tx: Any) -> None:
        await tx.sleep(600_000)

    await shop.deploy("nap", "add")
    async with shop.working():
        handle = await shop.start()
        await shop.reaches(handle, "sleeping")
        assert (await handle.get()).wakes_ms > (await handle.get()).created_ms + 599_000
        await shop.transactions.wake(handle.id, "enough")
        ended = await shop.ended(handle)
    assert ended.output == {"n": 1}


@only_on("embedded")
async def test_sleeps_in_threads_and_refusals(shop: Shop) -> None:
    @shop.step("nap")
    def nap(tx: Any) -> Any:
        first = tx.once("first", lambda: 1)
        tx.sleep(5)
        return {"first": first, "said": tx.wait_for_switch("go", timeout_ms=5)}

    @shop.step("back")
    async def back(tx: Any) -> None:
        await tx.sleep(-1)

    ended = await shop.run("nap")
    assert ended.output == {"first": 1, "said": None}, ended.note
    ended = await shop.run("back")
    assert ended.note == "UsageError: delay_ms must be 0 to 31622400000, not -1"


# ------------------------------------------------------------------------------------------------- switches


async def test_switches_inside_a_step(shop: Shop) -> None:
    @shop.step("ask")
    async def ask(tx: Any) -> Any:
        before = await tx.once("before", tx.switch, "mode")
        await tx.set_switch("mode", "fast")
        assert (before, await tx.switch("mode")) == (None, "fast")
        first = await tx.wait_for_switch("go", until="ready")
        second = await tx.wait_for_switch("go", until="steady")
        third = await tx.wait_for_switch("go", until="gone", timeout_ms=30)
        await tx.sleep(1)
        await tx.set_switch("mode", None)
        return [first, second, third, await tx.switch("mode")]

    await shop.deploy("ask")
    async with shop.working():
        handle = await shop.start()
        for value in ("not yet", "ready", "steady"):
            await shop.reaches(handle, "waiting")
            waits = await _waits(shop, handle.id)
            assert await handle.set_switch("go", value) == "woken"
            await until(lambda before=waits: _waited_again(shop, handle.id, before))
        ended = await shop.ended(handle)
    assert ended.output == ["ready", "steady", None, None], ended.note
    assert ended.switches == {"go": "steady"}


async def _waits(shop: Shop, tx: str) -> int:
    return sum(entry.status == "wait" for entry in (await shop.transactions.get(tx, trail=True)).trail)


async def _waited_again(shop: Shop, tx: str, before: int) -> bool:
    return await _waits(shop, tx) > before


# --------------------------------------------------------------------------------------- progress and logs


async def test_reports_reach_those_who_watch(shop: Shop) -> None:
    seen_by_watcher = asyncio.Semaphore(0)

    @shop.step("work")
    async def work(tx: Any) -> None:
        for percent in (10, 50, 90):
            await tx.progress({"percent": percent})
            async with asyncio.timeout(10):
                await seen_by_watcher.acquire()

    await shop.deploy("work")
    handle = await shop.start()
    reports: list[Any] = []
    last: Transaction | None = None
    async with shop.working():
        async with asyncio.timeout(15):
            async for last in handle.changes():
                if last.progress is not None and last.progress not in reports:
                    reports.append(last.progress)
                    seen_by_watcher.release()
    assert [report["percent"] for report in reports] == [10, 50, 90]
    assert last is not None
    assert last.is_success


@only_on("embedded")
async def test_logs_are_in_the_trail(shop: Shop) -> None:
    @shop.step("talk")
    async def talk(tx: Any) -> None:
        tx.log("first")
        tx.log("second", "warning")
        for _ in range(500):
            tx.log("much")

    ended = await shop.run("talk")
    logs = ended.trail[0].logs
    assert [(level, text) for _, level, text in logs[:2]] == [("info", "first"), ("warning", "second")]
    assert len(logs) == 200
    assert all(ended.created_ms <= at_ms <= ended.ended_ms for at_ms, _, _ in logs)


# ------------------------------------------------------------------------------------ streams and channels


async def test_messages_leave_with_success_and_with_nothing_else(shop: Shop) -> None:
    @shop.step("write")
    async def write(tx: Any) -> None:
        tx.write_stream("orders", {"of": tx.id, "attempt": tx.attempt}, tag="eu")
        tx.publish("room", {"of": tx.id, "attempt": tx.attempt})
        await tx.sleep(1)
        if tx.attempt == 1:
            raise ValueError("the first attempt fails")

    @shop.step("write-and-fail")
    async def write_and_fail(tx: Any) -> None:
        tx.write_stream("orders", {"of": tx.id, "attempt": 0})
        raise StepFailedError("no")

    room = shop.ps.channel("room")
    alice = await room.subscribe("alice")
    await shop.deploy(Function("write", retry=AGAIN), "write-and-fail")
    async with shop.working():
        ended = await shop.ended(await shop.start())
        assert ended.status == "failed"
        await until(lambda: _length(shop))
        assert await _outbox_is_empty(shop)
    messages = [message async for message in shop.ps.stream("orders").read()]
    wanted = {"of": ended.id, "attempt": 2}
    assert [(message.tag, msgspec.json.decode(message.entry)) for message in messages] == [(b"eu", wanted)]
    batch = await alice.fetch(timeout_ms=5_000)
    assert [message.content for message in batch.messages] == [wanted]


async def _length(shop: Shop) -> bool:
    return bool([message async for message in shop.ps.stream("orders").read()])


async def _outbox_is_empty(shop: Shop) -> bool:
    async def is_empty() -> bool:
        lengths = [
            await shop.ps.execute("LLEN", f"{{p{place}}}.outboxL")
            for place in range(await shop.transactions.store.partitions())
        ]
        return not any(lengths)

    await until(is_empty)
    return True


@only_on("embedded")
async def test_what_cannot_be_written(shop: Shop) -> None:
    @shop.step("many")
    async def many(tx: Any) -> None:
        for number in range(1_001):
            tx.write_stream("orders", number)

    @shop.step("garbage")
    async def garbage(tx: Any) -> None:
        tx.publish("room", object())

    @shop.step("halves")
    async def halves(tx: Any) -> None:
        tx.write_stream("\ud800", 1)

    await shop.deploy("halves", name="halves")
    ended = await shop.run("many")
    assert "at most 1000 messages" in ended.note
    ended = await shop.run("garbage")
    assert "content must be JSON" in ended.note
    # It is refused when it is written, together with what others write at the time; those are not concerned.
    await shop.deploy("add")
    async with shop.working():
        handles = [await shop.start(name) for name in ("main", "halves", "main")]
        found = [await shop.ended(handle) for handle in handles]
    assert [one.status for one in found] == ["success", "internal-error", "success"]


def test_errors_of_steps_are_part_of_the_tree() -> None:
    assert issubclass(StepFailedError, penstock.errors.PenstockError)
    assert not issubclass(StepAbortedError, UsageError)
