"""The registry of pipelines on every place: drafts, versions, activation, heads that follow whatever dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import penstock
from penstock.client.client import Client
from penstock.client.scripts import Script
from penstock.errors import (
    ConnectionLostError,
    DefinitionError,
    OutcomeUnknownError,
    UnknownPipelineError,
    UsageError,
)
from penstock.transactions.keys import TOPIC_PIPELINES
from penstock.transactions.pipelines import Delay, Pipeline, PipelineRegistry, version_of
from penstock.transactions.pipelines import registry as registry_module
from penstock.transactions.pipelines.registry import NAMES_KEY, head_key, home_key
from tests import places

PARTITIONS = 3
ONE = Pipeline(
    "shop/checkout", ["validate", "charge-card"], node_group="shop", deadline_ms=60_000, priority=0
)
TWO = Pipeline("shop/checkout", ["validate", "charge-card", "ship"], is_startable=False)
V1, V2 = version_of(ONE), version_of(TWO)
LINE1, LINE2 = "shop 60000 0 1", "default 0 5 0"
NAME = ONE.name


def registry_of(client: penstock.Penstock, partitions: int = PARTITIONS) -> PipelineRegistry:
    async def count() -> int:
        return partitions

    return PipelineRegistry(client, count)


@pytest.fixture(params=["embedded", "valkey", "redis", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    return places.url_of(request.param, request)


@pytest.fixture
async def ps(url: str) -> AsyncIterator[penstock.Penstock]:
    async with penstock.open(url) as client:
        yield client


@pytest.fixture
def registry(ps: penstock.Penstock) -> PipelineRegistry:
    return registry_of(ps)


async def heads(ps: Client, name: str = NAME) -> list[dict[str, str]]:
    """What each partition says, but for the revision."""
    found = [await ps.hgetall(head_key(partition, name)) for partition in range(PARTITIONS)]
    return [
        {key.decode(): value.decode() for key, value in head.items() if key != b"revision"} for head in found
    ]


async def everything(ps: Client) -> dict[str, Any]:
    keys = [home_key(NAME), *(head_key(partition, NAME) for partition in range(PARTITIONS))]
    return {key: await ps.hgetall(key) for key in keys}


class Fault:
    """Scripts of a client of which some never arrive."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost: list[str] = []
        call = Script.__call__

        async def faulty(script: Script, keys: Any = (), args: Any = (), **options: Any) -> Any:
            if f"{args[0]} {keys[0]}" in self.lost:
                raise OutcomeUnknownError("the connection was cut")
            return await call(script, keys, args, **options)

        monkeypatch.setattr(Script, "__call__", faulty)


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    return Fault(monkeypatch)


# ------------------------------------------------------------------------------ drafts and versions


async def test_a_pipeline_from_draft_to_deletion(ps: penstock.Penstock, registry: PipelineRegistry) -> None:
    assert await registry.get(NAME) is None
    await registry.save_draft(ONE)
    info = await registry.get(NAME)
    assert info is not None
    assert (info.name, info.active, info.draft, info.versions) == (NAME, None, ONE, [])
    assert await registry.names() == [NAME]

    assert await registry.commit(NAME, "first", "ann") == V1
    info = await registry.get(NAME)
    assert info is not None
    assert info.draft is None
    (first,) = info.versions
    seconds, _ = await ps.execute("TIME")  # type: ignore[misc]
    assert (first.version, first.comment, first.by, first.is_active) == (V1, "first", "ann", False)
    assert abs(first.committed_ms - int(seconds) * 1_000) < 60_000
    assert await heads(ps) == [{f"v:{V1}": LINE1}] * PARTITIONS

    await registry.activate(NAME, V1)
    assert await heads(ps) == [{"active": f"{V1} {LINE1}", f"v:{V1}": LINE1}] * PARTITIONS
    assert await registry.load(NAME) == ONE

    await registry.save_draft(
        {"name": NAME, "steps": ["validate", "charge-card", "ship"], "is_startable": False}
    )
    assert await registry.commit(NAME) == V2
    await registry.activate(NAME, V2)
    both = {f"v:{V1}": LINE1, f"v:{V2}": LINE2}
    assert await heads(ps) == [both | {"active": f"{V2} {LINE2}"}] * PARTITIONS
    assert (await registry.load(NAME), await registry.load(NAME, V1)) == (TWO, ONE)
    info = await registry.get(NAME)
    assert info is not None
    assert [(version.version, version.is_active) for version in info.versions] == [(V1, False), (V2, True)]

    await registry.deactivate(NAME)
    assert await heads(ps) == [both] * PARTITIONS
    with pytest.raises(UnknownPipelineError, match="has no active version, activate one"):
        await registry.load(NAME)
    for version in (V1, V2):
        await registry.delete_version(NAME, version)
    assert await heads(ps) == [{}] * PARTITIONS
    assert (await registry.get(NAME), await registry.names()) == (None, [])


