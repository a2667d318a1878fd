"""HELP of the containers: what each subcommand is called, takes and is for.

Names and purposes come from the catalogue; only the arguments are written down here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.engine.commands.registry import Argv, command
from penstock.engine.session import Session
from penstock.protocol.catalogue import CATALOGUE
from penstock.protocol.replies import Reply, Status

_ARGUMENTS: Final[Mapping[str, str]] = {
    "ACL CAT": "[<category>]",
    "ACL GETUSER": "<username>",
    "CLIENT CACHING": "YES|NO",
    "CLIENT KILL": "<ip:port> | <ID|ADDR|LADDR|TYPE|USER|SKIPME> <value> ...",
    "CLIENT LIST": "[TYPE <normal|master|replica|pubsub>] [ID <id> ...]",
    "CLIENT NO-EVICT": "ON|OFF",
    "CLIENT PAUSE": "<milliseconds> [WRITE|ALL]",
    "CLIENT REPLY": "ON|OFF|SKIP",
    "CLIENT SETNAME": "<name>",
    "CLIENT TRACKING": "ON|OFF [REDIRECT <id>] [PREFIX <prefix> ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
    "CLIENT UNBLOCK": "<id> [TIMEOUT|ERROR]",
    "CLUSTER COUNTKEYSINSLOT": "<slot>",
    "CLUSTER GETKEYSINSLOT": "<slot> <count>",
    "CLUSTER KEYSLOT": "<key>",
    "COMMAND DOCS": "[<command> ...]",
    "COMMAND GETKEYS": "<command> [<argument> ...]",
    "COMMAND GETKEYSANDFLAGS": "<command> [<argument> ...]",
    "COMMAND INFO": "[<command> ...]",
    "COMMAND LIST": "[FILTERBY MODULE <module>|ACLCAT <category>|PATTERN <pattern>]",
    "CONFIG GET": "<pattern> [<pattern> ...]",
    "CONFIG SET": "<parameter> <value> [<parameter> <value> ...]",
    "LATENCY RESET": "[<event> ...]",
    "MEMORY USAGE": "<key> [SAMPLES <count>]",
    "SLOWLOG GET": "[<count>]",
    "TGROUP CREATE": "<key> <group> <offset> [<option> <value> ...]",
    "TGROUP DESTROY": "<key> <group>",
    "TGROUP LIST": "<key>",
    "TGROUP SET": "<key> <group> [OFFSET <offset>] [<option> <value> ...]",
    "TINFO CONSUMERS": "<key> <group>",
    "TINFO GROUPS": "<key>",
    "TINFO STREAM": "<key>",
}


def help_of(container: str) -> list[Status]:
    """The lines of ``<container> HELP``."""
    lines = [f"{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    specs = CATALOGUE[container.encode()].subcommands.values()
    for spec in sorted(specs, key=lambda spec: (spec.name == b"HELP", spec.name)):
        name = spec.name.decode()
        lines += (f"{name} {_ARGUMENTS.get(f'{container} {name}', '')}".rstrip(), f"    {spec.summary}.")
    return [Status(line.encode()) for line in lines]


@command(
    "ACL|HELP",
    "CLIENT|HELP",
    "CLUSTER|HELP",
    "COMMAND|HELP",
    "CONFIG|HELP",
    "LATENCY|HELP",
    "TGROUP|HELP",
    "TINFO|HELP",
    "MEMORY|HELP",
    "SLOWLOG|HELP",
)
def help_(s: Session, argv: Argv) -> Reply:
    return help_of(argv[0].decode().upper())
