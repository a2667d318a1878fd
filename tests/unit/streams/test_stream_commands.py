"""What stands between a stream command and a server: who runs it, and the oddities of scripts.

What the commands do is in tests/conformance/streams.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

import penstock
from penstock.client.client import Client
from penstock.client.scripts import ScriptLibrary
from penstock.errors import CommandError, CommandTimeoutError
from penstock.streams.commands import StreamCommands
from penstock.streams.keys import stream_keys
from penstock.testing import RealServer, ScriptedServer, open_scripted
from tests.conformance.refusals import WRONGTYPE

LARGEST = 2**53 - 1
DAY_MS = 86_400_000

# ------------------------------------------------------------------------------ native commands


async def test_a_server_that_has_the_commands_gets_them() -> None:
    server = ScriptedServer()
    server.expect("COMMAND", "INFO", "TWRITE").reply([[b"twrite", -4]])  # once
    server.on("TWRITE", "k", "t", "e").reply(7)
    server.on("TPOLICY", "k").reply([b"COMPACT", b"yes", b"retain-ms", 5])
    server.on("TINFO", "GROUPS", "k").reply([{b"name": b"g"}, [b"name", b"h"]])
    async with open_scripted(server) as client:
        commands = StreamCommands(client)
        assert await commands.execute("TWRITE", "k", "t", "e") == 7
        assert await commands.execute("TPOLICY", "k") == {"compact": b"yes", "retain-ms": 5}
        assert await commands.execute("TINFO", "GROUPS", "k") == [{"name": b"g"}, {"name": b"h"}]
        assert await commands.is_native()


async def test_a_server_that_must_not_be_asked_gets_scripts() -> None:
    server = ScriptedServer()
    server.on("COMMAND").error("NOPERM this user has no permissions")
    async with open_scripted(server) as client:
        assert not await StreamCommands(client).is_native()


async def test_a_command_needs_a_name(commands: StreamCommands) -> None:
    with pytest.raises(TypeError):
        await commands.execute()


# -------------------------------------------------------------------------------------- scripts


@pytest.fixture
async def client(valkey_server: RealServer) -> AsyncIterator[Client]:
    async with penstock.open(valkey_server.url) as client:
        yield client


@pytest.fixture
def commands(client: Client) -> StreamCommands:
    return StreamCommands(client)


async def test_a_stream_ends_where_doubles_do(client: Client, commands: StreamCommands) -> None:
    await commands.execute("TWRITE", "k", "t", "e")
    await client.execute("HSET", stream_keys(b"k")[1], "last", LARGEST - 1)
    with pytest.raises(CommandError, match=r"^ERR the stream is full$"):
        await commands.execute("TWRITE", "k", "ENTRIES", "t", "e", "t", "e")
    assert await commands.execute("TWRITE", "k", "t", "last") == LARGEST
    assert await commands.execute("TREAD", "k", LARGEST, 5, "WITHINFO") == [
        [1, LARGEST],
        [LARGEST, b"t", b"last"],
    ]
    with pytest.raises(CommandError, match=r"^ERR the stream is full$"):
        await commands.execute("TWRITE", "k", "t", "e")


async def test_other_streams_of_redis_are_left_alone(client: Client, commands: StreamCommands) -> None:
    await client.execute("XADD", "k", "*", "field", "value")
    for words in (("TWRITE", "k", "t", "e"), ("TREAD", "k", 1, 1), ("TEVICT", "k", 9)):
        with pytest.raises(CommandError, match=WRONGTYPE):
            await commands.execute(*words)
    assert await client.execute("XLEN", "k") == 1


async def test_messages_follow_their_key(client: Client, commands: StreamCommands) -> None:
    await commands.execute("TWRITE", "k", "ENTRIES", "a", "1", "b", "2", "c", "3")
    await commands.execute("TEVICT", "k", 1)
    await commands.execute("TGROUP", "CREATE", "k", "g", 0)
    await client.execute("RENAME", "k", "new")
    assert await commands.execute("TREAD", "new", 0, 9, "WITHINFO") == [
        [2, 3],
        [2, b"b", b"2"],
        [3, b"c", b"3"],
    ]
    assert await commands.execute("TGROUP", "LIST", "new") == []
    assert await commands.execute("TEVICT", "new", 2) == 1
    assert await commands.execute("TWRITE", "new", "d", "4") == 4
    assert await commands.execute("TREAD", "new", 1, 9) == [None, None, [3, b"c", b"3"], [4, b"d", b"4"]]
    assert await commands.execute("TWRITE", "k", "t", "e") == 1, "the old name begins anew"
    assert await commands.execute("TGROUP", "LIST", "k") == []


async def test_deleting_leaves_no_side_keys_once_it_is_written_again(
    client: Client, commands: StreamCommands
) -> None:
    await commands.execute("TWRITE", "k", "PRODUCER", "p", 1, "ENTRIES", "t", "e")
    await commands.execute("TREAD", "k", 0, 1, "GROUP", "g", "CONSUMER", "me", "RETRY", 60_000, 0)
    await client.execute("DEL", "k")
    await commands.execute("TWRITE", "k", "t", "e")
    assert sorted(await client.execute("KEYS", "*")) == sorted(stream_keys(b"k")[:2])


async def age_producers(client: Client, ms: int) -> None:
    """As if all producers had written so much earlier."""
    _, _, _, _, index, _, producers, _ = stream_keys(b"k")
    flat = await client.execute("HGETALL", producers)
    pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    for name, packed in pairs:
        (heard,) = struct.unpack(">d", packed[:8])
        older = heard + ms if heard < 0 else heard - ms
        await client.execute("HSET", producers, name, struct.pack(">d", older) + packed[8:])
    for member in await client.execute("ZRANGEBYLEX", index, "[p", "(q"):
        await client.execute("ZREM", index, member)
        older_member = b"p%016d" % (int(member[1:17]) - ms) + member[17:]
        await client.execute("ZADD", index, 0, older_member)


async def test_producers_are_forgotten_after_a_day_unless_they_are_kept(
    client: Client, commands: StreamCommands
) -> None:
    async def write(producer: str, *options: str) -> Any:
        return await commands.execute(
            "TWRITE", "k", "PRODUCER", producer, 1, *options, "ENTRIES", "t", producer
        )

    assert (await write("usual"), await write("kept", "KEEP"), await write("once", "KEEP")) == (1, 2, 3)
    assert await write("once") == 3, "kept no longer"
    await age_producers(client, DAY_MS - 60_000)
    assert (await write("usual"), await write("kept", "KEEP"), await write("once")) == (1, 2, 3)
    await age_producers(client, 20 * DAY_MS)
    assert await commands.execute("TINFO", "PRODUCER", "k", "usual") is None
    assert await commands.execute("TINFO", "PRODUCER", "k", "once") is None
    info = await commands.execute("TINFO", "PRODUCER", "k", "kept")
    assert (info["sequence"], info["last"], info["kept"]) == (1, 2, b"yes")
    assert info["idle-ms"] >= 20 * DAY_MS
    assert (await write("kept", "KEEP"), await write("usual")) == (2, 4)
    assert (await commands.execute("TINFO", "STREAM", "k"))["producers"] == 2, "one was forgotten"
    assert await write("kept") == 2, "from now on an ordinary one, for another day"
    assert (await commands.execute("TINFO", "PRODUCER", "k", "kept"))["idle-ms"] < DAY_MS


async def test_a_drop_in_the_midst_of_a_compaction(client: Client, commands: StreamCommands) -> None:
    """A pass must neither take what is left of a tag for old, nor the tombstone away from it."""
    await commands.execute("TPOLICY", "k", "NODE-MESSAGES", 5, "TOMBSTONE-MS", 0)
    tags = ["a", "a", "b", "c", *(f"other{number}" for number in range(998))]
    await commands.execute("TWRITE", "k", "ENTRIES", *(word for tag in tags for word in (tag, "e")))
    await commands.execute("TWRITE", "k", "BACKLOG", 9**9, "TOMBSTONES", "c", "b")
    await commands.execute("TWRITE", "k", "ENTRIES", "a", "1005", "c", "1006, in the open node")
    keys, tcompact = stream_keys(b"k"), ScriptLibrary(client, "penstock.streams")["tcompact"]
    assert await tcompact(keys, ["begin"]) == [0, 0]  # 1005 down to 6
    assert await commands.execute("TDROP", "k", "1004-1006") == 3
    removed, is_over = 0, 0
    while not is_over:
        more, is_over = await tcompact(keys, ["go"])
        removed += more
    rows = await commands.execute("TREAD", "k", 1, 9_999, "SKIPNULL")
    assert removed == 1
    assert [row[0] for row in rows if not row[1].startswith(b"other")] == [2, 3, 4, 1003]
    raw_bytes = (await commands.execute("TINFO", "STREAM", "k"))["raw-bytes"]
    assert raw_bytes == sum(len(tag) + len(entry or b"") for _, tag, entry in rows)


async def test_destroying_a_group_leaves_nothing_of_it(client: Client, commands: StreamCommands) -> None:
    for number in range(4):
        await commands.execute("TWRITE", "k", "same", str(number))
    await commands.execute("TGROUP", "CREATE", "k", "g", 0, "ORDERED", "yes")
    await commands.execute("TREAD", "k", 0, 9, "GROUP", "g", "CONSUMER", "me", "RETRY", 60_000, 90_000)
    assert await commands.execute("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 60_000, 0, "BLOCK", 5) is None
    await commands.execute("TGROUP", "DESTROY", "k", "g")
    assert sorted(await client.execute("KEYS", "*")) == sorted(stream_keys(b"k")[:2])


async def test_a_dead_letter_that_cannot_be_written_is_dropped(
    client: Client, commands: StreamCommands
) -> None:
    await client.execute("SET", "dead", "text")
    await commands.execute("TWRITE", "k", "t", "e")
    await commands.execute("TGROUP", "CREATE", "k", "g", 0, "DEADLETTER", "dead")
    await commands.execute("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 60_000, 0)
    assert await commands.execute("TDEAD", "k", "g", "why", 1) == 1
    assert await client.execute("GET", "dead") == b"text"


async def test_a_stream_can_take_its_own_dead_letters(commands: StreamCommands) -> None:
    await commands.execute("TWRITE", "k", "t", "e")
    await commands.execute("TGROUP", "CREATE", "k", "g", 0, "DEADLETTER", "k")
    await commands.execute("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 60_000, 0)
    assert await commands.execute("TDEAD", "k", "g", "why", 1) == 1
    [[offset, tag, letter]] = await commands.execute("TREAD", "k", 2, 9)
    assert (offset, tag) == (2, b"t")
    assert letter.endswith(b"\n\ne")


async def test_another_dead_letter_key_is_learned(client: Client, commands: StreamCommands) -> None:
    await commands.execute("TWRITE", "k", "ENTRIES", "t", "1", "t", "2")
    await commands.execute("TGROUP", "CREATE", "k", "g", 0, "DEADLETTER", "one")
    await commands.execute("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 60_000, 0)
    await commands.execute("TDEAD", "k", "g", "why", 1)
    await StreamCommands(client).execute("TGROUP", "SET", "k", "g", "DEADLETTER", "other")
    await commands.execute("TDEAD", "k", "g", "why", 2)
    assert len(await commands.execute("TREAD", "one", 1, 9)) == 1
    assert len(await commands.execute("TREAD", "other", 1, 9)) == 1


async def test_policies_of_dead_letters_are_applied(commands: StreamCommands) -> None:
    await commands.execute("TPOLICY", "dead", "RETAIN-COUNT", 2)
    await commands.execute("TWRITE", "k", "ENTRIES", *["t", "e"] * 5)
    await commands.execute("TGROUP", "CREATE", "k", "g", 0, "DEADLETTER", "dead")
    await commands.execute("TREAD", "k", 0, 5, "GROUP", "g", "RETRY", 60_000, 0)
    await commands.execute("TDEAD", "k", "g", "why", "1-5")
    assert await commands.execute("TREAD", "dead", 0, 0, "WITHINFO") == [[4, 5]]


async def test_a_reader_that_died_delays_the_others_once(client: Client, commands: StreamCommands) -> None:
    # Tickets of two readers that never came back, as a process leaves them that was killed.
    await commands.execute("TGROUP", "CREATE", "k", "g", 0)
    index = stream_keys(b"k")[4]
    for ticket in (1, 2):
        await client.execute("ZADD", index, 0, f"v00000001{ticket:016}")
    await client.execute("HSET", stream_keys(b"k")[1], "tickets", 2)
    await commands.execute("TWRITE", "k", "t", "1")
    read = ("TREAD", "k", 0, 1, "GROUP", "g", "BLOCK", 5_000)
    assert await commands.execute(*read) == [[1, b"t", b"1"]]
    assert await client.execute("ZCARD", index) == 0, "they lost their places"


async def test_parked_messages_have_a_limit(commands: StreamCommands) -> None:
    await commands.execute("TWRITE", "k", "ENTRIES", *["stuck", "e"] * 1_200, "free", "e")
    await commands.execute("TGROUP", "CREATE", "k", "g", 0, "ORDERED", "yes", "MAXPENDING", 5)
    read = ("TREAD", "k", 0, 2_000, "GROUP", "g", "RETRY", 60_000, 0)
    assert [row[0] for row in await commands.execute(*read)] == [1]
    assert await commands.execute(*read) == []
    [group] = await commands.execute("TINFO", "GROUPS", "k")
    assert group["cursor"] == 1_002
    assert group["lag"] == 1_200


async def test_long_compactions_go_step_by_step(commands: StreamCommands) -> None:
    await commands.execute("TPOLICY", "k", "NODE-MESSAGES", 100)
    pairs = [word for number in range(3_050) for word in (f"tag{number % 50}", "e")]
    await commands.execute("TWRITE", "k", "ENTRIES", *pairs)
    assert await commands.compact("k") == 2_950
    info = await commands.execute("TINFO", "STREAM", "k")
    assert (info["length"], info["compacted-to"]) == (100, 3_000)
    live = sum(len(word) for word in pairs[-200:])
    assert info["raw-bytes"] == live


async def test_bytes_are_counted_through_evictions(commands: StreamCommands) -> None:
    await commands.execute("TWRITE", "k", "ENTRIES", *(word for n in range(100) for word in ("t", "e" * n)))
    await commands.execute("TEVICT", "k", 40)
    assert (await commands.execute("TINFO", "STREAM", "k"))["raw-bytes"] == sum(1 + n for n in range(40, 100))
    await commands.execute("TEVICT", "k", 100)
    assert (await commands.execute("TINFO", "STREAM", "k"))["raw-bytes"] == 0


async def test_a_timeout_ends_the_wait(commands: StreamCommands) -> None:
    with pytest.raises(CommandTimeoutError, match="no reply to TREAD within 30 ms"):
        await commands.execute("TREAD", "k", 1, 1, "BLOCK", 0, timeout_ms=30)


async def test_a_message_written_between_looking_and_waiting_is_not_missed(client: Client) -> None:
    commands, hits = StreamCommands(client), 0

    class Late(StreamCommands):
        """Writes as soon as the script has answered that there is nothing."""

        async def _read_once(self, *arguments, **options):
            nonlocal hits
            reply = await super()._read_once(*arguments, **options)
            if isinstance(reply, list) and reply[:1] == [b"WAIT"]:
                hits += 1
                await commands.execute("TWRITE", "k", "t", "e")
            return reply

    late = Late(client)
    async with asyncio.timeout(0.9):  # less than it takes to look again
        assert await late.execute("TREAD", "k", 1, 1, "BLOCK", 0) == [[1, b"t", b"e"]]
        assert await late.execute("TREAD", "k", 2, 1, "BLOCK", 0, "GROUP", "g") == [[2, b"t", b"e"]]
    assert hits == 2
