"""Looks after streams in the background: retention, compaction, producers that went silent.

Which streams need it stands in the table ``tended`` (see ``datatypes.stream.policies``). Any process
may do it, and several may at the same time: each step is a unit of work that begins with what
is there.

Rows of streams that are gone, or were renamed, are removed when they are met.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.engine.changes import EVENT_STREAM
from penstock.engine.datatypes.stream import Stream
from penstock.engine.datatypes.stream.compaction import Run, is_due
from penstock.engine.datatypes.stream.groups import needed_from, pending_between
from penstock.engine.datatypes.stream.nodes import DAMAGE
from penstock.engine.datatypes.stream.policies import Policy, load_policy
from penstock.engine.datatypes.stream.producers import forget_silent, has_silent
from penstock.engine.keyspace import Keyspace
from penstock.engine.storage.layout import DATABASES, STREAM, TYPE_MASK, name_of

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

#: Producers that are forgotten in one step.
_PRODUCERS_A_STEP: Final = 1_000
#: How often all producers are looked at: there may be many.
_PRODUCERS_TICK_S: Final = 60.0


class Tending:
    """The streams of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: compactions under way in this process, by version of their stream
        self._runs: dict[bytes, Run] = {}
        self._next_producers_s = 0.0
        self._looks_at_producers = False

    @property
    def is_busy(self) -> bool:
        """Whether something is half done."""
        return bool(self._runs)

    def is_due(self) -> bool:
        """Whether any stream needs something. In any unit."""
        now_s = self._engine.clock.monotonic_s()
        self._looks_at_producers = now_s >= self._next_producers_s
        if self._looks_at_producers:
            self._next_producers_s = now_s + _PRODUCERS_TICK_S
        if self._runs:
            return True
        return any(stream is None or self._needs(stream) for _, stream in self._streams())

    def work(self) -> bool:
        """Do a bounded share for each; True if more is waiting. In a writing unit."""
        more = False
        for row, stream in list(self._streams()):
            if stream is None:
                self._engine.unit.delete(row, db=self._engine.unit.tables["tended"])
            elif self._needs(stream) or stream.row(b"") in self._runs:
                tend = partial(self._tend, self._engine.keyspaces[row[0]], stream)
                more |= self._engine.dispatcher.try_alone(tend)
        alive = {stream.row(b"") for _, stream in self._streams() if stream is not None}
        self._runs = {version: run for version, run in self._runs.items() if version in alive}
        return more

    def _streams(self) -> Iterator[tuple[bytes, Stream | None]]:
        """Rows of the table with their streams; None where there is no such stream any more."""
        unit = self._engine.unit
        for row, version in list(unit.rows(unit.tables["tended"], b"")):
            record = unit.get(row[1:], None, unit.tables[f"keys:{row[0]}"]) if row[0] < DATABASES else None
            stream = None
            if record and record[0] & TYPE_MASK == STREAM:
                with suppress(*DAMAGE):  # what cannot be read is not looked after either
                    stream = self._engine.keyspaces[row[0]].load(name_of(row[1:], record), Stream)
            yield row, stream if stream is not None and stream.row(b"") == version else None

    # ---------------------------------------------------------------------- needs

    def _needs(self, stream: Stream) -> bool:
        """Nothing, if it is damaged: whoever uses it is told, and others need not wait for it."""
        try:
            policy = load_policy(stream)
            if self._surplus(stream, policy) >= stream.first or is_due(stream, policy):
                return True
            return self._looks_at_producers and has_silent(stream)
        except DAMAGE:
            return False

    def _surplus(self, stream: Stream, policy: Policy) -> int:
        """The last offset that the policy does not want to keep; 0 if it wants all."""
        upto = 0
        if policy.retain_count and stream.size > policy.retain_count:
            upto = stream.end_of_surplus(policy.retain_count)
        if policy.retain_bytes and stream.bytes > policy.retain_bytes:
            upto = max(upto, stream.end_of_excess(policy.retain_bytes))
        if policy.retain_ms:
            upto = max(upto, stream.offset_before(stream.unit.now_ms - policy.retain_ms))
        if policy.retain_acked and upto:
            upto = min(upto, needed_from(stream) - 1)
        return upto

    # ----------------------------------------------------------------------- work

    def _tend(self, keyspace: Keyspace, stream: Stream) -> bool:
        policy = load_policy(stream)
        forget_silent(stream, _PRODUCERS_A_STEP)
        if stream.evict_to(self._surplus(stream, policy)):
            keyspace.changed(stream.key, EVENT_STREAM, b"tevict")
            keyspace.ready(stream.key)
        more = self._compact(stream, policy)
        stream.save()
        return more

    def _compact(self, stream: Stream, policy: Policy) -> bool:
        version = stream.row(b"")
        if not policy.compact:
            self._runs.pop(version, None)
            return False
        run = self._runs.get(version)
        if run is None:
            if not is_due(stream, policy):
                return False
            run = self._runs[version] = Run(policy, pending_between)
        if run.step(stream):
            return True
        del self._runs[version]
        return False
