"""From a URL to a reply: settings, dialer, handshake, link and router together, on real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.client.config import open_settings
from penstock.client.dialing import Dialer
from penstock.client.router.standalone import StandaloneRouter
from penstock.errors import AuthenticationError, CommandError, ConfigError, NotSentError
from penstock.testing.servers import RealServer


class Nobody:
    def on_push(self, link: object, push: object) -> None: ...

    def on_event(self, event: object) -> None: ...


@asynccontextmanager
async def opened(url: str, **overrides: Any) -> AsyncIterator[StandaloneRouter]:
    target, settings = open_settings(url, **overrides)
    router = StandaloneRouter(Dialer(target, settings), target.addresses[0], settings, Nobody())
    try:
        await router.open()
        yield router
    finally:
        await router.close()


@pytest.mark.parametrize("protocol", [2, 3])
async def test_commands_of_many_tasks_get_their_own_replies(real_server: RealServer, protocol: int) -> None:
    async with opened(real_server.url, protocol=protocol, db=3, client_name="tests") as router:
        replies = await asyncio.gather(*(router.call(("ECHO", f"value {n}")) for n in range(1000)))
        assert replies == [b"value %d" % n for n in range(1000)]
        assert await router.call(("CLIENT", "GETNAME")) == b"tests"
        await router.call(("SET", "k", 1.5))
        with pytest.raises(CommandError, match="WRONGTYPE"):
            await router.call(("LPUSH", "k", "x"))
        (statistics,) = router.statistics().values()
        assert statistics["in_flight"] == 0
    async with opened(real_server.url, db=3, decode_responses=True) as router:
        assert await router.call(("GET", "k")) == "1.5"


async def test_a_wrong_password_is_refused_at_once(real_server: RealServer) -> None:
    with pytest.raises(AuthenticationError, match="refused the credentials"):
        async with opened(real_server.url.replace("://", "://someone:wrong@")):
            pass


async def test_a_cluster_url_to_a_plain_server_says_what_to_use(real_server: RealServer) -> None:
    with pytest.raises(ConfigError, match="use redis:// instead of redis-cluster://"):
        async with opened(real_server.url.replace("redis://", "redis-cluster://")):
            pass


async def test_a_database_that_does_not_exist_is_named(real_server: RealServer) -> None:
    with pytest.raises(ConfigError, match="database 99"):
        async with opened(real_server.url, db=99):
            pass


async def test_an_absent_server_is_named(real_server: RealServer) -> None:
    with pytest.raises(NotSentError, match="cannot connect to"):
        async with opened("redis://127.0.0.1:1", fail_fast=True):
            pass
