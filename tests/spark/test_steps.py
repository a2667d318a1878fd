"""Steps of transactions on Spark executors: what comes of them, who fails, and what survives whom."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.cli.spark_worker import spark_groups_of
from penstock.cli.worker import groups_of
from penstock.errors import ConfigError
from penstock.spark.steps import SparkWorker, spark_step
from penstock.transactions import App, Function, Handle, Pipeline, Transaction
from tests.places import until
from tests.spark.step_functions import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT_MS = 60_000
#: For what has to start a Spark of its own.
LONG_S = 240.0


@pytest.fixture
async def store(url: str) -> AsyncIterator[penstock.Penstock]:
    async with penstock.open(url) as client:
        await client.transactions.deploy(*app.pipelines)
        yield client


def worker_of(store: penstock.Penstock, spark: SparkSession, **options: Any) -> SparkWorker:
    return SparkWorker(store, app, node_groups=["gpu"], spark=spark, **options)


async def ended(handles: list[Handle]) -> list[Transaction]:
    """As they are when they have ended, which they must."""
    found = await asyncio.gather(*(handle.wait(LIMIT_MS) for handle in handles))
    assert [one.id for one in found if not one.has_ended] == []
    return [await handle.get(trail=True) for handle in handles]


async def start(store: penstock.Penstock, pipeline: str, *inputs: Any) -> list[Handle]:
    return [await store.transactions.start(pipeline, data) for data in inputs]


class Gate:
    """Where a step says that it has begun, and what it waits for."""

    def __init__(self, path: Path, name: str = "gate") -> None:
        self._begun, self._go = path / f"{name}.begun", path / f"{name}.go"
        self.input = {"begun": str(self._begun), "go": str(self._go)}

    def begun(self) -> list[str]:
        """Transactions, once for each time."""
        text = self._begun.read_text() if self._begun.exists() else ""
        return [line.split(" ")[0] for line in text.splitlines()]

    def open(self) -> None:
        self._go.touch()


# ---------------------------------------------------------------------------------------------- outcomes


@pytest.mark.parametrize("url", ["embedded", "server"], indirect=True)
async def test_three_kinds_of_functions(store: penstock.Penstock, spark: SparkSession) -> None:
    rated = await start(store, "rate", *({"n": number} for number in range(5)))
    scored = await start(store, "score", *({"n": n, "amount": n / 4, "more": "x"} for n in range(25)))
    packed = await start(store, "pack", {"a": 1}, [2], "three")
    async with worker_of(store, spark, name="spark-1") as worker:
        assert [one.output for one in await ended(rated)] == [
            {"n": place, "rated": handle.id, "percent": 3} for place, handle in enumerate(rated)
        ]
        outputs = [one.output for one in await ended(scored)]
        assert [{**output, "rows": 0} for output in outputs] == [
            {"n": n, "score": n / 2, "rows": 0} for n in range(25)
        ]
        assert max(output["rows"] for output in outputs) <= 10, "more than a batch makes several"
        found = await ended(packed)
        assert [one.output for one in found] == [[{"a": 1}], [[2]], ["three"]]
        assert [(entry.name, entry.status, entry.worker) for entry in found[0].trail] == [
            ("pack", "success", "spark-1")
        ]
        (known,) = await store.transactions.workers.list()
        assert (known.labels, known.concurrency) == ({"kind": "spark", "master": "local[2]"}, 10_000)
        assert repr(worker).startswith("<SparkWorker on local[2], <Worker spark-1 of gpu")
    assert worker.statistics().ended == 33


async def test_each_fails_alone_and_as_its_policy_says(store: penstock.Penstock, spark: SparkSession) -> None:
    told = await start(store, "picky", *({"do": what} for what in ("abort", "fail", "throw", "nothing")))
    poisoned = await start(store, "poisoned", *({"n": number} for number in range(12)), {"n": "text"}, 9)
    async with worker_of(store, spark):
        aborted, failed, thrown, good = await ended(told)
        bad: dict[int, Transaction] = {}
        for number, one in enumerate(await ended(poisoned)):
            if one.status == "success":
                assert one.output == {"n": number, "half": number / 2}
            else:
                bad[number] = one
    assert (aborted.status, aborted.note, aborted.output) == ("aborted", "fraud", {"who": "bob"})
    assert (failed.status, failed.note, failed.output) == ("failed", "no money", {"attempt": 1})
    assert (thrown.status, thrown.output) == ("success", {"attempt": 2}), "its policy knows ValueError"
    assert [entry.note for entry in thrown.trail] == ["ValueError: boom", ""]
    assert (good.status, good.output) == ("success", {"attempt": 1})
    assert {number: (one.status, one.note.partition(":")[0]) for number, one in bad.items()} == {
        5: ("internal-error", "ValueError"),
        7: ("internal-error", "the function of step 'poisoned' gave no row for this transaction"),
        12: ("failed", "n of its input must be int64"),
        13: ("failed", "its input must be an object"),
    }


async def test_who_kills_its_process_fails_alone(store: penstock.Penstock, spark: SparkSession) -> None:
    handles = await start(store, "picky", *({"do": what} for what in ("die", "nothing", "nothing")))
    async with worker_of(store, spark):
        dead, *others = await ended(handles)
    assert [one.output for one in others] == [{"attempt": 1}] * 2
    assert (dead.status, [entry.attempt for entry in dead.trail]) == ("failed", [1, 2, 3])
    assert dead.note.startswith("the Spark job of step 'picky' failed: Python worker exited unexpectedly")


async def test_between_ordinary_steps_on_another_node_group(
    store: penstock.Penstock, spark: SparkSession
) -> None:
    (handle,) = await start(store, "mixed", {"n": 1})
    transactions = store.transactions
    async with transactions.worker(app, node_group="shop"):
        async with transactions.worker(app, node_group="gpu"):

            async def is_left() -> bool:
                return bool((await handle.get()).state == "sleeping")

            await until(is_left)  # an ordinary worker cannot run it, and leaves it to others
        async with worker_of(store, spark):
            (found,) = await ended([handle])
    assert found.output == {
        "n": 1, "prepared": True, "rated": handle.id, "percent": None, "finished": True,
    }  # fmt: skip
    steps = [(entry.name, entry.group, entry.status) for entry in found.trail]
    assert [steps[0], *steps[-2:]] == [
        ("prepare", "shop", "success"), ("rate", "gpu", "success"), ("finish", "shop", "success"),
    ]  # fmt: skip
    assert "runs on Spark: start `penstock spark worker`" in found.trail[1].note


# ---------------------------------------------------------------------------------------- life and death


async def test_leases_are_renewed_while_a_job_runs(
    store: penstock.Penstock, spark: SparkSession, tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    (handle,) = await start(store, "wait", gate.input)
    async with (
        worker_of(store, spark, lease_ms=2_000) as worker,
        store.transactions.worker(app, node_group="gpu"),
    ):
        await until(gate.begun)
        await asyncio.sleep(3)  # longer than a lease: the other worker would take it
        gate.open()
        (found,) = await ended([handle])
        assert worker.statistics().lost == 0
    assert found.output == {"waited": handle.id}
    assert (len(found.trail), gate.begun()) == (1, [handle.id])


async def test_a_worker_that_is_told_to_stop(
    store: penstock.Penstock, spark: SparkSession, tmp_path: Path
) -> None:
    """Once: jobs end. Twice: they are interrupted and handed back; whoever comes next has all cores."""
    first, second = Gate(tmp_path, "first"), Gate(tmp_path, "second")
    gentle = worker_of(store, spark)
    async with gentle:
        (handle,) = await start(store, "wait", first.input)
        await until(first.begun)
        gentle.stop()
        (waiting,) = await start(store, "rate", {"n": 1})
        first.open()
        await gentle.run()
        assert (await handle.get()).output == {"waited": handle.id}
        assert (await waiting.get()).state == "queued", "nothing more was taken"
    hurried = worker_of(store, spark)
    async with hurried:
        handles = await start(store, "wait", second.input, second.input)
        await until(lambda: len(second.begun()) == 2)
        hurried.stop()
        hurried.stop()
        await hurried.run()
    assert [(await handle.get()).state for handle in handles] == ["queued", "queued"]
    assert hurried.statistics().lost == 0
    async with worker_of(store, spark):
        # Both cores were busy with the jobs that nobody waits for: this one would not begin.
        await until(lambda: len(second.begun()) == 4)
        second.open()
        found = await ended(handles)
    assert [one.output for one in found] == [{"waited": handle.id} for handle in handles]
    assert (await waiting.get()).status == "success"


async def test_steps_that_take_too_long_or_are_cancelled(
    store: penstock.Penstock, spark: SparkSession, tmp_path: Path
) -> None:
    gate, other = Gate(tmp_path), Gate(tmp_path, "other")
    async with worker_of(store, spark):
        (late,) = await ended(await start(store, "impatient", gate.input))
        assert (late.status, late.note) == ("timeout", "it took more than 1000 ms")
        handles = await start(store, "wait", other.input, other.input)
        await until(other.begun)  # the core of the one that was late may not be free yet
        await store.transactions.cancel(handles[0].id, "nobody wants it")
        (cancelled,) = await ended(handles[:1])
        assert (cancelled.status, cancelled.note.endswith("nobody wants it")) == ("cancelled", True)
        other.open()
        (found,) = await ended(handles[1:])
        assert found.output == {"waited": handles[1].id}


@contextmanager
def driver(url: str, group: str, master: str = "local[1]") -> Iterator[subprocess.Popen[str]]:
    """``penstock spark worker`` in a process of its own, with a Spark of its own."""
    what = f"spark worker tests.spark.step_functions:app --store {url} --node-group {group} --lease-ms 3000"
    how = f"--master {master} --conf spark.driver.memory=512m"
    command = [sys.executable, "-m", "penstock.cli.main", *what.split(), *how.split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def children_of(pid: int, word: str = "java") -> list[int]:
    """Processes that it has started, whose command has the word."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    pids = {int(child) for path in found for child in path.read_text().split()}
    return [child for child in pids if word in Path(f"/proc/{child}/cmdline").read_text()]


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_killed_driver(
    store: penstock.Penstock, url: str, spark: SparkSession, tmp_path: Path
) -> None:
    """What it had goes to another worker, and each transaction ends once."""
    gate = Gate(tmp_path)
    handles = await start(store, "wait", gate.input)
    with driver(url, "gpu") as process:
        await until(gate.begun, LONG_S)
        handles += await start(store, "rate", *({"n": number} for number in range(20)))
        (java,) = children_of(process.pid)
        process.kill()
        gate.open()
        async with worker_of(store, spark):
            waited, *rated = await ended(handles)
        await until(lambda: not Path(f"/proc/{java}").exists())
    assert (waited.output, gate.begun()) == ({"waited": waited.id}, [waited.id, waited.id])
    assert [one.output["n"] for one in rated] == list(range(20))
    for one in (waited, *rated):
        assert [entry.status for entry in one.trail if entry.kind == "step"] == ["success"]
    assert (await store.transactions.statistics.read("600s")).total.ended["success"] == 21


