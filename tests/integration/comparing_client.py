"""A client made of the command helpers alone, which compares what they answer with what they should."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from penstock.client.commands import Commands
from penstock.client.commands.base import converted
from penstock.client.config import open_settings
from penstock.client.dialing import Dialer
from penstock.client.router.standalone import StandaloneRouter
from penstock.client.transports.base import Arguments

T = TypeVar("T")
HELPERS = {name for name, _ in inspect.getmembers(Commands, inspect.isfunction) if not name.startswith("_")}
OK = b"OK"


class Nobody:
    def on_push(self, link: object, push: object) -> None: ...

    def on_event(self, event: object) -> None: ...


class Comparing(Commands):
    """Helpers over a router; notes which were used, and compares what they answer."""

    def __init__(self, router: StandaloneRouter, is_decoding: bool) -> None:
        self.router = router
        self.is_decoding = is_decoding
        self.used: set[str] = set()

    def __getattribute__(self, name: str) -> Any:
        if name in HELPERS:
            self.used.add(name)
        return super().__getattribute__(name)

    async def _call(self, arguments: Arguments, convert: Callable[[Any], T] | None = None) -> Any:
        reply = await self.router.call(arguments)
        return reply if convert is None else converted(arguments, convert, reply)

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
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {decoded(key): decoded(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(map(decoded, value))
    return type(value)(map(decoded, value)) if isinstance(value, list | tuple | set) else value


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
        yield Comparing(router, is_decoding)
    finally:
        await router.close()
