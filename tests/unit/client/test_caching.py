"""The client's cache: what is kept, for how long, and what it never does."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import weakref
from collections import deque
from typing import Any

import pytest

from penstock.client.caching import CACHEABLE, Cache
from penstock.client.config import Settings, open_settings
from penstock.client.connection import Connection, ReplyFuture, Slot
from penstock.client.handshake import Introduction, shake_hands
from penstock.client.transports.scripted import ScriptedServer
from penstock.errors import AuthenticationError, CommandError, ConfigError

Arguments = tuple[Any, ...]


class Server:
    """Notes what is sent; the test answers when it likes."""

    def __init__(self) -> None:
        self.sent: list[Arguments] = []
        self.futures: deque[ReplyFuture] = deque()

    def send(self, arguments: Arguments) -> ReplyFuture:
        self.sent.append(arguments)
        future: ReplyFuture = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        return future

    def answer(self, reply: Any) -> None:
        self.futures.popleft().set_result(reply)


class Caller:
    def __init__(self, max_entries: int = 100) -> None:
        self.cache = Cache(max_entries)
        self.server = Server()

    def call(self, *arguments: Any) -> ReplyFuture:
        return self.cache.call(arguments, self.server.send)

    async def fill(self, *arguments: Any, reply: Any = b"v") -> None:
        """Read something that is not known yet."""
        future = self.call(*arguments)
        assert not future.done()
        self.server.answer(reply)
        assert await future == reply
        await asyncio.sleep(0)  # the cache learns of the reply with the caller, one tick after it came

    def knows(self, *arguments: Any) -> bool:
        """Whether it would be answered at once."""
        before = len(self.server.sent)
        future = self.call(*arguments)
        if len(self.server.sent) == before:
            return True
        future.cancel()
        self.server.futures.pop()
        return False

    def count(self, name: str) -> int:
        return self.cache.statistics()[name]


@pytest.fixture
async def caller() -> Caller:
    return Caller()


def invalidate(*keys: bytes) -> list[Any]:
    return [b"invalidate", list(keys)]


# ------------------------------------------------------------------------- what is kept


async def test_a_second_read_needs_no_round_trip(caller: Caller) -> None:
    await caller.fill("GET", "k")
    future = caller.call("GET", "k")
    assert future.done()
    assert await future == b"v"
    assert len(caller.server.sent) == 1
    assert caller.cache.statistics() == {
        "entries": 1, "hits": 1, "misses": 1, "invalidations": 0, "flushes": 0,
    }  # fmt: skip
    assert repr(caller.cache) == "<Cache 1/100 hits=1 misses=1>"


async def test_an_absent_key_is_known_too(caller: Caller) -> None:
    await caller.fill("GET", "k", reply=None)
    assert caller.knows("GET", "k")


async def test_spellings_of_one_command_are_one(caller: Caller) -> None:
    await caller.fill("get", b"k")
    for name in ("GET", b"GET", "Get", b"get", memoryview(b"GET")):
        for key in ("k", b"k", memoryview(b"k")):
            assert caller.knows(name, key)


async def test_numbers_are_what_they_are_on_the_wire(caller: Caller) -> None:
    await caller.fill("LINDEX", "l", 1)
    assert caller.knows("LINDEX", "l", "1")
    assert not caller.knows("LINDEX", "l", 1.0)
    assert not caller.knows("LINDEX", "l", True)


async def test_different_arguments_are_different_reads(caller: Caller) -> None:
    await caller.fill("HGET", "h", "a", reply=b"1")
    assert not caller.knows("HGET", "h", "b")
    await caller.fill("HGET", "h", "b", reply=b"2")
    assert await caller.call("HGET", "h", "a") == b"1"
    assert await caller.call("HGET", "h", "b") == b"2"


def test_which_commands() -> None:
    """A new read of one key needs a decision: does its reply follow from the key alone?"""
    assert (
        set(
            b"GET GETRANGE SUBSTR STRLEN GETBIT BITCOUNT BITPOS BITFIELD_RO EXISTS MGET TYPE"
            b" HGET HMGET HGETALL HKEYS HVALS HLEN HEXISTS HSTRLEN LRANGE LINDEX LLEN LPOS"
            b" SMEMBERS SISMEMBER SMISMEMBER SCARD ZSCORE ZMSCORE ZCARD ZCOUNT ZLEXCOUNT ZRANK ZREVRANK"
            b" ZRANGE ZRANGEBYSCORE ZRANGEBYLEX ZREVRANGE ZREVRANGEBYSCORE ZREVRANGEBYLEX"
            b" GEOPOS GEODIST GEOHASH GEOSEARCH GEORADIUS_RO GEORADIUSBYMEMBER_RO"
            b" XLEN XRANGE XREVRANGE".split()
        )
        == CACHEABLE
    )


@pytest.mark.parametrize(
    "words",
    ["SRANDMEMBER k", "HRANDFIELD k", "ZRANDMEMBER k", "TTL k", "PTTL k", "OBJECT ENCODING k", "TOUCH k",
     "SSCAN k 0", "SORT_RO k BY other*", "MGET k l", "EXISTS k l", "SINTER k l", "KEYS k", "GET", "PING k",
     "DBSIZE", "INFO k", "SET k v", "GETEX k", "EVAL_RO return 1 k", "NOSUCH k", "XREAD STREAMS k 0",
     "PFCOUNT k", "MEMORY USAGE k"],
)  # fmt: skip
async def test_what_is_never_kept(caller: Caller, words: str) -> None:
    await caller.fill(*words.split())
    assert not caller.knows(*words.split())
    assert caller.count("entries") == 0


async def test_refusals_are_not_kept(caller: Caller) -> None:
    future = caller.call("GET", "k")
    caller.server.futures.popleft().set_exception(CommandError("WRONGTYPE"))
    with pytest.raises(CommandError):
        await future
    assert not caller.knows("GET", "k")


async def test_a_caller_that_goes_away_leaves_nothing(caller: Caller) -> None:
    future = caller.call("GET", "k")
    future.cancel()
    await asyncio.sleep(0)
    assert not caller.knows("GET", "k")
    await asyncio.sleep(0)
    assert caller.cache._shelves == {}


@pytest.mark.parametrize(
    "reply", [[b"a", [b"b"]], {b"f": [b"v"]}, {b"a", b"b"}, [[b"a", 1.5], [b"b", None]], [{b"x": {b"y": []}}]]
)
async def test_what_is_handed_out_is_the_callers_own(caller: Caller, reply: Any) -> None:
    """Neither who read it first nor who reads it later can change what others get."""
    first = caller.call("LRANGE", "k", 0, -1)
    text = repr(reply)
    caller.server.answer(reply)
    given = [await first]
    await asyncio.sleep(0)
    for _ in range(3):
        _spoil(given[-1])
        given.append(await caller.call("LRANGE", "k", 0, -1))
        assert repr(given[-1]) == text
        assert type(given[-1]) is type(reply)
    assert caller.count("hits") == 3


def _spoil(value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            _spoil(item)
        value.append("spoiled")
    elif isinstance(value, dict):
        for item in value.values():
            _spoil(item)
        value["spoiled"] = True
    elif isinstance(value, set):
        value.clear()


async def test_the_least_recently_used_goes_first() -> None:
    caller = Caller(max_entries=2)
    await caller.fill("GET", "a")
    await caller.fill("GET", "b")
    assert caller.knows("GET", "a")
    await caller.fill("GET", "c")
    assert [caller.knows("GET", key) for key in "abc"] == [True, False, True]
    await asyncio.sleep(0)
    assert caller.count("entries") == len(caller.cache._shelves) == 2


# ------------------------------------------------------------------------------ changes


async def test_an_invalidated_key_is_read_again(caller: Caller) -> None:
    await caller.fill("GET", "k")
    await caller.fill("STRLEN", "k", reply=1)
    await caller.fill("GET", "l")
    caller.cache.on_push(invalidate(b"k", b"unknown"))
    assert not caller.knows("GET", "k")
    assert not caller.knows("STRLEN", "k")
    assert caller.knows("GET", "l")
    assert caller.count("invalidations") == 2


async def test_pushes_of_a_decoding_connection(caller: Caller) -> None:
    await caller.fill("GET", "ü\udcff", reply="v")
    caller.cache.on_push(["message", "c", "m"])
    assert caller.knows("GET", "ü\udcff")
    caller.cache.on_push(["invalidate", ["ü\udcff"]])
    assert not caller.knows("GET", "ü\udcff")


@pytest.mark.parametrize("flush", [lambda cache: cache.on_push([b"invalidate", None]), Cache.flush])
async def test_a_flush_takes_everything(caller: Caller, flush: Any) -> None:
    await caller.fill("GET", "k")
    on_its_way = caller.call("GET", "l")
    flush(caller.cache)
    assert caller.count("entries") == 0
    assert caller.count("flushes") == 1
    caller.server.answer(b"old")
    await on_its_way
    await asyncio.sleep(0)
    assert not caller.knows("GET", "k")
    assert not caller.knows("GET", "l")


@pytest.mark.parametrize("after_reply", [False, True])
async def test_what_is_invalidated_on_its_way_is_not_kept(caller: Caller, after_reply: bool) -> None:
    """Also if both came at once: the connection gives out the reply, then the push, then callers run."""
    future = caller.call("GET", "k")
    if after_reply:
        caller.server.answer(b"old")
    caller.cache.on_push(invalidate(b"k"))
    if not after_reply:
        caller.server.answer(b"old")
    assert await future == b"old"
    await asyncio.sleep(0)
    assert not caller.knows("GET", "k")


async def test_what_is_read_after_the_invalidation_is_kept(caller: Caller) -> None:
    old = caller.call("GET", "k")
    caller.cache.on_push(invalidate(b"k"))
    new = caller.call("GET", "k")
    caller.server.answer(b"old")
    caller.server.answer(b"new")
    assert [await old, await new] == [b"old", b"new"]
    await asyncio.sleep(0)
    assert await caller.call("GET", "k") == b"new"
    assert caller.count("hits") == 1


@pytest.mark.parametrize(
    "write",
    ["SET k 1", "del other k", "MSET other 1 k 1", "INCR k", "RENAME other k", "EVAL return 1 k", "NOSUCH k",
     "ZUNIONSTORE other 1 k", "XGROUP CREATE k g 0", "FLUSHALL", "flushdb async", "SWAPDB 0 1"],
)  # fmt: skip
async def test_own_writes_count_when_they_are_issued(caller: Caller, write: str) -> None:
    words = write.replace("EVAL return 1 k", "EVAL return() 1 k").split()
    await caller.fill("GET", "k")
    on_its_way = caller.call("STRLEN", "k")
    caller.call(*words)
    assert not caller.knows("GET", "k")
    caller.server.answer(1)
    await on_its_way
    await asyncio.sleep(0)
    assert not caller.knows("STRLEN", "k")


@pytest.mark.parametrize(
    "words", ["GET other", "MGET k other", "PING k", "TTL k", "SET other 1", "CONFIG SET k 1"]
)
async def test_what_changes_nothing_of_the_key_does_not_count(caller: Caller, words: str) -> None:
    await caller.fill("GET", "k")
    caller.call(*words.split())
    assert caller.knows("GET", "k")


async def test_writes_that_go_another_way_are_reported(caller: Caller) -> None:
    await caller.fill("GET", "k")
    caller.cache.touch(("BLPOP", "k", 0))
    assert not caller.knows("GET", "k")
    assert caller.server.sent[-1] == ("GET", "k")


# ----------------------------------------------------------------------------- manners


async def test_who_polls_a_known_key_lets_the_loop_turn(caller: Caller) -> None:
    await caller.fill("GET", "k", reply=b"old")
    asyncio.get_running_loop().call_soon(caller.cache.on_push, invalidate(b"k"))
    for _ in range(1000):
        future = caller.call("GET", "k")
        if caller.server.futures:
            break
        assert await future == b"old"
    else:
        pytest.fail("the invalidation never came through")
    future.cancel()


async def test_a_late_reply_from_the_cache_whose_caller_has_gone(caller: Caller) -> None:
    await caller.fill("GET", "k")
    futures = [caller.call("GET", "k") for _ in range(200)]
    late = [future for future in futures if not future.done()]
    assert late
    late[0].cancel()
    await asyncio.sleep(0)
    assert all(future.done() for future in futures)


async def test_a_forked_child_knows_nothing(caller: Caller) -> None:
    await caller.fill("GET", "k")
    child = os.fork()
    if child == 0:
        os._exit(caller.count("entries"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert caller.knows("GET", "k")


async def test_it_goes_away() -> None:
    caller = Caller()
    await caller.fill("GET", "k")
    gone = weakref.ref(caller.cache)
    del caller
    gc.collect()
    assert gone() is None


# ------------------------------------------------------------------- any order of events


class TrackingServer:
    """A server with tracking, far away: what it says arrives one piece at a time, in order."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.versions = {b"a": 0, b"b": 0}
        self._tracked: set[bytes] = set()
        #: what was sent and has not been executed
        self.up: deque[tuple[ReplyFuture, Arguments]] = deque()
        #: what was said and has not arrived
        self.down: deque[Any] = deque()

    def send(self, arguments: Arguments) -> ReplyFuture:
        future: ReplyFuture = asyncio.get_running_loop().create_future()
        self.up.append((future, arguments))
        return future

    def execute(self) -> None:
        future, (name, key, *_) = self.up.popleft()
        if name == "GET":
            self._tracked.add(key)
            self.down.append((future, self.versions[key]))
        else:
            self.versions[key] += 1
            self.down.append((future, self.versions[key]))
            self._tell(key)

    def write_by_another(self, key: bytes) -> None:
        self.versions[key] += 1
        self._tell(key)

    def _tell(self, key: bytes) -> None:
        if key in self._tracked:
            self._tracked.discard(key)
            self.down.append(invalidate(key))

    def deliver(self, cache: Cache) -> None:
        said = self.down.popleft()
        if isinstance(said, list):
            cache.on_push(said)
        else:
            said[0].set_result(said[1])


