"""Our engine and a real server side by side: every command goes to both, every reply is compared.

Some commands need more than that:

===================  ========================================================================
SCAN, HSCAN, …       a whole iteration on each side; what was found is compared
SPOP                 ours chooses; the real server must have had the members, and loses them
SRANDMEMBER, …       both choose; ours must be a possible choice
PFCOUNT              ours runs beside a write: the count is kept in the value only if
                     that costs no transaction, and Redis always keeps it, which
                     those who watch the key notice; with several clients it gets its
                     key twice, then nobody keeps anything
DBSIZE               expired keys are removed first, since it counts them until somebody looks
SORT                 the real server gets a SCAN first: 7.0 looks at an errno that a
                     huge cursor may have left behind
``@TRANSFER``        one side dumps a key, both restore it
``@UNDONE``          ours runs commands in a script that fails: nothing may come of them
===================  ========================================================================

At the end :meth:`Pair.compare_keyspaces` reads everything from both sides, passes dumps
each way, and checks that our store holds together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, cast

from penstock.engine import Engine
from penstock.engine.check import check_store
from penstock.testing.servers import RealServer
from tests.model.chance import (
    ALL,
    CHOICES,
    SCANS,
    counting_twice,
    is_born_expired,
    leaves_chance,
    whole_number,
    without_chance,
)
from tests.model.comparing import (
    agree_at_all,
    items_of,
    pairs,
    sort,
    stops_halfway,
    without_negative_zero,
)
from tests.model.scripts import BY_DIGEST, UNDONE
from tests.model.sides import Bare, Listeners, Local, Real, Side, run_together
from tests.model.templates import Argv
from tests.model.valkey import may_differ, respell
from tests.model.wire import Typed, is_error

#: Sent inside MULTI only, where they do not block.
_BLOCKING: Final = frozenset(b"BLPOP BRPOP BLMOVE BRPOPLPUSH BLMPOP BZPOPMIN BZPOPMAX BZMPOP".split())
_QUEUE_CHANGING: Final = frozenset((b"MULTI", b"EXEC", b"DISCARD"))
#: An iteration of a few hundred elements one by one is shorter.
_SCAN_LIMIT: Final = 2000
_DATABASES: Final = 16
#: Redis overflows when it adds the present time to more (see ``comparing.DEVIATIONS``).
_LONGEST_LIFE_MS: Final = 1 << 62
#: Where dumps are tried out; no command of the grammar comes here.
_SPARE_DATABASE: Final = b"15"

_QUEUED: Final = Typed("+", b"QUEUED")
_OK: Final = Typed("+", b"OK")


class EndOfComparison(Exception):  # noqa: N818  (no error: all is well so far)
    """From here on both sides may rightly differ."""


class Connection:
    """One client, of both sides at once."""

    def __init__(self, ours: Side, real: Real) -> None:
        self.ours = ours
        self.real = real
        #: commands between MULTI and EXEC
        self.queue: list[Argv] | None = None

    def close(self) -> None:
        self.ours.close()
        self.real.close()


Call: TypeAlias = tuple[Connection, Argv]


class Pair:
    """Both servers, with as many clients as a test needs."""

    def __init__(self, engine: Engine, server: RealServer, resp: int, connections: int = 1) -> None:
        self._engine = engine
        self._server = server
        engine.duties.active_expire = False
        self._is_valkey = server.kind == "valkey"
        self._watcher = Connection(Bare(engine), Real(server, 2))
        self._watcher.real.run([[b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0"]])
        self.connections = [
            Connection(
                Local(engine) if (resp, connections) == (3, 1) else Bare(engine, resp), Real(server, resp)
            )
            for _ in range(connections)
        ]
        for side in (self._watcher.ours, self._watcher.real):
            side.run([[b"SCRIPT", b"LOAD", script] for script in BY_DIGEST.values()])
        self._listeners: Listeners | None = None
        self._history: list[tuple[int, Argv]] = []
        self.compared = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Compare what is told about keys too."""
        self._listeners = Listeners(self._engine, self._server)
        try:
            yield
        finally:
            self._listeners.close()
            self._listeners = None

    def close(self) -> None:
        for connection in (*self.connections, self._watcher):
            connection.close()

    def reset(self) -> None:
        """Empty stores and fresh clients."""
        for connection in self.connections:
            connection.queue = None
            for side in (connection.ours, connection.real):
                side.run([[b"DISCARD"]])
                side.run([[b"UNWATCH"], [b"SELECT", b"0"], [b"FLUSHALL"]])
        self._history = []
        if self._listeners is not None:
            self._listeners.hear()

    # ----------------------------------------------------------------------------- running

    def run(self, calls: Sequence[tuple[int, Argv]]) -> None:
        """Let clients run some commands, in one transaction of our engine as far as that is possible."""
        batch: list[Call] = []
        for number, argv in calls:
            client = self.connections[number]
            queued = client.queue is not None
            if leaves_chance(argv) or (argv[0].upper() in _BLOCKING and not queued):
                continue
            if self._listeners is not None and is_born_expired(argv):
                continue  # what is told when it goes depends on who finds out
            if queued:
                argv = without_chance(argv)
            self._history.append((number, argv))
            special = None if queued else self._special(argv)
            if special is None and argv[0].upper() not in _QUEUE_CHANGING:
                batch.append((client, argv))
                continue
            self._run_batch(batch)
            batch = []
            if special is None:
                self._run_batch([(client, argv)])
            else:
                special(client, argv)
                self.compared += 1
            self._compare_events(argv)
        self._run_batch(batch)
        self._compare_events([])

    def _compare_events(self, argv: Argv) -> None:
        if self._listeners is None:
            return
        ours, real = self._listeners.hear()
        # The real server did not pop by chance; it removed what ours had popped.
        if ours != real and argv[:1] not in ([b"SPOP"], [b"spop"]):
            self.fail(f"ours told {shorten(ours)}\nreal told {shorten(real)}")

    def _run_batch(self, batch: list[Call]) -> None:
        if not batch:
            return
        ours = run_ours(batch)
        for (client, argv), one in zip(batch, ours, strict=True):
            other = client.real.run([argv])[0]
            inner = client.queue or ()
            self._check(argv, one, other, inner)
            self._follow_queue(client, argv, other)
            if stops_halfway(argv, other, inner):
                raise EndOfComparison
        self.compared += len(batch)

    def _follow_queue(self, client: Connection, argv: Argv, reply: Any) -> None:
        name = argv[0].upper()
        if name == b"MULTI" and reply == _OK:
            client.queue = []
        elif name == b"EXEC" or (name == b"DISCARD" and reply == _OK):
            client.queue = None  # even if EXEC was refused
        elif reply == _QUEUED and client.queue is not None:
            client.queue.append(argv)

    def _check(self, argv: Argv, ours: Any, real: Any, inner: Sequence[Argv] = ()) -> None:
        if self._is_valkey:
            ours, real = respell(ours), respell(real)
            if ours != real and may_differ(argv, ours, real):
                raise EndOfComparison
        if not agree_at_all(argv, ours, real, inner):
            self.fail(f"ours: {shorten(ours)}\nreal: {shorten(real)}")

    def fail(self, difference: str) -> None:
        said = "\n".join(
            f"  {number}> {' '.join(map(shorten, listed(argv)))}" for number, argv in self._history
        )
        raise AssertionError(f"the servers differ after\n{said}\n{difference}")

    # ------------------------------------------------------------------------ special ones

    def _special(self, argv: Argv) -> Any:
        name = argv[0].upper()
        if name in SCANS:
            return self._scan
        if name in CHOICES:
            return self._choose
        return {
            b"SPOP": self._spop,
            b"RANDOMKEY": self._random_key,
            b"DBSIZE": self._count_keys,
            b"PFCOUNT": self._count_elements,
            b"SORT": self._sort,
            b"SORT_RO": self._sort,
            b"@TRANSFER": self._transfer,
            b"@UNDONE": self._undo,
        }.get(name)

    def _both(self, client: Connection, argv: Argv) -> tuple[Any, Any]:
        return client.ours.run([argv])[0], client.real.run([argv])[0]

    def _scan(self, client: Connection, argv: Argv) -> None:
        ours, real = self._both(client, argv)
        at = 1 if argv[0].upper() == b"SCAN" else 2
        if len(argv) <= at or argv[at] != b"0" or not isinstance(ours, list) or not isinstance(real, list):
            if type(ours) is not list or type(real) is not list:
                self._check(argv, ours, real)
            return
        is_paired = argv[0].upper() in (b"HSCAN", b"ZSCAN")
        found = []
        for side, reply in ((client.ours, ours), (client.real, real)):
            elements: list[Any] = []
            for _ in range(_SCAN_LIMIT):
                cursor, some = reply
                elements += pairs(some) if is_paired else [(one,) for one in some]
                if cursor == b"0":
                    break
                reply = side.run([[*argv[:at], cursor, *argv[at + 1 :]]])[0]
            else:
                self.fail("the scan does not end")
            found.append({repr(self._spelled(without_negative_zero(list(each)))) for each in elements})
        if found[0] != found[1]:
            self.fail(f"ours found {shorten(sorted(found[0]))}\nreal found {shorten(sorted(found[1]))}")

    def _choose(self, client: Connection, argv: Argv) -> None:
        ours, real = map(self._spelled, self._both(client, argv))
        if is_error(ours) or is_error(real) or agree_at_all(argv, ours, real):
            self._check(argv, ours, real)
            return
        options = argv[3:]
        everything = self._spelled(client.real.run([[*argv[:2], ALL, *options]])[0])
        possible = _choices(everything, options)
        chosen = _choices(ours, options) if len(argv) > 2 else [ours]
        likewise = _choices(real, options) if len(argv) > 2 else [real]
        distinct = len(argv) < 3 or argv[2].startswith(b"-") or len(set(map(repr, chosen))) == len(chosen)
        if (
            type(ours) is not type(real)
            or len(chosen) != len(likewise)
            or not distinct
            or any(choice not in possible for choice in chosen)
        ):
            self.fail(f"ours chose {shorten(ours)}\nreal chose {shorten(real)}\nof {shorten(everything)}")

    def _spop(self, client: Connection, argv: Argv) -> None:
        members = client.real.run([[b"SMEMBERS", argv[1]]])[0] if len(argv) > 1 else None
        before = items_of(members)
        count = whole_number(argv[2]) if len(argv) == 3 else 1
        if not before or len(argv) > 3 or count < 0 or count >= len(before):
            self._check(argv, *self._both(client, argv))
            return
        ours = client.ours.run([argv])[0]
        chosen = [ours] if len(argv) == 2 else items_of(ours) or []
        if len(set(chosen)) != count or not set(chosen) <= set(before):
            self.fail(f"ours popped {shorten(ours)}\nof {shorten(before)}")
        if chosen:
            client.real.run([[b"SREM", argv[1], *chosen]])

    def _random_key(self, client: Connection, argv: Argv) -> None:
        ours, real = self._both(client, argv)
        possible = client.real.run([[b"KEYS", b"*"]])[0]
        if is_error(ours) or is_error(real) or not possible:
            self._check(argv, ours, real)
        elif ours not in possible:
            self.fail(f"ours chose {shorten(ours)}\nreal chose {shorten(real)}\nof {shorten(possible)}")

    def _count_keys(self, client: Connection, argv: Argv) -> None:
        self._remove_expired(client)
        self._check(argv, *self._both(client, argv))

    def _count_elements(self, client: Connection, argv: Argv) -> None:
        if len(self.connections) > 1:
            argv = counting_twice(argv)
        ours = client.ours.run([[b"DEL", b"no such key"], argv])[1]
        self._check(argv, ours, client.real.run([argv])[0])

    def _remove_expired(self, client: Connection) -> None:
        client.real.run([[b"SCAN", b"0", b"COUNT", ALL]])
        self._engine.duties.active_expire = True
        while self._engine.duties.tick():
            pass
        self._engine.duties.active_expire = False

    def _sort(self, client: Connection, argv: Argv) -> None:
        client.real.run([[b"SCAN", b"0"]])
        self._check(argv, *self._both(client, argv))

    def _transfer(self, client: Connection, argv: Argv) -> None:
        if len(argv) < 5:
            return
        _, dumper, source, target, *options = argv
        if whole_number(options[0]) > _LONGEST_LIFE_MS:
            return
        side = client.ours if dumper.upper() == b"OURS" else client.real
        payload = side.run([[b"DUMP", source]])[0]
        restore = [
            b"RESTORE",
            target,
            options[0],
            payload if isinstance(payload, bytes) else b"x",
            *options[1:],
        ]
        self._check(restore, *self._both(client, restore))

    def _undo(self, client: Connection, argv: Argv) -> None:
        ours = client.ours.run([[b"EVAL", UNDONE, b"0", *argv[1:]]])[0]
        if not is_error(ours) or b"undo all of it" not in ours.value:
            self.fail(f"the script answered {shorten(ours)}")

    # --------------------------------------------------------------------------- the whole

    def compare_keyspaces(self) -> None:
        """Everything both sides hold, dumps included; then the rules of our store."""
        client = self._watcher
        for number in range(_DATABASES):
            select = [b"SELECT", b"%d" % number]
            self._both(client, select)
            ours, real = self._contents(client.ours), self._contents(client.real)
            if _without_deadlines(ours) != _without_deadlines(real):
                self.fail(f"ours holds {shorten(ours)}\nreal holds {shorten(real)}")
            for key, content in ours.items():
                if not agree_at_all([b"PTTL"], content[2], real[key][2]):
                    self.fail(f"{key!r} lives {content[2]} ms, real: {real[key][2]} ms")
            if ours:
                self._exchange_dumps(client, select, list(ours))
        faults = check_store(self._engine)
        if faults:
            self.fail("the store does not hold together: " + "; ".join(faults))

    def _contents(self, side: Side) -> dict[bytes, tuple[bytes, Any, int]]:
        """Type, elements and time to live of every key in the selected database."""
        keys = side.run([[b"KEYS", b"*"]])[0]
        if not keys:
            return {}
        types = [reply.value for reply in side.run([[b"TYPE", key] for key in keys])]
        lives = side.run([[b"PTTL", key] for key in keys])
        readers = [_READERS[type_] for type_ in types]
        replies = side.run([[name, key, *rest] for key, (name, *rest) in zip(keys, readers, strict=True)])
        return {
            key: (type_, self._spelled(_canonical(type_, reply)), life)
            for key, type_, reply, life in zip(keys, types, replies, lives, strict=True)
        }

    def _spelled(self, reply: Any) -> Any:
        return respell(reply) if self._is_valkey else reply

    def _exchange_dumps(self, client: Connection, select: Argv, keys: list[bytes]) -> None:
        dumps = [[b"DUMP", key] for key in keys]
        expected = _without_deadlines(self._contents(client.real))
        for source, target in ((client.ours, client.real), (client.real, client.ours)):
            payloads = source.run(dumps)
            restores = [[b"RESTORE", key, b"0", dump] for key, dump in zip(keys, payloads, strict=True)]
            replies = target.run([[b"SELECT", _SPARE_DATABASE], [b"FLUSHDB"], *restores])
            restored = _without_deadlines(self._contents(target))
            target.run([[b"FLUSHDB"], select])
            if restored != expected:
                self.fail(f"restored {shorten(restored)}\ninstead of {shorten(expected)}\n{replies}")


