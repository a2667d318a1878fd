"""What every family of command helpers stands on: one hook, and the names of argument types.

A helper turns Python arguments into the words of a command and hands them to ``_call``, with
the function that makes a Python value of the reply. Whoever inherits the helpers decides what
a call is:

=====================  ===========================================================
a client               sends it when awaited; ``_call`` answers a coroutine
a pipeline             queues it; ``_call`` answers a placeholder
the blocking client    sends it and waits; ``_call`` answers the value itself
=====================  ===========================================================

Rules: a helper never awaits and never looks at what ``_call`` answers. ``convert`` is a pure
function of one whole reply; it is not given errors, nor the QUEUED of a transaction. It is called
through ``converted``, which turns whatever it raises into a ``ProtocolError``. Arguments that
cannot go together are refused before ``_call``. A parameter is annotated ``Key`` (or
``Mapping[KeyT, …]``) if, and only if, it names keys or shard channels: commands are routed by them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeAlias, TypeVar

from penstock.client.transports.base import Argument, Arguments
from penstock.errors import ProtocolError

T = TypeVar("T")

#: What a helper of the client answers: to be awaited, or made a task.
Coming: TypeAlias = Coroutine[Any, Any, T]

#: The name of a key, or of a shard channel.
Key: TypeAlias = Argument
#: Anything else that a command takes: a value, a member, a field, a pattern.
Value: TypeAlias = Argument
#: Keys of mappings are invariant: with these a ``dict[str, int]`` is accepted as it is.
KeyT = TypeVar("KeyT", bound=Argument)
ValueT = TypeVar("ValueT", bound=Argument)

#: An end of a list.
Side: TypeAlias = Literal["LEFT", "RIGHT"]
#: Whether memory is reclaimed at once or in the background.
FlushMode: TypeAlias = Literal["ASYNC", "SYNC"]
#: How scores of one member in several sorted sets become one.
Aggregate: TypeAlias = Literal["SUM", "MIN", "MAX"]
#: How many of the first matches to skip, and how many to answer at most (negative: all).
Limit: TypeAlias = tuple[int, int]


class Runner(ABC):
    """Whoever runs the commands that helpers put together."""

    __slots__ = ()

    @abstractmethod
    def _call(self, arguments: Arguments, convert: Callable[[Any], T] | None = None) -> Coming[T]:
        """Run a command; its reply, or what ``convert`` makes of it, is the result."""


def converted(arguments: Arguments, convert: Callable[[Any], T], reply: Any) -> T:
    """What ``convert`` makes of the reply to a command."""
    try:
        return convert(reply)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ProtocolError(f"the reply to {arguments[0]!r} has an unknown shape: {reply!r:.120}") from error
