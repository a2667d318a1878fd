"""``penstock migrate``: everything there is, from place to place, and what happens if it is killed."""

from __future__ import annotations

import asyncio
import json
import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.main import main
from penstock.client.client import Client
from penstock.engine import Engine
from penstock.engine.check import check_store
from penstock.errors import CommandError, UsageError
from penstock.moving import Migration
from penstock.moving.keys import owner_of
from penstock.moving.streams import copy_stream, export, rows
from penstock.streams.commands import StreamCommands
from penstock.streams.keys import stream_keys
from penstock.transactions import App, Pipeline, Wait
from tests.integration.migrations import kill_in_the_middle, migrate
from tests.integration.stream_stories import live
from tests.places import until, url_of

FAR_MS = 4_000_000_000_000
LONG = b"n" * 500


@pytest.fixture
def valkey(request: pytest.FixtureRequest) -> str:
    return url_of("valkey", request)


@pytest.fixture
def cluster_url(request: pytest.FixtureRequest) -> str:
    return url_of("cluster", request)


def directory(tmp_path: Path, name: str) -> str:
    return f"embedded:{tmp_path / name}?durability=relaxed"


def faults_of(tmp_path: Path, name: str) -> list[str]:
    with Engine.open(tmp_path / name, durability="relaxed") as engine:
        return check_store(engine)


# ---------------------------------------------------------------- what there may be


async def fill_values(ps: Client) -> None:
    """Every type, small and large, with and without deadlines."""
    await ps.set("text", "hello")
    await ps.set(b"\x00\xff bytes \r\n", bytes(range(256)))
    await ps.set("", "")
    await ps.set(LONG, "a long name")
    await ps.set("expires", "later", pxat=FAR_MS)
    await ps.setbit("bitmap", 12_345, 1)
    await ps.execute("PFADD", "visitors", *range(500))
    await ps.geoadd("places", {"berlin": (13.4, 52.5)})
    await ps.rpush("list", *range(3), "", "0")
    await ps.rpush("long list", *range(2_500))
    await ps.sadd("set", "a", "b", LONG)
    await ps.sadd("large set", *range(1_500))
    await ps.zadd("zset", {"a": 0.1, "b": -math.inf, "c": math.inf, "d": 1 / 3, "e": 1e300})
    await ps.zadd("large zset", {str(number): number / 7 for number in range(1_500)})
    await ps.hset("hash", {"f": "v", b"\xff": "", LONG: "long"})
    await ps.hset("large hash", {str(number): number for number in range(1_500)})
    for key in ("list", "large set", "zset", "hash"):
        await ps.pexpireat(key, FAR_MS)


async def fill_stream(ps: penstock.Penstock) -> None:
    """Offsets that do not begin at 1, holes, tombstones, groups of all sorts, producers, a policy."""
    orders, do = ps.stream("orders"), StreamCommands(ps).execute
    await orders.write_many([(f"tag-{number % 7}", f"entry {number}") for number in range(2_500)])
    await orders.write("tag-0", None)
    producer = orders.producer("host-1")
    await producer.write("eu", b"once")
    await do("TWRITE", "orders", "PRODUCER", "kept", 7, "KEEP", "ENTRIES", "a", "b", "c", "d")
    await orders.policy(retain_ms=10**10, compact=True, node_messages=200, tombstone_ms=5)
    await orders.evict(upto=10)
    await orders.drop(20, (30, 400), 2_500)
    await do("TCOMPACT", "orders")
    await orders.write_many([("eu", b"\x00\xff"), ("", b"")])
    first = await do("TREAD", "orders", 0, 5, "GROUP", "plain", "RETRY", 600_000, 9_000_000)
    await do("TREAD", "orders", 0, 5, "GROUP", "plain", "CONSUMER", "you", "RETRY", 700_000, 0)
    await do("TNACK", "orders", "plain", 400_000, first[1][0])
    await do("TGROUP", "CREATE", "orders", "new", "$")
    await fill_ordered(ps)
    await ps.stream("{shop}tagged").write("a", b"b")
    await ps.stream("od}d").write("a", b"b")
    empty = ps.stream("empty")
    await empty.write("a", b"b")
    await empty.evict(upto=1)
    await ps.pexpireat("empty", FAR_MS)


