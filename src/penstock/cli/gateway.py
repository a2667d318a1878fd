"""``penstock gateway [CONFIG]``: HTTP in front of any storage, from a configuration file."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.cli.asking import json_line
from penstock.cli.teaching import add_json
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from penstock.gateway.config import GatewayConfig

_EPILOG = """\
examples:
  penstock gateway                                a store in a temporary directory, on port 3000
  penstock gateway gateway.yml
  penstock gateway --store redis://localhost --port 8080
  penstock gateway --store ./shop.pen --workers 2 --lake ./lake
  penstock gateway gateway.yml --dump-config      what it would do, with every default
  PENSTOCK__HTTP__PORT=9000 penstock gateway gateway.yml

docs/gateway-configuration.md has every key of the file.
"""


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "gateway",
        help="serve channels, streams and pub/sub over HTTP",
        description="Serve channels, streams and pub/sub over HTTP, as a configuration file says.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="YAML file, or - for standard input")
    parser.add_argument("--store", metavar="WHERE", help="directory or URL, instead of the file's storages")
    parser.add_argument("--port", type=int, help="port, instead of the file's")
    parser.add_argument("--listen", metavar="ADDRESS:PORT", help="address and port, instead of the file's")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that serve the port")
    parser.add_argument("--lake", metavar="DIR", help="lake whose tables are shown, instead of the file's")
    parser.add_argument("--debug", action="store_true", help="log everything")
    parser.add_argument("--dump-config", action="store_true", help="print the configuration and stop")
    add_json(parser, "tell the port, or the configuration,")
    parser.set_defaults(run=_gateway)


def _gateway(arguments: argparse.Namespace) -> None:
    load, dump, run = need_gateway()
    source = arguments.config if arguments.config in (None, "-") else Path(arguments.config)
    config = load(source, environment=os.environ, overrides=_overrides(arguments))
    if arguments.dump_config:
        print(_as_json(dump(config)) if arguments.json else dump(config), end="")
        return
    status = run(config, lambda port: _announce(config, port, is_json=arguments.json))
    if status:
        raise ConfigError("the workers could not start; the lines above say why")


def _announce(config: GatewayConfig, port: int, *, is_json: bool) -> None:
    tell_console(config, port)
    text = json_line({"port": port}) if is_json else f"Serving HTTP on port {port}. Ctrl-C stops it.\n"
    print(text, end="", flush=True)


def _as_json(configuration: str) -> str:
    from penstock.configuration.yamltext import parse_yaml

    return json_line(parse_yaml(configuration, "the configuration"))


def _overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    overrides: dict[str, Any] = {
        "http.workers": arguments.workers,
        "http.listen": arguments.listen,
        "lake": arguments.lake,
    }
    if arguments.store is not None:
        overrides["storages"] = {"default": storage_of(arguments.store)}
    if arguments.port is not None:
        overrides |= {"http.port": arguments.port, "http.listen": arguments.listen or ""}
    if arguments.debug:
        overrides["logging.category"] = {"*": "DEBUG"}
    return overrides


def storage_of(where: str, durability: str = "always") -> dict[str, Any]:
    """A storage of the configuration by what ``penstock.open`` would take."""
    if "://" in where:
        return {"redis": {"url": where}}
    return {"embedded": {"directory": where, "durability": durability}}


def need_gateway() -> tuple[Any, Any, Any]:
    """What the gateway's configuration and serving need; ConfigError with what to install."""
    try:
        from penstock.gateway.config import dump, load
        from penstock.gateway.running import run
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"HTTP needs packages that are not installed ({error.name}): pip install 'penstock[gateway]'"
        ) from error
    return load, dump, run


def tell_console(config: GatewayConfig, port: int) -> None:
    """Whoever started it is its administrator, and is shown the way in."""
    if config.admin.auth.is_bearer_generated:
        print(f"Console: {console_link(config, port)}", file=sys.stderr, flush=True)


def console_link(config: GatewayConfig, port: int) -> str:
    """The console's address with the administrator's token, which a browser keeps to itself."""
    host = config.http.address[0]
    shown = "127.0.0.1" if host in ("", "0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    scheme = "https" if config.http.tls is not None else "http"
    token = quote(config.admin.auth.bearer[0], safe="")
    return f"{scheme}://{shown}:{port}{config.http.base_path}/console/#token={token}"
