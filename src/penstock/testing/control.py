"""A connection to set a real server up: just enough RESP2, nothing of the client that is under test."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

from penstock.errors import CommandError, ProtocolError

#: Where every server of ours listens.
HOST: Final = "127.0.0.1"


@contextmanager
def control(port: int, timeout_s: float) -> Iterator[Callable[..., Any]]:
    """A connection as a function: arguments in, reply out."""
    with (
        socket.create_connection((HOST, port), timeout_s) as connection,
        connection.makefile("rb") as replies,
    ):

        def call(*arguments: str | bytes | int) -> Any:
            words = [word if isinstance(word, bytes) else str(word).encode() for word in arguments]
            bulk = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
            connection.sendall(b"*%d\r\n%b" % (len(words), bulk))
            return _read_reply(replies)

        yield call


def _read_reply(replies: BinaryIO) -> Any:
    line = replies.readline()
    if not line.endswith(b"\r\n"):
        raise ProtocolError("the server closed the connection in the middle of a reply")
    mark, rest = line[:1], line[1:-2]
    match mark:
        case b"+":
            return rest
        case b"-":
            raise CommandError(rest.decode(errors="replace"))
        case b":":
            return int(rest)
        case b"$":
            return None if rest == b"-1" else replies.read(int(rest) + 2)[:-2]
        case b"*":
            return None if rest == b"-1" else [_read_reply(replies) for _ in range(int(rest))]
    raise ProtocolError(f"the server answered {line[:40]!r}, which is not RESP2")


def lines_of(text: bytes) -> list[str]:
    return text.decode().splitlines()


def fields_of(text: bytes) -> dict[str, str]:
    """The ``name:value`` lines of INFO and CLUSTER INFO."""
    return {name: value for name, colon, value in (line.partition(":") for line in lines_of(text)) if colon}
