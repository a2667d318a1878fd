"""Bytes from a client to commands: no I/O, every announced length checked before its payload.

Two parsers share the work. The strict one below is the authority; its states are

=========  ==================================  ====================================
state      waits for                           leaves by
=========  ==================================  ====================================
boundary   ``*<count>`` line                   ``_take_count``: to length
boundary   any other line (inline command)     ``_take_inline``: command, boundary
length     ``$<length>`` line                  ``_take_length``: to payload
payload    length + 2 bytes                    ``_take_payload``: to length, or
                                               command and boundary
=========  ==================================  ====================================

hiredis is several times faster but believes every announcement (it allocates an array
of the announced size), takes any reply type for an argument and does not tell whether
it stopped between two commands. So it only sees chunks that begin at a boundary and
cannot mislead it, and its result counts only when the chunk turns out to be whole
commands and nothing else (``_parse_whole``). Otherwise the same bytes are given to the
strict parser, as if hiredis had never seen them.

Rules:

1. What is accepted, and each refusal's text, is Redis 7.0's. The leniency too: whatever
   two bytes stand where CR LF should end a payload are skipped.
2. The commands delivered do not depend on how the bytes are cut into chunks.
3. Nothing is raised: a refusal is kept in ``error``, after the commands before it.

This module knows nothing of sockets or of what commands mean.
"""

from __future__ import annotations

import re
from typing import Any, Final

import hiredis

from penstock.errors import ProtocolError

_STAR: Final = ord("*")
_DOLLAR: Final = ord("$")

#: Limits for clients that have still to authenticate, as in Redis.
UNAUTHENTICATED_ARGS: Final = 10
UNAUTHENTICATED_BULK_BYTES: Final = 16 * 1024

#: Returned in place of a position while the bytes end too early.
_MORE: Final = -1

# ---------------------------------------------------------------- inline commands

_SPACES: Final = re.compile(rb"\s*")