@pytest.mark.parametrize("seed", range(30))
async def test_no_order_of_events_leaves_something_stale(seed: int) -> None:
    chance = random.Random(seed)
    server = TrackingServer(chance)
    cache = Cache(100)
    #: the least version that a read of a key may answer: that of our last write that was answered
    least = dict.fromkeys(server.versions, 0)
    running: list[asyncio.Task[None]] = []

    async def write(key: bytes) -> None:
        version = await cache.call(("INCR", key), server.send)
        least[key] = max(least[key], version)
        assert await cache.call(("GET", key), server.send) >= version

    async def read(key: bytes) -> None:
        expected = least[key]
        assert await cache.call(("GET", key), server.send) >= expected

    async with asyncio.TaskGroup() as tasks:
        for _ in range(600):
            key = chance.choice(list(server.versions))
            match chance.randrange(9):
                case 0:
                    running.append(tasks.create_task(write(key)))
                case 1:
                    server.write_by_another(key)
                case 2 | 3 | 4:
                    running.append(tasks.create_task(read(key)))
                case 5 | 6:
                    for _ in range(min(chance.randrange(4), len(server.up))):
                        server.execute()
                case 7:
                    for _ in range(min(chance.randrange(4), len(server.down))):
                        server.deliver(cache)
                case 8:
                    await asyncio.sleep(0)
        while server.up or server.down or not all(task.done() for task in running):
            while server.up:
                server.execute()
            while server.down:
                server.deliver(cache)
            await asyncio.sleep(0)
    for key, version in server.versions.items():
        future = cache.call(("GET", key), server.send)
        assert not future.done() or future.result() == version
        future.cancel()
    assert cache.statistics()["hits"] > 0


