"""``penstock serve DIR``: a RESP listener in front of a store, and HTTP beside it."""

from __future__ import annotations

import argparse
import logging
import math
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.asking import json_line
from penstock.cli.http_beside import http_companion
from penstock.cli.teaching import add_json
from penstock.errors import ConfigError
from penstock.server import Server, ServerSettings, run

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_DEFAULTS = ServerSettings()
_MIB = 1 << 20

_EPILOG = """\
examples:
  penstock serve ./shop.pen
  penstock serve ./shop.pen --port 7000 --durability relaxed
  penstock serve ./shop.pen --port 6380 --http-port 8080
  penstock serve ./shop.pen --unixsocket /tmp/shop.sock
  PENSTOCK_PASSWORD=secret penstock serve ./shop.pen --host 0.0.0.0 \\
      --tls-cert-file cert.pem --tls-key-file key.pem

Several servers and programs may use the same DIR at the same time.
SIGTERM, Ctrl-C and the command SHUTDOWN stop a server gracefully.
"""


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "serve",
        help="serve a store over the Redis protocol",
        description="Open (or create) the store in DIR and serve it to any Redis client (RESP2 and RESP3).",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="directory of the store")
    parser.add_argument(
        "--durability",
        choices=("always", "relaxed"),
        default="always",
        help="always: a reply means it is on disk (default);"
        " relaxed: it survives a killed process, not a power cut",
    )
    parser.add_argument("--max-size-gb", type=_positive, default=1024.0, metavar="GB",
                        help="size the store may grow to (default: 1024)")  # fmt: skip
    _add_doors(parser.add_argument_group("where to listen"))
    _add_http(parser.add_argument_group("HTTP"))
    _add_protection(parser.add_argument_group("whom to serve"))
    _add_limits(parser.add_argument_group("limits"))
    add_json(parser, "tell that it is ready")
    parser.set_defaults(run=_serve)


def _add_doors(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--host", default=_DEFAULTS.host, metavar="ADDRESS",
                       help="address to listen on (default: 127.0.0.1, this machine only)")  # fmt: skip
    group.add_argument("--port", type=int, default=_DEFAULTS.port,
                       help="TCP port; 0 picks a free one (default: 6380)")  # fmt: skip
    group.add_argument("--unixsocket", type=Path, metavar="PATH", help="listen on a unix socket as well")
    group.add_argument(
        "--tls-cert-file", type=Path, metavar="PATH", help="certificate: the port speaks TLS only"
    )
    group.add_argument("--tls-key-file", type=Path, metavar="PATH", help="private key of the certificate")


def _add_http(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--http-port", type=int, metavar="PORT",
                       help="serve HTTP as well; 0 picks a free port (default: no HTTP)")  # fmt: skip
    group.add_argument("--http-workers", type=int, default=1, metavar="N",
                       help="processes for HTTP; 1: this one (default)")  # fmt: skip
    group.add_argument("--http-config", metavar="FILE",
                       help="YAML file of `penstock gateway`; without it everybody may use every channel,"
                       " stream and topic")  # fmt: skip
    group.add_argument("--lake", metavar="DIR", help="lake whose tables are shown (default: the file's)")


def _add_protection(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--requirepass",
        metavar="PASSWORD",
        default=os.environ.get("PENSTOCK_PASSWORD"),
        help="password that clients must give; better set as PENSTOCK_PASSWORD, which `ps` does not show",
    )
    group.add_argument("--protected-mode", choices=("yes", "no"), default="yes",
                       help="no: allow listening beyond this machine without a password")  # fmt: skip


def _add_limits(group: argparse._ArgumentGroup) -> None:
    output_mb, pubsub_mb = _DEFAULTS.output_limit_bytes / _MIB, _DEFAULTS.pubsub_output_limit_bytes / _MIB
    group.add_argument("--maxclients", type=int, default=_DEFAULTS.max_clients, metavar="N",
                       help="most clients at once (default: 10000)")  # fmt: skip
    group.add_argument("--output-limit-mb", type=_positive, default=output_mb, metavar="MB",
                       help="disconnect a client with more unread replies (default: 1024)")  # fmt: skip
    group.add_argument("--pubsub-limit-mb", type=_positive, default=pubsub_mb, metavar="MB",
                       help="the same for clients that subscribe or monitor (default: 32)")  # fmt: skip


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")
    return value


def _serve(arguments: argparse.Namespace) -> None:
    if arguments.lake is not None and arguments.http_port is None:
        raise ConfigError("--lake is shown over HTTP: give --http-port as well")
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
        output_limit_bytes=int(arguments.output_limit_mb * _MIB),
        pubsub_output_limit_bytes=int(arguments.pubsub_limit_mb * _MIB),
    )
    run(
        arguments.directory,
        settings,
        durability=arguments.durability,
        max_size_bytes=int(arguments.max_size_gb * (1 << 30)),
        companion=http_companion(arguments) if arguments.http_port is not None else None,
        on_ready=lambda server: _announce(server, arguments),
    )


def _announce(server: Server, arguments: argparse.Namespace) -> None:
    if arguments.json:
        facts = {
            "store": str(arguments.directory),
            "host": arguments.host,
            "port": server.port,
            "durability": arguments.durability,
        }
        print(json_line(facts), end="", flush=True)
        return
    where = f"{arguments.host}:{server.port}"
    print(
        f"Serving {arguments.directory} on {where} (durability {arguments.durability}).\n"
        f"Try:  {_example(server)}\n"
        "Ctrl-C stops it; nothing is lost.",
        flush=True,
    )


def _example(server: Server) -> str:
    """A line that works against this server when it is typed on this machine."""
    settings = server.settings
    words = ["redis-cli"]
    if settings.host not in ("127.0.0.1", "localhost", "0.0.0.0", "::", ""):
        words += ["-h", settings.host]
    words += ["-p", str(server.port)]
    if settings.tls_certificate is not None:
        words += ["--tls", "--insecure"]
    if settings.password:
        words += ["--askpass"]
    return shlex.join([*words, "set", "greeting", "hello"])
