"""The T* commands of ``docs/streams.md`` on any client: the server's own, or scripts that do the same.

    commands = StreamCommands(client)
    offset = await commands.execute("TWRITE", "orders", "o-1", "paid")
    first, *messages = await commands.execute("TREAD", "orders", 1, 100, "WITHINFO")

Whether the server has the commands is asked once (COMMAND INFO), so keep the object. Arguments, replies and
error texts are the same both ways; maps (TINFO, TPOLICY) are dictionaries with text as keys.

Where scripts stand in:

1. A script decides everything, arguments included; here is only what a script cannot do: check the
   number of arguments, name the keys, wait, and go on with long work.
2. BLOCK waits outside, in XREAD, for an entry above the last one that the script has seen, so a
   message that is written in between is not missed. What wakes no XREAD (TACK, TNACK, DEL) is
   noticed by asking again: a quarter of a second later while a group has something pending,
   a second later otherwise. Retries and expiries are waited for to the millisecond.
3. A task that is cancelled while it waits has taken nothing. Its place in the line of readers is
   given up by the others (``lua/line.lua``).
4. A group's dead-letter key must be among KEYS. A script that misses it says so, and is sent
   again with it; the answer is kept for the next calls.
5. Retention and compaction happen while TWRITE, TPOLICY and TCOMPACT run, not in the background.

This module knows nothing of what the keys hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.client.asking import has_command
from penstock.client.facts import to_bytes
from penstock.client.scripts import ScriptLibrary
from penstock.errors import CommandError, CommandTimeoutError
from penstock.protocol import catalogue
from penstock.streams.keys import stream_keys
from penstock.streams.scanning import scan_by_reading

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.transports.base import Argument
    from penstock.protocol.replies import Reply

#: Commands whose first word is a subcommand, the key behind it.
_CONTAINERS: Final = frozenset({b"TGROUP", b"TINFO"})

#: Dead-letter keys that are kept, by stream and group.
_KEPT_DEAD_LETTERS: Final = 1_000


class StreamCommands:
    """The stream commands of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._scripts: ScriptLibrary | None = None
        self._is_native: bool | None = None
        #: (stream, group) -> dead-letter key
        self._dead_letters: dict[tuple[bytes, bytes], bytes] = {}

    async def is_native(self) -> bool:
        """Whether the server has the commands itself."""
        if self._is_native is None:
            self._is_native = await has_command(self._client, "TWRITE")
        return self._is_native

    async def execute(self, *arguments: Argument, timeout_ms: int | None = None) -> Reply:
        """Run a T* command; a refused one raises ``CommandError`` with the text of ``docs/streams.md``."""
        if not arguments:
            raise TypeError("execute() needs at least the name of a command")
        name = to_bytes(arguments[0]).upper()
        if await self.is_native():
            reply = self._undecoded(await self._client.execute(*arguments, timeout_ms=timeout_ms))
        else:
            work = self._execute_by_script([name, *map(to_bytes, arguments[1:])])
            reply = await _within(work, timeout_ms, name)
        return _shaped(name, reply)

    def _undecoded(self, reply: Reply) -> Reply:
        """Messages are bytes, also for a client that takes replies for text."""
        return _as_bytes(reply) if self._client.settings.decode_responses else reply

    async def compact(self, key: Argument) -> int:
        """TCOMPACT; answers how many messages went."""
        reply = await self.execute("TCOMPACT", key)
        assert isinstance(reply, int)
        return reply

    # -------------------------------------------------------------------------- scripts

    async def _execute_by_script(self, words: Sequence[bytes]) -> Reply:
        """``words``: a command, its name in capitals."""
        catalogue.resolve(words)
        name = words[0]
        if name in _CONTAINERS:
            key, arguments = words[2], [words[1].upper(), *words[3:]]
        else:
            key, arguments = words[1], list(words[2:])
        match name:
            case b"TREAD":
                return await self._read(key, arguments)
            case b"TSCAN":
                return await scan_by_reading(self._read, key, arguments)
            case b"TACK" | b"TNACK" | b"TRENEW" | b"TDEAD" | b"TPENDING":
                return await self._run_for_group(name, key, arguments[0], arguments)
            case b"TCOMPACT":
                return await self._compact(key)
            case b"TGROUP":
                dead_letter = _dead_letter_in(arguments[3:]) if arguments[0] in (b"CREATE", b"SET") else b""
                return await self._run(name, key, arguments, dead_letter=dead_letter)
            case b"TINFO":
                return await self._inform(key, arguments)
        return await self._run(name, key, arguments)

    async def _run(
        self,
        name: bytes,
        key: bytes,
        arguments: Sequence[bytes],
        *,
        dead_letter: bytes = b"",
        readonly: bool = False,
    ) -> Reply:
        if self._scripts is None:
            self._scripts = ScriptLibrary(self._client, "penstock.streams")
        keys = stream_keys(key)
        if dead_letter:
            keys += stream_keys(dead_letter)
        reply = await self._scripts[name.decode().lower()](keys, arguments, readonly=readonly)
        return self._undecoded(reply)

    async def _run_for_group(
        self, name: bytes, key: bytes, group: bytes, arguments: Sequence[bytes]
    ) -> Reply:
        """Run a script that may have to write dead letters."""
        while True:
            dead_letter = self._dead_letters.get((key, group), b"")
            reply = await self._run(name, key, arguments, dead_letter=dead_letter)
            if not (isinstance(reply, list) and reply and reply[0] == b"DEADLETTER"):
                return reply
            if len(self._dead_letters) >= _KEPT_DEAD_LETTERS:
                self._dead_letters.clear()
            self._dead_letters[key, group] = reply[1]

    async def _inform(self, key: bytes, arguments: Sequence[bytes]) -> Reply:
        """TINFO only reads. Where a group has messages past their time, TPENDING gives these up first."""
        while True:
            reply = await self._run(b"TINFO", key, arguments, readonly=True)
            if not (isinstance(reply, list) and reply and reply[0] == b"EXPIRED"):
                return reply
            await self._run_for_group(b"TPENDING", key, reply[1], [reply[1]])

    async def _compact(self, key: bytes) -> int:
        """Step by step, so that others are served in between."""
        removed, is_over = await self._run(b"TCOMPACT", key, [b"begin"])
        while not is_over:
            more, is_over = await self._run(b"TCOMPACT", key, [b"go"])
            removed += more
        return int(removed)

    # -------------------------------------------------------------------------- reading

    async def _read(self, key: bytes, arguments: list[bytes]) -> Reply:
        group = _group_in(arguments)
        reply = await self._read_once(key, group, arguments)
        if not _is_wait(reply):
            return reply
        try:
            return await self._wait_and_read(key, group, arguments, reply)
        except CommandError as error:
            if error.code != "WRONGTYPE":
                raise
            shown = key.decode("utf-8", "surrogateescape")
            raise CommandError(f"UNBLOCKED the stream {shown} is gone") from None

    async def _read_once(
        self,
        key: bytes,
        group: bytes | None,
        arguments: list[bytes],
        token: bytes = b"",
        ticket: int = 0,
        is_final: bool = False,
    ) -> Reply:
        words = [token, b"%d" % ticket, b"%d" % is_final, *arguments]
        if group is None:
            return await self._run(b"TREAD", key, words, readonly=True)
        return await self._run_for_group(b"TREAD", key, group, words)

    async def _wait_and_read(
        self, key: bytes, group: bytes | None, arguments: list[bytes], wait: list[Any]
    ) -> Reply:
        """Sleep as long as the script says, ask again, until there is something or the time is up."""
        loop = asyncio.get_running_loop()
        block_ms = wait[2]
        ends_s = loop.time() + block_ms / 1000 if block_ms else None
        while True:
            _, token, _, after, pause_ms, ticket = wait
            if ends_s is not None:
                pause_ms = min(pause_ms, max(1, round((ends_s - loop.time()) * 1000)))
            await self._client.execute("XREAD", "COUNT", 1, "BLOCK", pause_ms, "STREAMS", key, after + b"-0")
            is_final = ends_s is not None and loop.time() >= ends_s
            reply = await self._read_once(key, group, arguments, token, ticket, is_final)
            if not _is_wait(reply):
                return reply
            wait = reply

    def __repr__(self) -> str:
        how = {None: "not asked yet", True: "native", False: "by script"}[self._is_native]
        return f"<StreamCommands of {self._client!r}: {how}>"


