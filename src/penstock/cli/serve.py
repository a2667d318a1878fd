"""``penstock serve DIR``: a RESP listener in front of a store."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.server import Server, ServerSettings, run

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "serve",
        help="serve a store over the Redis protocol",
        description="Open (or create) the store in DIR and serve it to any Redis client.",
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="directory of the store")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=6380, help="TCP port; 0 picks a free one (default: 6380)")
    parser.add_argument("--unixsocket", type=Path, metavar="PATH", help="listen on a unix socket as well")
    parser.add_argument(
        "--durability",
        choices=("always", "relaxed"),
        default="always",
        help="always: a reply means it is on disk (default); relaxed: survives a killed process, not a power cut",
    )
    parser.add_argument(
        "--requirepass",
        metavar="PASSWORD",
        default=os.environ.get("PENSTOCK_PASSWORD"),
        help="password that clients must give (or set PENSTOCK_PASSWORD)",
    )
    parser.add_argument("--protected-mode", choices=("yes", "no"), default="yes",
                        help="no: allow listening beyond this machine without a password")  # fmt: skip
    parser.add_argument("--tls-cert-file", type=Path, metavar="PATH", help="certificate: serve TLS on the port")
    parser.add_argument("--tls-key-file", type=Path, metavar="PATH", help="private key of the certificate")
    parser.add_argument("--maxclients", type=int, default=10_000, help="most clients at once (default: 10000)")
    parser.add_argument("--max-size-gb", type=float, default=1024.0, metavar="GB",
                        help="size the store may grow to (default: 1024)")  # fmt: skip
    parser.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = ServerSettings(
        host=arguments.host,
        port=arguments.port,
        unix_socket=arguments.unixsocket,
        password=arguments.requirepass,
        protected=arguments.protected_mode == "yes",
        tls_certificate=arguments.tls_cert_file,
        tls_key=arguments.tls_key_file,
        max_clients=arguments.maxclients,
    )
    run(
        arguments.directory,
        settings,
        durability=arguments.durability,
        max_size_bytes=int(arguments.max_size_gb * (1 << 30)),
        on_ready=lambda server: _announce(server, arguments),
    )


def _announce(server: Server, arguments: argparse.Namespace) -> None:
    print(
        f"Serving {arguments.directory} on {arguments.host}:{server.port} (durability {arguments.durability}).\n"
        f"Try:  redis-cli -p {server.port} set greeting hello\n"
        "Ctrl-C stops it; nothing is lost.",
        flush=True,
    )
