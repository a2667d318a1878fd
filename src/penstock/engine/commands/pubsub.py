"""SUBSCRIBE, PUBLISH and relatives, for channels, patterns and shard channels.

The answers of the subscribe family are pushes, one a name, also in RESP2 where they
look like arrays; so the handlers return NO_REPLY.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.engine.bus.subscriptions import CHANNEL, PATTERN, SHARD
from penstock.engine.commands.help import help_of
from penstock.engine.commands.registry import Argv, command
from penstock.engine.datatypes.glob import matcher
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import NO_REPLY, Push, Reply


class _Kind(NamedTuple):
    """How one sort of subscription is kept and announced."""

    table: bytes
    attribute: str
    verb: bytes


_CHANNELS: Final = _Kind(CHANNEL, "channels", b"subscribe")
_PATTERNS: Final = _Kind(PATTERN, "patterns", b"psubscribe")
_SHARDS: Final = _Kind(SHARD, "shard_channels", b"ssubscribe")


def _count(s: Session, kind: _Kind) -> int:
    return len(s.shard_channels) if kind is _SHARDS else s.subscription_count


def _subscribe(s: Session, argv: Argv, kind: _Kind) -> Reply:
    if s.in_exec and kind is _SHARDS:
        raise CommandError("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
    names: set[bytes] = getattr(s, kind.attribute)
    for name in argv[1:]:
        if name not in names:
            s.engine.pubsub.subscribe(s, kind.table, name)
            _change(s, names.add, names.discard, name)
        s.push(Push([kind.verb, name, _count(s, kind)]))
    return NO_REPLY


def _unsubscribe(s: Session, argv: Argv, kind: _Kind) -> Reply:
    verb = kind.verb.replace(b"sub", b"unsub")
    names: set[bytes] = getattr(s, kind.attribute)
    chosen = argv[1:] or sorted(names)
    if not chosen:
        s.push(Push([verb, None, _count(s, kind)]))
    for name in chosen:
        if name in names:
            s.engine.pubsub.unsubscribe(s, kind.table, name)
            _change(s, names.discard, names.add, name)
        s.push(Push([verb, name, _count(s, kind)]))
    return NO_REPLY


def _change(s: Session, do: Callable[[bytes], None], undo: Callable[[bytes], None], name: bytes) -> None:
    """Change one of the session's sets in place, which may be large, so that it can be taken back."""

    def take_back() -> None:
        undo(name)
        s.refresh_gate()

    do(name)
    s.refresh_gate()
    s.remember(take_back)


@command("SUBSCRIBE")
def subscribe(s: Session, argv: Argv) -> Reply:
    return _subscribe(s, argv, _CHANNELS)


@command("PSUBSCRIBE")
def psubscribe(s: Session, argv: Argv) -> Reply:
    return _subscribe(s, argv, _PATTERNS)


@command("SSUBSCRIBE")
def ssubscribe(s: Session, argv: Argv) -> Reply:
    return _subscribe(s, argv, _SHARDS)


@command("UNSUBSCRIBE")
def unsubscribe(s: Session, argv: Argv) -> Reply:
    return _unsubscribe(s, argv, _CHANNELS)


@command("PUNSUBSCRIBE")
def punsubscribe(s: Session, argv: Argv) -> Reply:
    return _unsubscribe(s, argv, _PATTERNS)


@command("SUNSUBSCRIBE")
def sunsubscribe(s: Session, argv: Argv) -> Reply:
    return _unsubscribe(s, argv, _SHARDS)


@command("PUBLISH")
def publish(s: Session, argv: Argv) -> Reply:
    return s.engine.pubsub.publish(argv[1], argv[2])


@command("SPUBLISH")
def spublish(s: Session, argv: Argv) -> Reply:
    return s.engine.pubsub.publish_shard(argv[1], argv[2])


def unsubscribe_everything(s: Session) -> None:
    """Without telling the client; for RESET."""
    for kind in (_CHANNELS, _PATTERNS, _SHARDS):
        for name in getattr(s, kind.attribute):
            s.engine.pubsub.unsubscribe(s, kind.table, name)
        s.assign(**{kind.attribute: set()})


# --------------------------------------------------------------------- introspection


def _names(s: Session, argv: Argv, kind: bytes) -> Reply:
    if len(argv) > 3:
        word = argv[1].decode("utf-8", "surrogateescape")
        raise CommandError(
            f"ERR unknown subcommand or wrong number of arguments for '{word}'. Try PUBSUB HELP."
        )
    names = s.engine.pubsub.subscriptions.names(kind)
    if len(argv) == 2:
        return names
    matches = matcher(argv[2])
    return [name for name in names if matches(name)]


def _listener_counts(s: Session, argv: Argv, kind: bytes) -> Reply:
    reply: list[Reply] = []
    for name in argv[2:]:
        reply += (name, len(s.engine.pubsub.subscriptions.listeners(kind, name)))
    return reply


@command("PUBSUB|CHANNELS")
def pubsub_channels(s: Session, argv: Argv) -> Reply:
    return _names(s, argv, CHANNEL)


@command("PUBSUB|SHARDCHANNELS")
def pubsub_shardchannels(s: Session, argv: Argv) -> Reply:
    return _names(s, argv, SHARD)


@command("PUBSUB|NUMSUB")
def pubsub_numsub(s: Session, argv: Argv) -> Reply:
    return _listener_counts(s, argv, CHANNEL)


@command("PUBSUB|SHARDNUMSUB")
def pubsub_shardnumsub(s: Session, argv: Argv) -> Reply:
    return _listener_counts(s, argv, SHARD)


@command("PUBSUB|NUMPAT")
def pubsub_numpat(s: Session, argv: Argv) -> Reply:
    return s.engine.pubsub.pattern_count()


@command("PUBSUB|HELP")
def pubsub_help(s: Session, argv: Argv) -> Reply:
    return help_of("PUBSUB")
