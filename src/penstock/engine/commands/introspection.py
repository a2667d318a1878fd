"""What this server knows of itself: COMMAND from the catalogue, ACL of its one user, CLUSTER without one.

There is a single user, ``default``, who may do everything; it has the password that
``requirepass`` sets, or none.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from penstock.engine.commands.arguments import syntax_error
from penstock.engine.commands.registry import Argv, command
from penstock.engine.datatypes.glob import matcher
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol import catalogue
from penstock.protocol.catalogue import CATALOGUE, CATEGORIES, CommandSpec
from penstock.protocol.replies import Reply, SetReply, Status
from penstock.protocol.slots import key_slot

# ----------------------------------------------------------------------------- COMMAND


@command("COMMAND")
def command_(s: Session, argv: Argv) -> Reply:
    return [catalogue.command_info(spec) for spec in CATALOGUE.values()]


@command("COMMAND|COUNT")
def command_count(s: Session, argv: Argv) -> Reply:
    return len(CATALOGUE)


@command("COMMAND|INFO")
def command_info(s: Session, argv: Argv) -> Reply:
    if len(argv) == 2:
        return command_(s, argv)
    specs = [catalogue.lookup_full(name) for name in argv[2:]]
    return [None if spec is None else catalogue.command_info(spec) for spec in specs]


@command("COMMAND|DOCS")
def command_docs(s: Session, argv: Argv) -> Reply:
    named = (catalogue.lookup_full(name) for name in argv[2:])
    specs = CATALOGUE.values() if len(argv) == 2 else [spec for spec in named if spec is not None]
    return {spec.full_name: catalogue.command_docs(spec) for spec in specs}


@command("COMMAND|LIST")
def command_list(s: Session, argv: Argv) -> Reply:
    specs = list(catalogue.every_command())
    if len(argv) == 2:
        return [spec.full_name for spec in specs]
    if len(argv) != 5 or argv[2].upper() != b"FILTERBY":
        raise syntax_error()
    kind, wanted = argv[3].upper(), argv[4].lower()
    if kind == b"MODULE":
        return []
    if kind == b"ACLCAT":
        return [spec.full_name for spec in _in_category(wanted)]
    if kind == b"PATTERN":
        matches = matcher(wanted)
        return [spec.full_name for spec in specs if matches(spec.full_name)]
    raise syntax_error()


@command("COMMAND|GETKEYS")
def command_getkeys(s: Session, argv: Argv) -> Reply:
    return catalogue.keys_of(argv[2:])


@command("COMMAND|GETKEYSANDFLAGS")
def command_getkeysandflags(s: Session, argv: Argv) -> Reply:
    return [
        [argv[2 + use.position], SetReply(Status(word.encode()) for word in use.access)]
        for use in catalogue.keys_and_flags(argv[2:])
    ]


def _in_category(category: bytes) -> list[CommandSpec]:
    return [spec for spec in catalogue.every_command() if category.decode("latin-1") in spec.categories]


# --------------------------------------------------------------------------------- ACL


def _password_digest(s: Session) -> bytes | None:
    password = s.engine.config.requirepass.encode("utf-8", "surrogateescape")
    return sha256(password).hexdigest().encode() if password else None


@command("ACL|WHOAMI")
def acl_whoami(s: Session, argv: Argv) -> Reply:
    return b"default"


@command("ACL|USERS")
def acl_users(s: Session, argv: Argv) -> Reply:
    return [b"default"]


@command("ACL|LIST")
def acl_list(s: Session, argv: Argv) -> Reply:
    digest = _password_digest(s)
    return [b"user default on %b ~* &* +@all" % (b"nopass" if digest is None else b"#" + digest)]


@command("ACL|GETUSER")
def acl_getuser(s: Session, argv: Argv) -> Reply:
    if argv[2] != b"default":
        return None
    digest = _password_digest(s)
    return {
        b"flags": SetReply([b"on", b"nopass"] if digest is None else [b"on"]),
        b"passwords": [] if digest is None else [digest],
        b"commands": b"+@all",
        b"keys": b"~*",
        b"channels": b"&*",
        b"selectors": [],
    }


@command("ACL|CAT")
def acl_cat(s: Session, argv: Argv) -> Reply:
    if len(argv) > 3:
        raise CommandError(
            f"ERR unknown subcommand or wrong number of arguments for '{argv[1].decode()}'. Try ACL HELP."
        )
    if len(argv) == 2:
        return [category.encode() for category in CATEGORIES]
    category = argv[2].lower()
    if category.decode("latin-1") not in CATEGORIES:
        shown = argv[2].decode("utf-8", "surrogateescape")
        raise CommandError(f"ERR Unknown category '{shown}'")
    return [spec.full_name for spec in _in_category(category)]


# ----------------------------------------------------------------------------- CLUSTER

_NO_CLUSTER: Final = "ERR This instance has cluster support disabled"


@command("CLUSTER|KEYSLOT")
def cluster_keyslot(s: Session, argv: Argv) -> Reply:
    """Answered although there is no cluster: it helps to choose hash tags."""
    return key_slot(argv[2])


@command(
    "CLUSTER|COUNTKEYSINSLOT",
    "CLUSTER|GETKEYSINSLOT",
    "CLUSTER|INFO",
    "CLUSTER|MYID",
    "CLUSTER|NODES",
    "CLUSTER|SHARDS",
    "CLUSTER|SLOTS",
)
def cluster_(s: Session, argv: Argv) -> Reply:
    raise CommandError(_NO_CLUSTER)