async def fill_ordered(ps: penstock.Penstock) -> None:
    """A stream of which an ordered group has read much, and was given little."""
    parcels, do = ps.stream("parcels"), StreamCommands(ps).execute
    await parcels.write_many([(f"tag-{number % 3}", f"{number}") for number in range(1, 61)])
    await parcels.drop((31, 33))
    settings: dict[str, Any] = {"max_deliveries": 9, "backoff_ms": [600_000], "ttl_ms": 10**9}
    await parcels.group("ordered").create(at=4, ordered=True, dead_letter="{parcels}dead", **settings)
    read = await do("TREAD", "parcels", 0, 20, "GROUP", "ordered", "CONSUMER", "me", "RETRY", 600_000, 0)
    assert [row[0] for row in read] == [4, 5, 6]
    assert await do("TACK", "parcels", "ordered", 4) == 1  # 7 is ready now, and not delivered yet


app = App()


@app.step("finish")
async def finish(tx: Any) -> Any:
    return {"done": tx.input}


async def fill_facilities(ps: penstock.Penstock) -> dict[str, str]:
    """Channels, and transactions that sleep and wait."""
    room = ps.channel("room-7")
    alice = await room.subscribe("alice")
    await room.publish_many([("msg-1", 1), ("msg-2", 2), ("msg-3", 3)])
    await alice.ack(await alice.fetch(1))
    transactions = ps.transactions
    await transactions.deploy(
        Pipeline("nap", ["finish"], node_group="shop"),
        Pipeline("approval", [Wait("approved"), "finish"], node_group="shop"),
    )
    sleeper = await transactions.start("nap", 1, delay_ms=1_000, external_id="order-1")
    waiter = await transactions.start("approval", 2)
    async with transactions.worker(app, node_group="shop"):
        await until(lambda: _is_in(ps, waiter.id, "waiting"))
    # Not a moment earlier than it is looked for in the destination.
    late = await transactions.start("nap", 3, delay_ms=3_600_000)
    return {"sleeper": sleeper.id, "waiter": waiter.id, "late": late.id}


async def _is_in(ps: penstock.Penstock, id: str, state: str) -> bool:
    return (await ps.transactions.get(id)).state == state


async def goes_on(ps: penstock.Penstock, ids: dict[str, str]) -> None:
    """Whatever was under way when it was moved."""
    await _streams_go_on(ps)
    alice = ps.channel("room-7").subscription("alice")
    batch = await alice.fetch()
    assert [message.content for message in batch.messages] == [2, 3]
    assert await alice.ack(batch)
    assert not await ps.channel("room-7").publish("msg-3", "again")
    assert await ps.channel("room-7").publish("msg-4", 4)
    assert [message.content for message in (await alice.fetch()).messages] == [4]
    transactions = ps.transactions
    again = await transactions.start("nap", 1, external_id="order-1")
    assert (again.id, again.is_new) == (ids["sleeper"], False)
    async with transactions.worker(app, node_group="shop"):
        assert (await transactions.wait(ids["sleeper"], timeout_ms=20_000)).output == {"done": 1}
        await transactions.set_switch(ids["waiter"], "approved", True)
        assert (await transactions.wait(ids["waiter"], timeout_ms=20_000)).status == "success"
    assert await _is_in(ps, ids["late"], "sleeping")


