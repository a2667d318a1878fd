"""Which function answers which command. Handlers register here; the dispatcher reads.

A handler takes the session and the whole argument vector (command name included) and
returns a reply value or raises :class:`CommandError`. Arity was checked before, from
the catalogue. Rules for handlers:

1. Validate everything, then write: an error must leave nothing behind.
2. Reach keys through ``s.ks`` only, and tell observers with ``s.ks.changed``.
3. Never keep records, collections or cursors beyond the call.

Subcommands register as ``"CLIENT|LIST"``. A blocking command registers its *attempt*
as well: what can be tried again, by any process, when one of its keys becomes ready.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.protocol.replies import Reply

if TYPE_CHECKING:
    from penstock.engine.keyspace import Keyspace
    from penstock.engine.session import Session

Argv: TypeAlias = list[bytes]
Handler: TypeAlias = "Callable[[Session, Argv], Reply]"


@dataclass(frozen=True, slots=True)
class Served:
    """What an attempt gave a blocked client.

    ``restore`` are the commands that put the elements back if the client's process
    turns out to have died before it took the reply.
    """

    reply: Reply
    restore: tuple[Argv, ...] = ()


Attempt: TypeAlias = "Callable[[Keyspace, Argv], Served | None]"

HANDLERS: Final[dict[bytes, Handler]] = {}
ATTEMPTS: Final[dict[bytes, Attempt]] = {}


def command(*names: str) -> Callable[[Handler], Handler]:
    """Register the function as the handler of these commands."""

    def register(handler: Handler) -> Handler:
        for name in names:
            assert name.encode() not in HANDLERS, f"two handlers for {name}"
            HANDLERS[name.encode()] = handler
        return handler

    return register


def attempt(*names: str) -> Callable[[Attempt], Attempt]:
    """Register the function as what a blocked client of these commands is waiting to do."""

    def register(function: Attempt) -> Attempt:
        for name in names:
            ATTEMPTS[name.encode()] = function
        return function

    return register


def run_blocking(s: Session, argv: Argv, keys: list[bytes], timeout_ms: int, empty: Any) -> Reply:
    """Try at once; where nothing is ready, wait (``timeout_ms`` 0 = for ever) or answer ``empty``."""
    served = ATTEMPTS[argv[0].upper()](s.ks, argv)
    if served is not None:
        return served.reply
    if s.may_not_block:
        return empty
    return s.block(argv, keys, timeout_ms, empty)
