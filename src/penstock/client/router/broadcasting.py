"""Commands about a whole cluster: sent to every primary, answered as one.

Which commands these are, and how their replies become one, is what the catalogue says
(``request_policy``, ``response_policy``), as Redis itself describes them:

=====================  ==================================================
``all_succeeded``      the first reply; an error if there is one
``one_succeeded``      the first that is no error
``agg_sum``            the sum
``agg_logical_and``    position by position, what all say
no policy              one list of all
=====================  ==================================================

Left out: PING, which is for one connection, and what counts a connection's own writes
(WAIT). Replies that cannot be one (INFO, MEMORY STATS) come from one node.

Rules: decides and merges, sends nothing. A broadcast is not atomic, and what ran on some
primaries stays when others fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.client.facts import to_bytes
from penstock.client.router.splitting import Merge
from penstock.client.transports.base import Arguments
from penstock.protocol.catalogue import CommandSpec, every_command
from penstock.protocol.replies import Reply

_NOT_THESE: Final = frozenset({"ping", "wait", "randomkey"})
#: Not in the catalogue.
_FUNCTIONS: Final = "function|load function|delete function|flush function|restore"


def _first(replies: Sequence[Reply]) -> Reply:
    return replies[0]


def _all(replies: Sequence[Reply]) -> Reply:
    return [int(all(column)) for column in zip(*replies, strict=True)]


def _joined(replies: Sequence[Reply]) -> Reply:
    return [item for reply in replies for item in reply]


_POLICIES: Final[dict[str, Callable[[Sequence[Reply]], Reply]]] = {
    "all_succeeded": _first,
    "agg_sum": sum,
    "agg_logical_and": _all,
    "": _joined,
}


def merge_of(arguments: Arguments) -> Merge | None:
    """How the replies of all primaries become one; None: the command is for one server."""
    name = to_bytes(arguments[0]).upper()
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name not in _CONTAINERS or len(arguments) == 1:
        return None
    return _BY_NAME.get(name + b"|" + to_bytes(arguments[1]).upper())


def _unless_failed(merge: Callable[[Sequence[Reply]], Reply]) -> Merge:
    def merge_all(replies: Sequence[Reply]) -> Reply:
        return next((reply for reply in replies if isinstance(reply, Exception)), None) or merge(replies)

    return merge_all


def _one_succeeded(replies: Sequence[Reply]) -> Reply:
    return next((reply for reply in replies if not isinstance(reply, Exception)), replies[0])


def _tip(spec: CommandSpec, name: str) -> str:
    return next((tip.partition(":")[2] for tip in spec.tips if tip.startswith(name)), "")


def _table() -> dict[bytes, Merge]:
    table = {name.encode().upper(): _unless_failed(_first) for name in _FUNCTIONS.split()}
    for spec in every_command():
        name = spec.full_name.decode()
        policy = _tip(spec, "response_policy")
        if _tip(spec, "request_policy") not in ("all_shards", "all_nodes") or name in _NOT_THESE:
            continue
        if policy == "one_succeeded":
            table[spec.full_name.upper()] = _one_succeeded
        elif policy in _POLICIES:
            table[spec.full_name.upper()] = _unless_failed(_POLICIES[policy])
    return table


_BY_NAME: Final = _table()
_CONTAINERS: Final = frozenset(name.partition(b"|")[0] for name in _BY_NAME if b"|" in name)
