"""What may differ where Valkey stands in for Redis 7.0, the server we follow.

1. Errors have other texts: any two errors are alike.
2. Doubles are printed with as few digits as will do: numbers are compared, not digits.
3. Arguments are checked more strictly, or in another order, so that one side refuses what
   the other accepts. That ends a comparison: from then on the stores may differ.
4. LIMIT with a negative offset begins at the first element; in Redis nothing is in it. That
   ends a comparison too.
5. A blocked command is run again as a whole when one of its keys is ready; tests of
   blocked clients need Redis.
"""

from __future__ import annotations

from itertools import pairwise, zip_longest
from typing import Any

from tests.model.templates import Argv
from tests.model.wire import Typed, is_error

_ANY_ERROR = Typed("-", b"")


def respell(reply: Any) -> Any:
    """A reply with errors without their texts, and numbers spelled in one way."""
    if isinstance(reply, list):
        return [respell(item) for item in reply]
    if isinstance(reply, dict):
        return {key: respell(value) for key, value in reply.items()}
    if isinstance(reply, Typed):
        return _ANY_ERROR if is_error(reply) else Typed(reply.mark, respell(reply.value))
    if isinstance(reply, tuple):
        return tuple(respell(item) for item in reply)
    if isinstance(reply, bytes):
        try:
            return repr(float(reply) + 0.0).encode()
        except ValueError:
            return reply
    return reply


def may_differ(argv: Argv, ours: Any, real: Any) -> bool:
    """Whether what both sides did may rightly be different."""
    words = [word.upper() for word in argv]
    has_negative_offset = any(option == b"LIMIT" and at.startswith(b"-") for option, at in pairwise(words))
    return has_negative_offset or one_refuses(ours, real)


def one_refuses(ours: Any, real: Any) -> bool:
    """Whether one side refused what the other did, somewhere in these replies."""
    if isinstance(ours, list) and isinstance(real, list):
        return any(one_refuses(one, other) for one, other in zip_longest(ours, real))
    return is_error(ours) != is_error(real)