# --------------------------------------------------------------- settings and handshake


class Owner:
    def on_refused(self, connection: Connection, slot: Slot, error: CommandError) -> bool:
        return False

    def on_push(self, connection: Connection, push: list[Any]) -> None: ...

    def on_room(self, connection: Connection) -> None: ...

    def on_lost(
        self, connection: Connection, error: Exception | None, unanswered: list[Slot], unsent: list[Slot]
    ) -> None: ...


async def greet(server: ScriptedServer, **intro: Any) -> list[str]:
    connection = Connection(Owner(), asyncio.get_running_loop(), 10)
    connection.attach(await server.connect(connection))
    await shake_hands(connection, Introduction(tracks=True, **intro), "here:6379")
    return [b" ".join(arguments).decode() for arguments in server.sent]


def tracking(server: ScriptedServer) -> ScriptedServer:
    server.on("HELLO").reply({b"proto": 3})
    for name in ("READONLY", "PING", "INFO"):
        server.on(name).reply(b"OK")
    server.on("CLIENT", "ID").reply(42)
    return server


async def test_tracking_is_the_last_step_of_the_handshake() -> None:
    server = tracking(ScriptedServer())
    server.on("CLIENT", "TRACKING").reply(b"OK")
    assert (await greet(server, reads_from_replica=True))[-2:] == ["READONLY", "CLIENT TRACKING ON"]


