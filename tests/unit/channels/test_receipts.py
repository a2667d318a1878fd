"""Receipts as values: sealed for one store, channel and subscriber, and nothing in them can be changed."""

from __future__ import annotations

import base64
import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.channels.clocks import MAX, MIN
from penstock.channels.receipts import Mark, Seal, unwrap, wrap
from penstock.errors import ReceiptError

NAMES = st.from_regex(r"[0-9a-z][0-9a-z_-]{0,62}", fullmatch=True)
MARKS = st.builds(Mark, st.integers(MIN, MAX), NAMES)
SEAL = Seal("default", b"secret")


@given(channel=NAMES, subscriber=NAMES, mark=MARKS)
def test_what_was_sealed_opens(channel: str, subscriber: str, mark: Mark) -> None:
    receipt = wrap({"default": SEAL.issue(channel, subscriber, mark)})
    assert set(receipt) <= set(string.ascii_letters + string.digits + "=")
    assert SEAL.open(channel, subscriber, unwrap(receipt)["default"]) == mark


def test_the_form_of_a_receipt() -> None:
    """Others store receipts and send them back later: their form is a promise."""
    part = SEAL.issue("my-channel", "my-subscriber", Mark(17, "msg-1"))
    xs = json.loads(part)["xs"]
    assert part == f'{{"clk":17,"mid":"msg-1","xs":"{xs}"}}'
    assert len(base64.b64decode(xs)) == 12
    assert json.loads(base64.b64decode(wrap({"default": part}))) == {"default": part}


@given(first=st.tuples(NAMES, NAMES, MARKS), second=st.tuples(NAMES, NAMES, MARKS))
def test_a_seal_is_of_one_mark(first: tuple[str, str, Mark], second: tuple[str, str, Mark]) -> None:
    def seal_of(sealed: tuple[str, str, Mark]) -> str:
        xs: str = json.loads(SEAL.issue(*sealed))["xs"]
        return xs

    assert (seal_of(first) == seal_of(second)) == (first == second)


def test_names_cannot_be_shifted_between_fields() -> None:
    part = SEAL.issue("ab", "c", Mark(1, "m"))
    with pytest.raises(ReceiptError, match="was not issued for subscriber 'bc' of channel 'a'"):
        SEAL.open("a", "bc", part)


@pytest.mark.parametrize("other", [Seal("default", b"Secret"), Seal("Default", b"secret")])
def test_other_stores_and_secrets(other: Seal) -> None:
    with pytest.raises(ReceiptError, match="was not issued"):
        other.open("c", "s", SEAL.issue("c", "s", Mark(1, "m")))


@given(st.binary(max_size=40).map(lambda raw: base64.b64encode(raw).decode()) | st.text(max_size=40))
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ReceiptError):
        unwrap(text)
    with pytest.raises(ReceiptError):
        SEAL.open("c", "s", text)
