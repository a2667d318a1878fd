"""A client made of the command helpers alone, which compares what they answer with what they should.

Stories name their keys ``a`` and ``b``. In a cluster such keys live on different servers, so
there each name gets a hash tag on the way out and loses it on the way back.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from penstock.client.commands import Commands
from penstock.client.commands.base import converted
from penstock.client.config import open_settings
from penstock.client.dialing import Dialer
from penstock.client.facts import key_positions, to_bytes
from penstock.client.router.standalone import StandaloneRouter
from penstock.client.transports.base import Arguments

T = TypeVar("T")
HELPERS = {name for name, _ in inspect.getmembers(Commands, inspect.isfunction) if not name.startswith("_")}
OK = b"OK"


class Nobody:
    def on_push(self, link: object, push: object) -> None: ...

    def on_event(self, event: object) -> None: ...


class Comparing(Commands):
    """Helpers over whatever sends commands; notes which were used, and compares what they answer."""

    def __init__(
        self, call: Callable[[Arguments], Awaitable[Any]], is_decoding: bool, *, tag: str = ""
    ) -> None:
        self.call = call
        self.is_decoding = is_decoding
        #: what stands before every key, ``{tag}`` in a cluster
        self.tag = tag
        self.used: set[str] = set()

    def __getattribute__(self, name: str) -> Any:
        if name in HELPERS:
            self.used.add(name)
        return super().__getattribute__(name)

    async def _call(self, arguments: Arguments, convert: Callable[[Any], T] | None = None) -> Any:
        reply = await self.call(self._tagged(arguments))
        value = reply if convert is None else converted(arguments, convert, reply)
        return mapped(value, self._untagged) if self.tag else value

    def _tagged(self, arguments: Arguments) -> Arguments:
        if not self.tag:
            return arguments
        words = list(arguments)
        for position in key_positions(arguments):
            words[position] = self.tag.encode() + to_bytes(words[position])
        return tuple(words)

    def _untagged(self, word: bytes | str) -> bytes | str:
        return word.removeprefix(self.tag) if isinstance(word, str) else word.removeprefix(self.tag.encode())

    def names(self, pattern: str) -> str:
        """A pattern for names of keys."""
        return self.tag + pattern

    async def gives(self, call: Awaitable[Any], expected: Any) -> None:
        """The call answers exactly that; what is written as bytes is text if the connection decodes."""
        actual = await call
        expected = decoded(expected) if self.is_decoding else expected
        assert actual == expected
        assert shape(actual) == shape(expected)

    async def has(self, name: str) -> bool:
        """Whether the server has this command."""
        return (await self.command_info(name))[0] is not None


def decoded(value: Any) -> Any:
    return mapped(value, lambda word: word.decode() if isinstance(word, bytes) else word)


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """The same with every text and every bytes in it changed."""
    if isinstance(value, bytes | str):
        return function(value)
    if isinstance(value, dict):
        return {mapped(key, function): mapped(item, function) for key, item in value.items()}
    items = (mapped(item, function) for item in value) if isinstance(value, _CONTAINERS) else ()
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(items)
    return type(value)(items) if isinstance(value, _CONTAINERS) else value


_CONTAINERS = list | tuple | set | frozenset


def shape(value: Any) -> Any:
    """Types all the way down: 1 == True == 1.0."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [shape(item) for item in value]
    return type(value)


@asynccontextmanager
async def opened(url: str, protocol: int, is_decoding: bool) -> AsyncIterator[Comparing]:
    target, settings = open_settings(
        url, protocol=protocol, decode_responses=is_decoding, client_name="tests"
    )
    router = StandaloneRouter(Dialer(target, settings), target.addresses[0], settings, Nobody())
    try:
        await router.open()
        yield Comparing(router.call, is_decoding)
    finally:
        await router.close()