async def _streams_go_on(ps: penstock.Penstock) -> None:
    orders, do = ps.stream("orders"), StreamCommands(ps).execute
    last = (await orders.info()).last
    assert (
        await do("TWRITE", "orders", "PRODUCER", "kept", 7, "KEEP", "ENTRIES", "a", "b", "c", "d") == last - 2
    )
    with pytest.raises(CommandError, match="SEQUENCE producer kept is at 8"):
        await do("TWRITE", "orders", "PRODUCER", "kept", 8, "ENTRIES", "a", "b", "c", "d")
    assert await orders.write("eu", b"new") == last + 1
    group = {info.name: info for info in await orders.groups()}["plain"]
    assert (group.pending, group.delivered) == (10, 10)
    read = await do("TREAD", "orders", 0, 1, "GROUP", "plain", "RETRY", 1_000, 0)
    assert read[0][0] == group.cursor
    assert await do("TACK", "orders", "plain", "0-100000") == 11
    # An ordered group holds back what has a tag that is pending, and lets it go in order.
    ask = ("TREAD", "parcels", 0, 20, "GROUP", "ordered", "RETRY", 600_000, 0)
    assert [row[0] for row in await do(*ask)] == [7]
    assert await do("TACK", "parcels", "ordered", "5-6") == 2
    assert [row[0] for row in await do(*ask)] == [8, 9]
    assert await do("TDEAD", "parcels", "ordered", "no", 7) == 1
    assert [row[0] for row in await do(*ask)] == [10]
    assert (await ps.stream("{parcels}dead").tail(1))[0].entry.endswith(b"\n\n7")
    info = (await ps.stream("parcels").groups())[0]
    assert (info.acked, info.dead, info.delivered, info.pending) == (3, 1, 7, 3)
    assert await ps.stream("empty").write("a", b"b") == 2


async def fill(ps: penstock.Penstock) -> dict[str, str]:
    await fill_values(ps)
    await fill_stream(ps)
    return await fill_facilities(ps)


# ----------------------------------------------------------------------- everything


async def test_everything_travels_from_a_directory_to_a_server_to_a_cluster_and_back(
    tmp_path: Path, valkey: str, cluster_url: str
) -> None:
    places = [directory(tmp_path, "one.pen"), valkey, cluster_url, directory(tmp_path, "two.pen")]
    async with penstock.open(places[0]) as ps:
        ids = await fill(ps)
    for source, target in pairwise(places):
        report = await migrate(source, target)
        assert (report.problems, report.differences, report.changes) == ([], [], [])
        assert report.compared == report.copied
        assert report.keys["stream"] == 5
    async with penstock.open(places[0]) as one, penstock.open(places[-1]) as two:
        migration = Migration(one, two, source_url=places[0], merges=True)
        keys = await migration.prepare()
        assert keys == await two.dbsize()
        assert (await migration.verify()).differences == []
    assert faults_of(tmp_path, "two.pen") == []
    async with penstock.open(places[-1]) as ps:
        await goes_on(ps, ids)
    assert faults_of(tmp_path, "two.pen") == []


