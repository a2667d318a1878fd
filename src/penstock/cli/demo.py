"""``penstock demo [DIRECTORY]``: a sample shop in this process, with a console to look at it.

A store in a directory, served to Redis clients and over HTTP, and the shop of ``penstock.cli.shop`` on it.
The data pipeline on Spark runs beside it as a process of its own, if ``penstock[spark]`` is installed.

Rules: Ctrl-C and SIGTERM stop all of it within seconds; a second run goes on where the first one was, also
after a kill. Everything it writes is in DIRECTORY, its log as well: the terminal gets a few lines, the last
of which is the address to open. It listens on this machine only.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.asking import json_line
from penstock.cli.gateway import console_link, need_gateway, storage_of
from penstock.cli.http_beside import OPEN
from penstock.cli.teaching import add_json, taught
from penstock.errors import ConfigError, PenstockError
from penstock.server import Server, ServerSettings, run

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from penstock.cli.shop.receiver import Receiver
    from penstock.cli.shop.running import Places
    from penstock.gateway.config import GatewayConfig

_HOST: Final = "127.0.0.1"
_LAST_PORT: Final = 65_535
_DEFAULT: Final = Path("penstock-demo")
#: Local requests alone; who follows something is told that the gateway stops, and nobody else waits.
_HTTP_GRACE: Final = "2s"


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "demo",
        **taught(
            "a sample shop on this machine, with a console to look at",
            "penstock demo",
            "penstock demo ./elsewhere --http-port 9000 --no-spark",
            "penstock tx list --store ./penstock-demo/store.pen --state waiting",
            description="Run a sample shop: orders in a stream, checkouts as transactions, webhooks,"
            " channels, schedules, a lake that Spark fills, and the console. Ctrl-C stops it, and the next"
            " run goes on.",
        ),
    )
    parser.add_argument("directory", metavar="DIRECTORY", nargs="?", type=Path, default=_DEFAULT,
                        help="where store, lake and logs are kept (default: ./penstock-demo)")  # fmt: skip
    parser.add_argument("--port", type=int, default=6380,
                        help="port for Redis clients; 0 picks a free one (default: 6380)")  # fmt: skip
    parser.add_argument("--http-port", type=int, default=8080, metavar="PORT",
                        help="port of the console; 0 picks a free one (default: 8080)")  # fmt: skip
    parser.add_argument("--no-spark", action="store_true", help="run no data pipeline")
    parser.add_argument("--no-open", action="store_true", help="leave the browser alone")
    add_json(parser, "tell that it is open, and closed,")
    parser.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> None:
    need_gateway()
    from penstock.cli.shop.running import Places

    settings = ServerSettings(host=_HOST, port=arguments.port)
    settings.check()
    places = Places(arguments.directory)
    with _listener(arguments.http_port) as listener:
        _prepare(places)
        run(
            places.store,
            settings,
            companion=lambda server: _open_all(server, listener, places, arguments),
        )
    _tell(arguments, "The shop is closed; the next run goes on where it was.", state="closed")


def _listener(port: int) -> socket.socket:
    """For the console, before anything else is begun."""
    from penstock.gateway.serving.listening import open_listener

    if not 0 <= port <= _LAST_PORT:
        raise ConfigError(f"http-port must be between 0 and {_LAST_PORT}, not {port}")
    try:
        return open_listener(_HOST, port)
    except ConfigError as error:
        text = str(error).removeprefix("http.listen: ")
        raise ConfigError(text.replace("choose another", "choose another port (--http-port)")) from error


def _prepare(places: Places) -> None:
    try:
        places.prepare()
    except OSError as error:
        raise PenstockError(
            f"the demo cannot use {places.root}: {error.strerror or error}; name another directory"
        ) from error
    # The terminal is for people; what goes wrong in the shop, and is meant to, is in the file.
    logging.basicConfig(
        level=logging.WARNING, filename=places.log, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


# ---------------------------------------------------------------------------------- one process


@asynccontextmanager
async def _open_all(
    server: Server, listener: socket.socket, places: Places, arguments: argparse.Namespace
) -> AsyncGenerator[None, None]:
    """Beside the server of Redis clients: who is told by webhook, the gateway, the shop."""
    from penstock.cli.shop import spark_job
    from penstock.cli.shop.receiver import Receiver
    from penstock.cli.shop.running import open_shop, wanted_port
    from penstock.gateway.running import open_gateway

    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(Receiver(await wanted_port(places.store)))
        token = places.token()
        config = _gateway_config(places, receiver, listener.getsockname()[1], token)
        http = await stack.enter_async_context(open_gateway(config, sock=listener))
        has_spark = not arguments.no_spark and spark_job.is_installed()
        address = f"http://{_HOST}:{http.port}"
        await stack.enter_async_context(
            open_shop(
                places,
                receiver=receiver,
                gateway=address,
                has_spark=has_spark,
                tell=lambda sentence: _tell(arguments, sentence, state="open", note=sentence),
            )
        )
        console = console_link(config, http.port)
        _announce(server, places, address, console, token, arguments, has_spark=has_spark)
        yield


def _gateway_config(places: Places, receiver: Receiver, port: int, token: str) -> GatewayConfig:
    load, _, _ = need_gateway()
    overrides: dict[str, Any] = {
        **OPEN,
        "storages": {"default": storage_of(str(places.store))},
        "admin.auth.bearer": [token],
        "http.listen": f"{_HOST}:{port}",
        "http.gracefulShutdownTimeout": _HTTP_GRACE,
        "lake": None if places.lake is None else str(places.lake),
        "webhooks": [{"name": "partner", "regex": "news", "url": receiver.url("news")}],
        "transactions.archiveDirectory": None if places.archive is None else str(places.archive),
        "transactions.webhooks.allowedNetworks": [f"{_HOST}/32"],
        "logging.category": {"*": "ERROR"},
    }
    config: GatewayConfig = load(None, environment={}, overrides=overrides)
    return config


# ---------------------------------------------------------------------------------- for people


def _tell(arguments: argparse.Namespace, text: str, **facts: object) -> None:
    print(json_line(facts) if arguments.json else f"{text}\n", end="", flush=True)


def _announce(
    server: Server,
    places: Places,
    address: str,
    console: str,
    token: str,
    arguments: argparse.Namespace,
    *,
    has_spark: bool,
) -> None:
    _tell(
        arguments,
        f"A shop is open in {places.root}.\n"
        f"  Redis clients   redis-cli -p {server.port}\n"
        f"  HTTP            {address}/v1/docs\n"
        f"  Spark           {_about_spark(places, arguments, has_spark)}\n"
        "Ctrl-C closes it; the next run goes on where it was.\n"
        f"Open {console}",
        state="open",
        console=console,
        http=address,
        token=token,
        port=server.port,
        directory=str(places.root),
        spark=has_spark,
    )
    if not arguments.no_open and _has_screen():
        # Some browsers are waited for.
        threading.Thread(target=webbrowser.open, args=(console,), daemon=True).start()


def _about_spark(places: Places, arguments: argparse.Namespace, has_spark: bool) -> str:
    if has_spark:
        return f"fills the lake within two minutes; what it says is in {places.spark_log}"
    return "is not wanted" if arguments.no_spark else "is not installed: pip install 'penstock[spark]'"


def _has_screen() -> bool:
    """Whether somebody sits before this terminal who has a browser with windows."""
    is_graphical = sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return is_graphical and sys.stdout.isatty()
