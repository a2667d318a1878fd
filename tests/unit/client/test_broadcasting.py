"""Which commands concern a whole cluster, and how their replies become one."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.router.broadcasting import merge_of
from penstock.errors import CommandError, NotSentError


@pytest.mark.parametrize(
    ("command", "replies", "merged"),
    [
        (("DBSIZE",), [1, 2, 3], 6),
        (("flushall",), [b"OK", b"OK"], b"OK"),
        (("KEYS", "*"), [[b"a"], [], [b"b", b"c"]], [b"a", b"b", b"c"]),
        (("SCRIPT", "EXISTS", "x", "y"), [[1, 1], [1, 0]], [1, 0]),
        (("script", "load", "return 1"), [b"sha", b"sha"], b"sha"),
        (("FUNCTION", "LOAD", "…"), [b"lib", b"lib"], b"lib"),
        (("SLOWLOG", "LEN"), [0, 4], 4),
    ],
)
def test_replies_become_one(command: tuple[str, ...], replies: list[Any], merged: Any) -> None:
    merge = merge_of(command)
    assert merge is not None
    assert merge(replies) == merged


def test_an_error_is_the_answer() -> None:
    merge = merge_of(("FLUSHDB",))
    assert merge is not None
    error = NotSentError("no")
    assert merge([b"OK", error, b"OK"]) is error


def test_one_success_is_enough_to_kill_a_script() -> None:
    merge = merge_of(("SCRIPT", "KILL"))
    assert merge is not None
    idle = CommandError("NOTBUSY No scripts in execution right now.")
    assert merge([idle, b"OK", idle]) == b"OK"
    assert merge([idle, idle]) is idle


@pytest.mark.parametrize(
    "command", [("PING",), ("WAIT", 1, 0), ("INFO",), ("RANDOMKEY",), ("SCRIPT",), ("GET", "k"), ("NONE",)]
)
def test_others_are_for_one_server(command: tuple[str | int, ...]) -> None:
    assert merge_of(command) is None