#: One word: bare bytes, then perhaps a quoted part, which must end the word.
_WORD: Final = re.compile(
    rb"""
    (?P<bare>   [^\ \t\n\r"']* )
    (?:
        " (?P<double> (?: [^"\\] | \\. )* ) "            (?=\s|\Z)
      | ' (?P<single> (?: [^'\\] | \\' | \\(?!') )* ) '  (?=\s|\Z)
    )?
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}

#: First words of an HTTP request. A web page can make a browser send one here, and the
#: commands in its body: it is cut off without an answer.
_HTTP_WORDS: Final = frozenset({b"post", b"host:"})
_HTTP_REFUSED: Final = "an HTTP request was sent to the RESP port"


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes((int(code[1:], 16),)) if len(code) == 3 else _ESCAPED.get(code, code)


def split_inline(line: bytes) -> list[bytes]:
    r"""The words of a line typed by a human.

    ``"..."`` understands ``\n \r \t \b \a \xHH \" \\``, ``'...'`` only ``\'``. Raises
    :class:`ProtocolError` when a quote is not closed, or closed in the middle of a word.
    """
    words = []
    pos = _skip(_SPACES, line, 0).end()
    while pos < len(line):
        match = _skip(_WORD, line, pos)
        word, double, single = match.group("bare", "double", "single")
        if line[match.end() : match.end() + 1] in (b'"', b"'"):
            raise ProtocolError("Protocol error: unbalanced quotes in request")
        if double is not None:
            word += _ESCAPE.sub(_unescape, double)
        elif single is not None:
            word += single.replace(b"\\'", b"'")
        words.append(word)
        pos = _skip(_SPACES, line, match.end()).end()
    return words


def _skip(pattern: re.Pattern[bytes], line: bytes, pos: int) -> re.Match[bytes]:
    match = pattern.match(line, pos)
    assert match is not None  # each part of these patterns is optional
    return match


# ---------------------------------------------------------------- header lines

_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_SMALL_NUMBERS: Final = {b"%d" % number: number for number in range(1024)}


def _strict_integer(text: bytes) -> int | None:
    """A 64-bit integer in its one canonical spelling, else nothing."""
    small = _SMALL_NUMBERS.get(text)
    if small is not None:
        return small
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


# ---------------------------------------------------------------- what hiredis may see

#: An array of 10,000 or more: hiredis allocates it when it reads the header.
_find_big_array: Final = re.compile(rb"\*[1-9][0-9]{4}").search

#: The same of a set, push or attribute.
_find_big_other: Final = re.compile(rb"[~>|][1-9][0-9]{4}").search

#: Fed after every chunk. If it comes back as a reply of its own, the chunk ended at a boundary.
_MARK: Final = b"#t\r\n"

#: The shortest argument: ``$0 CR LF CR LF``. So a chunk bounds the arguments inside it.
_SHORTEST_ARG_BYTES: Final = 6

#: Joining costs little in C and fails on whatever is not bytes.
_assert_all_bytes: Final = b"".join


def _pack(commands: list[list[Any]]) -> bytes:
    return b"".join([hiredis.pack_command(tuple(command)) for command in commands])


class RequestReader:
    """Feed it what the client sent; it returns the commands that are complete.

    ``error``
        the refusal after which nothing more is parsed; send ``error_reply`` and close.
    ``authenticated``
        while False, requests are held to the small limits of strangers. Keep it up to
        date before every ``feed``.
    ``held``
        a command goes over those limits, but one just returned may be the AUTH that
        lifts them: execute those, then call ``feed(b"")`` for the rest.
    """

    __slots__ = (
        "_args",
        "_args_missing",
        "_authenticated",
        "_direct",
        "_direct_bytes",
        "_hiredis",
        "_max_args",
        "_max_bulk_bytes",
        "_max_inline_bytes",
        "_max_request_bytes",
        "_payload",
        "_payload_missing",
        "_request_bytes",
        "_rest",
        "error",
        "held",
    )

    def __init__(
        self,
        max_bulk_bytes: int = 512 * 1024 * 1024,
        max_args: int = 1024 * 1024,
        max_inline_bytes: int = 64 * 1024,
        max_request_bytes: int = 1024 * 1024 * 1024,
    ) -> None:
        self._max_bulk_bytes = max_bulk_bytes
        self._max_args = max_args
        self._max_inline_bytes = max_inline_bytes
        self._max_request_bytes = max_request_bytes
        #: A chunk of up to this many bytes cannot hold a whole command over the limits.
        self._direct_bytes = min(max_bulk_bytes, max_request_bytes, max_args * _SHORTEST_ARG_BYTES)
        self._hiredis = hiredis.Reader()
        self._authenticated = True
        self.error: ProtocolError | None = None
        self.held = False
        #: An incomplete line, or what is held back.
        self._rest = b""
        #: The command being read: its arguments so far, how many more, the bytes announced.
        self._args: list[bytes] = []
        self._args_missing = 0
        self._request_bytes = 0
        #: Of the argument being read: its bytes so far, how many more with the two that end it.
        self._payload = bytearray()
        self._payload_missing = 0
        #: At a boundary, with nothing kept: the next chunk may go to hiredis.
        self._direct = True

    def __repr__(self) -> str:
        if self.error is not None:
            state = f"refused: {self.error}"
        elif self.held:
            state = f"held, {len(self._rest)} bytes kept"
        elif self._args_missing:
            state = f"{len(self._args)} arguments read, {self._args_missing} missing"
        else:
            state = f"{len(self._rest)} bytes of a line read" if self._rest else "at a boundary"
        return f"<RequestReader {state}>"

    @property
    def authenticated(self) -> bool:
        return self._authenticated

    @authenticated.setter
    def authenticated(self, value: bool) -> None:
        self._authenticated = value
        self._direct = self._may_go_direct()

    @property
    def error_reply(self) -> bytes:
        """What to send before closing: the error line, or nothing to an HTTP client."""
        text = str(self.error)
        if self.error is None or text == _HTTP_REFUSED:
            return b""
        return b"-ERR %b\r\n" % text.encode("utf-8", "surrogateescape")

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The commands that ``data`` completes, in order; possibly none."""
        if self._direct and data and data[0] == _STAR and len(data) <= self._direct_bytes:
            commands = self._parse_whole(data)
            if commands is not None:
                return commands
        return self._parse(data)

    # ------------------------------------------------------------ by hiredis

    def _parse_whole(self, data: bytes) -> list[list[bytes]] | None:
        """The commands of ``data`` if it is ordinary commands, all whole; else nothing."""
        if _find_big_array(data) is not None:
            return None
        # Looking for the bytes ~ > | first is much faster than the pattern alone.
        if (126 in data or 62 in data or 124 in data) and _find_big_other(data) is not None:
            return None
        reader = self._hiredis
        gets = reader.gets
        commands = []
        try:
            reader.feed(data + _MARK)
            while type(command := gets()) is list:
                if command:
                    _assert_all_bytes(command)
                    commands.append(command)
            if command is True and not reader.has_data():
                # Behind + = ( hiredis finds types that it delivers like bulk strings: only if
                # the commands pack to the same bytes were there none.
                lookalikes = 43 in data or 61 in data or 40 in data
                return commands if not lookalikes or _pack(commands) == data else None
        except (hiredis.HiredisError, TypeError):
            pass  # not a request; the strict parser says why
        self._hiredis = hiredis.Reader()
        return None

    def _skip_whole(self, data: bytes, pos: int, commands: list[list[bytes]]) -> int:
        """Let hiredis parse up to the last place where a command seems to begin; the position reached.

        A long pipeline is cut anywhere, so its chunks are whole but for the last command.
        """
        last = data.rfind(b"\r\n*", pos) + 2
        if pos < last <= pos + self._direct_bytes:
            whole = self._parse_whole(data[pos:last])
            if whole is not None:
                commands += whole
                return last
        return pos

    # ------------------------------------------------------------ by the strict parser

    def _parse(self, data: bytes) -> list[list[bytes]]:
        commands: list[list[bytes]] = []
        if self.error is not None:
            return commands
        self.held = False
        data = self._rest + data
        end = len(data)
        pos = 0
        # Once a chunk: a failed attempt costs as much as the chunk is long.
        may_skip = self._authenticated
        try:
            while pos < end:
                if may_skip and not self._args_missing and data[pos] == _STAR:
                    may_skip = False
                    pos = self._skip_whole(data, pos, commands)
                reached = self._take(data, pos, commands)
                if reached == _MORE:
                    break
                pos = reached
        except ProtocolError as error:
            self.error = error
            pos = end
        self._rest = data[pos:]
        self._direct = self._may_go_direct()
        return commands

    def _may_go_direct(self) -> bool:
        return self._authenticated and self.error is None and not self._args_missing and not self._rest

    def _take(self, data: bytes, pos: int, commands: list[list[bytes]]) -> int:
        """One transition of the table above; the position after it, or ``_MORE``."""
        if self._payload_missing:
            pos = self._take_payload(data, pos)
            if not self._payload_missing and not self._args_missing:
                commands.append(self._args)
                self._args = []
            return pos
        if self._args_missing:
            return self._take_length(data, pos, bool(commands))
        if data[pos] == _STAR:
            return self._take_count(data, pos, bool(commands))
        return self._take_inline(data, pos, commands)

    def _take_count(self, data: bytes, pos: int, may_hold: bool) -> int:
        end = self._find_end(data, pos, b"\r", "Protocol error: too big mbulk count string")
        if end == _MORE or end + 1 == len(data):
            return _MORE
        count = _strict_integer(data[pos + 1 : end])
        if count is None or count > self._max_args:
            raise ProtocolError("Protocol error: invalid multibulk length")
        if count > UNAUTHENTICATED_ARGS and not self._authenticated:
            return self._hold(may_hold, "Protocol error: unauthenticated multibulk length")
        self._args_missing = max(count, 0)
        self._request_bytes = 0
        return end + 2

    def _take_length(self, data: bytes, pos: int, may_hold: bool) -> int:
        end = self._find_end(data, pos, b"\r", "Protocol error: too big bulk count string")
        if end == _MORE or end + 1 == len(data):
            return _MORE
        if data[pos] != _DOLLAR:
            got = data[pos : pos + 1].replace(b"\r", b" ").replace(b"\n", b" ")
            raise ProtocolError(
                f"Protocol error: expected '$', got '{got.decode('utf-8', 'surrogateescape')}'"
            )
        length = _strict_integer(data[pos + 1 : end])
        if length is None or not 0 <= length <= self._max_bulk_bytes:
            raise ProtocolError("Protocol error: invalid bulk length")
        if length > UNAUTHENTICATED_BULK_BYTES and not self._authenticated:
            return self._hold(may_hold, "Protocol error: unauthenticated bulk length")
        self._request_bytes += length
        if self._request_bytes > self._max_request_bytes:
            raise ProtocolError("Protocol error: too big request")
        self._payload_missing = length + 2
        return end + 2

    def _take_payload(self, data: bytes, pos: int) -> int:
        """The bytes of an argument. It counts as read once the two bytes after it are here too."""
        reached = pos + self._payload_missing
        if reached <= len(data) and not self._payload:
            argument = data[pos : reached - 2]
        else:
            piece = data[pos:reached]
            self._payload += piece
            if reached > len(data):
                self._payload_missing -= len(piece)
                return len(data)
            argument = bytes(memoryview(self._payload)[:-2])
            self._payload = bytearray()
        self._payload_missing = 0
        self._args_missing -= 1
        self._args.append(argument)
        return reached

    def _take_inline(self, data: bytes, pos: int, commands: list[list[bytes]]) -> int:
        end = self._find_end(data, pos, b"\n", "Protocol error: too big inline request")
        if end == _MORE:
            return _MORE
        words = split_inline(data[pos:end])
        if words:
            if words[0].lower() in _HTTP_WORDS:
                raise ProtocolError(_HTTP_REFUSED)
            commands.append(words)
        return end + 1

    def _find_end(self, data: bytes, pos: int, ending: bytes, too_big: str) -> int:
        """Where the line at ``pos`` ends, or ``_MORE``."""
        end = data.find(ending, pos)
        # Redis looks for the end as in a C string: beyond a NUL it never finds it.
        if end >= 0 and data.find(b"\0", pos, end) >= 0:
            end = _MORE
        if (end if end >= 0 else len(data)) - pos > self._max_inline_bytes:
            raise ProtocolError(too_big)
        return end

    def _hold(self, may_hold: bool, refusal: str) -> int:
        if not may_hold:
            raise ProtocolError(refusal)
        self.held = True
        return _MORE
