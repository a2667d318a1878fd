"""When two replies say the same, and what is known to differ.

Equal replies always agree. Where Redis promises less than one exact reply, a rule of
:data:`RULES` says what it does promise: members of a set in any order, a time to live
within two seconds. Where we differ from Redis on purpose, :data:`DEVIATIONS` says why; it
is the complete list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tests.model.scripts import SCRIPT_CALLS, answers_array, inner_calls
from tests.model.templates import Argv
from tests.model.wire import NULL_BULK, Typed, is_error

Rule: TypeAlias = Callable[[Argv, Any, Any], bool]

#: How far two times to live may be apart: the servers are asked one after the other.
_TOLERANCE_S: Final = 2


def agree(argv: Argv, ours: Any, real: Any, inner: Sequence[Argv] = ()) -> bool:
    """Whether both replies to a command are right. ``inner`` are the commands inside it (EXEC)."""
    if ours == real:
        return True
    calls = inner_calls(argv)
    if calls is not None and not answers_array(argv):
        return agree_at_all(calls[0], ours, real)
    if is_error(ours) or is_error(real):
        return False
    name = argv[0].upper()
    if name == b"EXEC" or calls is not None:
        return (
            isinstance(ours, list)
            and isinstance(real, list)
            and len(ours) == len(real) == len(calls or inner)
            and all(map(agree_at_all, calls or inner, ours, real))
        )
    rule = RULES.get(name)
    return rule is not None and rule(argv, ours, real)


def agree_at_all(argv: Argv, ours: Any, real: Any, inner: Sequence[Argv] = ()) -> bool:
    """As :func:`agree`, known deviations included."""
    return agree(argv, ours, real, inner) or any(
        deviation.covers(argv, ours, real) for deviation in DEVIATIONS
    )


# --------------------------------------------------------------------------------- rules


def in_any_order(_: Argv, ours: Any, real: Any) -> bool:
    one, other = items_of(ours), items_of(real)
    return type(ours) is type(real) and one is not None and other is not None and sort(one) == sort(other)


def pairs_in_any_order(argv: Argv, ours: Any, real: Any) -> bool:
    """Flat in RESP2, a map or pairs in RESP3; random picks have pairs only if asked for them."""
    is_paired = argv[0].upper() == b"HGETALL" or len(argv) > 3
    if is_paired and is_flat(ours) and is_flat(real):
        return len(ours) == len(real) and sort(pairs(ours)) == sort(pairs(real))
    return in_any_order(argv, ours, real)


def is_flat(reply: Any) -> bool:
    return isinstance(reply, list) and not any(isinstance(item, list) for item in reply)


def nearly(tolerance: int) -> Rule:
    def rule(_: Argv, ours: Any, real: Any) -> bool:
        return (
            isinstance(ours, int)
            and isinstance(real, int)
            and min(ours, real) >= 0
            and (abs(ours - real) <= tolerance)
        )

    return rule


def same_kind(_: Argv, ours: Any, real: Any) -> bool:
    return type(ours) is type(real) and not isinstance(ours, Typed | list)


def _sorted_elements(argv: Argv, ours: Any, real: Any) -> bool:
    """SORT: elements of a set in no order, or of equal weight under ALPHA, come as they come."""
    words = [word.upper() for word in argv]
    if b"BY" not in words and b"NOSORT" not in words:
        return False
    if b"LIMIT" in words or words.count(b"GET") > 1:
        return isinstance(ours, list) and isinstance(real, list) and len(ours) == len(real)
    return in_any_order(argv, ours, real)


def _found_places(argv: Argv, ours: Any, real: Any) -> bool:
    """GEOSEARCH and relatives: in order only where asked for; ANY takes whatever it finds first."""
    words = [word.upper() for word in argv]
    if b"ANY" in words:
        return isinstance(ours, list) and isinstance(real, list) and len(ours) == len(real)
    if b"ASC" in words or b"DESC" in words or b"COUNT" in words:
        return False
    return in_any_order(argv, ours, real)


def items_of(reply: Any) -> list[Any] | None:
    value = reply.value if isinstance(reply, Typed) else reply
    return value if isinstance(value, list) else None


def pairs(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=False))


def sort(items: list[Any]) -> list[Any]:
    return sorted(items, key=repr)


_UNORDERED: Final = b"KEYS SMEMBERS SUNION SINTER SDIFF HKEYS HVALS SPOP SRANDMEMBER".split()
_UNORDERED_PAIRS: Final = b"HGETALL HRANDFIELD ZRANDMEMBER".split()
_GEO: Final = b"GEOSEARCH GEORADIUS GEORADIUSBYMEMBER GEORADIUS_RO GEORADIUSBYMEMBER_RO".split()

RULES: Final[dict[bytes, Rule]] = {
    **dict.fromkeys(_UNORDERED, in_any_order),
    **dict.fromkeys(_UNORDERED_PAIRS, pairs_in_any_order),
    **dict.fromkeys((b"TTL", b"EXPIRETIME"), nearly(_TOLERANCE_S)),
    **dict.fromkeys((b"PTTL", b"PEXPIRETIME"), nearly(_TOLERANCE_S * 1000)),
    **dict.fromkeys((b"SORT", b"SORT_RO"), _sorted_elements),
    **dict.fromkeys(_GEO, _found_places),
    # Payloads differ by encoding; what they restore to is compared (see ``pair``).
    b"DUMP": same_kind,
    # Bytes of our rows, not of Redis's memory.
    b"MEMORY": same_kind,
}


# ---------------------------------------------------------------------------- deviations


class Deviation(NamedTuple):
    """Where we answer something else than Redis 7.0, and why that is right."""

    reason: str
    covers: Rule


def _encoding_by_history(argv: Argv, ours: Any, real: Any) -> bool:
    return argv[0].upper() == b"OBJECT" and isinstance(ours, bytes) and isinstance(real, bytes)


def without_negative_zero(reply: Any) -> Any:
    """A reply of a sorted set with its scores as we would give them."""
    if isinstance(reply, list):
        return [without_negative_zero(item) for item in reply]
    return b"0" if reply == b"-0" else reply


def _negative_zero(argv: Argv, ours: Any, real: Any) -> bool:
    is_about_scores = argv[0].upper().startswith((b"Z", b"BZ"))
    return is_about_scores and without_negative_zero(ours) == without_negative_zero(real)


def _least_rank(argv: Argv, ours: Any, real: Any) -> bool:
    return argv[0].upper() == b"LPOS" and b"-9223372036854775808" in argv


def _extreme_timeout(argv: Argv, ours: Any, real: Any) -> bool:
    return (
        argv[0].upper().startswith(b"B")
        and real == Typed("-", b"ERR timeout is negative")
        and is_error(ours)
        and ours.value.startswith(b"ERR timeout is")
    )


def _expired_memory(argv: Argv, ours: Any, real: Any) -> bool:
    return argv[0].upper() == b"MEMORY" and ours in (None, NULL_BULK) and isinstance(real, int)


#: Every reply that may differ from Redis 7.0.
#:
#: Some deviations are in what is stored, or in who is told; looking at replies cannot make up
#: for them, so that random commands keep away from them:
#:
#: * members of a sorted set of 450 bytes or more with equal scores and equal first 418 bytes
#:   are ordered by digest (the long names in ``pools`` are in the same order either way);
#: * a script that fails has done nothing; Redis leaves what it did (``scripts``);
#: * RESTORE with a time to live beyond the year 292 million keeps the key; Redis adds the present
#:   time, overflows, and the key is gone at once (``pair``);
#: * PFADD and PFMERGE that meet a corrupt value do nothing; Redis leaves what it did before
#:   (:func:`stops_halfway` ends a comparison);
#: * PFCOUNT keeps its count in the value only beside a write, and nobody who watches the key
#:   notices; Redis does it always, as a change (``pair``);
#: * a key past its deadline is gone, and told as expired, even if a command would have deleted
#:   it; Redis tells whichever happens first (``chance.is_born_expired``);
#: * who blocks on a key is served when SORT STORE, ZUNIONSTORE and the like replace a value of
#:   another type there; Redis 7.0 forgets him (``test_blocking``);
#: * keys that change their type inside a transaction become ready in the order of the first
#:   change, in Redis of the first one that somebody waited for (``waiting_room``).
#:
#: And some things are left to chance by Redis itself: see ``chance``, and the order in which
#: several keys that one client waits for become ready by SWAPDB.
DEVIATIONS: Final = (
    Deviation("a score of -0 is stored as 0: both are one place in the order", _negative_zero),
    Deviation("LPOS with the least rank there is: Redis negates it, which overflows", _least_rank),
    Deviation("a timeout that is too large is called so; Redis 7.0 calls it negative", _extreme_timeout),
    Deviation("MEMORY USAGE of a key that has expired but was not removed yet is null", _expired_memory),
    Deviation(
        "OBJECT ENCODING looks at the content alone; Redis remembers what a value once was",
        _encoding_by_history,
    ),
)


def stops_halfway(argv: Argv, real: Any, inner: Sequence[Argv] = ()) -> bool:
    """Whether Redis stopped half-way, where we do nothing: it met a corrupt HyperLogLog."""
    name = argv[0].upper()
    if name == b"EXEC" and isinstance(real, list):
        return any(map(stops_halfway, inner, real))
    return (name in (b"PFADD", b"PFMERGE") or name in SCRIPT_CALLS) and _tells_corrupt(real)


def _tells_corrupt(reply: Any) -> bool:
    if isinstance(reply, list):
        return any(map(_tells_corrupt, reply))
    text = reply.value if is_error(reply) else reply
    return isinstance(text, bytes) and text.startswith(b"INVALIDOBJ")
