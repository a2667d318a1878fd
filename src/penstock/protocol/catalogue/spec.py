"""What the catalogue says about one command, as frozen values.

Rules: values only; they are built by ``loader`` and read by everybody. The flags
that dispatch asks about on every command are booleans, computed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class KeySpec:
    """Where some of a command's keys stand, and what the command does with them.

    ===========  ===========================================================
    ``keyword``  one key, after the first ``keyword`` from ``start`` on
    ``counted``  argument ``start`` says how many keys follow it
    ``start=0``  no place can be named
    otherwise    arguments ``start`` to ``last``, every ``step``-th
    ===========  ===========================================================
    """

    #: Redis's words for the use of the key, such as ``("RO", "access")``.
    access: tuple[str, ...]
    start: int
    #: The last key's argument; counted from the end when negative.
    last: int = 0
    step: int = 1
    counted: bool = False
    keyword: bytes = b""

    @property
    def is_fixed(self) -> bool:
        """Whether the place follows from the number of arguments alone."""
        return self.start > 0 and not self.counted and not self.keyword

    @property
    def is_channel(self) -> bool:
        """Whether it names shard channels, which have a slot but are no keys."""
        return self.access == ("not_key",)

    @property
    def is_variable(self) -> bool:
        """Whether the use of the key depends on the command's options."""
        return "variable_flags" in self.access


#: Which attribute of ``CommandSpec`` answers for which flag.
_FLAG_ATTRIBUTES: Final = (
    ("is_write", "write"),
    ("is_readonly", "readonly"),
    ("is_admin", "admin"),
    ("is_pubsub", "pubsub"),
    ("is_blocking", "blocking"),
    ("is_fast", "fast"),
    ("denyoom", "denyoom"),
    ("noscript", "noscript"),
    ("no_auth", "no_auth"),
    ("no_multi", "no_multi"),
    ("no_mandatory_keys", "no_mandatory_keys"),
    ("movable_keys", "movablekeys"),
    ("may_replicate", "may_replicate"),
    ("allow_busy", "allow_busy"),
    ("skip_monitor", "skip_monitor"),
    ("skip_slowlog", "skip_slowlog"),
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CommandSpec:
    """The facts about one command or subcommand. Compared and hashed by identity."""

    #: The word itself in capitals: ``b"GET"``, and ``b"LIST"`` for CLIENT LIST.
    name: bytes
    #: As replies and errors spell it: ``b"get"``, ``b"client|list"``.
    full_name: bytes
    #: Arguments with the name; negative when more are allowed.
    arity: int
    flags: frozenset[str]
    group: str
    since: str
    summary: str
    key_specs: tuple[KeySpec, ...]
    #: The legacy triple. With ``movable_keys`` it covers only the keys whose place is fixed.
    first_key: int
    last_key: int
    key_step: int
    #: ACL categories without the ``@``, in the order of ``table.CATEGORIES``.
    categories: tuple[str, ...]
    tips: tuple[str, ...] = ()
    #: By name in capitals; empty unless this is a container.
    subcommands: Mapping[bytes, CommandSpec] = field(default_factory=dict)
    #: Redis version that deprecated it (empty: none), and what to write instead.
    deprecated_since: str = ""
    replaced_by: str = ""
    #: No business of applications.
    is_system: bool = False

    #: Whether any argument can be a key (shard channels are none).
    has_keys: bool = field(init=False)
    is_write: bool = field(init=False)
    is_readonly: bool = field(init=False)
    is_admin: bool = field(init=False)
    is_pubsub: bool = field(init=False)
    is_blocking: bool = field(init=False)
    is_fast: bool = field(init=False)
    denyoom: bool = field(init=False)
    noscript: bool = field(init=False)
    no_auth: bool = field(init=False)
    no_multi: bool = field(init=False)
    no_mandatory_keys: bool = field(init=False)
    movable_keys: bool = field(init=False)
    #: Not a write command, yet may write: EVAL, PUBLISH, PFCOUNT.
    may_replicate: bool = field(init=False)
    allow_busy: bool = field(init=False)
    skip_monitor: bool = field(init=False)
    skip_slowlog: bool = field(init=False)

    def __post_init__(self) -> None:
        # A frozen value is completed by the back door, here and nowhere else.
        for attribute, flag in _FLAG_ATTRIBUTES:
            object.__setattr__(self, attribute, flag in self.flags)
        object.__setattr__(self, "has_keys", any(not keys.is_channel for keys in self.key_specs))

    def __repr__(self) -> str:
        flags = " ".join(sorted(self.flags))
        return f"<CommandSpec {self.full_name.decode()} arity={self.arity} {flags}>"
