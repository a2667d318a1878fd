"""docs/http-api.md is true: its console blocks are run against a gateway, its Python is executed.

In a console block lines with ``$`` are commands, the lines below are what they print; ``…`` is anything.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.app import Application
from penstock.gateway.assembly import make_application, open_services
from penstock.gateway.services import Services
from penstock.gateway.serving.server import HttpServer
from penstock.gateway.v1.channel_events import ChannelEventRoutes
from penstock.gateway.v1.channels import ChannelRoutes
from penstock.gateway.v1.sockets import SocketRoutes
from penstock.gateway.v1.subscriptions import SubscriptionRoutes
from penstock.webhooks import new_secret
from penstock.webhooks.signing import signed_headers
from tests.gateway.conftest import config_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "http-api.md"
TEXT = DOCUMENT.read_text("utf-8")
HOST = "localhost:3000"
_MARK = "@@@ next @@@"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def examples() -> list[tuple[str, str]]:
    """Commands and what they print, of all console blocks in their order."""
    found: list[tuple[str, str]] = []
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((command, printed))
    return found


def _application(services: Services) -> Application:
    application = make_application(services)
    if any(route.template.startswith("/v1/channels") for route in application.routes):
        return application
    routes = [
        *application.routes,
        *ChannelRoutes(services).routes(),
        *SubscriptionRoutes(services).routes(),
        *ChannelEventRoutes(services).routes(),
    ]
    return Application(services, routes, sockets=SocketRoutes(services))


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    storage = {"embedded": {"directory": str(tmp_path / "rooms.pen"), "durability": "relaxed"}}
    config = config_of(tmp_path, {"storages": {"default": storage}})
    async with open_services(config) as services:
        http = replace(config.http, listen="127.0.0.1:0")
        server = HttpServer(_application(services), http, release=services.channels.release)
        await server.start()
        services.life.is_ready = True
        yield server.port
        await server.stop()


async def run(*command: str, text: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complaints = await asyncio.wait_for(process.communicate(text.encode()), 60)
    assert process.returncode == 0, complaints.decode()
    return said.decode()


def pattern_of(printed: str) -> re.Pattern[str]:
    return re.compile(".*?".join(re.escape(each) for each in printed.split("…")), re.DOTALL)


async def test_console_blocks(port: int) -> None:
    """One shell runs all of them: later ones build on earlier ones."""
    pairs = examples()
    assert len(pairs) >= 20
    quiet = 'curl() { command curl -sS --max-time 30 "$@"; }\n'
    script = quiet + "".join(f"echo '{_MARK}'\n{command}\n" for command, _ in pairs) + "wait\n"
    said = await run("bash", text=script.replace(HOST, f"127.0.0.1:{port}"))
    outputs = said.replace("\r\n", "\n").split(_MARK + "\n")[1:]
    assert len(outputs) == len(pairs)
    for (command, printed), output in zip(pairs, outputs, strict=True):
        # Answers of /v1 end without a line feed, which a terminal would hide.
        assert pattern_of(printed.strip()).fullmatch(output.strip()), f"{command}\n{output}"


async def test_the_websocket_example(port: int) -> None:
    [program] = [block for block in blocks("python") if "websockets" in block]
    said = await run(sys.executable, "-", text=program.replace(HOST, f"127.0.0.1:{port}"))
    assert "'rose-5'" in said
    assert "'white'" in said


def test_the_examples_that_verify_webhooks() -> None:
    names: dict[str, Any] = {}
    for block in blocks("python"):
        if "def read_event" in block or "def is_genuine" in block:
            exec(block, names)
    secret, body, now_s = new_secret(), b'{"type":"channel.message"}', int(time.time())
    headers = dict(signed_headers((new_secret(), secret), "msg_1", now_s, body))
    assert names["read_event"](body, headers, secret) == {"type": "channel.message"}
    assert names["is_genuine"](body, headers, secret)
    old = dict(signed_headers((secret,), "msg_1", now_s - 1_000, body))
    for forged in ((body + b" ", headers, secret), (body, headers, new_secret()), (body, old, secret)):
        assert not names["is_genuine"](*forged)
        with pytest.raises(Exception, match=r"matching signature|too old"):
            names["read_event"](*forged)


def test_every_path_and_code_of_the_api_is_mentioned() -> None:
    for word in (
        "/message/{message}", "/subscription/polling/{subscriber}", "/admin/jwt/revoke", "/admin/log/level",
        "/probe/liveness", "/probe/readiness", "dsps.storage.invalid-channel",
        "dsps.storage.ack-handle-malformed",
        "dsps.auth.rejected", "dsps.storage.subscription-not-found",
        "<!-- begin: routes of /v1", "<!-- end: routes of /v1 -->",
    ):  # fmt: skip
        assert word in TEXT, word
