"""The stream commands of ``docs/streams.md``, one suite on every backend.

==========  ==================================================================================
valkey      scripts over the streams of a real Valkey
redis       the same on a real Redis
cluster     the same on three nodes
embedded    the engine in process; joins when it has the commands
server      ``penstock serve``; likewise
==========  ==================================================================================

``test_NN_…`` belongs to requirement NN of the stream specification; what has no number came after it.
Times are those of the server. Tests wait for conditions, and sleep only until a retry time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.client import Client
from penstock.client.routes import ToAll
from penstock.errors import CommandError
from penstock.streams.commands import StreamCommands
from penstock.testing import RealCluster, RealServer, ServerUnavailableError, find_server
from penstock.testing.own_server import PenstockServer
from tests import places

BACKENDS = ["valkey", "redis", "cluster", "embedded", "server"]
DEADLINE_S = 20.0
WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_INTEGER = "ERR value is not an integer or out of range"
INVALID = "ERR invalid offset"
SYNTAX = "ERR syntax error"

_numbers = itertools.count()


class Store:
    """A backend and the names of a stream that nobody has used yet."""

    def __init__(self, backend: str, client: Client) -> None:
        self.backend = backend
        self.client = client
        self.commands = StreamCommands(client)
        number = next(_numbers)
        #: another stream of the same slot for dead letters
        self.key, self.dead = f"{{s{number}}}k", f"{{s{number}}}dead"

    async def do(self, *words: Any) -> Any:
        """A command on the stream: its name (with the subcommand), then what follows the key."""
        name, *subcommand = words[0].split()
        return await self.commands.execute(name, *subcommand, self.key, *words[1:])

    async def error(self, *words: Any) -> str:
        with pytest.raises(CommandError) as refused:
            await self.do(*words)
        return str(refused.value)

    async def write(self, *tags: str) -> int:
        """One message for each tag, with the tag and its place as entry."""
        pairs = [word for place, tag in enumerate(tags) for word in (tag, f"{tag}{place}")]
        return await self.do("TWRITE", "ENTRIES", *pairs)

    async def fill(self, count: int) -> int:
        """Messages ``1`` to ``count`` with the tag ``t``, written one by one."""
        await asyncio.gather(*(self.do("TWRITE", "t", str(place)) for place in range(1, count + 1)))
        return count

    async def group(self, name: str = "g") -> dict[str, Any]:
        return next(each for each in await self.do("TINFO GROUPS") if each["name"] == name.encode())

    async def range(self) -> tuple[int, int]:
        [(first, last)] = await self.do("TREAD", 0, 0, "WITHINFO")
        return first, last

    async def blocked(self) -> int:
        """How many connections wait at the server."""
        if self.backend == "cluster":
            texts = list((await self.client.execute("INFO", "clients", route=ToAll())).values())
        else:
            texts = [await self.client.execute("INFO", "clients")]
        return sum(int(text.split(b"blocked_clients:")[1].split()[0]) for text in texts)

    async def until_blocked(self, count: int = 1) -> None:
        await until(lambda: self._has_blocked(count))

    async def _has_blocked(self, count: int) -> bool:
        return await self.blocked() == count


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    """What a condition answers as soon as it answers something."""
    ends = time.monotonic() + DEADLINE_S
    while not (answer := await condition()):
        assert time.monotonic() < ends, "it did not come about in time"
        await asyncio.sleep(0.003)
    return answer


@contextlib.asynccontextmanager
async def running(work: Awaitable[Any]) -> AsyncIterator[asyncio.Task[Any]]:
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, CommandError):
            await task


def offsets(messages: list[Any]) -> list[int | None]:
    return [message and message[0] for message in messages]


@pytest.fixture
def cluster_url(own_cluster: RealCluster) -> str:
    return own_cluster.url.replace("redis://", "redis-cluster://")


@pytest.fixture
def server_url(own_server: PenstockServer) -> str:
    return own_server.url


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest) -> str:
    if request.param in ("cluster", "server"):
        return str(request.getfixturevalue(f"{request.param}_url"))
    return places.url_of(request.param, request)


@pytest.fixture
async def db(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Store]:
    backend = request.node.callspec.params["url"]
    async with penstock.open(url) as client:
        store = Store(backend, client)
        if backend in ("embedded", "server"):
            await skip_if_unknown(store)
        yield store


async def skip_if_unknown(store: Store) -> None:
    for words in (("TREAD", 1, 1), ("TACK", "g", 1), ("TINFO GROUPS",), ("TEVICT", 1)):
        try:
            await store.do(*words)
        except CommandError as error:
            if "unknown" in str(error):
                pytest.skip(f"the {store.backend} does not know the stream commands: {error}")
            raise


# ------------------------------------------------------------------------------ writing and reading


async def test_01_created_by_first_write(db: Store) -> None:
    assert await db.do("TREAD", 1, 10) == []
    assert await db.do("TREAD", 0, 10, "WITHINFO") == [[1, 0]]
    assert await db.do("TEVICT", 5) == 0
    assert await db.do("TACK", "g", 1) == 0
    assert await db.do("TCOMPACT") == 0
    assert await db.client.execute("EXISTS", db.key) == 0
    assert await db.do("TWRITE", "tag", "entry") == 1
    assert await db.client.execute("EXISTS", db.key) == 1


async def test_01_another_type_is_refused_and_untouched(db: Store) -> None:
    await db.client.execute("SET", db.key, "text")
    for words in (
        ("TWRITE", "t", "e"), ("TREAD", 1, 1), ("TREAD", 1, 1, "GROUP", "g"), ("TACK", "g", 1), ("TEVICT", 1),
        ("TNACK", "g", 0, 1), ("TRENEW", "g", 1, 1), ("TDEAD", "g", "why", 1), ("TGROUP CREATE", "g", 0),
        ("TGROUP LIST",), ("TPENDING", "g"), ("TINFO STREAM",), ("TPOLICY", "COMPACT", "yes"), ("TCOMPACT",),
    ):  # fmt: skip
        assert await db.error(*words) == WRONGTYPE, words
    assert await db.client.execute("GET", db.key) == b"text"


@pytest.mark.parametrize(("becomes", "options"), [("deleted", ()), ("retyped", ("GROUP", "g"))])
async def test_01_gone_while_somebody_blocks(db: Store, becomes: str, options: tuple[str, ...]) -> None:
    await db.fill(1)
    async with running(db.do("TREAD", 2, 1, "BLOCK", 0, *options)) as reader:
        await db.until_blocked()
        await db.client.execute("DEL", db.key)
        if becomes == "retyped":
            await db.client.execute("SET", db.key, "text")
        with pytest.raises(CommandError) as refused:
            await asyncio.wait_for(reader, DEADLINE_S)
    assert str(refused.value) == f"UNBLOCKED the stream {db.key} is gone"


async def test_02_message_is_tag_and_entry(db: Store) -> None:
    binary = bytes(range(256))
    await db.do("TWRITE", b"", b"")
    await db.do("TWRITE", binary, binary)
    await db.do("TWRITE", "TOMBSTONES", "gone", "too")
    assert await db.do("TREAD", 1, 10) == [
        [1, b"", b""], [2, binary, binary], [3, b"gone", None], [4, b"too", None],
    ]  # fmt: skip


async def test_03_offsets_are_dense_and_permanent(db: Store) -> None:
    assert [await db.do("TWRITE", "t", "e") for _ in range(5)] == [1, 2, 3, 4, 5]
    await db.do("TEVICT", 5)
    assert await db.range() == (6, 5)
    assert await db.do("TWRITE", "t", "e") == 6
    await db.client.execute("DEL", db.key)
    assert await db.range() == (1, 0)
    assert await db.do("TWRITE", "t", "e") == 1
    assert await db.do("TREAD", 0, 10) == [[1, b"t", b"e"]]


async def test_03_deleting_deletes_groups_policy_and_producers(db: Store) -> None:
    await db.do("TGROUP CREATE", "g", 0)
    await db.do("TPOLICY", "RETAIN-COUNT", 1)
    await db.do("TWRITE", "PRODUCER", "p", 1, "ENTRIES", "t", "e")
    await db.client.execute("DEL", db.key)
    assert await db.do("TGROUP LIST") == []
    assert await db.do("TWRITE", "PRODUCER", "p", 1, "ENTRIES", "t", "e", "t", "e") == 2
    assert await db.do("TGROUP LIST") == []
    assert (await db.do("TPOLICY"))["retain-count"] == 0


async def test_04_simple_form_is_told_by_its_arity(db: Store) -> None:
    assert await db.do("TWRITE", "BACKLOG", "5") == 1
    assert await db.do("TWRITE", "ENTRIES", "x") == 2
    assert await db.do("TREAD", 1, 2) == [[1, b"BACKLOG", b"5"], [2, b"ENTRIES", b"x"]]


async def test_05_entries_are_contiguous_and_atomic(db: Store) -> None:
    assert await db.write("a", "b", "c") == 3
    assert await db.do("TREAD", 1, 9) == [[1, b"a", b"a0"], [2, b"b", b"b1"], [3, b"c", b"c2"]]
    wrong = "ERR wrong number of arguments for 'twrite' command"
    assert await db.error("TWRITE", "ENTRIES", "a", "1", "b") == wrong
    assert await db.error("TWRITE", "BACKLOG", 5, "ENTRIES") == wrong
    assert await db.error("TWRITE", "BACKLOG", 5, "TOMBSTONES") == wrong
    assert await db.error("TWRITE", "a") == wrong
    assert await db.error("TWRITE", "a", "b", "c") == SYNTAX
    assert await db.error("TWRITE", "BACKLOG", 5, "IF") == SYNTAX
    assert await db.range() == (1, 3)


async def test_06_backlog_keeps_at_least_so_many(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 10)
    await db.fill(35)
    await db.do("TWRITE", "BACKLOG", 12, "ENTRIES", "t", "36")
    assert await db.range() == (21, 36)
    await db.do("TWRITE", "BACKLOG", 0, "ENTRIES", "t", "37")
    assert await db.range() == (31, 37)  # never the node that is being written
    await db.do("TWRITE", "BACKLOG", 100, "ENTRIES", "t", "38")
    assert await db.range() == (31, 38)


async def test_06_backlog_exactly_and_without_asking_groups(db: Store) -> None:
    await db.fill(9)
    await db.do("TGROUP CREATE", "g", 0)
    assert await db.do("TWRITE", "BACKLOG", "=", 4, "ENTRIES", "t", "10") == 10
    assert await db.range() == (7, 10)
    assert await db.do("TWRITE", "BACKLOG", "=", 0, "ENTRIES", "t", "11") == 11
    assert await db.range() == (12, 11)
    assert await db.error("TWRITE", "BACKLOG", -1, "ENTRIES", "t", "e") == NOT_INTEGER
    assert await db.error("TWRITE", "BACKLOG", "=", "x", "ENTRIES", "t", "e") == NOT_INTEGER
    assert await db.range() == (12, 11)


async def test_07_reads_from_an_offset_on(db: Store) -> None:
    await db.fill(5)
    assert offsets(await db.do("TREAD", 2, 3)) == [2, 3, 4]
    assert offsets(await db.do("TREAD", 4, 100)) == [4, 5]
    assert await db.do("TREAD", 6, 1) == []
    assert await db.do("TREAD", 2**64 - 1, 1) == []
    assert await db.do("TREAD", 1, 0) == []
    assert offsets(await db.do("TREAD", 0, 2)) == [1, 2]
    for count in ("-1", "x", "", "1.5", 2**63):
        assert await db.error("TREAD", 1, count) == NOT_INTEGER


async def test_07_reads_downwards(db: Store) -> None:
    await db.fill(5)
    assert offsets(await db.do("TREAD", "$", 2, "REV")) == [5, 4]
    assert offsets(await db.do("TREAD", 3, 9, "REV")) == [3, 2, 1]
    assert offsets(await db.do("TREAD", 99, 1, "REV")) == [5]
    await db.do("TEVICT", 3)
    assert offsets(await db.do("TREAD", 5, 4, "REV")) == [5, 4, None, None]
    assert offsets(await db.do("TREAD", 5, 4, "REV", "SKIPNULL")) == [5, 4]


async def test_08_messages_that_are_gone_are_null_in_their_place(db: Store) -> None:
    await db.fill(6)
    await db.do("TEVICT", 3)
    assert offsets(await db.do("TREAD", 1, 5)) == [None, None, None, 4, 5]
    assert await db.do("TREAD", 1, 2) == [None, None]
    assert offsets(await db.do("TREAD", 0, 2)) == [4, 5]
    assert offsets(await db.do("TREAD", 1, 2, "SKIPNULL")) == [4, 5]


async def test_08_holes_are_null_too(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 5)
    await db.write("a", "b", "a", "c", "b")
    assert await db.do("TCOMPACT") == 2
    assert offsets(await db.do("TREAD", 1, 5)) == [None, None, 3, 4, 5]
    assert offsets(await db.do("TREAD", 1, 2, "SKIPNULL")) == [3, 4]
    assert offsets(await db.do("TREAD", 5, 5, "REV")) == [5, 4, 3, None, None]
    assert await db.range() == (1, 5)


async def test_08_groups_skip_new_messages_that_are_gone(db: Store) -> None:
    await db.fill(6)
    await db.do("TGROUP CREATE", "g", 0)
    await db.do("TEVICT", 4)
    assert offsets(await db.do("TREAD", 0, 1, "GROUP", "g")) == [5]
    assert (await db.group())["lost"] == 4


async def test_08_pending_and_gone_is_told_once(db: Store) -> None:
    await db.fill(2)
    await db.do("TGROUP CREATE", "g", 0, "DEADLETTER", db.dead)
    await db.do("TREAD", 0, 2, "GROUP", "g", "RETRY", 1, 0)
    await db.do("TEVICT", 1)
    await asyncio.sleep(0.01)
    reply = await db.do("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)
    assert reply == [[1, None, None], [2, b"t", b"2"]]
    assert (await db.do("TPENDING", "g"))[:3] == [1, 2, 2]
    [[_, tag, letter]] = await db.commands.execute("TREAD", db.dead, 1, 9)
    assert tag == b""
    assert b"\nreason: evicted\n" in letter
    assert letter.endswith(b"\n\n")


async def test_09_info_comes_first(db: Store) -> None:
    assert await db.do("TREAD", 1, 0, "WITHINFO") == [[1, 0]]
    await db.fill(3)
    assert await db.do("TREAD", 2, 1, "WITHINFO") == [[1, 3], [2, b"t", b"2"]]
    assert await db.do("TREAD", 0, 1, "GROUP", "g", "WITHINFO") == [[1, 3], [1, b"t", b"1"]]
    await db.do("TEVICT", 9)
    assert await db.do("TREAD", 2, 0, "WITHINFO", "BLOCK", 0) == [[4, 3]]


async def test_09_time_is_added(db: Store) -> None:
    before_ms = int(time.time() * 1000)
    await db.fill(1)
    [[offset, tag, entry, ms]] = await db.do("TREAD", 1, 1, "WITHTIME")
    assert (offset, tag, entry) == (1, b"t", b"1")
    assert before_ms - 1000 <= ms <= time.time() * 1000 + 1000
    [[_, _, _, again_ms, count]] = await db.do("TREAD", 0, 1, "GROUP", "g", "WITHTIME", "WITHCOUNT")
    assert (again_ms, count) == (ms, 1)


async def test_10_block_waits_and_gives_up(db: Store) -> None:
    assert await db.do("TREAD", 1, 1, "BLOCK", 20) is None
    assert await db.do("TREAD", 0, 1, "BLOCK", 20, "GROUP", "g", "WITHINFO") is None
    assert await db.do("TREAD", 1, 0, "BLOCK", 0) == []
    assert await db.error("TREAD", 1, 1, "BLOCK", -1) == NOT_INTEGER
    assert await db.error("TREAD", 1, 1, "BLOCK") == SYNTAX
    await db.fill(1)
    assert await db.do("TREAD", 1, 1, "BLOCK", 0) == [[1, b"t", b"1"]]


async def test_10_block_waits_for_a_stream_that_is_not_there(db: Store) -> None:
    async with running(db.do("TREAD", 1, 5, "BLOCK", 0, "WITHINFO")) as reader:
        await db.until_blocked()
        await db.write("a", "b")
        assert await reader == [[1, 2], [1, b"a", b"a0"], [2, b"b", b"b1"]]


async def test_10_a_cancelled_reader_takes_nothing(db: Store) -> None:
    async with running(db.do("TREAD", 0, 5, "BLOCK", 0, "GROUP", "g")):
        await db.until_blocked()
    await db.until_blocked(0)
    await db.fill(1)
    assert offsets(await db.do("TREAD", 0, 5, "BLOCK", 5_000, "GROUP", "g")) == [1]


async def test_11_block_for_an_offset_beyond_the_end(db: Store) -> None:
    await db.fill(1)
    async with running(db.do("TREAD", 4, 10, "BLOCK", 0)) as reader:
        await db.until_blocked()
        await db.fill(2)  # smaller ones do not wake
        await db.until_blocked()
        assert not reader.done()
        await db.write("x", "y")
        assert await reader == [[4, b"x", b"x0"], [5, b"y", b"y1"]]


async def test_11_every_plain_reader_is_served(db: Store) -> None:
    async with contextlib.AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(running(db.do("TREAD", 1, 1, "BLOCK", 0))) for _ in range(3)
        ]
        await db.until_blocked(3)
        await db.fill(1)
        assert await asyncio.gather(*readers) == [[[1, b"t", b"1"]]] * 3


async def test_11_gone_messages_do_not_end_the_wait(db: Store) -> None:
    await db.fill(3)
    await db.do("TEVICT", 3)
    async with running(db.do("TREAD", 2, 3, "BLOCK", 0)) as reader:
        await db.until_blocked()
        await db.do("TWRITE", "t", "4")
        assert await reader == [None, None, [4, b"t", b"4"]]


# --------------------------------------------------------------------------------------- groups


async def test_12_a_group_shares_its_messages(db: Store) -> None:
    await db.fill(5)
    assert offsets(await db.do("TREAD", 0, 2, "GROUP", "g")) == [1, 2]
    assert offsets(await db.do("TREAD", 0, 2, "GROUP", "g")) == [3, 4]
    assert offsets(await db.do("TREAD", 0, 2, "GROUP", "other")) == [1, 2]
    assert offsets(await db.do("TREAD", 0, 2, "GROUP", "g")) == [5]
    assert await db.do("TREAD", 0, 2, "GROUP", "g") == []
    assert await db.do("TGROUP LIST") == [b"g", b"other"]


async def test_13_where_a_group_begins(db: Store) -> None:
    await db.fill(5)
    await db.do("TEVICT", 1)
    assert offsets(await db.do("TREAD", 0, 1, "GROUP", "first")) == [2]
    assert offsets(await db.do("TREAD", 4, 9, "GROUP", "at")) == [4, 5]
    assert await db.do("TREAD", "$", 1, "GROUP", "last") == []
    assert await db.do("TREAD", "", 1, "GROUP", "empty") == []
    await db.do("TWRITE", "t", "6")
    for name in ("last", "empty", "at"):
        assert offsets(await db.do("TREAD", 1, 9, "GROUP", name)) == [6], "the offset counts once"


async def test_13_a_group_begins_on_a_stream_that_is_not_there(db: Store) -> None:
    assert await db.do("TREAD", "$", 1, "GROUP", "g") == []
    await db.fill(1)
    assert offsets(await db.do("TREAD", "$", 1, "GROUP", "g")) == [1]


async def test_13_a_group_that_nobody_uses_goes(db: Store) -> None:
    await db.do("TGROUP CREATE", "g", 0, "TTL", 20)
    await db.do("TGROUP CREATE", "stays", 0)

    async def is_gone() -> bool:
        return await db.do("TGROUP LIST") == [b"stays"]

    await until(is_gone)
    assert await db.do("TGROUP SET", "g", "TTL", 0) == 0


async def test_14_without_retry_nothing_is_pending(db: Store) -> None:
    await db.fill(3)
    await db.do("TREAD", 0, 3, "GROUP", "g")
    assert await db.do("TPENDING", "g") == [0, 0, 0, -1]
    assert await db.do("TACK", "g", "1-3") == 0


async def test_15_who_was_served_goes_to_the_end_of_the_line(db: Store) -> None:
    served: list[str] = []

    async def read(name: str) -> None:
        while True:
            messages = await db.do("TREAD", 0, 10, "BLOCK", 0, "GROUP", "g")
            served.extend(f"{name}{offset}" for offset in offsets(messages))

    async with contextlib.AsyncExitStack() as stack:
        for place, name in enumerate("abc"):
            await stack.enter_async_context(running(read(name)))
            await db.until_blocked(place + 1)
        for offset in range(1, 10):
            await db.until_blocked(3)
            await db.do("TWRITE", "t", "e")

            async def is_served(count: int = offset) -> bool:
                return len(served) == count

            await until(is_served)
    assert served == ["a1", "b2", "c3", "a4", "b5", "c6", "a7", "b8", "c9"]


async def test_15_nobody_gets_more_than_his_share(db: Store) -> None:
    async with contextlib.AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(running(db.do("TREAD", 0, 100, "BLOCK", 0, "GROUP", "g")))
            for _ in range(3)
        ]
        await db.until_blocked(3)
        await db.write(*"abcdefg")
        replies = await asyncio.gather(*readers)
    assert sorted(map(len, replies)) == [2, 2, 3]
    assert sorted(offset for reply in replies for offset in offsets(reply)) == [1, 2, 3, 4, 5, 6, 7]


async def test_16_retry_belongs_to_groups(db: Store) -> None:
    needs = "ERR RETRY, CONSUMER and WITHCOUNT need GROUP"
    assert await db.error("TREAD", 1, 1, "RETRY", 1, 1) == needs
    assert await db.error("TREAD", 1, 1, "CONSUMER", "me") == needs
    assert await db.error("TREAD", 1, 1, "WITHCOUNT") == needs
    not_with = "ERR REV and SKIPNULL do not go with GROUP"
    assert await db.error("TREAD", 1, 1, "GROUP", "g", "REV") == not_with
    assert await db.error("TREAD", 1, 1, "GROUP", "g", "SKIPNULL") == not_with
    assert await db.error("TREAD", 1, 1, "GROUP", "g", "RETRY", 0, 1) == "ERR retry-ms must be at least 1"
    assert await db.error("TREAD", 1, 1, "GROUP", "g", "RETRY", -1, 1) == NOT_INTEGER
    assert await db.error("TREAD", 1, 1, "GROUP", "g", "RETRY", 1) == SYNTAX
    assert await db.error("TREAD", 1, 1, "GROUP", "") == "ERR the name of a group cannot be empty"
    assert await db.error("TREAD", 1, 1, "NONSENSE") == SYNTAX
    assert await db.client.execute("EXISTS", db.key) == 0


async def test_16_readers_without_retry_get_new_messages_only(db: Store) -> None:
    await db.fill(2)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 1, 0)
    await asyncio.sleep(0.01)
    assert offsets(await db.do("TREAD", 0, 9, "GROUP", "g")) == [2]
    assert offsets(await db.do("TREAD", 0, 9, "GROUP", "g", "RETRY", 1, 0)) == [1]


async def test_16_expiry_before_retry_is_a_single_try(db: Store) -> None:
    await db.fill(1)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 20, 10)
    await asyncio.sleep(0.03)
    assert await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 20, 10) == []
    assert (await db.group())["expired"] == 1


async def test_17_a_long_retry_time_delays_nobody_else(db: Store) -> None:
    await db.fill(3)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 60_000, 0)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 200, 0)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 1, 0)
    await asyncio.sleep(0.21)
    # In the order in which they were due, which a busy machine may turn around.
    assert sorted(offsets(await db.do("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0))) == [2, 3]


async def test_18_redelivery_counts_and_arms_anew(db: Store) -> None:
    await db.fill(2)
    read = ("TREAD", 0, 1, "GROUP", "g")
    assert await db.do(*read, "RETRY", 5, 0, "WITHCOUNT") == [[1, b"t", b"1", 1]]
    await asyncio.sleep(0.01)
    assert await db.do(*read, "RETRY", 60_000, 0, "WITHCOUNT") == [[1, b"t", b"1", 2]], "before new ones"
    assert await db.do(*read, "RETRY", 60_000, 0, "WITHCOUNT") == [[2, b"t", b"2", 1]]
    assert await db.do(*read, "RETRY", 60_000, 0) == []
    rows = await db.do("TPENDING", "g", 0, 9, 9)
    assert [row[2] for row in rows] == [2, 1]
    assert 30_000 < rows[0][4] <= 60_000


async def test_18_expiry_is_fixed_at_the_first_delivery(db: Store) -> None:
    await db.fill(1)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 1, 60_000)
    await asyncio.sleep(0.01)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 60_000, 600_000)
    [[_, _, deliveries, since_ms, _, expires_ms]] = await db.do("TPENDING", "g", 1, 1, 1)
    assert deliveries == 2
    assert since_ms >= 5
    assert 30_000 < expires_ms < 60_000


async def test_19_what_expires_leaves_the_group_and_not_the_log(db: Store) -> None:
    await db.fill(1)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 1, 5)
    await asyncio.sleep(0.02)
    assert await db.do("TPENDING", "g") == [0, 0, 0, -1]
    assert await db.do("TACK", "g", 1) == 0
    group = await db.group()
    assert (group["pending"], group["expired"], group["ack-offset"]) == (0, 1, 2)
    assert offsets(await db.do("TREAD", 1, 1)) == [1]
    assert offsets(await db.do("TREAD", 0, 1, "GROUP", "other")) == [1]


async def test_19_what_expires_becomes_a_dead_letter(db: Store) -> None:
    await db.do("TGROUP CREATE", "g", 0, "DEADLETTER", db.dead)
    await db.do("TWRITE", "tag", "line one\nline two")
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 1, 5)
    await asyncio.sleep(0.02)
    assert await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 1, 5) == []
    [[_, tag, letter]] = await db.commands.execute("TREAD", db.dead, 1, 9)
    assert tag == b"tag"
    head, _, entry = letter.partition(b"\n\n")
    assert entry == b"line one\nline two"
    lines = dict(line.split(b": ", 1) for line in head.split(b"\n"))
    assert abs(int(lines.pop(b"time_ms")) - time.time() * 1000) < 60_000
    assert lines == {
        b"stream": db.key.encode(),
        b"offset": b"1",
        b"group": b"g",
        b"deliveries": b"1",
        b"reason": b"expired",
    }


async def test_20_acknowledging_offsets_and_ranges(db: Store) -> None:
    await db.fill(9)
    await db.do("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)
    assert await db.do("TACK", "g", 2) == 1
    assert await db.do("TACK", "g", 2, 99) == 0
    assert await db.do("TACK", "g", "3-5", "4", 9, "9-9") == 4
    assert [row[0] for row in await db.do("TPENDING", "g", 0, 99, 99)] == [1, 6, 7, 8]
    assert await db.do("TACK", "g", f"0-{2**64 - 1}") == 4
    assert await db.do("TACK", "nobody", 1) == 0


@pytest.mark.parametrize("item", ["x", "", "-1", "1-", "-", "5-4", "1-2-3", " 1", "+1", "1.0", str(2**64)])
async def test_20_one_bad_item_and_nothing_happens(db: Store, item: str) -> None:
    await db.fill(1)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 60_000, 0)
    assert await db.error("TACK", "g", 1, item) == INVALID
    assert await db.error("TNACK", "g", 0, 1, item) == INVALID
    assert await db.error("TRENEW", "g", 1, 1, item) == INVALID
    assert await db.error("TDEAD", "g", "why", 1, item) == INVALID
    assert (await db.do("TPENDING", "g"))[0] == 1


async def test_21_everything_below_the_ack_offset_is_acknowledged(db: Store) -> None:
    await db.fill(5)
    await db.do("TREAD", 0, 4, "GROUP", "g", "RETRY", 60_000, 0)
    assert (await db.group())["ack-offset"] == 1
    await db.do("TACK", "g", "1-2", 4)
    group = await db.group()
    assert (group["ack-offset"], group["cursor"], group["acked"], group["lag"]) == (3, 5, 3, 1)
    await db.do("TACK", "g", 3)
    assert (await db.group())["ack-offset"] == 5


async def test_22_new_messages_are_held_back_at_the_limit(db: Store) -> None:
    await db.fill(9)
    await db.do("TGROUP CREATE", "g", 0, "MAXPENDING", 3)
    read = ("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)
    assert offsets(await db.do(*read)) == [1, 2, 3]
    assert await db.do(*read) == []
    assert await db.do("TREAD", 0, 9, "GROUP", "g") == []
    await db.do("TACK", "g", 2)
    assert offsets(await db.do(*read)) == [4], "as many as there is room for"
    await db.do("TNACK", "g", 0, 1, 3)
    assert offsets(await db.do(*read)) == [1, 3], "retries are always allowed"


async def test_23_acknowledging_wakes_who_waits_for_room(db: Store) -> None:
    await db.fill(2)
    await db.do("TGROUP CREATE", "g", 0, "MAXPENDING", 1)
    read = ("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)
    assert offsets(await db.do(*read)) == [1]
    async with running(db.do(*read, "BLOCK", 0)) as reader:
        await db.until_blocked()
        await db.do("TACK", "g", 1)
        assert offsets(await asyncio.wait_for(reader, DEADLINE_S)) == [2]


async def test_23_a_retry_wakes_who_waits(db: Store) -> None:
    await db.fill(1)
    read = ("TREAD", 0, 9, "GROUP", "g", "WITHCOUNT", "RETRY", 30, 0)
    await db.do(*read)
    assert await db.do(*read, "BLOCK", 5_000) == [[1, b"t", b"1", 2]]


async def test_23_an_expiry_makes_room(db: Store) -> None:
    await db.fill(2)
    await db.do("TGROUP CREATE", "g", 0, "MAXPENDING", 1)
    read = ("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 30)
    assert offsets(await db.do(*read)) == [1]
    assert offsets(await db.do(*read, "BLOCK", 5_000)) == [2]


# -------------------------------------------------------------------------------------- eviction


async def test_24_evicts_up_to_an_offset(db: Store) -> None:
    await db.fill(9)
    assert await db.do("TEVICT", 0) == 0
    assert await db.do("TEVICT", 3) == 3
    assert await db.do("TEVICT", 3) == 0
    assert await db.do("TEVICT", 2) == 0
    assert await db.range() == (4, 9)
    assert await db.do("TEVICT", 2**64 - 1) == 6
    assert await db.range() == (10, 9)
    assert await db.client.execute("EXISTS", db.key) == 1


async def test_25_evicts_all_but_the_newest(db: Store) -> None:
    await db.fill(9)
    assert await db.do("TEVICT", "-0") == 0
    assert await db.do("TEVICT", "-20") == 0
    assert await db.do("TEVICT", "-4") == 5
    assert await db.range() == (6, 9)


async def test_26_eviction_moves_cursors_and_spares_on_demand(db: Store) -> None:
    await db.fill(9)
    await db.do("TREAD", 0, 5, "GROUP", "reads", "RETRY", 60_000, 0)
    await db.do("TACK", "reads", 1, 2, 4)
    assert await db.do("TEVICT", 9, "ACKED") == 2, "3 is pending"
    await db.do("TACK", "reads", "1-9")
    assert await db.do("TEVICT", "-0", "ACKED") == 0
    assert await db.do("TEVICT", "-1", "ACKED") == 3, "6 was not read"
    await db.do("TGROUP CREATE", "late", 8)
    assert await db.do("TEVICT", 9) == 4, "nobody was asked"
    await db.do("TWRITE", "t", "10")
    assert offsets(await db.do("TREAD", 0, 9, "GROUP", "late")) == [10]
    assert (await db.group("late"))["lost"] == 2


async def test_27_evicts_by_age(db: Store) -> None:
    await db.fill(3)
    assert await db.do("TEVICT", "AGE", 60_000) == 0
    await asyncio.sleep(1.01)
    await db.do("TWRITE", "t", "4")
    assert await db.do("TEVICT", "AGE", 1_000) == 3
    assert await db.range() == (4, 4)
    assert await db.error("TEVICT", "AGE") == SYNTAX
    assert await db.error("TEVICT", "AGE", "x") == NOT_INTEGER
    assert await db.error("TEVICT", "AGE", 1, "NONSENSE") == SYNTAX


async def test_28_compaction_keeps_the_newest_of_each_tag(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 4)
    await db.write("a", "", "a", "b", "", "a", "b", "c", "a", "a")
    assert await db.do("TCOMPACT") == 3, "a1 a3 b4 went; the node of 9 and 10 is being written"
    assert offsets(await db.do("TREAD", 1, 99, "SKIPNULL")) == [2, 5, 6, 7, 8, 9, 10]
    assert await db.do("TCOMPACT") == 0
    info = await db.do("TINFO STREAM")
    assert (info["first"], info["last"], info["length"], info["compacted-to"]) == (1, 10, 7, 8)
    assert await db.do("TWRITE", "d", "e") == 11


async def test_28_compaction_spares_what_is_pending(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 3)
    await db.write("a", "a", "a")
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 60_000, 0)
    assert await db.do("TCOMPACT") == 1
    assert offsets(await db.do("TREAD", 1, 9)) == [1, None, 3]


async def test_28_tombstones_stay_for_a_while(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 3)
    await db.write("a", "b")
    await db.do("TWRITE", "IF", 2, "TOMBSTONES", "a")
    assert await db.do("TCOMPACT") == 1
    assert await db.do("TREAD", 1, 9) == [None, [2, b"b", b"b1"], [3, b"a", None]]


async def test_28_tombstones_go_in_the_end(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 3, "TOMBSTONE-MS", 0)
    await db.write("a", "b")
    await db.do("TWRITE", "IF", 2, "TOMBSTONES", "a")
    await asyncio.sleep(0.005)
    assert await db.do("TCOMPACT") == 2
    assert offsets(await db.do("TREAD", 1, 9)) == [None, 2, None]
    assert await db.do("TWRITE", "c", "e") == 4


async def test_28_young_messages_are_left_alone(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 3, "MIN-LAG-MS", 60_000)
    await db.write("a", "a", "a")
    assert await db.do("TCOMPACT") == 0


async def test_28_a_policy_compacts_by_itself(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 10, "COMPACT", "yes", "DIRTY-RATIO", 10)
    await db.fill(30)

    async def is_compacted() -> bool:
        await db.do("TWRITE", "other", "e")
        return offsets(await db.do("TREAD", 1, 9)) == [None] * 9

    await until(is_compacted)


async def test_28_retention_by_count_bytes_and_age(db: Store) -> None:
    async def first_is(offset: int) -> bool:
        return (await db.range())[0] >= offset

    await db.do("TPOLICY", "NODE-MESSAGES", 2, "RETAIN-COUNT", 4)
    await db.fill(10)
    await until(lambda: first_is(6))
    assert (await db.range())[0] <= 7
    await db.do("TPOLICY", "RETAIN-COUNT", 0, "RETAIN-MS", 1)
    await asyncio.sleep(0.005)
    await db.do("TWRITE", "t", "11")
    await until(lambda: first_is(10))
    await db.do("TPOLICY", "RETAIN-MS", 0, "RETAIN-BYTES", 1_000)
    for _ in range(12):
        await db.do("TWRITE", "t", random.randbytes(500))  # nothing that compression could shorten
    await until(lambda: first_is(18))
    assert (await db.range())[1] == 23


async def test_28_retention_can_spare_what_groups_need(db: Store) -> None:
    await db.do("TGROUP CREATE", "g", 3)
    await db.do("TPOLICY", "NODE-MESSAGES", 1, "RETAIN-COUNT", 1, "RETAIN-ACKED", "yes")
    await db.fill(6)

    async def is_applied() -> bool:
        return (await db.range())[0] == 3

    await until(is_applied)


# --------------------------------------------------------------------------------------- storage


async def test_29_nodes_are_found_anywhere(db: Store) -> None:
    count = 2_500
    await db.do("TWRITE", "ENTRIES", *(word for n in range(1, count + 1) for word in ("t", str(n))))
    for offset in (1, 999, 1000, 1001, 1777, 2000, 2001, 2500):
        assert await db.do("TREAD", offset, 1) == [[offset, b"t", str(offset).encode()]]
    assert offsets(await db.do("TREAD", 990, 1_020)) == list(range(990, 2_010))
    assert offsets(await db.do("TREAD", 2_005, 1_010, "REV")) == list(range(2_005, 995, -1))
    info = await db.do("TINFO STREAM")
    assert (info["length"], info["nodes"]) == (count, 3)


async def test_30_compression_is_invisible(db: Store) -> None:
    entries = [f'{{"number": {n}, "text": "{"lorem ipsum " * 8}"}}'.encode() for n in range(1_200)]
    await db.do("TWRITE", "ENTRIES", *(word for entry in entries for word in ("t", entry)))
    assert [row[2] for row in await db.do("TREAD", 1, 1_200)] == entries
    assert [row[2] for row in await db.do("TREAD", "$", 1_200, "REV")] == entries[::-1]
    assert (await db.do("TINFO STREAM"))["raw-bytes"] >= sum(map(len, entries))


@pytest.mark.parametrize("kind", ["valkey", "redis", "embedded", "server"])
async def test_31_groups_and_what_they_have_pending_are_kept(kind: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_started(kind, tmp_path))
        async with penstock.open(server.url if server else tmp_path / "store.pen") as client:
            db = Store(kind, client)
            await skip_if_unknown(db)
            await db.fill(3)
            await db.do("TREAD", 0, 2, "GROUP", "g", "CONSUMER", "me", "RETRY", 60_000, 0)
            await db.do("TACK", "g", 1)
            before = await db.do("TPENDING", "g", 0, 9, 9)
            if isinstance(server, RealServer):
                await client.execute("SAVE")
        if isinstance(server, RealServer):
            server.kill()
            server.restart()
        elif server:
            server.kill()
            server.start()
        async with penstock.open(server.url if server else tmp_path / "store.pen") as client:
            db.commands = StreamCommands(client)
            after = await db.do("TPENDING", "g", 0, 9, 9)
            assert [row[:3] for row in after] == [row[:3] for row in before] == [[2, b"me", 1]]
            assert offsets(await db.do("TREAD", 0, 9, "GROUP", "g")) == [3]


@contextlib.contextmanager
def _started(kind: str, directory: Path) -> Iterator[RealServer | PenstockServer | None]:
    """A server of its own, to be killed; none for the embedded store."""
    if kind == "embedded":
        yield None
    elif kind == "server":
        with PenstockServer(directory / "store.pen") as server:
            yield server
    else:
        try:
            binary = find_server(kind)
        except ServerUnavailableError as error:
            pytest.skip(str(error))
        with RealServer(binary) as real:
            yield real


@pytest.mark.parametrize("offset", ["x", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", str(2**64), "9" * 30])
async def test_32_bad_offsets(db: Store, offset: str) -> None:
    await db.fill(2)
    await db.do("TGROUP CREATE", "g", 0)
    for words in (
        ("TREAD", offset, 1), ("TREAD", offset, 1, "GROUP", "new"), ("TGROUP CREATE", "new", offset),
        ("TWRITE", "IF", offset, "ENTRIES", "t", "e"), ("TGROUP SET", "g", "OFFSET", offset),
        ("TPENDING", "g", offset, 9, 9), ("TPENDING", "g", 0, offset, 9),
    ):  # fmt: skip
        assert await db.error(*words) == INVALID, words
    if offset != "-1":  # which keeps the newest
        assert await db.error("TEVICT", offset) == INVALID
    assert await db.range() == (1, 2)
    assert await db.do("TGROUP LIST") == [b"g"]


async def test_32_only_groups_and_backward_readers_know_the_end(db: Store) -> None:
    assert await db.error("TREAD", "$", 1) == INVALID
    assert await db.error("TREAD", "", 1) == INVALID
    assert await db.error("TREAD", "", 1, "REV") == INVALID


# ------------------------------------------------------------------------------- beyond the RCP


async def test_write_only_if_the_last_offset_is_this_one(db: Store) -> None:
    assert await db.do("TWRITE", "IF", 0, "ENTRIES", "t", "1") == 1
    assert await db.error("TWRITE", "IF", 0, "ENTRIES", "t", "2") == "MISMATCH the last offset is 1"
    assert await db.error("TWRITE", "IF", 2**64 - 1, "ENTRIES", "t", "2") == "MISMATCH the last offset is 1"
    assert await db.do("TWRITE", "IF", 1, "ENTRIES", "t", "2", "t", "3") == 3
    assert await db.range() == (1, 3)


async def test_a_repeated_write_is_written_once(db: Store) -> None:
    write = ("TWRITE", "PRODUCER", "p", 1, "ENTRIES", "t", "1", "t", "2")
    assert await db.do(*write) == 2
    assert await db.do(*write) == 2
    assert await db.do("TWRITE", "PRODUCER", "p", 10, "ENTRIES", "t", "3") == 3, "gaps are allowed"
    assert await db.do(*write) == 2
    at_ten = "SEQUENCE producer p is at 10"
    assert await db.error("TWRITE", "PRODUCER", "p", 10, "ENTRIES", "t", "3", "t", "4") == at_ten
    assert await db.error("TWRITE", "PRODUCER", "p", 5, "ENTRIES", "t", "x") == at_ten
    assert await db.do("TWRITE", "PRODUCER", "q", 1, "ENTRIES", "t", "4") == 4
    assert await db.range() == (1, 4)
    assert (await db.do("TINFO STREAM"))["producers"] == 2


async def test_a_hundred_calls_of_a_producer_are_remembered(db: Store) -> None:
    for number in range(1, 102):
        await db.do("TWRITE", "PRODUCER", "p", number, "ENTRIES", "t", "e")
    assert await db.do("TWRITE", "PRODUCER", "p", 2, "ENTRIES", "t", "e") == 2
    assert (
        await db.error("TWRITE", "PRODUCER", "p", 1, "ENTRIES", "t", "e") == "SEQUENCE producer p is at 101"
    )


async def test_a_repeated_write_is_known_before_its_condition_is_asked(db: Store) -> None:
    write = ("TWRITE", "IF", 0, "PRODUCER", "p", 1, "ENTRIES", "t", "1")
    assert await db.do(*write) == 1
    assert await db.do(*write) == 1


async def test_nack_delivers_again_when_told(db: Store) -> None:
    await db.fill(2)
    read = ("TREAD", 0, 9, "GROUP", "g", "WITHCOUNT", "RETRY", 60_000, 0)
    await db.do(*read)
    assert await db.do("TNACK", "g", 0, 1, 99) == 1
    assert await db.do(*read) == [[1, b"t", b"1", 2]]
    assert await db.do("TNACK", "g", 30_000, "1-2") == 2
    assert await db.do(*read) == []
    assert 0 < (await db.do("TPENDING", "g"))[3] <= 30_000
    assert await db.error("TNACK", "g", "x", 1) == NOT_INTEGER
    assert await db.error("TNACK", "g", "*", 1) == NOT_INTEGER, "there is no backoff list"


async def test_nack_wakes_who_waits(db: Store) -> None:
    await db.fill(1)
    read = ("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)
    await db.do(*read)
    async with running(db.do(*read, "BLOCK", 0)) as reader:
        await db.until_blocked()
        await db.do("TNACK", "g", 0, 1)
        assert offsets(await asyncio.wait_for(reader, DEADLINE_S)) == [1]


async def test_renew_counts_from_now(db: Store) -> None:
    await db.fill(1)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 20, 0)
    assert await db.do("TRENEW", "g", 60_000, 1) == 1
    await asyncio.sleep(0.03)
    assert await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 20, 0) == []
    assert await db.error("TRENEW", "g", 0, 1) == "ERR retry-ms must be at least 1"


async def test_dead_gives_up(db: Store) -> None:
    await db.fill(2)
    await db.do("TGROUP CREATE", "g", 0, "DEADLETTER", db.dead)
    await db.do("TREAD", 0, 2, "GROUP", "g", "RETRY", 60_000, 0)
    assert await db.do("TDEAD", "g", "too\nugly", "1-9") == 2
    letters = await db.commands.execute("TREAD", db.dead, 1, 9)
    assert [b"\nreason: too ugly\n" in row[2] for row in letters] == [True, True]
    assert [row[2].partition(b"\n\n")[2] for row in letters] == [b"1", b"2"]
    group = await db.group()
    assert (group["pending"], group["dead"], group["expired"]) == (0, 2, 0)


async def test_backoff_and_a_limit_of_deliveries(db: Store) -> None:
    await db.fill(1)
    await db.do("TGROUP CREATE", "g", 0, "BACKOFF", "1,40000", "MAXDELIVERIES", 2, "DEADLETTER", db.dead)
    read = ("TREAD", 0, 1, "GROUP", "g", "WITHCOUNT", "RETRY", 60_000, 0)
    assert await db.do(*read) == [[1, b"t", b"1", 1]]
    await asyncio.sleep(0.01)
    assert await db.do(*read) == [[1, b"t", b"1", 2]]
    assert 20_000 < (await db.do("TPENDING", "g"))[3] <= 40_000
    assert await db.do("TNACK", "g", "*", 1) == 1
    assert 20_000 < (await db.do("TPENDING", "g"))[3] <= 40_000
    await db.do("TNACK", "g", 0, 1)
    assert await db.do(*read) == []
    [[_, _, letter]] = await db.commands.execute("TREAD", db.dead, 1, 9)
    assert b"\ndeliveries: 2\nreason: deliveries\n" in letter


async def test_an_ordered_group_holds_tags(db: Store) -> None:
    await db.write("a", "a", "b", "", "", "a", "c")
    await db.do("TGROUP CREATE", "g", 0, "ORDERED", "yes")
    read = ("TREAD", 0, 99, "GROUP", "g", "RETRY", 60_000, 0)
    assert offsets(await db.do(*read)) == [1, 3, 4, 5, 7]
    assert await db.do(*read) == []
    assert (await db.group())["lag"] == 2
    await db.do("TACK", "g", "3-7")
    assert (await db.group())["ack-offset"] == 1
    assert await db.do("TEVICT", "-1", "ACKED") == 0
    await db.do("TACK", "g", 1)
    assert (await db.group())["ack-offset"] == 2
    await db.write("a")
    assert offsets(await db.do(*read)) == [2]
    await db.do("TACK", "g", 2)
    assert offsets(await db.do(*read)) == [6]
    await db.do("TACK", "g", 6)
    assert offsets(await db.do(*read)) == [8]


async def test_an_ordered_group_releases_without_retry(db: Store) -> None:
    await db.write("a", "a", "a")
    await db.do("TGROUP CREATE", "g", 0, "ORDERED", "yes")
    assert offsets(await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 60_000, 0)) == [1]
    assert await db.do("TREAD", 0, 9, "GROUP", "g") == []
    await db.do("TACK", "g", 1)
    assert offsets(await db.do("TREAD", 0, 9, "GROUP", "g")) == [2, 3]


async def test_order_can_begin_and_end(db: Store) -> None:
    await db.write("a", "a", "a", "a")
    read = ("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)
    await db.do("TREAD", 0, 2, "GROUP", "g", "RETRY", 60_000, 0)
    await db.do("TGROUP SET", "g", "ORDERED", "yes")
    assert await db.do(*read) == []
    await db.do("TACK", "g", 1)
    assert await db.do(*read) == []
    await db.do("TACK", "g", 2)
    assert offsets(await db.do(*read)) == [3]
    await db.do("TGROUP SET", "g", "ORDERED", "no")
    assert offsets(await db.do(*read)) == [4]


async def test_groups_are_made_changed_and_removed(db: Store) -> None:
    assert await db.do("TGROUP CREATE", "g", 3, "MAXPENDING", 7, "TTL", 60_000) == 1
    assert await db.do("TGROUP CREATE", "g", 1, "MAXPENDING", 9) == 0
    group = await db.group()
    assert (group["cursor"], group["maxpending"], group["ttl"]) == (3, 7, 60_000)
    assert (group["ordered"], group["backoff"], group["deadletter"]) == (b"no", b"", b"")
    await db.fill(5)
    assert offsets(await db.do("TREAD", 0, 2, "GROUP", "g", "RETRY", 60_000, 0)) == [3, 4]
    assert await db.do("TGROUP SET", "g", "OFFSET", 2, "BACKOFF", "5,10") == 1
    assert (await db.group())["backoff"] == b"5,10"
    assert offsets(await db.do("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)) == [2, 5], "pending stays"
    assert await db.do("TGROUP SET", "nobody", "TTL", 1) == 0
    assert await db.do("TGROUP DESTROY", "g") == 1
    assert await db.do("TGROUP DESTROY", "g") == 0
    assert await db.do("TPENDING", "g") == [0, 0, 0, -1]
    assert await db.do("TGROUP CREATE", "g", 0) == 1
    assert await db.do("TPENDING", "g") == [0, 0, 0, -1], "nothing of its predecessor is left"


async def test_bad_options_of_groups(db: Store) -> None:
    assert await db.error("TGROUP CREATE", "", 0) == "ERR the name of a group cannot be empty"
    for option, value, text in (
        ("MAXPENDING", "-1", NOT_INTEGER), ("TTL", "x", NOT_INTEGER), ("BACKOFF", "1,,2", NOT_INTEGER),
        ("BACKOFF", "x", NOT_INTEGER), ("ORDERED", "perhaps", SYNTAX), ("NONSENSE", "1", SYNTAX),
    ):  # fmt: skip
        assert await db.error("TGROUP CREATE", "g", 0, option, value) == text
        assert await db.error("TGROUP SET", "g", option, value) == text
    assert await db.error("TGROUP CREATE", "g", 0, "TTL") == SYNTAX
    assert await db.error("TGROUP NONSENSE") == "ERR unknown subcommand 'NONSENSE'. Try TGROUP HELP."
    assert await db.client.execute("EXISTS", db.key) == 0


async def test_a_group_that_is_destroyed_lets_its_readers_go(db: Store) -> None:
    async with running(db.do("TREAD", 0, 1, "GROUP", "g", "BLOCK", 0)) as reader:
        await db.until_blocked()
        await db.do("TGROUP DESTROY", "g")
        with pytest.raises(CommandError, match="UNBLOCKED the group g is gone"):
            await asyncio.wait_for(reader, DEADLINE_S)


async def test_pending_messages_are_listed(db: Store) -> None:
    await db.fill(5)
    await db.do("TREAD", 0, 2, "GROUP", "g", "CONSUMER", "a", "RETRY", 60_000, 0)
    await db.do("TREAD", 0, 1, "GROUP", "g", "CONSUMER", "b", "RETRY", 60_000, 90_000)
    assert (await db.do("TPENDING", "g"))[:3] == [3, 1, 3]
    rows = await db.do("TPENDING", "g", 2, 9, 9)
    assert [row[:3] for row in rows] == [[2, b"a", 1], [3, b"b", 1]]
    assert rows[0][5] == -1
    assert 80_000 < rows[1][5] <= 90_000
    assert len(await db.do("TPENDING", "g", 0, 9, 2)) == 2
    assert [row[0] for row in await db.do("TPENDING", "g", 0, 9, 9, "CONSUMER", "b")] == [3]
    assert await db.error("TPENDING", "g", 1) == SYNTAX
    assert await db.error("TPENDING", "g", 0, 9, "x") == NOT_INTEGER


async def test_consumers_are_known(db: Store) -> None:
    await db.fill(3)
    await db.do("TREAD", 0, 2, "GROUP", "g", "CONSUMER", "a", "RETRY", 60_000, 0)
    await db.do("TREAD", 0, 1, "GROUP", "g", "CONSUMER", "b")
    one, other = await db.do("TINFO CONSUMERS", "g")
    assert (one["name"], one["pending"], one["delivered"]) == (b"a", 2, 2)
    assert (other["name"], other["pending"], other["delivered"]) == (b"b", 0, 1)
    assert await db.do("TINFO CONSUMERS", "nobody") == []


async def test_info_of_a_stream(db: Store) -> None:
    assert await db.error("TINFO STREAM") == "ERR no such key"
    await db.fill(3)
    await db.do("TGROUP CREATE", "g", 0)
    await db.do("TEVICT", 1)
    info = await db.do("TINFO STREAM")
    assert (info["first"], info["last"], info["length"], info["groups"]) == (2, 3, 2, 1)
    assert 0 < info["first-ms"] <= info["last-ms"]
    assert info["bytes"] > 0
    fields = (
        "first last length bytes raw-bytes nodes groups first-ms last-ms compacted-to dirty-bytes producers"
    )
    assert set(info) == set(fields.split())


async def test_policies(db: Store) -> None:
    policy = await db.do("TPOLICY", "retain-ms", 5_000, "COMPACT", "yes")
    assert policy == {
        "retain-ms": 5_000, "retain-count": 0, "retain-bytes": 0, "retain-acked": b"no", "compact": b"yes",
        "dirty-ratio": 50, "min-lag-ms": 0, "max-lag-ms": 0, "tombstone-ms": 86_400_000,
        "node-messages": 1_000, "node-bytes": 1_048_576,
    }  # fmt: skip
    assert await db.do("TPOLICY") == policy
    assert await db.error("TPOLICY", "RETAIN-MS", "x") == NOT_INTEGER
    assert await db.error("TPOLICY", "RETAIN-MS") == SYNTAX
    assert (await db.error("TPOLICY", "COMPACT", "perhaps")).startswith("ERR ")
    assert (await db.error("TPOLICY", "NONSENSE", 1)).startswith("ERR ")
    assert await db.do("TPOLICY") == policy
