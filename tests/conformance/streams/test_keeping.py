"""How a stream is kept: nodes, compression, what survives a kill, what it tells of itself (29–31)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.streams.commands import StreamCommands
from penstock.testing import RealServer, ServerUnavailableError, find_server
from penstock.testing.own_server import PenstockServer
from tests.conformance.streams.stores import Store, offsets


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


# ------------------------------------------------------------------------- beyond the specification


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
