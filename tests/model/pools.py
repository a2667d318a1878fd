"""The words that random commands are made of: few enough to meet again, odd enough to hurt.

Rules that keep two servers comparable:

1. Deadlines lie in the past or far in the future; relative ones (``seconds``) never come
   near absolute ones (``at_s``), so that GT and LT never depend on the millisecond.
2. No valid argument makes a server allocate much: offsets are small or refused.
3. Members differ before their first NUL, where SORT ALPHA of Redis ends.
4. No timeout is a number of Redis (a long double) without being one of ours (a double).
5. Members of geo sets have places of their own, so that no two distances are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from penstock.clock import SystemClock
from penstock.engine.storage.layout import fit
from tests.model.templates import Argv, Chooser, Pool, pick

#: The present, near enough: deadlines are thousands of seconds away from it.
_NOW_S: Final = SystemClock().now_ms() // 1000

# --------------------------------------------------------------------------------- names

_LONG_HEAD: Final = b"long:" * 100


def _long_names(*ends: bytes) -> Iterator[bytes]:
    """Names that share more than the 418 bytes which tell long names apart without a digest.

    Their digests are in the order of their bytes: sorted sets order such members by digest,
    which is the first of the known deviations (see ``comparing``).
    """
    previous = b""
    for end in ends:
        names = (_LONG_HEAD + end + b"%d" % number for number in count())
        name = next(name for name in names if fit(name) > fit(previous))
        yield name
        previous = name


_LONG_NAMES: Final = tuple(_long_names(b"1", b"2", b"a", b"b"))
LONG_KEYS: Final = _LONG_NAMES[:2]
LONG_MEMBERS: Final = _LONG_NAMES[2:]

KEYS: Final = (b"k", b"w_1", b"w_2", b"{tag}x", b"", b"\x00\xffbin\r\n", *LONG_KEYS)

_INTEGERS: Final = (b"0", b"1", b"2", b"3", b"10", b"-1", b"-7", b"100")
_EDGE_INTEGERS: Final = (b"9223372036854775807", b"-9223372036854775808", b"9223372036854775806")
_FLOATS: Final = (b"0.1", b"3.14", b"-2.5", b"1e3", b"1e-10", b"5.0e3", b"1.7976931348623157e308", b"-0.0")
_INFINITIES: Final = (b"inf", b"-inf", b"+inf", b"Infinity")

#: What is no number, or only to some parsers.
NOT_NUMBERS: Final = (
    b"", b"abc", b"nan", b"1 ", b" 1", b"+1", b"01", b"-0", b"0x10", b"1e400", b"1.5", b"1e-400",
    b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"1\x00", b"\xff", b"--1",
)  # fmt: skip

#: What may stand anywhere in a spoiled command.
JUNK: Final = (
    *(word for word in NOT_NUMBERS if word not in (b"1\x00", b"1e-400")), *_EDGE_INTEGERS, *KEYS[:2],
    b"-1", b"0", b"3", b"COUNT", b"GET", b"STORE", b"*", b"inf",
)  # fmt: skip

_TEXTS: Final = (b"a", b"b", b"abc", b"ABC", b"hello world", b"", b"\x00\xff\x80\n", b"caf\xc3\xa9", b"w_1")
_LARGE: Final = b"0123456789abcdef" * 320

# --------------------------------------------------------------------------- parts


def _many(start: int, size: int) -> Argv:
    return [b"%d" % number for number in range(start, start + size)]


def many_members(chooser: Chooser, words: Argv) -> None:
    """More elements than Redis keeps in a compact encoding, and than we delete at once."""
    prefix = pick(chooser, (b"", b"m"))
    words += [prefix + number for number in _many(0, pick(chooser, (20, 140, 600)))]


def many_pairs(chooser: Chooser, words: Argv) -> None:
    for number in _many(0, pick(chooser, (20, 140))):
        words += [number, b"m" + number]


def many_hll(chooser: Chooser, words: Argv) -> None:
    words += _many(chooser.below(5) * 1000, pick(chooser, (50, 400, 1500)))


#: Longitude and latitude a member may have; no two alike.
_PLACES: Final = {
    b"palermo": ((b"13.361389", b"38.115556"), (b"13.5", b"38.3")),
    b"catania": ((b"15.087269", b"37.502669"), (b"15.2", b"37.1")),
    b"pole": ((b"1.25", b"85.05"), (b"-33.5", b"-85.05")),
    b"fiji": ((b"179.99", b"-17.8"), (b"-179.9", b"-18.1")),
    b"null": ((b"0", b"0"), (b"0.0001", b"-0.0002")),
    LONG_MEMBERS[0]: ((b"-73.98", b"40.75"), (b"-74.1", b"40.6")),
}


def geo_item(chooser: Chooser, words: Argv) -> None:
    member = pick(chooser, tuple(_PLACES))
    words += [*pick(chooser, _PLACES[member]), member]


_CENTERS: Final = (
    (b"15", b"37"), (b"13.4", b"38.2"), (b"-179.97", b"-17"), (b"0", b"80"), (b"181", b"0"), (b"0", b"91"),
)  # fmt: skip


def geo_center(chooser: Chooser, words: Argv) -> None:
    words += pick(chooser, _CENTERS)


# ---------------------------------------------------------------------------- the table

_VALUES: Final = (*_INTEGERS, *_FLOATS, *_EDGE_INTEGERS, *_TEXTS, *LONG_MEMBERS, _LARGE, *NOT_NUMBERS)
_MEMBERS: Final = (b"a", b"b", b"c", b"1", b"2", b"10", b"", b"nul\x00\xff", *LONG_MEMBERS, b"3.5", b"aa")

POOLS: Final[dict[str, Pool]] = {
    "key": KEYS,
    "value": _VALUES,
    "member": _MEMBERS,
    "many_member": tuple(b"m%d" % number for number in range(300)),
    "field": (b"f", b"g", b"1", b"2", b"", b"\x00\xff", *LONG_MEMBERS),
    "int": (*_INTEGERS, *_EDGE_INTEGERS, b"nan"),
    "float": (*_INTEGERS, *_FLOATS, *_INFINITIES, b"1e17", b"0.3", b"9007199254740993", b"nan", b"abc"),
    "count": (b"0", b"1", b"2", b"3", b"10", b"1000", b"-1", b"-2", b"abc"),
    "index": (b"0", b"1", b"2", b"5", b"-1", b"-2", b"-100", b"100", *_EDGE_INTEGERS, b"1.5"),
    "score": (*_INTEGERS[:4], *_INTEGERS[:4], *_FLOATS, *_INFINITIES[:2], b"-1", b"nan", b"1e400", b"x"),
    "score_bound": (b"0", b"1", b"2", b"3", b"-inf", b"+inf", b"(1", b"(2", b"(inf", b"-2.5", b"(", b"x"),
    "lex_bound": (b"-", b"+", b"[a", b"(a", b"[b", b"(c", b"[", b"(", b"[1", b"[\xff", b"[" + LONG_MEMBERS[0],
                  b"(" + LONG_MEMBERS[1], b"a"),
    "weight": (b"1", b"2", b"0", b"-1", b"0.5", b"inf", b"x"),
    "seconds": (b"100", b"1000", b"10000", b"0", b"-1", b"9223372036854775807", b"9223372036854775", b"x"),
    "milliseconds": (b"100000", b"1000000", b"0", b"-1", *_EDGE_INTEGERS[:2], b"x"),
    "ttl": (b"100000", b"1000000", b"0", b"-1", b"x"),
    "at_s": (*(b"%d" % (_NOW_S + 50_000 * far) for far in (1, 2, 3)), b"4102444800", b"1", b"-1", b"0",
             b"9223372036854775807"),
    "at_ms": (*(b"%d000" % (_NOW_S + 50_000 * far) for far in (1, 2, 3)), b"4102444800000", b"1", b"-1", b"0",
              b"9223372036854775807"),
    "past_s": (b"1", b"1000"),
    "db": (b"0", b"1", b"0", b"1", b"9", b"16", b"-1", b"x"),
    "pattern": (b"*", b"a*", b"?", b"[a-c]*", b"w_*", b"*\xff*", b"long:*", b"", b"\\*", b"[^a]", b"*1*"),
    "cursor": (b"0", b"0", b"0", b"0", b"x", b"-1", b"18446744073709551616"),
    "type": (b"string", b"list", b"set", b"zset", b"hash", b"none", b"STRING"),
    "offset": (b"0", b"1", b"5", b"500", b"-1", b"9223372036854775807", b"x"),
    "bit_offset": (b"0", b"1", b"7", b"8", b"15", b"100", b"4000", b"-1", b"4294967296", b"x"),
    "bit": (b"0", b"1", b"1", b"2", b"x"),
    "bits": (b"u8", b"i8", b"u1", b"i1", b"u16", b"i64", b"u63", b"i5", b"u64", b"i65", b"u0", b"x"),
    "bits_at": (b"0", b"1", b"7", b"#0", b"#1", b"#3", b"100", b"-1", b"#", b"4294967296"),
    "radius": (b"0", b"10", b"100", b"200.5", b"2000", b"20000", b"-1", b"x"),
    "unit": (b"m", b"km", b"km", b"ft", b"mi", b"KM", b"x"),
    "place": tuple(_PLACES),
    "sort_by": (b"w_*", b"nosort", b"w_*->f", b"*", b"#", b"w_1", b"w_*->"),
    "sort_get": (b"#", b"w_*", b"w_*->f", b"nothing", b"*", b"w_*->g"),
    "limit": (b"0", b"1", b"2", b"5", b"-1", b"100", b"9223372036854775807"),
    "many_members": many_members,
    "many_pairs": many_pairs,
    "many_hll": many_hll,
    "geo_item": geo_item,
    "geo_center": geo_center,
}  # fmt: skip
