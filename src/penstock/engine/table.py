"""The command table: what a name and its arguments stand for, ready to be called.

Catalogue facts and handlers meet here. Lookups never raise: what cannot be called
resolves to a :class:`Refusal`, whose handler answers why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.engine.commands.registry import HANDLERS, Argv, Handler
from penstock.errors import CommandError
from penstock.protocol import catalogue
from penstock.protocol.catalogue import CommandSpec
from penstock.protocol.replies import Reply

if TYPE_CHECKING:
    from penstock.engine.session import Session

#: Not writes by the catalogue, yet they change tables of the store.
_WRITES_TOO: Final = frozenset(
    {b"EVAL", b"EVALSHA", b"EXEC", b"WATCH", b"SCRIPT|LOAD", b"SCRIPT|FLUSH", b"CONFIG|SET", b"RESET",
     b"SUBSCRIBE", b"UNSUBSCRIBE", b"PSUBSCRIBE", b"PUNSUBSCRIBE", b"SSUBSCRIBE", b"SUNSUBSCRIBE",
     b"CLIENT|UNBLOCK", b"CLIENT|TRACKING", b"FLUSHALL", b"FLUSHDB"}
)  # fmt: skip
#: Writes by the catalogue, yet most of them only read: these turn to writing when they have to.
_READS_AT_FIRST: Final = frozenset({b"TREAD"})
#: They store scripts or messages, or run who knows what.
_NEEDS_ROOM_TOO: Final = frozenset({b"EVAL", b"EVALSHA", b"SCRIPT|LOAD", b"PUBLISH", b"SPUBLISH"})
_SCRIPTS: Final = frozenset({b"EVAL", b"EVALSHA", b"EVAL_RO", b"EVALSHA_RO", b"EXEC"})
_ENDLESS: Final = 1 << 30


class Entry:
    """A command ready to be called. ``name`` is as ``CLIENT|LIST``."""

    __slots__ = (
        "handler",
        "is_script",
        "least",
        "most",
        "name",
        "needs_room",
        "only_reads",
        "spec",
        "subcommands",
        "tells_keys",
        "writes",
    )

    def __init__(self, name: bytes, spec: CommandSpec, handler: Handler | None) -> None:
        self.name = name
        self.spec = spec
        # EXEC with arguments ends its transaction, so its handler must see it.
        arity = -1 if name == b"EXEC" else spec.arity
        #: how many words it takes, its name included
        self.least, self.most = (arity, arity) if arity > 0 else (-arity, _ENDLESS)
        self.subcommands: dict[bytes, Entry] = {}
        self.handler: Handler = handler or self._only_a_container
        writes = spec.is_write or spec.is_blocking or name in _WRITES_TOO
        #: whether it is begun in a transaction that writes
        self.writes = writes and name not in _READS_AT_FIRST
        self.needs_room = spec.denyoom or name in _NEEDS_ROOM_TOO
        self.is_script = name in _SCRIPTS
        #: whether it surely leaves nothing behind that would have to be undone
        self.only_reads = spec.is_readonly and not spec.may_replicate and not self.is_script
        #: whether who tracks keys must be told later that those of this command changed
        self.tells_keys = spec.is_readonly and not self.is_script

    def _only_a_container(self, s: Session, argv: Argv) -> Reply:
        raise catalogue.arity_error(self.spec.full_name)


class Refusal(Entry):
    """Stands for a command that cannot be called; answers the reason."""

    __slots__ = ("error",)

    def __init__(self, error: CommandError) -> None:
        self.name = b""
        self.least, self.most = 1, _ENDLESS
        self.subcommands = {}
        self.writes = self.needs_room = self.is_script = self.tells_keys = self.only_reads = False
        self.error = error
        self.handler = self._refuse

    def _refuse(self, s: Session, argv: Argv) -> Reply:
        raise self.error


class CommandTable:
    """Every command that has a handler."""

    def __init__(self) -> None:
        #: by upper-case and by lower-case name
        self.entries: dict[bytes, Entry] = {}
        #: those of ``entries`` that name and number of words settle: what the hot path looks at
        self.simple: dict[bytes, Entry] = {}
        for name, spec in catalogue.CATALOGUE.items():
            entry = self._build(name, spec)
            if name in HANDLERS or entry.subcommands:
                self.entries[name] = self.entries[name.lower()] = entry
                if not entry.subcommands:
                    self.simple[name] = self.simple[name.lower()] = entry

    @staticmethod
    def _build(name: bytes, spec: CommandSpec) -> Entry:
        entry = Entry(name, spec, HANDLERS.get(name))
        for sub in spec.subcommands.values():
            full_name = sub.full_name.upper()
            if full_name in HANDLERS:
                entry.subcommands[sub.name] = Entry(full_name, sub, HANDLERS[full_name])
        return entry

    def resolve(self, argv: Argv) -> Entry:
        """The entry of a command; a refusal where name or number of words is wrong."""
        name = argv[0]
        entry = self.entries.get(name) or self.entries.get(name.upper())
        if entry is None:
            return Refusal(catalogue.unknown_command(argv))
        if entry.subcommands and len(argv) > 1:
            sub = entry.subcommands.get(argv[1].upper())
            if sub is None:
                return Refusal(catalogue.unknown_subcommand(name, argv[1]))
            entry = sub
        if not entry.least <= len(argv) <= entry.most:
            return Refusal(catalogue.arity_error(entry.spec.full_name))
        return entry

    def is_known(self, argv: Argv) -> bool:
        """Whether there is a command of this name, whatever its arguments."""
        entry = self.entries.get(argv[0].upper())
        return entry is not None and not (
            entry.subcommands and argv[1:2] and argv[1].upper() not in entry.subcommands
        )
