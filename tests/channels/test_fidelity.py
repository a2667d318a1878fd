"""Content is JSON text: what comes out is what went in, as its publisher spelt it."""

from __future__ import annotations

import math
from typing import Any

import pytest

import penstock
from penstock.channels import Channel, ChannelStore
from penstock.channels.model import compact
from tests.channels.conftest import EXPIRE_MS

#: text that is published, text that is stored
TEXTS: dict[str, tuple[bytes, bytes]] = {
    "numbers keep their spelling": (b"[1.0,1e400,-0,1E+5,0.10,12345678901234567890123]",) * 2,
    "keys may repeat": (b'{"a":1,"a":2,"b":3,"a":4}',) * 2,
    "order stays": (b'{"z":1,"a":2,"m":3}',) * 2,
    "white space goes": (b' {\t"a" :\r\n[ 1 , 2 ] }\n', b'{"a":[1,2]}'),
    "white space in strings stays": (b'" a  b "',) * 2,
    "HTML is escaped": (b'{"<b>&":"</b>"}', b'{"\\u003cb\\u003e\\u0026":"\\u003c/b\\u003e"}'),
    "line separators are escaped": ('"\u2028\u2029"'.encode(), b'"\\u2028\\u2029"'),
    "their neighbours are not": ('"\u2027\u202a"'.encode(), '"\u2027\u202a"'.encode()),
    "escapes stay": (b'"\\u0041\\/\\n\\u2028\\ud83d\\ude00"',) * 2,
    "other letters stay": ('"äöü 日本 😀"'.encode(),) * 2,
    "invalid UTF-8 in strings stays": (b'"\xff\xfe \xed\xa0\x80 \xc3"',) * 2,
    "half a surrogate pair stays": (b'["\\ud800", "\\uDFFF\\\\ud800"]', b'["\\ud800","\\uDFFF\\\\ud800"]'),
    "scalars": (b"null",) * 2,
    "text": (b'""',) * 2,
    "quotes and braces in strings": (b'"\\"}{,\\"content\\":"',) * 2,
    "what looks like the end": (b'{"id":"x","content":{"id":"y","content":1}}',) * 2,
    "deep": (b"[" * 300 + b"]" * 300,) * 2,
    "control characters, escaped": (b'"\\u0000\\u001f"',) * 2,
}


async def test_texts(store: ChannelStore, room: Channel) -> None:
    alice = await room.subscribe("alice")
    messages = [(f"m{number}", compact(text)) for number, (text, _) in enumerate(TEXTS.values())]
    assert await store.publish("room", messages, expire_ms=EXPIRE_MS) == [True] * len(TEXTS)
    batch = await alice.fetch()
    found = dict(zip(TEXTS, (message.raw for message in batch.messages), strict=True))
    assert found == {name: stored for name, (_, stored) in TEXTS.items()}
    for name, message in zip(TEXTS, batch.messages, strict=True):
        message.content, name  # all of it can be parsed


async def test_text_through_a_client_that_decodes(url: str) -> None:
    async with penstock.open(url, decode_responses=True) as ps:
        store = ChannelStore(ps)
        alice = await Channel(store, "room").subscribe("alice")
        messages = [(f"m{number}", compact(text)) for number, (text, _) in enumerate(TEXTS.values())]
        await store.publish("room", messages, expire_ms=EXPIRE_MS)
        batch = await alice.fetch()
        assert [message.raw for message in batch.messages] == [stored for _, stored in TEXTS.values()]
        page = await alice.backlog()
        assert page.messages == batch.messages
        await store.close()


async def test_stack_left_does_not_matter(room: Channel, store: ChannelStore) -> None:
    """What its publisher could read is given to everybody, however deep in their program they are."""
    alice = await room.subscribe("alice")
    depth = 1_000
    while True:  # the deepest that can be published from here
        try:
            text = compact(b"[" * depth + b"]" * depth)
            break
        except penstock.errors.ContentError:
            depth -= 1
    assert depth > 500
    await store.publish("room", [("m1", text)], expire_ms=EXPIRE_MS)

    async def fetch_from(below: int) -> bytes:
        if below:
            return await fetch_from(below - 1)
        return (await alice.fetch()).messages[0].raw

    assert await fetch_from(100) == text


VALUES: list[Any] = [
    None, True, 0, -1, 2**70, 1.5, 1e300, "", "ä\u2028<&>\x00\x1f\x7f😀", [], {}, [[[]]],
    {"": {"": None}}, {"a": [1, {"b": "c"}]}, {1: 2, None: 3}, (1, 2),
]  # fmt: skip


async def test_values_of_python(room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.publish_many([(None, value) for value in VALUES])
    found = [message.content for message in (await alice.fetch()).messages]
    assert found[:-2] == VALUES[:-2]
    assert found[-2:] == [{"1": 2, "null": 3}, [1, 2]]


async def test_content_of_what_python_has_no_value_for(room: Channel, store: ChannelStore) -> None:
    alice = await room.subscribe("alice")
    await store.publish("room", [("m1", b"1e400"), ("m2", b'"\xff"')], expire_ms=EXPIRE_MS)
    one, two = (await alice.fetch()).messages
    assert math.isinf(one.content)
    assert two.content == "\ufffd"


@pytest.mark.parametrize("size", [1, 100, 10_000, 1_000_000, 20_000_000])
async def test_sizes(room: Channel, size: int) -> None:
    alice = await room.subscribe("alice")
    await room.publish("m1", "x" * size)
    batch = await alice.fetch(timeout_ms=1_000)
    assert batch.messages[0].raw == b'"' + b"x" * size + b'"'
    assert await alice.ack(batch)
