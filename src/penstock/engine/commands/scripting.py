"""EVAL, EVALSHA, their read-only twins, and SCRIPT."""

from __future__ import annotations

from typing import Final

from penstock.engine.commands.arguments import integer
from penstock.engine.commands.help import help_of
from penstock.engine.commands.registry import Argv, command
from penstock.engine.scripts import SHA1_HEX_BYTES
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import OK, Reply

_NO_SCRIPT: Final = "NOSCRIPT No matching script. Please use EVAL."
#: The numbers of keys that nearly all calls have, as they are written.
_FEW: Final = {b"%d" % count: count for count in range(10)}


def _split(argv: Argv) -> tuple[list[bytes], list[bytes]]:
    """KEYS and ARGV of a call."""
    count = _FEW.get(argv[2])
    if count is None:
        count = integer(argv[2])
    if count > len(argv) - 3:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    if count < 0:
        raise CommandError("ERR Number of keys can't be negative")
    return argv[3 : 3 + count], argv[3 + count :]


def _eval(s: Session, argv: Argv, readonly: bool) -> Reply:
    keys, args = _split(argv)
    scripts = s.engine.scripts
    return scripts.run(s, scripts.load(argv[1]), keys, args, readonly)


def _evalsha(s: Session, argv: Argv, readonly: bool) -> Reply:
    # What cannot be a sha1 is refused before the number of keys is looked at.
    if len(argv[1]) != SHA1_HEX_BYTES:
        raise CommandError(_NO_SCRIPT)
    keys, args = _split(argv)
    scripts = s.engine.scripts
    script = scripts.find(argv[1])
    if script is None:
        raise CommandError(_NO_SCRIPT)
    return scripts.run(s, script, keys, args, readonly)


@command("EVAL")
def eval_(s: Session, argv: Argv) -> Reply:
    return _eval(s, argv, readonly=False)


@command("EVAL_RO")
def eval_ro(s: Session, argv: Argv) -> Reply:
    return _eval(s, argv, readonly=True)


@command("EVALSHA")
def evalsha(s: Session, argv: Argv) -> Reply:
    return _evalsha(s, argv, readonly=False)


@command("EVALSHA_RO")
def evalsha_ro(s: Session, argv: Argv) -> Reply:
    return _evalsha(s, argv, readonly=True)


@command("SCRIPT|LOAD")
def script_load(s: Session, argv: Argv) -> Reply:
    return s.engine.scripts.load(argv[2]).sha1


@command("SCRIPT|EXISTS")
def script_exists(s: Session, argv: Argv) -> Reply:
    return [int(s.engine.scripts.exists(digest)) for digest in argv[2:]]


@command("SCRIPT|FLUSH")
def script_flush(s: Session, argv: Argv) -> Reply:
    if len(argv) > 3 or (len(argv) == 3 and argv[2].upper() not in (b"ASYNC", b"SYNC")):
        raise CommandError("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    s.engine.scripts.flush()
    return OK


@command("SCRIPT|KILL")
def script_kill(s: Session, argv: Argv) -> Reply:
    # A command only runs while no script does; a busy server answers SCRIPT KILL by itself.
    return s.engine.scripts.kill_running()


@command("SCRIPT|DEBUG")
def script_debug(s: Session, argv: Argv) -> Reply:
    if argv[2].upper() not in (b"YES", b"NO", b"SYNC"):
        raise CommandError("ERR Use SCRIPT DEBUG YES/SYNC/NO")
    if argv[2].upper() != b"NO":
        raise CommandError("ERR SCRIPT DEBUG is not supported: there is no script debugger here")
    return OK


@command("SCRIPT|HELP")
def script_help(s: Session, argv: Argv) -> Reply:
    return help_of("SCRIPT")
