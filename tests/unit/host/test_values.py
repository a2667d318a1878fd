"""Engine replies as values: the cases that no command answers today, and what must not be shared."""

from __future__ import annotations

import pytest

from penstock.errors import CommandError, WrongTypeError
from penstock.host.values import values_of
from penstock.protocol.replies import NO_REPLY, NULL_ARRAY, OK, Pairs, Push, SetReply, Verbatim


def test_nested_values_in_resp3():
    reply = [OK, {b"a": SetReply([b"x", 1.5])}, Pairs([(b"m", 2.0)]), NULL_ARRAY, True, (b"t",)]
    assert values_of(3, None).of(reply) == [b"OK", {b"a": [b"x", 1.5]}, [[b"m", 2.0]], None, True, [b"t"]]


def test_nested_values_in_resp2():
    reply = [OK, {b"a": SetReply([b"x", 1.5])}, Pairs([(b"m", 2.0)]), NULL_ARRAY, True, (b"t",)]
    values = values_of(2, None).of(reply)
    assert values == [b"OK", [b"a", [b"x", b"1.5"]], [b"m", b"2"], None, 1, [b"t"]]
    assert type(values[4]) is int


def test_text_is_decoded_everywhere():
    reply = Push([b"message", {b"k\xff": Verbatim(b"v")}, OK, 0.5])
    assert values_of(3, "utf-8").of(reply) == ["message", {"k\udcff": "v"}, "OK", 0.5]
    assert values_of(2, "utf-8").of(0.5) == "0.5"


def test_exact_types():
    assert type(values_of(3, None).of(OK)) is bytes
    assert type(values_of(3, None).of(Push([1]))) is Push
    assert type(values_of(2, None).of(Push([1]))) is list
    assert type(values_of(3, None).of(SetReply([1]))) is list


def test_containers_are_new():
    reply = [b"a", [b"b"]]
    value = values_of(3, None).of(reply)
    value.append(b"c")
    value[1].append(b"d")
    assert reply == [b"a", [b"b"]]


def test_errors_are_new_and_of_one_line():
    refusal = WrongTypeError()
    value = values_of(3, None).of(refusal)
    assert type(value) is CommandError
    assert str(value) == str(refusal)
    assert str(values_of(3, None).of(CommandError("ERR a\r\nb \udcff"))) == "ERR a  b \ufffd"


@pytest.mark.parametrize("value", [object(), NO_REPLY, [object()]])
def test_what_is_no_reply_is_refused(value):
    with pytest.raises(TypeError):
        values_of(3, None).of(value)
