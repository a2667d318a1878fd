"""Settings: how they are read, shown, shared between processes and taken back."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from penstock.engine import Engine, LocalSession
from penstock.engine.config import PARAMETERS, Config, read_settings
from penstock.errors import CommandError


def refusal(*pairs: tuple[bytes, bytes]) -> str:
    with pytest.raises(CommandError) as caught:
        read_settings(pairs)
    return str(caught.value)


def test_every_parameter_can_be_shown():
    config = Config("relaxed")
    shown = {name: config.get(name) for name in PARAMETERS}
    assert all(type(value) is bytes for value in shown.values())
    assert shown[b"durability"] == b"relaxed"
    assert shown[b"maxclients"] == b"10000"
    assert shown[b"requirepass"] == shown[b"save"] == b""


def test_every_parameter_that_can_be_set_takes_what_it_shows():
    config = Config("always")
    for name, parameter in PARAMETERS.items():
        if parameter.parse is None:
            assert "immutable" in refusal((name, config.get(name)))
            continue
        shown = config.get(name)
        config.assign(read_settings([(name.upper(), shown)]))
        assert config.get(name) == shown


def test_values_are_typed():
    values = read_settings(
        [(b"maxclients", b"7"), (b"requirepass", b"p\xff"), (b"notify-keyspace-events", b"Kg")]
    )
    assert values == {"max_clients": 7, "requirepass": "p\udcff", "notify_classes": frozenset("Kg")}
    config = Config("always")
    config.assign(values)
    assert config.get(b"requirepass") == b"p\xff"


def test_assign_answers_what_was_there():
    config = Config("always")
    before = config.assign({"max_clients": 5, "port": 1})
    assert before == {"max_clients": 10_000, "port": 0}
    config.assign(before)
    assert config.max_clients == 10_000


def test_names_are_checked_before_values():
    assert refusal((b"maxclients", b"x"), (b"nosuch", b"1")).endswith("CONFIG SET - 'nosuch'")
    assert "duplicate parameter" in refusal((b"maxclients", b"x"), (b"MAXCLIENTS", b"1"))


@pytest.mark.parametrize("text", [b"", b"1.5", b"+1", b" 1", b"01", b"9223372036854775808", b"one"])
def test_what_is_no_number(text):
    assert refusal((b"slowlog-max-len", text)).endswith("argument couldn't be parsed into an integer")


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [(b"maxclients", 1, 4294967295), (b"slowlog-log-slower-than", -1, (1 << 63) - 1)],
)
def test_bounds(name, low, high):
    for value in (low, high):
        assert list(read_settings([(name, b"%d" % value)]).values()) == [value]
    if high < (1 << 63) - 1:
        assert refusal((name, b"%d" % (high + 1))).endswith(f"between {low} and {high} inclusive")
    assert refusal((name, b"%d" % (low - 1))).endswith(f"between {low} and {high} inclusive")


def test_the_slow_log_can_be_turned_off():
    config = Config("always")
    assert config.slowlog_threshold_ns == 10_000_000
    config.slowlog_slower_than_us = -1
    assert config.slowlog_threshold_ns > 10**18
    config.slowlog_slower_than_us = 0
    assert config.slowlog_threshold_ns == 0


def test_two_processes_share_the_events():
    writer, reader = Config("always"), Config("always")
    writer.assign(read_settings([(b"notify-keyspace-events", b"AKEmn")]))
    reader.load_shared(writer.dump_shared())
    assert reader.notify_classes == writer.notify_classes >= set("KEmng$lshzxetd")
    reader.load_shared(None)
    assert reader.notify_classes == frozenset()


def test_a_change_that_could_not_be_stored_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Engine.open(tmp_path / "store.pen") as engine, LocalSession(engine) as session:
        unit = engine.unit
        commit = unit.commit

        def fail_to_store_settings() -> None:
            if unit.get(b"config", None, unit.tables["system"]) is not None:
                monkeypatch.undo()
                raise OSError(errno.EIO, "Input/output error")
            commit()

        monkeypatch.setattr(unit, "commit", fail_to_store_settings)
        with pytest.raises(CommandError, match="Input/output error"):
            session.execute("CONFIG", "SET", "notify-keyspace-events", "KEA", "maxclients", "7")
        assert engine.config.max_clients == 10_000
        assert session.execute("CONFIG", "GET", "notify-keyspace-events") == {b"notify-keyspace-events": b""}
        assert session.execute("CONFIG", "SET", "maxclients", "7") == b"OK"
        assert engine.config.max_clients == 7
