"""Payloads of DUMP: written and read back, read in every encoding, refused when damaged."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.datatypes.crc64 import crc64
from penstock.engine.datatypes.dump import (
    Content,
    DamagedError,
    HashContent,
    ListContent,
    SetContent,
    SortedSetContent,
    StringContent,
    decode,
    encode,
    is_intact,
)
from penstock.engine.datatypes.packed import decompress_lzf, read_intset, read_listpack, read_ziplist

INF = math.inf

texts = st.one_of(
    st.binary(max_size=70),
    st.integers(-(1 << 63), (1 << 63) - 1).map(b"%d".__mod__),
    st.sampled_from([b"", b"-0", b"007", b"x" * 63, b"x" * 64, b"x" * 16383, b"x" * 16384]),
)
contents = st.one_of(
    texts.map(StringContent),
    st.lists(texts, min_size=1).map(ListContent),
    st.lists(texts, min_size=1, unique=True).map(SetContent),
    st.dictionaries(texts, texts, min_size=1).map(lambda found: HashContent(list(found.items()))),
    st.dictionaries(texts, st.floats(allow_nan=False), min_size=1).map(
        lambda found: SortedSetContent(list(found.items()))
    ),
)


def sealed(body: bytes, version: int = 10) -> bytes:
    body += version.to_bytes(2, "little")
    return body + crc64(body).to_bytes(8, "little")


def string(text: bytes) -> bytes:
    """A string of up to 16,383 bytes as it stands in a payload."""
    return struct.pack(">H", 0x4000 | len(text)) + text


def listpack(*entries: bytes) -> bytes:
    """A listpack of short entries; the length of each stands behind it."""
    body = b"".join(entry + bytes((len(entry),)) for entry in entries) + b"\xff"
    return struct.pack("<IH", len(body) + 6, len(entries)) + body


def ziplist(*entries: bytes) -> bytes:
    """A ziplist; the length of each entry's predecessor stands before it."""
    body, previous, tail = b"", 0, 10
    for entry in entries:
        tail = 10 + len(body)
        body += (bytes((previous,)) if previous < 254 else b"\xfe" + struct.pack("<I", previous)) + entry
        previous = len(body) + 10 - tail
    return struct.pack("<IIH", len(body) + 11, tail, len(entries)) + body + b"\xff"


# ------------------------------------------------------------------------- there and back


@given(contents)
def test_what_is_written_is_read(content: Content) -> None:
    payload = encode(content)
    assert is_intact(payload)
    assert decode(payload) == content


def test_lengths_of_all_widths() -> None:
    for size in (63, 64, 16_383, 16_384):
        content = ListContent([b"%d" % number for number in range(size)])
        assert decode(encode(content)) == content
    assert decode(sealed(b"\x00\x81" + (3).to_bytes(8, "big") + b"abc")) == StringContent(b"abc")


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (b"\x00\x03abc", StringContent(b"abc")),
        (b"\x00\xc0\xff", StringContent(b"-1")),
        (b"\x00\xc1\x00\x80", StringContent(b"-32768")),
        (b"\x00\xc2\xff\xff\xff\x7f", StringContent(b"2147483647")),
        (b"\x00\xc3\x06\x40\x64\x01ab\xe0\x59\x01", StringContent(b"ab" * 50)),
        (b"\x03\x02\x01a\x031.5\x01b\xff", SortedSetContent([(b"a", 1.5), (b"b", -INF)])),
        (b"\x05\x01\x01a" + struct.pack("<d", -2.5), SortedSetContent([(b"a", -2.5)])),
        (b"\x0a" + string(ziplist(b"\x01a", b"\xf2")), ListContent([b"a", b"1"])),
        (b"\x0b" + string(struct.pack("<IIhh", 2, 2, -5, 7)), SetContent([b"-5", b"7"])),
        (b"\x0c" + string(ziplist(b"\x01a", b"\x031.5")), SortedSetContent([(b"a", 1.5)])),
        (b"\x0d" + string(ziplist(b"\x01f", b"\x01v")), HashContent([(b"f", b"v")])),
        (b"\x0e\x02" + string(ziplist(b"\x01a")) + string(ziplist(b"\x01b")), ListContent([b"a", b"b"])),
        (b"\x10" + string(listpack(b"\x81f", b"\x81v")), HashContent([(b"f", b"v")])),
        (b"\x11" + string(listpack(b"\x81a", b"\x83inf")), SortedSetContent([(b"a", INF)])),
        (
            b"\x12\x02\x01\x05plain\x02" + string(listpack(b"\x81a", b"\x07")),
            ListContent([b"plain", b"a", b"7"]),
        ),
        (b"\x14" + string(listpack(b"\x81a", b"\x07")), SetContent([b"a", b"7"])),
    ],
)
def test_every_encoding_is_read(body: bytes, content: Content) -> None:
    assert decode(sealed(body)) == content


@pytest.mark.parametrize(
    ("version", "is_fine"), [(1, True), (10, True), (11, True), (80, True), (0, False), (65535, False)]
)
def test_versions(version: int, is_fine: bool) -> None:
    assert is_intact(sealed(b"\x00\x03abc", version)) is is_fine


# -------------------------------------------------------------------------- dense encodings


