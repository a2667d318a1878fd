"""Which steps run: versions that stay, versions that come, and steps and versions that are not there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import penstock
from penstock.transactions import App, Child, Pipeline, Retry, Wait
from penstock.transactions.pipelines.registry import home_key
from penstock.transactions.worker import flow
from tests.places import until
from tests.transactions.conftest import only_on, put_pipeline
from tests.transactions.running import Shop, statuses


@pytest.fixture
async def shop(ps: penstock.Penstock) -> Shop:
    shop = Shop(ps)
    for name in ("old", "new"):

        @shop.step(name)
        async def mark(tx: Any, name: str = name) -> Any:
            return {**tx.input, name: True}

    return shop


async def test_one_stays_with_the_version_it_was_started_with(shop: Shop) -> None:
    first = await shop.deploy(Wait("go"), "old")
    async with shop.working():
        running = await shop.start()
        await shop.reaches(running, "waiting")
        second = await shop.deploy(Wait("go"), "new")
        later = await shop.start()
        pinned = await shop.start(version=first)
        for handle in (running, later, pinned):
            await handle.set_switch("go", 1)
        found = [await shop.ended(handle) for handle in (running, later, pinned)]
    assert [one.output for one in found] == [{"old": True}, {"new": True}, {"old": True}]
    assert [one.version for one in found] == [first, second, first]


async def test_a_running_worker_hears_of_new_pipelines(shop: Shop, url: str) -> None:
    async with penstock.open(url) as other, shop.working():
        for steps in (["old"], ["new"], ["old", "new"]):
            await other.transactions.deploy(Pipeline("main", steps, node_group="shop"))
            ended = await shop.ended(await shop.start())
            assert ended.output == dict.fromkeys(steps, True)


@only_on("embedded", "server")
async def test_a_pipeline_of_an_app_is_deployed_by_its_worker(shop: Shop) -> None:
    shop.app.pipeline(Pipeline("mine", ["old"], node_group="shop"))
    async with shop.working():
        assert (await shop.ended(await shop.start("mine"))).output == {"old": True}
    info = await shop.transactions.registry.get("mine")
    assert info is not None
    assert info.versions[0].comment.startswith("worker ")


@only_on("embedded", "server")
async def test_a_step_that_is_not_there_waits_for_a_worker_that_has_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "UNKNOWN_STEP_RETRY", Retry(limit=400, backoff_ms=5, factor=1.0))
    seen: list[int] = []
    knowing = App()

    @knowing.step("later")
    async def later(tx: Any) -> Any:
        seen.append(tx.attempt)
        if tx.attempt < 2:
            raise ValueError("its own policy counts its own attempts")
        return "here"

    await shop.deploy("later", retry=Retry(limit=2, backoff_ms=1))
    handle = await shop.start()
    async with shop.working():
        await until(lambda: _tried(handle, 3))
    async with shop.worker(knowing):
        ended = await shop.ended(handle)
    assert ended.output == "here"
    assert seen == [1, 2]
    assert "this worker has no step 'later': deploy the code that defines it" in ended.trail[0].note


async def _tried(handle: Any, times: int) -> bool:
    return len((await handle.get(trail=True)).trail) >= times


@only_on("embedded", "server")
async def test_a_step_that_never_comes_ends_it_and_a_retry_begins_anew(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "UNKNOWN_STEP_RETRY", Retry(limit=3, backoff_ms=1))
    await shop.deploy("later")
    async with shop.working():
        handle = await shop.start()
        ended = await shop.ended(handle)
        assert (ended.status, statuses(ended)) == ("internal-error", ["later internal-error"] * 3)
        assert [dead.id for dead in await shop.transactions.looking.dead()] == [handle.id]
        await handle.retry()
        assert len(statuses(await shop.ended(handle))) == 6


async def test_definitions_that_are_broken_or_gone_end_what_needs_them(shop: Shop) -> None:
    """And nothing else."""
    broken = await shop.deploy("old", name="broken")
    await shop.ps.execute("HSET", home_key("broken"), f"v:{broken}", '{"name": 7')
    gone = await shop.deploy("old", name="gone")
    await shop.ps.execute("HDEL", home_key("gone"), f"v:{gone}")
    await put_pipeline(shop.transactions.store, "never", version="f" * 20)
    await shop.deploy(Child("gone"), name="parent")
    await shop.deploy("old")
    async with shop.working():
        names = ("broken", "gone", "never", "parent", "main")
        handles = [await shop.start(name) for name in names]
        found = dict(zip(names, [await shop.ended(handle) for handle in handles], strict=True))
    assert found.pop("main").is_success
    assert {one.status for one in found.values()} == {"internal-error"}
    assert found["broken"].note.startswith("DefinitionError: ")
    assert "has no version" in found["gone"].note
    assert found["never"].note.startswith("UnknownPipelineError: there is no pipeline 'never'")
    assert found["parent"].note.startswith("gone: UnknownPipelineError")
    dead = {one.id for one in await shop.transactions.looking.dead()}
    assert dead == {found[name].id for name in ("broken", "gone", "never")}
    assert all(found[name].trail[-1].note == found[name].note for name in ("broken", "gone", "never"))


@only_on("embedded")
async def test_a_path_that_leads_nowhere(shop: Shop) -> None:
    await shop.deploy("old")
    handle = await shop.start()
    await shop.ps.execute("HSET", f"{{p0}}.stateH:{handle.id}", "path", "7.nowhere")
    async with shop.working():
        async with asyncio.timeout(10):
            ended = await shop.ended(handle)
    assert ended.note.startswith("UsageError: path: pipeline 'main' has no steps at '7.nowhere'")