async def test_the_same_content_is_the_same_version(
    ps: penstock.Penstock, registry: PipelineRegistry
) -> None:
    await registry.save_draft(ONE)
    await registry.commit(NAME, "first", "ann")
    before = await registry.get(NAME)
    await registry.save_draft(ONE)
    assert await registry.commit(NAME, "again", "bob") == V1
    assert await registry.get(NAME) == before


async def test_drafts_are_cloned_and_discarded(registry: PipelineRegistry) -> None:
    await registry.deploy(ONE)
    await registry.clone_to_draft(NAME, V1)
    info = await registry.get(NAME)
    assert info is not None
    assert info.draft == ONE
    await registry.discard_draft(NAME)
    await registry.discard_draft(NAME)
    info = await registry.get(NAME)
    assert info is not None
    assert info.draft is None
    await registry.save_draft(Pipeline("brief", ["f"]))
    await registry.discard_draft("brief")
    assert await registry.names() == [NAME]
    with pytest.raises(UsageError, match="has no draft to commit"):
        await registry.commit(NAME)


async def test_a_draft_that_changes_under_a_commit_is_the_one_that_is_committed(
    registry: PipelineRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await registry.save_draft(ONE)
    parse = registry_module.parse
    between = [TWO]

    def slow_parse(data: Any) -> Pipeline:
        found = parse(data)
        if isinstance(data, bytes) and between:  # somebody saves after the draft was read
            monkeypatch.setattr(registry, "_change", saved_first(between.pop()))
        return found

    def saved_first(pipeline: Pipeline) -> Any:
        change = registry._change

        async def changed(*arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(registry, "_change", change)
            await registry.save_draft(pipeline)
            return await change(*arguments, **options)

        return changed

    monkeypatch.setattr(registry_module, "parse", slow_parse)
    assert await registry.commit(NAME) == V2
    assert not between
    info = await registry.get(NAME)
    assert info is not None
    assert [version.version for version in info.versions] == [V2]


async def test_what_is_unknown_is_named(registry: PipelineRegistry) -> None:
    with pytest.raises(UnknownPipelineError, match="there is no pipeline 'shop/checkout'"):
        await registry.load(NAME)
    with pytest.raises(UnknownPipelineError, match="there is no pipeline"):
        await registry.activate(NAME, V1)
    await registry.deploy(ONE)
    for attempt in (
        registry.load(NAME, V2),
        registry.activate(NAME, V2),
        registry.delete_version(NAME, V2),
        registry.clone_to_draft(NAME, V2),
        registry.export(NAME, V2),
        registry.diff(NAME, V1, V2),
        registry.diff(NAME, "draft", V1),
    ):
        with pytest.raises(UnknownPipelineError, match=r"pipeline 'shop/checkout' has no version '\w+'"):
            await attempt
    with pytest.raises(UsageError, match="name must be 1 to 128"):
        await registry.load("a b")


async def test_a_wrong_definition_is_not_saved(registry: PipelineRegistry) -> None:
    for attempt in (
        registry.save_draft({"name": "p", "steps": []}),
        registry.deploy(Pipeline("p", [Delay(0)])),
    ):
        with pytest.raises(DefinitionError):
            await attempt
    with pytest.raises(UsageError, match="comment must not be longer than 2000"):
        await registry.deploy(ONE, "x" * 2_001)
    assert await registry.names() == []


async def test_versions_have_a_bound(registry: PipelineRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "MAX_VERSIONS", 1)
    await registry.deploy(ONE)
    with pytest.raises(UsageError, match="has 1 versions, delete old ones first"):
        await registry.deploy(TWO)
    assert await registry.deploy(ONE) == V1
    assert await registry.load(NAME) == ONE


# ---------------------------------------------------------------------------------- deploy, delete


async def test_deploying_what_is_active_writes_nothing(
    ps: penstock.Penstock, registry: PipelineRegistry
) -> None:
    assert await registry.deploy(ONE, "first") == V1
    before = await everything(ps)
    async with ps.pubsub() as subscriber:
        await subscriber.subscribe(TOPIC_PIPELINES)
        assert await registry_of(ps).deploy(ONE, "again") == V1
        await registry.repair()
        await ps.publish(TOPIC_PIPELINES, "the end")
        assert (await anext(aiter(subscriber))).data == b"the end"
    assert await everything(ps) == before


async def test_deploying_leaves_the_draft(registry: PipelineRegistry) -> None:
    await registry.save_draft(TWO)
    await registry.deploy(ONE)
    info = await registry.get(NAME)
    assert info is not None
    assert (info.active, info.draft) == (V1, TWO)


async def test_what_is_active_or_in_use_is_not_deleted(
    ps: penstock.Penstock, registry: PipelineRegistry
) -> None:
    await registry.deploy(ONE)
    with pytest.raises(UsageError, match="is active, activate another one first"):
        await registry.delete_version(NAME, V1)
    await registry.deploy(TWO)
    before = await heads(ps)
    asked: list[Any] = []

    async def is_in_use(name: str, version: str) -> bool:
        asked.append((name, version, await heads(ps)))
        return True

    with pytest.raises(UsageError, match="is in use, delete it when that has ended"):
        await registry.delete_version(NAME, V1, is_in_use=is_in_use)
    # While it was asked nobody could start it, and whoever runs it could read it.
    without = {"active": f"{V2} {LINE2}", f"v:{V2}": LINE2}
    assert asked == [(NAME, V1, [without] * PARTITIONS)]
    assert await heads(ps) == before

    async def cannot_tell(name: str, version: str) -> bool:
        raise ConnectionLostError("no answer")

    with pytest.raises(ConnectionLostError):
        await registry.delete_version(NAME, V1, is_in_use=cannot_tell)
    assert await heads(ps) == before

    async def is_activated_meanwhile(name: str, version: str) -> bool:
        await registry.activate(name, version)
        return False

    with pytest.raises(UsageError, match="was taken up again, so it stays"):
        await registry.delete_version(NAME, V1, is_in_use=is_activated_meanwhile)
    registry.forget(NAME)
    assert await registry.load(NAME) == ONE
    await registry.deploy(TWO)

    async def is_idle(name: str, version: str) -> bool:
        return False

    await registry.delete_version(NAME, V1, is_in_use=is_idle)
    assert await heads(ps) == [without] * PARTITIONS
    registry.forget(NAME)
    with pytest.raises(UnknownPipelineError, match="has no version"):
        await registry.load(NAME, V1)


# -------------------------------------------------------------------------------------- heads


async def test_heads_that_were_not_reached_are_mended(
    ps: penstock.Penstock, registry: PipelineRegistry, fault: Fault
) -> None:
    right = [{"active": f"{V1} {LINE1}", f"v:{V1}": LINE1}] * PARTITIONS

    async def broken_deploy() -> None:
        await registry.deploy(TWO)
        fault.lost = [f"head {head_key(1, NAME)}"]
        with pytest.raises(OutcomeUnknownError):
            await registry.deploy(ONE)
        fault.lost = []
        reached = await heads(ps)
        assert reached[0]["active"] == reached[2]["active"] == f"{V1} {LINE1}"
        assert reached[1]["active"] == f"{V2} {LINE2}"

    for mend in (
        lambda: registry.deploy(ONE),
        lambda: registry.activate(NAME, V1),
        registry.repair,
    ):
        await broken_deploy()
        await mend()
        assert [{**head, f"v:{V2}": LINE2} for head in right] == await heads(ps)


async def test_heads_that_were_lost_are_written_again(
    ps: penstock.Penstock, registry: PipelineRegistry
) -> None:
    await registry.deploy(ONE)
    before = await everything(ps)
    await ps.delete(head_key(2, NAME))
    await ps.hset(head_key(1, NAME), {"v:" + "0" * 20: "stale 0 5 1"})
    await ps.hset(head_key(0, NAME), {"of others": "stays"})
    await registry.repair()
    assert await ps.hget(head_key(0, NAME), "of others") == b"stays"
    await ps.hdel(head_key(0, NAME), "of others")
    assert await everything(ps) == before


async def test_a_late_writer_does_not_turn_heads_back(
    ps: penstock.Penstock, registry: PipelineRegistry
) -> None:
    await registry.deploy(ONE)
    late = await registry._change(NAME, "snapshot")
    await registry.deploy(TWO)
    before = await everything(ps)
    await registry._spread(NAME, late)
    assert await everything(ps) == before


async def test_a_home_that_was_lost_and_made_again_is_followed(
    ps: penstock.Penstock, registry: PipelineRegistry
) -> None:
    await registry.deploy(ONE)
    await ps.delete(home_key(NAME))
    await registry.deploy(TWO)
    assert await heads(ps) == [{"active": f"{V2} {LINE2}", f"v:{V2}": LINE2}] * PARTITIONS


async def test_a_clock_that_was_set_back_changes_nothing(
    ps: penstock.Penstock, registry: PipelineRegistry
) -> None:
    await registry.deploy(ONE)
    future = 10**15 * 4
    for key in await everything(ps):
        await ps.hset(key, {"revision": future})
    await registry.deploy(TWO)
    assert {head["active"] for head in await heads(ps)} == {f"{V2} {LINE2}"}
    assert await ps.hget(home_key(NAME), "revision") == str(future + 1).encode()


async def test_more_partitions_get_heads_by_repair(ps: penstock.Penstock) -> None:
    await registry_of(ps, 1).deploy(ONE)
    assert [bool(head) for head in await heads(ps)] == [True, False, False]
    await registry_of(ps).deploy(ONE)
    assert all(await heads(ps))


async def test_many_who_deploy_at_once_agree(ps: penstock.Penstock, url: str) -> None:
    pipelines = [Pipeline(NAME, [f"step-{number}"]) for number in range(8)]
    async with penstock.open(url) as other:
        registries = [registry_of(client) for client in (ps, other)]
        await asyncio.gather(
            *(registries[number % 2].deploy(pipeline) for number, pipeline in enumerate(pipelines))
        )
    active = await ps.hget(home_key(NAME), "active")
    assert active is not None
    said = await heads(ps)
    assert [head["active"].split()[0] for head in said] == [active.decode()] * PARTITIONS
    assert [len(head) for head in said] == [9] * PARTITIONS
    revision, spread = await ps.hmget(home_key(NAME), "revision", "spread")
    assert spread == (revision or b"") + b" 3"


# ------------------------------------------------------------------------- caches, files, differences


async def test_versions_are_kept_in_memory_and_changes_are_told(
    ps: penstock.Penstock, registry: PipelineRegistry
) -> None:
    async with ps.pubsub() as subscriber:
        await subscriber.subscribe(TOPIC_PIPELINES)
        messages = aiter(subscriber)
        for change in (
            registry.save_draft(ONE),
            registry.commit(NAME),
            registry.activate(NAME, V1),
            registry.clone_to_draft(NAME, V1),
            registry.discard_draft(NAME),
            registry.deactivate(NAME),
            registry.delete_version(NAME, V1),
        ):
            await change
            # Heads of several partitions may tell it several times.
            async with asyncio.timeout(10):
                assert (await anext(messages)).data == NAME.encode()

    await registry.deploy(ONE)
    first = await registry.load(NAME)
    assert await registry.load(NAME, V1) is first
    await ps.hdel(home_key(NAME), f"v:{V1}")
    assert await registry.load(NAME, V1) is first
    registry.forget(NAME)
    with pytest.raises(UnknownPipelineError):
        await registry.load(NAME, V1)


async def test_memory_has_a_bound(registry: PipelineRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_CACHED", 2)
    for name in "abc":
        await registry.deploy(Pipeline(name, ["f"]))
    first = await registry.load("a")
    await registry.load("b")
    assert await registry.load("a") is first
    await registry.load("c")  # b goes: it was not asked for longest
    assert await registry.load("a") is first
    assert "2 cached" in repr(registry)


async def test_a_damaged_version_hurts_nobody_else(ps: penstock.Penstock, registry: PipelineRegistry) -> None:
    await registry.deploy(ONE)
    await registry.deploy(TWO)
    await ps.hset(home_key(NAME), {f"v:{V1}": "{"})
    with pytest.raises(DefinitionError, match="must be JSON"):
        await registry.load(NAME, V1)
    assert await registry.load(NAME) == TWO
    await registry.repair()


async def test_a_version_travels_as_a_file(ps: penstock.Penstock, registry: PipelineRegistry) -> None:
    await registry.deploy(ONE, "first", "ann")
    file = await registry.export(NAME, V1)
    await ps.delete(home_key(NAME), NAMES_KEY)
    assert await registry.import_(file) == V1
    info = await registry.get(NAME)
    assert info is not None
    assert info.active is None
    assert [(version.version, version.comment, version.by) for version in info.versions] == [
        (V1, "first", "ann")
    ]
    assert await registry.load(NAME, V1) == ONE


async def test_a_file_that_was_changed_is_refused(registry: PipelineRegistry) -> None:
    await registry.deploy(ONE)
    file = json.loads(await registry.export(NAME, V1))
    for change, why in (
        ({"definition": {"name": NAME, "steps": ["other"]}}, "version: .* is not that of the definition"),
        ({"definition": {"name": NAME, "steps": []}}, "steps: must have at least one step"),
        ({"version": V2}, "version: .* export it again"),
        ({"format": "other"}, "format: must be 'penstock-pipeline-1'"),
        ({"version": 5}, "data: must be an exported pipeline"),
    ):
        with pytest.raises(DefinitionError, match=why):
            await registry.import_(json.dumps(file | change).encode())
    with pytest.raises(DefinitionError, match="data: must be an exported pipeline"):
        await registry.import_(b"\xff")


async def test_differences_are_told_line_by_line(registry: PipelineRegistry) -> None:
    await registry.deploy(ONE)
    await registry.save_draft(TWO)
    text = await registry.diff(NAME, V1, "draft")
    assert text.startswith(f"--- {NAME}@{V1}\n+++ {NAME}@draft\n@@ ")
    assert '\n-  "node_group": "shop",\n' in text
    assert '\n+      "name": "ship",\n' in text
    assert await registry.diff(NAME, V1, V1) == ""