async def _within(work: Coroutine[None, None, Reply], timeout_ms: int | None, name: bytes) -> Reply:
    if timeout_ms is None:
        return await work
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await work
    except TimeoutError:
        raise CommandTimeoutError(
            f"no reply to {name.decode(errors='replace')} within {timeout_ms} ms; it may still run"
        ) from None


def _as_bytes(reply: Reply) -> Reply:
    if isinstance(reply, str):
        return to_bytes(reply)
    if isinstance(reply, list):
        return [_as_bytes(item) for item in reply]
    if isinstance(reply, dict):
        return {_as_bytes(name): _as_bytes(value) for name, value in reply.items()}
    return reply


def _is_wait(reply: Reply) -> bool:
    return isinstance(reply, list) and bool(reply) and reply[0] == b"WAIT"


def _group_in(arguments: Sequence[bytes]) -> bytes | None:
    """The group of a TREAD, or None. What is malformed is the script's to refuse."""
    sizes = {b"BLOCK": 1, b"CONSUMER": 1, b"RETRY": 2}
    place = 2
    while place < len(arguments):
        word = arguments[place].upper()
        if word == b"GROUP":
            return arguments[place + 1] if place + 1 < len(arguments) else b""
        place += 1 + sizes.get(word, 0)
    return None


def _dead_letter_in(options: Sequence[bytes]) -> bytes:
    """The dead-letter key among the options of a TGROUP, or nothing."""
    found = b""
    for name, value in zip(options[0::2], options[1::2], strict=False):
        if name.upper() == b"DEADLETTER":
            found = value
    return found


def _shaped(name: bytes, reply: Reply) -> Reply:
    """Maps as dictionaries, however they travelled."""
    if name == b"TPOLICY":
        return _dictionary(reply)
    if name != b"TINFO" or reply is None:
        return reply
    if isinstance(reply, list) and all(isinstance(item, list | Mapping) for item in reply):
        return [_dictionary(item) for item in reply]
    return _dictionary(reply)


def _dictionary(reply: Reply) -> dict[str, Any]:
    pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[0::2], reply[1::2], strict=True)
    return {name.decode().lower(): value for name, value in pairs}
