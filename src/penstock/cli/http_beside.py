"""HTTP beside the RESP server of ``penstock serve``: on its loop, or in processes of its own.

Without a configuration file everybody may use every channel, stream and topic, so nobody beyond this machine
is served then, unless the protection is turned off.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.asking import json_line
from penstock.cli.gateway import need_gateway, storage_of, tell_console
from penstock.errors import ConfigError
from penstock.server.run import Companion
from penstock.server.settings import is_loopback

if TYPE_CHECKING:
    from penstock.gateway.config import GatewayConfig

#: What holds when nobody says anything else.
OPEN: Final[dict[str, Any]] = {
    "streams": [{"regex": ".+", "readable": True, "writable": True}],
    "pubsub.enabled": True,
    "logging.format": "text",
    "logging.category": {"*": "INFO", "http": "WARN"},
}


def http_companion(arguments: argparse.Namespace) -> Companion:
    """What ``penstock.server.run`` runs beside the server."""
    load, _, _ = need_gateway()
    if (
        arguments.http_config is None
        and arguments.protected_mode == "yes"
        and not is_loopback(arguments.host)
    ):
        raise ConfigError(
            f"{arguments.host or 'every address'} can be reached from other machines and HTTP has no tokens:"
            " give --http-config, listen on 127.0.0.1, or turn the protection off (--protected-mode no)"
        )
    source = Path(arguments.http_config) if arguments.http_config else None
    config = load(source, environment=os.environ, overrides=_overrides(arguments))
    if arguments.http_workers == 1:
        return lambda _: _on_this_loop(config, is_json=arguments.json)
    return lambda _: _in_processes(config, is_json=arguments.json)


def _overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    return {
        **(OPEN if arguments.http_config is None else {}),
        "storages": {"default": storage_of(str(arguments.directory), arguments.durability)},
        "http.listen": f"{host}:{arguments.http_port}",
        "http.workers": arguments.http_workers,
        "lake": arguments.lake,
    }


@asynccontextmanager
async def _on_this_loop(config: GatewayConfig, *, is_json: bool) -> AsyncGenerator[None, None]:
    from penstock.gateway.running import open_gateway

    async with open_gateway(config) as server:
        _announce(config, server.port, is_json=is_json)
        yield


@asynccontextmanager
async def _in_processes(config: GatewayConfig, *, is_json: bool) -> AsyncGenerator[None, None]:
    """A supervisor of its own, which is stopped with us and stops by itself when we die."""
    from penstock.gateway.running import start_beside

    supervisor = start_beside(config)
    _announce(config, supervisor.port, is_json=is_json)
    try:
        yield
    finally:
        await asyncio.to_thread(supervisor.stop)


def _announce(config: GatewayConfig, port: int, *, is_json: bool) -> None:
    tell_console(config, port)
    host = config.http.address[0] or "127.0.0.1"
    if is_json:
        print(json_line({"http": f"http://{host}:{port}"}), end="", flush=True)
        return
    print(f"HTTP on http://{host}:{port} (documentation: /v1/docs).", flush=True)
