"""Restoring: an archived transaction comes back as it was, and can be replayed."""

from __future__ import annotations

from typing import Any

from tests.transactions.conftest import LONG_MS, Desk


async def archived(desk: Desk) -> tuple[str, list[Any], list[Any]]:
    """A transaction that is in the archive only: id, fields, trail."""
    await desk.store.configure(archive_delay_ms=0)
    record = await desk.begun(data=b'"d0"', external_id="x")
    assert await desk.end(record, "failed", trail=[b'{"kind":"step"}'], fields=["step", 1]) == "ok"
    _, _, (tx, flat, trail) = await desk.store.run("to_archive", 0, "n1", 1, LONG_MS, LONG_MS)
    await desk.store.run("to_archive", 0, "n1", 0, LONG_MS, LONG_MS, tx, 0)
    assert await desk.execute("EXISTS", f"stateH:{record.id}") == 0
    await desk.store.configure(archive_delay_ms=60_000)
    return record.id, flat, trail


async def restore(desk: Desk, tx: str, flat: list[Any], trail: list[Any]) -> int:
    return int(await desk.store.run("restore", 0, tx, len(flat), *flat, *trail))


async def test_it_comes_back_as_it_was(desk: Desk) -> None:
    tx, flat, trail = await archived(desk)
    assert await restore(desk, tx, flat, trail) == 1
    words = [bytes(word).decode() for word in flat]
    record = await desk.record(tx)
    assert record == dict(zip(words[::2], words[1::2], strict=True))
    assert await desk.trail(tx) == ['{"kind":"step"}']
    assert await desk.score("indexZ", tx) == await desk.score("ownerZ:acme", tx) == int(record["created_ms"])


async def test_it_is_archived_again_after_the_delay(desk: Desk) -> None:
    tx, flat, trail = await archived(desk)
    before_ms = await desk.now_ms()
    await restore(desk, tx, flat, trail)
    assert await desk.places(tx) == {"toArchiveZ"}
    assert before_ms + 60_000 <= (await desk.score("toArchiveZ", tx) or 0) <= await desk.now_ms() + 60_000


async def test_one_that_is_there_is_not_overwritten(desk: Desk) -> None:
    tx, flat, trail = await archived(desk)
    assert await restore(desk, tx, flat, trail) == 1
    await desk.store.control("replay", tx, "ann", argument=0)
    before = await desk.everything()
    assert await restore(desk, tx, flat, trail) == 0
    assert await desk.everything() == before


async def test_it_can_be_replayed(desk: Desk) -> None:
    tx, flat, trail = await archived(desk)
    await restore(desk, tx, flat, trail)
    await desk.store.control("replay", tx, "ann", argument=0)
    record = await desk.take_one()
    assert (record.id, record.data, record.token) == (tx, b'"d0"', 2)
    assert await desk.end(record) == "ok"
    found = await desk.store.get(tx)
    assert found is not None
    assert found[0].text(b"status") == "success"


async def test_what_the_archive_has_of_the_first_run_does_not_remove_the_second(desk: Desk) -> None:
    tx, flat, trail = await archived(desk)
    await restore(desk, tx, flat, trail)
    await desk.store.control("replay", tx, "ann", argument=0)
    assert await desk.end(await desk.take_one()) == "ok"
    await desk.store.run("to_archive", 0, "n1", 0, LONG_MS, LONG_MS, tx, 0)
    assert await desk.field(tx, "run") == "1"