@pytest.mark.parametrize(
    ("entry", "element"),
    [
        (b"\x00", b"0"),
        (b"\x7f", b"127"),
        (b"\x80", b""),
        (b"\xdf\xff", b"-1"),
        (b"\xcf\xff", b"4095"),
        (b"\xd0\x00", b"-4096"),
        (b"\xe0\x03abc", b"abc"),
        (b"\xf0\x03\x00\x00\x00abc", b"abc"),
        (b"\xf1\x00\x80", b"-32768"),
        (b"\xf2\xff\xff\x7f", b"8388607"),
        (b"\xf3\x00\x00\x00\x80", b"-2147483648"),
        (b"\xf4" + b"\xff" * 7 + b"\x7f", b"9223372036854775807"),
    ],
)
def test_listpack_entries(entry: bytes, element: bytes) -> None:
    assert read_listpack(listpack(b"\x81<", entry, b"\x81>")) == [b"<", element, b">"]


def test_long_listpack_entries() -> None:
    # Two bytes of code and 126 of text: the length behind needs two bytes.
    entry = b"\xe0\x7e" + b"x" * 126
    body = entry + b"\x01\x80" + b"\x81a\x02\xff"
    assert read_listpack(struct.pack("<IH", len(body) + 6, 2) + body) == [b"x" * 126, b"a"]


@pytest.mark.parametrize(
    ("entry", "element"),
    [
        (b"\x00", b""),
        (b"\x40\x03abc", b"abc"),
        (b"\x80\x00\x00\x00\x03abc", b"abc"),
        (b"\xc0\x00\x80", b"-32768"),
        (b"\xd0\x00\x00\x00\x80", b"-2147483648"),
        (b"\xe0" + b"\xff" * 7 + b"\x7f", b"9223372036854775807"),
        (b"\xf0\xff\xff\x7f", b"8388607"),
        (b"\xfe\xff", b"-1"),
        (b"\xf1", b"0"),
        (b"\xfd", b"12"),
        (b"\x41\x2c" + b"x" * 300, b"x" * 300),
    ],
)
def test_ziplist_entries(entry: bytes, element: bytes) -> None:
    assert read_ziplist(ziplist(b"\x01<", entry, b"\x01>")) == [b"<", element, b">"]


def test_intset_widths() -> None:
    for width, letter in ((2, "h"), (4, "i"), (8, "q")):
        low, high = -(1 << width * 8 - 1), (1 << width * 8 - 1) - 1
        packed = struct.pack(f"<II2{letter}", width, 2, low, high)
        assert read_intset(packed) == [b"%d" % low, b"%d" % high]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x02abc", b"abc"),
        (b"\x02abc\x20\x02", b"abcabc"),
        (b"\x00a\xe0\xff\x00", b"a" * 265),
        (b"\x01ab\x40\x01", b"ababab"),
    ],
)
def test_lzf(data: bytes, text: bytes) -> None:
    assert decompress_lzf(data, len(text)) == text
    for wrong in (len(text) - 1, len(text) + 1):
        with pytest.raises(DamagedError):
            decompress_lzf(data, wrong)


# -------------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\x00",
        b"\x00\x05abc",
        b"\x00\xc4",
        b"\x00\x82",
        b"\x01\x00",
        b"\x01\x81" + b"\xff" * 8,
        b"\x02\x02\x01a\x01a",
        b"\x04\x02\x01f\x01v\x01f\x01w",
        b"\x05\x01\x01a" + struct.pack("<d", math.nan),
        b"\x03\x01\x01a\xfd",
        b"\x03\x01\x01a\x01x",
        b"\x0b" + string(struct.pack("<IIh", 2, 2, 1)),
        b"\x0b" + string(struct.pack("<IIh", 3, 1, 1)),
        b"\x10" + string(listpack(b"\x81f")),
        b"\x10" + string(listpack()),
        b"\x11" + string(listpack(b"\x81a", b"\x81x")),
        b"\x12\x01\x03\x01a",
        b"\x12\x01\x02" + string(listpack(b"\x81a")[:-1]),
    ],
)
def test_damage_is_told(body: bytes) -> None:
    with pytest.raises(DamagedError):
        decode(sealed(body))


@pytest.mark.parametrize("read", [read_listpack, read_ziplist, read_intset])
@given(data=st.data())
def test_noise_is_never_more_than_damage(read: Callable[[bytes], list[bytes]], data: st.DataObject) -> None:
    noise = data.draw(st.binary(max_size=60))
    for packed in (noise, struct.pack("<I", len(noise) + 5) + noise + b"\xff"):
        try:
            read(packed)
        except DamagedError:
            pass


@given(st.sampled_from(sorted({*range(6), *range(10, 15), *range(16, 19), 20})), st.binary(max_size=60))
def test_payloads_of_noise_are_never_more_than_damage(type_: int, noise: bytes) -> None:
    try:
        decode(sealed(bytes((type_,)) + noise))
    except DamagedError:
        pass


@given(st.binary(max_size=60), st.integers(0, 300))
def test_noise_is_no_lzf(noise: bytes, size: int) -> None:
    try:
        assert len(decompress_lzf(noise, size)) == size
    except DamagedError:
        pass
