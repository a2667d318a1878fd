"""Names of keys, and what may be a name."""

from __future__ import annotations

import pytest

from penstock.channels import keys
from penstock.errors import UsageError
from penstock.protocol.slots import key_slot


@pytest.mark.parametrize("name", ["a", "0", "a-_b", "z" * 63])
def test_names(name: str) -> None:
    assert keys.check_id("channel", name) == name


@pytest.mark.parametrize("name", ["", "-", "_", "A", "z" * 64, "a\n", "a ", "é", "a}", "a.b", None, 1, b"a"])
def test_what_is_no_name(name: object) -> None:
    with pytest.raises(UsageError, match=r"channel must be 1 to 63 of the characters 0-9 a-z _ -"):
        keys.check_id("channel", name)


def test_all_keys_of_a_channel_share_a_slot() -> None:
    prefix = keys.prefix_of("room")
    assert prefix == "c.{room}."
    slots = {
        key_slot(f"{prefix}{rest}".encode()) for rest in ("clock", "r.a", "m.1", "mid.x", "nack.a", "out")
    }
    assert slots == {key_slot(b"room")}


def test_topics() -> None:
    assert keys.topic_of("room") == "dsps.c.{room}"
    assert keys.channel_of_topic(keys.topic_of("room")) == "room"


@pytest.mark.parametrize(("expire_ms", "ttl_s"), [(1, 16), (999, 16), (1_000, 16), (1_001, 17), (60_000, 75)])
def test_lives_are_whole_seconds_rounded_up(expire_ms: int, ttl_s: int) -> None:
    assert keys.ttl_s(expire_ms) == ttl_s
