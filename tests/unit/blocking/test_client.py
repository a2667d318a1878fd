"""What the blocking client answers, where it is more than a value: on an embedded store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock.blocking
from penstock.errors import CommandError, CommandTimeoutError, UsageError, WatchError


@pytest.fixture
def ps(tmp_path: Path) -> Iterator[penstock.blocking.Client]:
    with penstock.blocking.open(tmp_path / "store.pen", durability="relaxed") as client:
        yield client


def test_everything_answered_has_its_class(ps: penstock.blocking.Client) -> None:
    assert type(ps.pipeline()) is penstock.blocking.Pipeline
    assert type(ps.transaction()) is penstock.blocking.Transaction
    assert isinstance(ps.transaction(), penstock.blocking.Batch)
    assert type(ps.script("return 1")) is penstock.blocking.Script
    with ps.exclusive() as own:
        assert type(own) is penstock.blocking.ExclusiveConnection
        assert type(own.transaction()) is penstock.blocking.Transaction
    with ps.pubsub() as subscriber:
        assert type(subscriber) is penstock.blocking.Subscriber


def test_helpers_with_options(ps: penstock.blocking.Client) -> None:
    assert ps.using(timeout_ms=5_000).set("k", "v") == b"OK"
    with pytest.raises(CommandTimeoutError, match="within 50 ms"):
        ps.using(timeout_ms=50).eval("for i = 1, 6e7 do end return 1")


def test_batches(ps: penstock.blocking.Client) -> None:
    pipe = ps.pipeline()
    assert bool(pipe) is False
    count = pipe.incr("n")
    pipe.lpush("n", "x")
    with pytest.raises(UsageError, match="INCR was queued"):
        count.result()
    first, error = pipe.try_all()
    assert (first, count.result()) == (1, 1)
    assert isinstance(error, CommandError)
    with pytest.raises(CommandError, match="WRONGTYPE"):
        pipe.all()
    pipe.clear()
    assert (len(pipe), pipe.last(), repr(pipe)) == (0, None, "<blocking <Pipeline 0 commands>>")


def test_scripts(ps: penstock.blocking.Client, tmp_path: Path) -> None:
    (tmp_path / "add.lua").write_text("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    library = ps.scripts(tmp_path)
    assert (list(library), len(library), "add" in library) == (["add"], 1, True)
    assert library.add(keys=["n"], args=[2]) == 2
    (script,) = library.values()
    assert (type(script), script.name, len(script.sha1)) == (penstock.blocking.Script, "add.lua", 40)
    for batch in (ps.pipeline(), ps.transaction()):
        later = script.queue(batch, keys=["n"], args=[3])
        assert len(batch) == 1
        batch.all()
        assert later.result() == ps.execute("INCRBY", "n", 0)
    with pytest.raises(AttributeError, match="has no script 'nonsense', only: add"):
        library.nonsense


def test_exclusive_connections(ps: penstock.blocking.Client) -> None:
    with ps.exclusive("k") as own:
        assert (own.is_watching, own.is_changed) == (True, False)
        assert own.get("k") is None
        tx = own.transaction()
        later = tx.set("k", 1)
        ps.set("k", 2)
        with pytest.raises(WatchError):
            tx.all()
        own.unwatch()
        tx.all()
        assert later.result() == b"OK"


def test_transact_tries_again_until_nobody_has_interfered(ps: penstock.blocking.Client) -> None:
    tried = 0

    def add_one(own: penstock.blocking.ExclusiveConnection) -> penstock.blocking.Transaction:
        nonlocal tried
        tried += 1
        number = int(own.get("n") or 0)
        if tried < 3:
            ps.incr("n")
        tx = own.transaction()
        tx.set("n", number + 1)
        return tx

    assert ps.transact(add_one, "n") == [b"OK"]
    assert (tried, ps.get("n")) == (3, b"3")
    tried = 0
    with pytest.raises(WatchError):
        ps.transact(add_one, "n", attempts=2)


def test_messages(ps: penstock.blocking.Client) -> None:
    with ps.pubsub() as subscriber:
        subscriber.subscribe("news")
        assert subscriber.channels == {b"news"}
        for text in ("a", "b", "c"):
            ps.publish("news", text)
        assert next(subscriber).data == b"a"
        messages = subscriber.messages()
        assert next(messages).data == b"b"
        messages.close()
        assert next(iter(subscriber)).data == b"c"
        assert (subscriber.waiting, subscriber.dropped) == (0, 0)
    assert list(subscriber) == []


def test_events(ps: penstock.blocking.Client) -> None:
    events = ps.events()
    ps.close()
    assert [type(event).__name__ for event in events][-1] == "Disconnected"


def test_a_client_that_is_used_without_being_entered(tmp_path: Path) -> None:
    client = penstock.blocking.open(tmp_path / "store.pen", durability="relaxed")
    assert client.set("k", "v") == b"OK"
    client.close()
    client.close()