def run_ours(batch: list[Call]) -> list[Any]:
    """The replies of our engine, one transaction for all clients."""
    client = batch[0][0]
    if all(other is client for other, _ in batch):
        return client.ours.run([argv for _, argv in batch])
    return run_together([(cast(Bare, client.ours), argv) for client, argv in batch])


def _choices(reply: Any, options: Argv) -> list[Any]:
    items = items_of(reply)
    if items is None:
        return [reply]
    return pairs(items) if options and not any(isinstance(item, list) for item in items) else items


_READERS: Final = {
    b"string": (b"GET",),
    b"hash": (b"HGETALL",),
    b"list": (b"LRANGE", b"0", b"-1"),
    b"set": (b"SMEMBERS",),
    b"zset": (b"ZRANGE", b"0", b"-1", b"WITHSCORES"),
}


def _canonical(type_: bytes, reply: Any) -> Any:
    if type_ == b"hash":
        return sort(pairs(reply))
    if type_ == b"zset":
        return without_negative_zero(reply)
    return sort(reply) if type_ == b"set" else reply


def _without_deadlines(contents: dict[bytes, tuple[bytes, Any, int]]) -> dict[bytes, tuple[bytes, Any]]:
    return {key: (type_, value) for key, (type_, value, _) in contents.items()}


def listed(argv: Argv) -> Argv:
    """A command for a message: of very many words the first and the last."""
    return argv if len(argv) <= 30 else [*argv[:6], b"...%d words..." % (len(argv) - 8), *argv[-2:]]


def shorten(value: Any) -> str:
    """A value for a message: the middle of long texts is left out."""
    text = repr(value).replace("long:" * 100, "LONG:")
    return text if len(text) <= 400 else f"{text[:200]} … {text[-150:]}"