async def test_a_server_that_cannot_track_is_a_wrong_setting() -> None:
    server = tracking(ScriptedServer())
    server.on("CLIENT", "TRACKING").error(
        "ERR Unknown subcommand or wrong number of arguments for 'TRACKING'"
    )
    with pytest.raises(ConfigError, match=r"client_cache_entries .* here:6379 does not tell of changes: ERR"):
        await greet(server)


async def test_a_server_without_resp3_cannot_tell() -> None:
    server = tracking(ScriptedServer())
    server.on("HELLO").error("ERR unknown command `HELLO`")
    with pytest.raises(ConfigError, match="does not tell of changes: it knows no RESP3"):
        await greet(server)


async def test_a_user_who_may_not_track_lacks_permission() -> None:
    server = tracking(ScriptedServer())
    server.on("CLIENT", "TRACKING").error("NOPERM this user has no permissions to run it")
    with pytest.raises(AuthenticationError):
        await greet(server)


def test_the_setting() -> None:
    assert Settings().client_cache_entries == 0
    assert open_settings("redis://host?client_cache_entries=1000")[1].client_cache_entries == 1000
    with pytest.raises(ConfigError, match="client_cache_entries must be a whole number from 0"):
        open_settings("redis://host", client_cache_entries=-1)
    with pytest.raises(ConfigError, match="client_cache_entries needs protocol 3"):
        open_settings("redis://host", client_cache_entries=10, protocol=2)
    open_settings("redis://host", client_cache_entries=0, protocol=2)
