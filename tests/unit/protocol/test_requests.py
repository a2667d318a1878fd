"""Requests in every cut, every refusal, and the agreement with a real server on both."""

from __future__ import annotations

import socket
import tracemalloc
from contextlib import suppress
from itertools import pairwise
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.protocol.requests import RequestReader, split_inline
from penstock.testing import RealServer

Commands = list[list[bytes]]

PING = b"*1\r\n$4\r\nPING\r\n"

#: Bytes, and the commands in them.
ACCEPTED: list[tuple[bytes, Commands]] = [
    (PING, [[b"PING"]]),
    (PING + PING, [[b"PING"], [b"PING"]]),
    (b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", [[b"ECHO", b""]]),
    (b"*2\r\n$4\r\nECHO\r\n$9\r\n\r\n*1\r\n$1\r\n\r\n", [[b"ECHO", b"\r\n*1\r\n$1\r"]]),
    # Bytes that hiredis would take for other types, as payload.
    (b"*2\r\n$4\r\nECHO\r\n$3\r\n+OK\r\n", [[b"ECHO", b"+OK"]]),
    (b"*2\r\n$4\r\nECHO\r\n$4\r\na=(+\r\n" + PING, [[b"ECHO", b"a=(+"], [b"PING"]]),
    (b"*2\r\n$4\r\nECHO\r\n$6\r\n*99999\r\n", [[b"ECHO", b"*99999"]]),
    (b"*2\r\n$4\r\nECHO\r\n$6\r\n>99999\r\n", [[b"ECHO", b">99999"]]),
    # Empty requests.
    (b"*0\r\n" + PING, [[b"PING"]]),
    (b"*-1\r\n" + PING, [[b"PING"]]),
    (b"*-5\r\n" + PING, [[b"PING"]]),
    (b"*-9223372036854775808\r\n" + PING, [[b"PING"]]),
    (b"\r\n\n  \r\n" + PING, [[b"PING"]]),
    # Line ends that are taken on trust.
    (b"*1\r\n$4\r\nPINGxx" + PING, [[b"PING"], [b"PING"]]),
    (b"*1\rX$4\rYPINGzz" + PING, [[b"PING"], [b"PING"]]),
    # Inline commands, alone and mixed with the others.
    (b"PING\r\n", [[b"PING"]]),
    (b"PING\nPING\r\r\n", [[b"PING"], [b"PING"]]),
    (b"PING\r\n" + PING + b"ECHO x\r\n" + PING, [[b"PING"], [b"PING"], [b"ECHO", b"x"], [b"PING"]]),
    (PING + b"#t\r\n" + PING, [[b"PING"], [b"#t"], [b"PING"]]),
    (PING + b"#t\r\n", [[b"PING"], [b"#t"]]),
    (b"$3\r\nfoo\r\n", [[b"$3"], [b"foo"]]),
    (b"ECHO z\v\r\n", [[b"ECHO", b"z\v"]]),
    # Not complete.
    (PING + b"*", [[b"PING"]]),
    (PING + b"*1\r", [[b"PING"]]),
    (PING + b"*2\r\n$4\r\nPING\r\n", [[b"PING"]]),
    (PING + b"*2\r\n$4\r\nECHO\r\n$2\r\n", [[b"PING"]]),
    (PING + b"*1\r\nPING", [[b"PING"]]),
    (b"PING", []),
    (b'PING "a\\', []),
    (b"*1\r\n$536870912\r\n", []),
    # A NUL hides the end of its line.
    (b"PING\0\r\nPING\r\n", []),
    (b"*1\0\r\n" + PING, []),
    (b"*1\r\n:\0\r\n" + PING, []),
]

#: Bytes, the commands before the fault, and the fault.
REFUSED: list[tuple[bytes, Commands, str]] = [
    (b"*1\r\n:1\r\n", [], "expected '$', got ':'"),
    (b"*1\r\n+PING\r\n", [], "expected '$', got '+'"),
    (b"*1\r\n=8\r\ntxt:PING\r\n", [], "expected '$', got '='"),
    (b"*1\r\n(123\r\n", [], "expected '$', got '('"),
    (b"*1\r\n_\r\n", [], "expected '$', got '_'"),
    (b"*1\r\n#t\r\n", [], "expected '$', got '#'"),
    (b"*1\r\n*1\r\n$4\r\nPING\r\n", [], "expected '$', got '*'"),
    (b"*1\r\n~99999\r\n", [], "expected '$', got '~'"),
    (b"*1\r\nPING\r\n", [], "expected '$', got 'P'"),
    (b"*1\r\n\r\n", [], "expected '$', got ' '"),
    (b"*1\r\n\nx\r\n", [], "expected '$', got ' '"),
    (b"*1\r\n\xff\r\n", [], "expected '$', got '\udcff'"),
    (b"*2\r\n$4\r\nECHOxx+hi\r\n", [], "expected '$', got '+'"),
    (PING + b"*1\r\n:1\r\n" + PING, [[b"PING"]], "expected '$', got ':'"),
    (b"*\r\n", [], "invalid multibulk length"),
    (b"*01\r\n$4\r\nPING\r\n", [], "invalid multibulk length"),
    (b"*+1\r\n$4\r\nPING\r\n", [], "invalid multibulk length"),
    (b"* 1\r\n$4\r\nPING\r\n", [], "invalid multibulk length"),
    (b"*1 \r\n$4\r\nPING\r\n", [], "invalid multibulk length"),
    (b"*-0\r\n", [], "invalid multibulk length"),
    (b"*2147483648\r\n", [], "invalid multibulk length"),
    (b"*9223372036854775808\r\n", [], "invalid multibulk length"),
    (b"*-9223372036854775809\r\n", [], "invalid multibulk length"),
    (PING + b"*x\r\n", [[b"PING"]], "invalid multibulk length"),
    (b"*1\r\n$\r\n", [], "invalid bulk length"),
    (b"*1\r\n$-1\r\n", [], "invalid bulk length"),
    (b"*1\r\n$04\r\nPING\r\n", [], "invalid bulk length"),
    (b"*1\r\n$?\r\n", [], "invalid bulk length"),
    (b"*1\r\n$536870913\r\n", [], "invalid bulk length"),
    (b"*2\r\n$4\r\nECHO\r\n$600000000\r\n", [], "invalid bulk length"),
    (b'ECHO "a\r\n', [], "unbalanced quotes in request"),
    (b'PING\r\nECHO "a"b\r\n' + PING, [[b"PING"]], "unbalanced quotes in request"),
    (b"x" * 66_000, [], "too big inline request"),
    (b"\0\n" + b"x" * 66_000, [], "too big inline request"),
    (b"*" + b"1" * 66_000, [], "too big mbulk count string"),
    (b"*1\r\n$" + b"1" * 66_000, [], "too big bulk count string"),
    (b"*1\r\n" + b"x" * 66_000, [], "too big bulk count string"),
]

#: A line, and its words; nothing where the quotes are not balanced.
LINES: list[tuple[bytes, list[bytes] | None]] = [
    (b"", []),
    (b" \t\n\v\f\r", []),
    (b" SET  k\tv ", [b"SET", b"k", b"v"]),
    (b"a\vb c\v", [b"a\vb", b"c\v"]),
    (b"\"\" ''", [b"", b""]),
    (b"\"a b\" 'c d'", [b"a b", b"c d"]),
    (b"a\"b c\" d'e'", [b"ab c", b"de"]),
    (b'"a"\v"b"', [b"a", b"b"]),
    (rb'"\x41\xfF\n\r\t\b\a\q\"\\"', [b'A\xff\n\r\t\b\aq"\\']),
    (rb'"\x4" "\xzz" "\\x41"', [b"x4", b"xzz", rb"\x41"]),
    (rb"'a\'b' '\n\x41' '\\\''", [b"a'b", rb"\n\x41", rb"\\'"]),
    (rb"\x41 \n", [rb"\x41", rb"\n"]),
    (b'"a\nb"', [b"a\nb"]),
    (b"\xff\x00", [b"\xff\x00"]),
    (b'"', None),
    (b"'", None),
    (b'a "b', None),
    (b"a 'b", None),
    (b'"a"b', None),
    (b"'a''b'", None),
    (rb'"\"', None),
    (rb"'\'", None),
    (b'"a\\', None),
]


def encode(commands: Commands) -> bytes:
    parts = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        parts += [b"$%d\r\n%b\r\n" % (len(argument), argument) for argument in command]
    return b"".join(parts)


def read(*chunks: bytes, **limits: int) -> tuple[Commands, RequestReader]:
    reader = RequestReader(**limits)
    return [command for chunk in chunks for command in reader.feed(chunk)], reader


def split(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def error_of(reader: RequestReader) -> str | None:
    return None if reader.error is None else str(reader.error)


# --- What is accepted, what is refused ----------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize(("data", "commands"), ACCEPTED, ids=repr)
def test_accepted(data: bytes, commands: Commands, size: int) -> None:
    got, reader = read(*split(data, size))
    assert got == commands
    assert reader.error is None
    assert reader.error_reply == b""


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize(("data", "commands", "fault"), REFUSED, ids=lambda value: repr(value)[:60])
def test_refused(data: bytes, commands: Commands, fault: str, size: int) -> None:
    got, reader = read(*split(data, size if len(data) < 1000 else size * 1000))
    assert got == commands
    assert isinstance(reader.error, ProtocolError)
    assert str(reader.error) == f"Protocol error: {fault}"
    assert reader.error_reply == b"-ERR Protocol error: %b\r\n" % fault.encode("utf-8", "surrogateescape")


def test_nothing_is_parsed_after_a_refusal() -> None:
    _, reader = read(b"*1\r\n:1\r\n")
    error = reader.error
    assert reader.feed(PING) == []
    assert reader.feed(b"PING\r\n") == []
    assert reader.error is error


@pytest.mark.parametrize("line", [b"POST / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n", b"post\n"])
def test_http_is_cut_off_without_an_answer(line: bytes) -> None:
    commands, reader = read(line + b"\r\nFLUSHALL\r\n")
    assert [b"FLUSHALL"] not in commands
    assert isinstance(reader.error, ProtocolError)
    assert reader.error_reply == b""


@pytest.mark.parametrize(("line", "words"), LINES, ids=repr)
def test_split_inline(line: bytes, words: list[bytes] | None) -> None:
    if words is None:
        with pytest.raises(ProtocolError, match=r"^Protocol error: unbalanced quotes in request$"):
            split_inline(line)
    else:
        assert split_inline(line) == words


def test_a_long_line_of_many_words_is_split_in_linear_time() -> None:
    assert len(split_inline(b"a " * 500_000)) == 500_000


# --- Limits -------------------------------------------------------------------------------------


#: One limit, the largest request within it, a request over it, and the refusal.
LIMITS: list[tuple[dict[str, int], bytes, bytes, str]] = [
    ({"max_bulk_bytes": 5}, encode([[b"12345"] * 3]), encode([[b"123456"]]), "invalid bulk length"),
    ({"max_args": 3}, encode([[b"a"] * 3]), encode([[b"a"] * 4]), "invalid multibulk length"),
    ({"max_request_bytes": 9}, encode([[b"1234", b"12345"]]), encode([[b"12345"] * 2]), "too big request"),
    ({"max_inline_bytes": 8}, b"ECHO 12\r\n", b"ECHO 123\r\n", "too big inline request"),
]


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(("limits", "largest", "over", "fault"), LIMITS)
def test_limits(limits: dict[str, int], largest: bytes, over: bytes, fault: str, size: int) -> None:
    commands, reader = read(*split(largest * 2, size), **limits)
    assert len(commands) == 2
    assert reader.error is None
    commands, reader = read(*split(over, size), **limits)
    assert commands == []
    assert error_of(reader) == f"Protocol error: {fault}"


def test_a_huge_payload_is_refused_at_its_header() -> None:
    reader = RequestReader()
    assert reader.feed(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n") == []
    assert reader.error is None
    assert reader.feed(b"$600000000\r\n") == []
    assert error_of(reader) == "Protocol error: invalid bulk length"


@pytest.mark.parametrize(
    "announcement",
    [
        b"*1000000\r\n",
        b"*1\r\n$500000000\r\n",
        PING + b"*1\r\n*500000000\r\n",
        b"*2\r\n$1\r\naxx>500000000\r\n",
        b"*1\r\n~500000000\r\n",
        b"*1\r\n|500000000\r\n",
        b"*4000000000\r\n",
    ],
)
def test_announcements_take_no_memory(announcement: bytes) -> None:
    reader = RequestReader()
    tracemalloc.start()
    try:
        reader.feed(announcement)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000


def test_a_trickled_payload_takes_no_more_memory_than_its_bytes() -> None:
    reader = RequestReader()
    reader.feed(b"*1\r\n$1000000\r\n")
    tracemalloc.start()
    try:
        for _ in range(250_000):
            reader.feed(b"abc")
        kept_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 750_000 <= kept_bytes < 1_000_000


# --- Strangers ----------------------------------------------------------------------------------

AUTH = encode([[b"AUTH", b"secret"]])
MANY_ARGS = encode([[b"MSET", *[b"x"] * 20]])
BIG_BULK = encode([[b"SET", b"k", b"v" * 16385]])


def stranger() -> RequestReader:
    reader = RequestReader()
    reader.authenticated = False
    return reader


def test_strangers_may_send_small_requests() -> None:
    commands = [[b"a"] * 10, [b"v" * 16384], [b"AUTH", b"secret"]]
    reader = stranger()
    assert reader.feed(encode(commands)) == commands
    assert reader.error is None


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (MANY_ARGS, "unauthenticated multibulk length"),
        (BIG_BULK, "unauthenticated bulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
    ],
)
def test_strangers_may_not_send_big_ones(data: bytes, fault: str) -> None:
    reader = stranger()
    assert reader.feed(data) == []
    assert error_of(reader) == f"Protocol error: {fault}"
    assert not reader.held


@pytest.mark.parametrize("big", [MANY_ARGS, BIG_BULK])
def test_a_big_request_behind_auth_waits_for_its_outcome(big: bytes) -> None:
    reader = stranger()
    assert reader.feed(AUTH + big + PING) == [[b"AUTH", b"secret"]]
    assert reader.held
    assert "held" in repr(reader)
    reader.authenticated = True
    commands = reader.feed(b"")
    assert encode(commands) == big + PING
    assert not reader.held


@pytest.mark.parametrize("big", [MANY_ARGS, BIG_BULK])
def test_a_big_request_behind_a_failed_auth_is_refused(big: bytes) -> None:
    reader = stranger()
    assert reader.feed(AUTH + big) == [[b"AUTH", b"secret"]]
    assert reader.feed(b"") == []
    assert not reader.held
    assert str(reader.error).startswith("Protocol error: unauthenticated")


def test_limits_return_when_the_client_becomes_a_stranger_again() -> None:
    reader = RequestReader()
    assert len(reader.feed(MANY_ARGS)) == 1
    reader.authenticated = False
    assert reader.feed(MANY_ARGS) == []
    assert reader.error is not None


# --- The two parsers ----------------------------------------------------------------------------


@pytest.fixture
def no_strict_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: RequestReader, data: bytes) -> Commands:
        raise AssertionError(f"the strict parser was asked for {data!r}")

    monkeypatch.setattr(RequestReader, "_parse", refuse)


@pytest.mark.usefixtures("no_strict_parser")
@pytest.mark.parametrize(
    "commands",
    [
        [[b"SET", b"key", b"value"]],
        [[b"SET", b"key", b"dmFsdWU="]] * 16,
        [[b"SET", b"<a href='x'>(1+1=2) ~|</a>", bytes(range(256))]],
        [[b"KEYS", b"*"], [b"SET", b"n", b"12345678"]],
        [[b"MSET", *[b"x"] * 5000]],
    ],
)
def test_ordinary_chunks_need_hiredis_alone(commands: Commands) -> None:
    reader = RequestReader()
    assert reader.feed(encode(commands)) == commands
    assert reader.feed(encode(commands)) == commands


def test_a_cut_pipeline_is_parsed_by_hiredis_up_to_its_last_command(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    take = RequestReader._take_count

    def count(self: RequestReader, data: bytes, pos: int, may_hold: bool) -> int:
        taken.append(pos)
        return take(self, data, pos, may_hold)

    monkeypatch.setattr(RequestReader, "_take_count", count)
    commands = [[b"SET", b"key", b"value"]] * 1000
    got, _ = read(*split(encode(commands), 10_000))
    assert got == commands
    assert len(taken) < 10


def test_a_reader_is_clean_after_every_kind_of_chunk() -> None:
    reader = RequestReader()
    for data, commands in ACCEPTED:
        if not data.endswith(PING) or b"\0" in data:
            continue
        assert reader.feed(data) == commands
        assert repr(reader) == "<RequestReader at a boundary>"


def test_repr_tells_the_state() -> None:
    assert repr(read(b"*3\r\n$3\r\nSET\r\n")[1]) == "<RequestReader 1 arguments read, 2 missing>"
    assert repr(read(b"PIN")[1]) == "<RequestReader 3 bytes of a line read>"
    assert repr(read(b"*x\r\n")[1]) == "<RequestReader refused: Protocol error: invalid multibulk length>"


# --- Any bytes, any cut -------------------------------------------------------------------------

#: Pieces of requests, so that random bytes get past the first header.
PIECES = [
    b"*1\r\n", b"*2\r\n", b"*0\r\n", b"*-1\r\n", b"$4\r\n", b"$0\r\n", b"$-1\r\n", b"PING", b"ECHO", b"\r\n",
    b"\r", b"\n", b"*", b"$", b"+", b"=", b"(", b"~", b">", b"|", b"#t\r\n", b"'", b'"', b"\\", b" ", b"\0",
    b"99999", b"1", PING,
]  # fmt: skip

arguments = st.binary(max_size=40) | st.sampled_from(PIECES)
any_commands = st.lists(st.lists(arguments, min_size=1, max_size=6), max_size=8)
any_bytes = st.binary() | st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=20).map(b"".join)
any_cuts = st.lists(st.integers(0, 400), max_size=6)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(min(place, len(data)) for place in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


@given(any_commands, any_cuts, st.booleans())
def test_any_commands_survive_any_cut(commands: Commands, cuts: list[int], authenticated: bool) -> None:
    reader = RequestReader()
    reader.authenticated = authenticated
    got = [command for chunk in cut(encode(commands), cuts) for command in reader.feed(chunk)]
    assert got == commands
    assert reader.error is None


@given(any_bytes, any_cuts)
def test_any_bytes_give_the_same_in_any_cut_and_raise_nothing(data: bytes, cuts: list[int]) -> None:
    whole, reader = read(data)
    for chunks in (cut(data, cuts), split(data, 1)):
        commands, again = read(*chunks)
        assert commands == whole
        assert error_of(again) == error_of(reader)
    assert all(type(argument) is bytes for command in whole for argument in command)
    assert all(whole)


# --- The real server ----------------------------------------------------------------------------


def ask(server: RealServer, data: bytes) -> list[Any]:
    """What the server answers to ``data`` before it sees the end of the connection."""
    replies = hiredis.Reader()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        # It may close without reading all; what it had answered by then is still there.
        with suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while received := connection.recv(65536):
                replies.feed(received)
    answers = []
    while (answer := replies.gets()) is not False:
        answers.append(answer)
    return answers


def expect(answers: list[Any], commands: Commands) -> None:
    assert len(answers) == len(commands)
    for answer, command in zip(answers, commands, strict=True):
        if command[0] == b"PING":
            assert answer == b"PONG"
        elif command[0] == b"ECHO":
            assert answer == command[1]
        else:
            assert str(answer).startswith("ERR unknown command")


@pytest.fixture
def redis7(redis_server: RealServer) -> RealServer:
    if not redis_server.version.startswith("7.0."):
        pytest.skip(f"requests are read as Redis 7.0 reads them, not as {redis_server.binary.label}")
    return redis_server


def test_redis_accepts_the_same(redis7: RealServer) -> None:
    for data, commands in ACCEPTED:
        expect(ask(redis7, data), commands)


def test_redis_refuses_the_same(redis7: RealServer) -> None:
    for data, commands, fault in REFUSED:
        *answers, last = ask(redis7, data)
        expect(answers, commands)
        raw = fault.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        assert str(last) == f"ERR Protocol error: {raw}"


def test_redis_splits_lines_the_same(redis7: RealServer) -> None:
    for line, words in LINES:
        if b"\n" in line or b"\0" in line:
            continue  # these end a request; only a caller of split_inline can mean them
        answers = ask(redis7, b"ECHO " + line + b"\r\n")
        if words is None:
            assert str(answers[-1]) == "ERR Protocol error: unbalanced quotes in request"
        elif len(words) == 1:
            assert answers == words
        else:
            assert str(answers[0]) == "ERR wrong number of arguments for 'echo' command"