@pytest.mark.parametrize("place", ["served", "cluster"])
async def test_what_was_under_way_goes_on_in_the_destination(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source, target = directory(tmp_path, "one.pen"), url_of(place, request)
    async with penstock.open(source) as ps:
        ids = await fill(ps)
    report = await migrate(source, target)
    assert (report.problems, report.differences) == ([], [])
    async with penstock.open(target) as ps:
        await goes_on(ps, ids)


# --------------------------------------------------------------------------- killed


@pytest.mark.parametrize("direction", ["to a server", "to a directory"])
async def test_a_run_that_was_killed_again_and_again_ends_with_the_same(
    direction: str, tmp_path: Path, valkey: str
) -> None:
    source, target = directory(tmp_path, "one.pen"), valkey
    if direction == "to a directory":
        source, target = target, source
    async with penstock.open(source) as ps:
        await fill_values(ps)
        await fill_stream(ps)
        pipe = ps.pipeline()
        for number in range(1_500):
            pipe.rpush(f"key:{number}:list", "a", "b")
        await pipe.all()
    kill_in_the_middle(source, target, 2, dies_before_writing=True)
    kill_in_the_middle(source, target, 5)
    kill_in_the_middle(source, target, 4, dies_before_writing=True)
    async with penstock.open(source) as one, penstock.open(target) as two:
        other = Migration(one, two, source_url=source, match="key:*")
        with pytest.raises(UsageError, match="has an unfinished migration from"):
            await other.prepare()
    report = await migrate(source, target)
    assert report.done_before > 0
    assert (report.problems, report.differences) == ([], [])
    async with penstock.open(source) as one, penstock.open(target) as two:
        assert await two.exists("penstock.migration") == 0
        for ps in (one, two):
            assert await ps.lrange("key:1499:list", 0, -1) == [b"a", b"b"]
    if direction == "to a directory":
        assert faults_of(tmp_path, "one.pen") == []


async def test_a_stream_goes_on_behind_its_last_message(tmp_path: Path, valkey: str) -> None:
    source = directory(tmp_path, "one.pen")
    async with penstock.open(source) as ps:
        orders = ps.stream("orders")
        await orders.write_many([("t", f"{number}") for number in range(5_000)])
        await StreamCommands(ps).execute("TREAD", "orders", 0, 9, "GROUP", "g", "RETRY", 600_000, 0)
    kill_in_the_middle(source, valkey, 4)  # the page, and three times a thousand messages
    async with penstock.open(valkey) as ps:
        assert 1_000 <= (await ps.stream("orders").info()).last <= 3_000
        assert await ps.stream("orders").groups() == []
    report = await migrate(source, valkey)
    assert report.differences == []
    assert 2_000 <= report.elements < 5_000
    async with penstock.open(valkey) as ps:
        (group,) = await ps.stream("orders").groups()
        assert (group.cursor, group.pending) == (10, 9)


# -------------------------------------------------------------- what cannot be carried


@pytest.mark.parametrize("place", ["embedded", "redis"])
async def test_what_a_destination_cannot_hold_is_told_and_the_rest_is_copied(
    place: str, valkey: str, request: pytest.FixtureRequest
) -> None:
    target = url_of(place, request)
    async with penstock.open(valkey) as ps:
        await ps.xadd("foreign", {"field": "value"})
        await ps.stream("ours").write("a", b"b")
        await ps.set("text", "hello")
        await ps.hset("hash", {"a": "1", "b": "2"})
        await ps.execute("HPEXPIREAT", "hash", FAR_MS, "FIELDS", 1, "a")
    async with penstock.open(valkey) as one, penstock.open(target) as two:
        rehearsal = Migration(one, two, source_url=valkey)
        await rehearsal.prepare()
        foreseen = {problem.key for problem in (await rehearsal.rehearse()).problems}
        # Whether another server takes a payload is known when it was sent.
        assert foreseen == ({b"foreign", b"hash"} if place == "embedded" else {b"hash"})
        assert await two.dbsize() == 0
    report = await migrate(valkey, target)
    assert {problem.key: problem.reason.partition(",")[0] for problem in report.problems} == {
        b"foreign": "is a stream of Redis itself (XADD)",
        b"hash": "has fields that expire",
    }
    assert report.differences == []
    async with penstock.open(target) as ps:
        assert await ps.hgetall("hash") == {b"a": b"1", b"b": b"2"}
        assert await ps.get("text") == b"hello"
        assert (await ps.stream("ours").get(1)).entry == b"b"


async def test_fields_that_expire_and_streams_of_redis_travel_between_servers(
    valkey: str, cluster_url: str
) -> None:
    async with penstock.open(valkey) as ps:
        await ps.xadd("foreign", {"field": "value"}, id="5-1")
        await ps.hset("hash", {"a": "1", "b": "2"})
        await ps.execute("HPEXPIREAT", "hash", FAR_MS, "FIELDS", 1, "a")
    report = await migrate(valkey, cluster_url)
    assert (report.problems, report.differences) == ([], [])
    async with penstock.open(cluster_url) as ps:
        assert await ps.hpexpiretime("hash", "a", "b") == [FAR_MS, -1]
        assert await ps.xlen("foreign") == 1


async def test_dead_letters_of_another_slot_are_told(tmp_path: Path, cluster_url: str) -> None:
    source = directory(tmp_path, "one.pen")
    async with penstock.open(source) as ps:
        await ps.stream("orders").write("a", b"b")
        await ps.stream("orders").group("g").create(dead_letter="far away")
    report = await migrate(source, cluster_url)
    (problem,) = report.problems
    assert str(problem).startswith("orders: group g wrote dead letters to far away, which is in another slot")
    async with penstock.open(cluster_url) as ps:
        (message,) = await StreamCommands(ps).execute(
            "TREAD", "orders", 0, 9, "GROUP", "g", "RETRY", 1_000, 0
        )
        assert message[0] == 1


async def test_a_key_that_would_be_a_side_key_is_told(tmp_path: Path, valkey: str) -> None:
    source = directory(tmp_path, "one.pen")
    async with penstock.open(source) as ps:
        await ps.stream("orders").write("a", b"b")
        await ps.set("{orders}:meta", "mine")
        await ps.set("{others}:meta", "mine as well")
    report = await migrate(source, valkey)
    assert [problem.key for problem in report.problems] == [b"{orders}:meta"]
    async with penstock.open(valkey) as ps:
        assert await ps.get("{others}:meta") == b"mine as well"
        assert (await ps.stream("orders").info()).last == 1


@pytest.mark.parametrize("stream", [b"orders", b"{shop}orders", b"a}b", b"", b"{x}:", b":", b"!", b"{}"])
def test_side_keys_name_their_stream(stream: bytes) -> None:
    for name in stream_keys(stream)[1:]:
        assert owner_of(name) == stream
    assert owner_of(stream) is None


# ---------------------------------------------------------------- rules of the command


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    return str(tmp_path / "one.pen"), str(tmp_path / "two.pen")


async def _set(where: str, **values: str) -> None:
    async with penstock.open(where, durability="relaxed") as ps:
        await ps.mset(dict(values))


async def _values(where: str) -> dict[bytes, bytes | None]:
    async with penstock.open(where, durability="relaxed") as ps:
        return {key: await ps.get(key) async for key in ps.scan_iter()}


def test_a_destination_with_keys_is_refused_or_merged(
    two: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_set(two[0], a="1", b="2"))
    asyncio.run(_set(two[1], b="old", c="3"))
    assert main(["migrate", *two]) == 1
    assert "the destination is not empty (2 keys)" in capsys.readouterr().err
    assert main(["migrate", *two, "--merge", "--dry-run"]) == 0
    assert (
        "would copy 2 keys (2 string)\n1 keys of the destination would be replaced" in capsys.readouterr().out
    )
    assert main(["migrate", *two, "--merge", "--verify", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["copied"], facts["replaced"], facts["compared"]) == (2, 1, 2)
    assert asyncio.run(_values(two[1])) == {b"a": b"1", b"b": b"2", b"c": b"3"}


def test_a_rehearsal_writes_nothing(two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_set(two[0], a="1", b="2"))
    assert main(["migrate", *two, "--dry-run"]) == 0
    assert capsys.readouterr().out == "would copy 2 keys (2 string)\n"
    assert not Path(two[1]).exists()


def test_only_keys_that_match_are_copied(two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_set(two[0], **{"shop:a": "1", "shop:b": "2", "other": "3"}))
    assert main(["migrate", *two, "--match", "shop:*", "--verify"]) == 0
    assert asyncio.run(_values(two[1])) == {b"shop:a": b"1", b"shop:b": b"2"}
    assert "compared 2 keys: 0 differ" in capsys.readouterr().out


def test_places_that_make_no_sense_are_one_sentence(
    two: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    asyncio.run(_set(two[0], a="1"))
    for words, sentence in (
        ((two[1], two[0]), f"there is no store at {two[1]}"),
        ((two[0], two[0]), "FROM and TO are the same place"),
        ((two[0], str(tmp_path / "file")), "is no directory: name one, or a URL"),
    ):
        assert main(["migrate", *words]) == 1
        assert sentence in capsys.readouterr().err
    assert not Path(two[1]).exists()


async def test_other_databases_and_a_source_that_changes_are_told(tmp_path: Path, valkey: str) -> None:
    target = directory(tmp_path, "one.pen")
    async with penstock.open(valkey, db=3) as ps:
        await ps.set("elsewhere", "1")
    async with penstock.open(valkey) as one, penstock.open(target) as other:
        await one.set("a", "1")
        writing: list[asyncio.Task[Any]] = []

        def write(_keys: int, _elements: int) -> None:
            writing.append(asyncio.ensure_future(one.set(f"new {len(writing)}", "1")))

        migration = Migration(one, other, source_url=valkey, on_progress=write)
        await migration.prepare()
        report = await migration.run()
        await asyncio.gather(*writing)
        assert report.other_databases == [3]
        await one.set("a", "2")
        await other.set("b", "only here")
        await migration.verify()
    assert report.changes[0].startswith("it had 1 keys at the beginning and ")
    differences = {problem.key: problem.reason for problem in report.differences}
    assert differences[b"a"] == "has another value"
    assert differences[b"b"] == "is only in the destination"
    assert differences[b"new 0"] == "is not in the destination"


async def _deliveries(commands: StreamCommands) -> list[list[int]]:
    """What readers of all groups get next, and what comes free when that is acknowledged."""
    found = []
    for group in ("g", "h", "i", "g"):
        await commands.execute("TACK", "k", group, "1-40")
        read = await commands.execute("TREAD", "k", 1, 40, "GROUP", group, "RETRY", 600_000, 0)
        found.append([row[0] for row in read])
    return found


async def test_any_stream_is_the_same_behind_two_moves_and_behaves_the_same(
    tmp_path: Path, valkey: str
) -> None:
    names = ["one.pen", "two.pen"]
    async with (
        penstock.open(directory(tmp_path, names[0])) as one,
        penstock.open(valkey) as server,
        penstock.open(directory(tmp_path, names[1])) as two,
    ):
        first, middle, last = map(StreamCommands, (one, server, two))
        for seed in range(20):
            await server.flushall()
            begun, between = (first, middle) if seed % 2 else (middle, first)
            await one.delete("k", "{k}dead")
            await live(begun, random.Random(seed))
            for source, target in ((begun, between), (between, last)):
                head = await export(source, b"k")
                assert head is not None
                options: dict[str, Any] = {"goes_on": False, "on_messages": lambda _count: None}
                await copy_stream(source, target, b"k", head, **options)
                assert await export(target, b"k") == head, seed
                messages = [row async for row in rows(source, b"k", head.first, head.last)]
                assert [row async for row in rows(target, b"k", head.first, head.last)] == messages, seed
            assert await _deliveries(between) == await _deliveries(last), seed
    assert [faults_of(tmp_path, name) for name in names] == [[], []]


@pytest.mark.parametrize("place", ["embedded", "valkey"])
async def test_imports_refuse_what_makes_no_stream(place: str, request: pytest.FixtureRequest) -> None:
    async with penstock.open(url_of(place, request)) as ps:
        do = StreamCommands(ps).execute
        assert await do("TEXPORT", "k") is None
        await do("TIMPORT", "k", "BEGIN", 5, 100, 1_000)
        await do("TIMPORT", "k", "ADD", 7, 4, 5, 10, "e", "t", "five", 7, 10, "t", "t", "")
        refused = [
            ("SYNTAX", "x"), ("BEGIN", 0, 1, 1), ("BEGIN", 1), ("ADD", 9), ("ADD", 9, 4, 8, 10, "e"),
            ("ADD", 9, 4, 9, 10, "e", "t", "x", 8, 10, "e", "t", "x"), ("ADD", 8, 4, 9, 10, "e", "t", "x"),
            ("ADD", 9, 4, 8, 9, "e", "t", "x"), ("END",), ("END", 1, 0, 0, 1), ("END", 1, 0, 0, 0, "more"),
        ]  # fmt: skip
        for words in refused:
            with pytest.raises(CommandError):
                await do("TIMPORT", "k", *words)
        # What was sent before is ignored: a connection may have been lost in between.
        await do("TIMPORT", "k", "ADD", 8, 4, 7, 10, "e", "t", "again", 8, 11, "e", "t", "eight")
        await do("TIMPORT", "k", "END", 12, 0, 0, 0)
        assert await do("TREAD", "k", 0, 9, "WITHINFO", "WITHTIME") == [
            [5, 8], [5, b"t", b"five", 10], None, [7, b"t", None, 10], [8, b"t", b"eight", 11],
        ]  # fmt: skip
        with pytest.raises(CommandError, match="TIMPORT BEGIN comes first"):
            await do("TIMPORT", "other", "END", 12, 0, 0, 0)
        await ps.set("text", "1")
        with pytest.raises(CommandError, match="WRONGTYPE"):
            await do("TEXPORT", "text")
