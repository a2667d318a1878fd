"""Messages of the outbox as bytes, and what is refused before it gets there."""

from __future__ import annotations

import pytest

from penstock.channels import keys as channel_keys
from penstock.errors import ConfigError, UsageError
from penstock.transactions import outbox_messages
from penstock.transactions.outbox import (
    OutboxSettings,
    channel_destination,
    decode_channel_message,
    decode_stream_message,
    encode_channel_message,
    encode_stream_message,
)


def test_messages_are_what_was_encoded() -> None:
    stream = decode_stream_message(encode_stream_message("tag", b"\x00\xff"))
    assert (stream.tag, stream.data) == (b"tag", b"\x00\xff")
    channel = decode_channel_message(encode_channel_message("m-1", {"a": [1, None]}))
    assert (channel.id, channel.content) == ("m-1", b'{"a":[1,null]}')


@pytest.mark.parametrize("bad", ["", "A", "-a", "a" * 64, "ü", "a b"])
def test_ids_that_channels_refuse_are_refused_before(bad: str) -> None:
    assert not channel_keys.is_id(bad)
    with pytest.raises(UsageError, match="message_id must be 1 to 63"):
        encode_channel_message(bad, 1)
    with pytest.raises(UsageError, match="channel must be 1 to 63"):
        channel_destination(bad)
    assert outbox_messages._CHANNEL_ID.pattern == channel_keys._ID.pattern


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="batch must be at least 1"):
        OutboxSettings(batch=0)
