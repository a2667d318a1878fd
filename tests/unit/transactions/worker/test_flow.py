"""What outcomes become: the table at the top of ``flow``, line by line, against a store that takes notes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from penstock.errors import StepFailedError, TransactionError
from penstock.transactions import App, Child, Delay, Function, Pipeline, Reply, Retry, Wait
from penstock.transactions.model import Record, Settlement, TrailEntry
from penstock.transactions.pipelines import AnyStep
from penstock.transactions.worker.flow import Flow
from penstock.transactions.worker.holding import Held, LeaseLostError, NotWrittenError
from penstock.transactions.worker.performing import Performer, Pools

NOW_MS = 1_000_000


class Notes:
    """In place of a store and its settler: keeps what is written, answers as it is told."""

    partition = 0
    patience_s = 1.0

    def __init__(self) -> None:
        self.written: list[Settlement] = []
        self.answers: list[str] = []
        self.switches: dict[str, str] = {}
        self.cancelled: list[str] = []
        self.reason = ""

    def put(self, settlement: Settlement) -> asyncio.Future[str]:
        self.written.append(settlement)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.set_result(self.answers.pop(0) if self.answers else "ok")
        return future

    async def get_switch(self, tx: str, name: str, *, acknowledge: bool = False) -> tuple[str | None, bool]:
        return self.switches.get(name), False

    async def get(self, tx: str) -> Any:
        return Record(tx, {b"cancel": self.reason.encode()}), []

    async def control(self, verb: str, tx: str, who: str) -> list[str]:
        self.cancelled.append(f"{verb} {who}")
        raise TransactionError("it has ended already")

    @property
    def kinds(self) -> list[str]:
        return [one.kind for one in self.written]

    def fields(self, place: int = -1) -> dict[str, Any]:
        flat = self.written[place].fields
        return {name: _decoded(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}

    def entries(self) -> list[TrailEntry]:
        return [msgspec.json.decode(entry, type=TrailEntry) for one in self.written for entry in one.trail]


def _decoded(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, bytes) else value


class Stage:
    """One transaction, ready to be carried."""

    def __init__(
        self, *steps: str | AnyStep, data: Any = None, retry: Retry | None = None, **fields: Any
    ) -> None:
        self.notes = Notes()
        self.app = App()
        self.must_stop = False
        self.is_stopping = False
        self.pipeline = Pipeline("main", list(steps), node_group="shop", retry=retry)
        values = {
            "group": "shop",
            "pipeline": "main",
            "version": "v1",
            "step": 0,
            "data": 0,
            "d:0": "{}",
            **fields,
        }
        if data is not None:
            values["d:0"] = msgspec.json.encode(data).decode()
        self.record = Record(
            "tx-0-1", {name.encode(): str(value).encode() for name, value in values.items()}, 7
        )

        @self.app.step("add")
        async def add(tx: Any) -> Any:
            return {**tx.input, "n": tx.input.get("n", 0) + 1}

        @self.app.step("noop")
        async def noop(tx: Any) -> None: ...

        @self.app.step("fail")
        async def fail(tx: Any) -> None:
            raise StepFailedError("no money")

    async def run(self) -> Notes:
        notes: Any = self.notes
        self.held = Held(notes, notes, self.record, NOW_MS, lambda _: None)
        self.held.task = asyncio.current_task()
        pools = Pools(lambda: pytest.fail("no threads"), lambda: pytest.fail("no processes"))
        performer = Performer(self.app, pools, None, must_stop=lambda: self.must_stop)  # type: ignore[arg-type]
        await Flow(self.held, self.pipeline, performer, "w1").run(lambda: self.is_stopping)
        return self.notes


async def test_steps_are_kept_and_the_last_ends_it() -> None:
    notes = await Stage("add", "noop", "add").run()
    assert notes.kinds == ["keep", "keep", "end"]
    assert notes.fields(0) == {"step": 1, "d:1": {"n": 1}, "data": 1}
    assert notes.fields(1) == {"step": 2}  # nothing came out: what went in goes on
    assert notes.fields(2) == {"step": 3, "d:3": {"n": 2}, "data": 3}
    assert notes.written[2].arguments == ("success", 0)
    assert [(one.token, one.seq) for one in notes.written] == [(7, 1), (7, 2), (7, 3)]
    assert [(entry.name, entry.status, entry.worker) for entry in notes.entries()] == [
        ("add", "success", "w1"), ("noop", "success", "w1"), ("add-2", "success", "w1"),
    ]  # fmt: skip


async def test_another_group_and_a_stop_put_it_back_into_a_queue() -> None:
    notes = await Stage("noop", Function("noop", node_group="gpu")).run()
    assert notes.kinds == ["keep", "queue"]
    assert notes.written[1].arguments == ("Out", "gpu")
    stage = Stage("noop", Function("noop", node_group="gpu"))
    stage.is_stopping = True
    notes = await stage.run()
    assert notes.kinds == ["queue"]
    assert notes.written[0].arguments == ("Out", "gpu")
    assert notes.fields(0) == {"step": 1}
    # The last one ends all the same.
    stage = Stage("noop")
    stage.is_stopping = True
    assert (await stage.run()).kinds == ["end"]


async def test_a_worker_that_waits_for_nobody_hands_back() -> None:
    stage = Stage("noop", "noop")
    stage.must_stop = True
    notes = await stage.run()
    assert notes.kinds == ["queue"]
    assert (notes.fields(), notes.entries()) == ({}, [])  # as if it had never been taken


@pytest.mark.parametrize(
    ("step", "kind", "arguments"),
    [
        (Delay(50), "sleep", (50, 0)),
        (Wait("go"), "wait", ("go", 0, "-")),
        (Wait("go", timeout_ms=50), "wait", ("go", 50, "-")),
    ],
)
async def test_suspensions(step: AnyStep, kind: str, arguments: tuple[Any, ...]) -> None:
    notes = await Stage(step).run()
    assert notes.kinds == [kind]
    assert notes.written[0].arguments == arguments
    assert [entry.status for entry in notes.entries()] == [kind]


async def test_a_join_is_asked_for() -> None:
    notes = await Stage("noop", Child("other")).run()
    assert notes.kinds == ["keep", "join"]
    assert notes.fields() == {"z:1:join": 1}


async def test_failures_with_and_without_another_attempt() -> None:
    notes = await Stage("fail", retry=Retry(limit=3, backoff_ms=100, jitter=0.0), attempt=1).run()
    assert notes.kinds == ["sleep"]
    assert notes.written[0].arguments == (200, 1)
    assert notes.fields()["attempt"] == 2
    notes = await Stage("fail", retry=Retry(limit=3), attempt=2).run()
    assert notes.kinds == ["end"]
    assert (notes.written[0].note, notes.written[0].arguments) == ("no money", ("failed", 0))


async def test_what_nobody_expected_is_given_up_unless_it_is_a_child() -> None:
    stage = Stage("unexpected")
    stage.app.step("unexpected")(_unexpected)
    assert (await stage.run()).written[0].arguments == ("internal-error", 1)
    stage = Stage("unexpected", parent="tx-0-0")
    stage.app.step("unexpected")(_unexpected)
    assert (await stage.run()).written[0].arguments == ("internal-error", 0)


async def _unexpected(tx: Any) -> None:
    raise ValueError("boom")


async def test_undoing_is_decided_first_and_stays_decided() -> None:
    undone: list[Any] = []

    async def undo(tx: Any) -> None:
        undone.append((tx.number, tx.output, tx.attempt))

    stage = Stage(
        Function("add", compensate="undo"), Function("noop", compensate="undo"), "fail", deadline_ms=0
    )
    stage.app.step("undo")(undo)
    notes = await stage.run()
    assert notes.kinds == ["keep"] * 5 + ["end"]
    assert notes.fields(2)["fate"] == {"status": "failed", "note": "no money", "is_dead": False}
    assert notes.fields(2)["deadline_ms"] == ""
    assert [notes.fields(place)["undo"] for place in (3, 4)] == ["0", ""]
    assert undone == [(1_000_001, {"n": 1}, 1), (1_000_000, {"n": 1}, 1)]
    assert notes.written[-1].arguments == ("failed", 0)
    # Somebody else goes on with it: nothing but the rest is undone.
    undone.clear()
    fate = '{"status":"timeout","note":"late"}'
    later = Stage(Function("add", compensate="undo"), "fail", fate=fate, undo="0", step=1, **{"d:1": "{}"})
    later.app.step("undo")(undo)
    notes = await later.run()
    assert (notes.kinds, notes.written[-1].arguments, notes.written[-1].note) == (
        ["keep", "end"], ("timeout", 0), "late",
    )  # fmt: skip
    assert len(undone) == 1


async def test_a_reply_that_fails_stays_at_its_step() -> None:
    notes = await Stage("noop", Reply({"x": 1}, "failed", note="no")).run()
    assert notes.kinds == ["keep", "end"]
    assert notes.fields() == {"d:2": {"x": 1}, "data": 2, "has_output": 1}
    assert notes.written[-1].arguments == ("failed", 0)


async def test_a_deadline_that_has_passed_and_a_cancellation_come_before_the_step() -> None:
    notes = await Stage("noop", deadline_ms=NOW_MS - 1).run()
    assert (notes.kinds, notes.written[0].note) == (["end"], "its deadline has passed")
    stage = Stage("noop", cancel="bob: enough")
    stage.notes.reason = "bob: enough"
    notes = await stage.run()
    assert (notes.kinds, notes.written[0].note, notes.written[0].arguments[0]) == (
        ["end"], "bob: enough", "cancelled",
    )  # fmt: skip


async def test_learning_of_a_cancellation_by_an_answer() -> None:
    stage = Stage("noop", "noop")
    stage.notes.answers, stage.notes.reason = ["cancel"], "bob"
    notes = await stage.run()
    assert (notes.kinds, notes.written[1].arguments[0], notes.written[1].note) == (
        ["keep", "end"],
        "cancelled",
        "bob",
    )
    stage = Stage(Delay(50))
    stage.notes.answers, stage.notes.reason = ["cancel"], "bob"
    assert (await stage.run()).cancelled == ["cancel bob"]  # it sleeps already


async def test_a_lost_lease_and_a_refusal_leave_at_once() -> None:
    stage = Stage("noop", "noop")
    stage.notes.answers = ["lost"]
    with pytest.raises(LeaseLostError):
        await stage.run()
    with pytest.raises(LeaseLostError):
        await stage.held.keep(("a", "b"))
    assert stage.notes.kinds == ["keep"]
    stage = Stage("noop", "noop")
    stage.notes.answers = ["error ERR no"]
    with pytest.raises(NotWrittenError, match="tx-0-1: error ERR no"):
        await stage.run()


async def test_an_interruption_waits_for_a_write_to_end() -> None:
    stage = Stage("noop", "noop")
    notes = stage.notes
    put = notes.put

    def put_and_interrupt(settlement: Settlement) -> asyncio.Future[str]:
        future = put(settlement)
        if len(notes.written) == 1:
            stage.must_stop = True
            stage.held.interrupt()
        return future

    notes.put = put_and_interrupt  # type: ignore[method-assign]
    await stage.run()
    assert notes.kinds == ["keep", "queue"]


async def test_the_time_of_the_store_is_never_ahead() -> None:
    notes: Any = Notes()
    held = Held(notes, notes, Record("tx-0-1", {}), NOW_MS, lambda _: None)
    held.born_s = 0.0
    held._time_s = lambda: 0.0129
    assert held.now_ms() == NOW_MS + 12
    assert repr(held) == "<Held tx-0-1 step >"


async def test_a_lease_that_is_over_is_asked_about_before_an_effect() -> None:
    notes: Any = Notes()
    held = Held(notes, notes, Record("tx-0-1", {}, 7), NOW_MS, lambda _: None)
    await held.assure()
    assert not notes.written  # there is no doubt
    held.leased_until_s = held.born_s
    await held.assure()
    assert notes.kinds == ["keep"]
    notes.answers = ["lost"]
    with pytest.raises(LeaseLostError):
        await held.assure()