@pytest.mark.crash
@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_a_killed_session(
    store: penstock.Penstock, url: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Its worker ends and says why; what it had goes to another one, as nobody's fault."""
    gate = Gate(tmp_path)
    handles = await start(store, "wait", gate.input)
    with driver(url, "gpu") as process:
        await until(gate.begun, LONG_S)
        (java,) = children_of(process.pid)
        os.kill(java, signal.SIGKILL)
        out, errors = await asyncio.to_thread(process.communicate, timeout=LONG_S)
    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith("penstock: the Spark session is gone")
    assert "Worker" in out, "it had begun to work"
    gate.open()
    async with worker_of(store, spark):
        (found,) = await ended(handles)
    assert (found.output, gate.begun()) == ({"waited": found.id}, [found.id, found.id])
    assert [(entry.status, entry.attempt) for entry in found.trail if entry.kind == "step"] == [
        ("success", 1)
    ]


@pytest.mark.crash
@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_a_killed_executor(store: penstock.Penstock, url: str, tmp_path: Path) -> None:
    """Nobody hears of it: Spark runs its tasks again."""
    gate = Gate(tmp_path)
    handles = await start(store, "wait", *[gate.input] * 4)
    with driver(url, "gpu", "local-cluster[2,1,1024]") as process:
        await until(lambda: len(set(gate.begun())) == 2, LONG_S)
        (java,) = children_of(process.pid)
        first, _ = children_of(java, "CoarseGrainedExecutorBackend")
        os.kill(first, signal.SIGKILL)
        await until(lambda: len(gate.begun()) == 3, LONG_S)
        gate.open()
        found = await ended(handles)
    assert [one.output for one in found] == [{"waited": handle.id} for handle in handles]
    assert [[(entry.status, entry.attempt) for entry in one.trail] for one in found] == [[("success", 1)]] * 4


# ------------------------------------------------------------------------------------------- setups


def test_a_worker_of_spark_works_for_the_groups_of_its_steps() -> None:
    assert groups_of(app) == ["gpu", "shop"]
    assert spark_groups_of(app) == ["gpu"]
    undone = App(pipelines=[Pipeline("book", [Function("pay", compensate="rate")], node_group="bank")])
    spark_step(undone, "rate")(lambda data: data)
    assert spark_groups_of(undone) == ["bank"]


async def test_setups_that_cannot_work(
    store: penstock.Penstock, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="the app has no step on Spark"):
        SparkWorker(store, App(), spark=spark)
    with pytest.raises(ConfigError, match="give either spark, or master, conf and log"):
        SparkWorker(store, app, spark=spark, master="local[1]")
    with pytest.raises(ConfigError, match="concurrency must be 1 to 10000, not 10001"):
        SparkWorker(store, app, spark=spark, concurrency=10_001)
    for options, problem in (
        ({"input_schema": "a nonsense"}, "input_schema of step 'x' cannot be read"),
        ({"output_schema": "double"}, "output_schema of step 'x' must name columns"),
        ({"input_schema": "tx string"}, "input_schema of step 'x' must not have tx"),
    ):
        wrong = App()
        spark_step(wrong, "x", kind="pandas", **options)(lambda frame: frame)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=problem):
            await SparkWorker(store, wrong, spark=spark).run()
    (tmp_path / "only_here.py").write_text(
        "from penstock.transactions import App\nfrom penstock.spark.steps import spark_step\n"
        "app = App()\n@spark_step(app, 'x')\ndef x(data): return data\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    (tmp_path / "only_here.py").unlink()

    with pytest.raises(ConfigError, match=r"step 'x' cannot run on executors.*No module named 'only_here'"):
        await SparkWorker(store, only_here.app, spark=spark).run()
