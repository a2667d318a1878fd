"""Transactions as slow as they are simple: records as dictionaries, everything else read off from them.

A record has the very fields that the store must have; when something becomes due is a dictionary. Of the
store's freedom the model knows only what is allowed: whom a dequeue gives (``may_take``) it takes over from
the store, and who is put aside by which limit meanwhile (field ``held``) it leaves out. It knows nothing of
scores, turns and scripts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.transactions.model import Limit, Settlement

Fields: TypeAlias = dict[str, str]
NEVER = float("inf")
ORPHANED = "its parent no longer waits for it"
_FORGOTTEN = ("fate", "cancel", "awaits", "timed_out", "notified_ms", "webhook_status",
              "archive_batch", "has_output", "deadline_ms", "ended_ms", "note")  # fmt: skip


@dataclass
class TransactionModel:
    """What one partition should do."""

    now_ms: int
    archive_delay_ms: int
    dead_keep_ms: int
    max_losses: int
    #: name → (version, group) of what can be started
    pipelines: dict[str, tuple[str, str]]
    records: dict[str, Fields] = field(default_factory=dict)
    #: how much there is in the trail of each
    trails: Counter[str] = field(default_factory=Counter)
    since: dict[str, int] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)
    sleeping: dict[str, float] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    webhooks: dict[str, int] = field(default_factory=dict)
    to_archive: dict[str, int] = field(default_factory=dict)
    #: (owner, external id) → transaction, body, until when
    claims: dict[tuple[str, str], tuple[str, bytes, int]] = field(default_factory=dict)
    limits: dict[str, Limit] = field(default_factory=dict)
    outbox: list[tuple[int, str, str]] = field(default_factory=list)
    numbers: Counter[str] = field(default_factory=Counter)
    #: in which order they came to where they wait
    pushed: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    _pushes: int = 0

    # ---------------------------------------------------------------------------------- starting

    def claim_of(self, owner: str, external_id: str) -> tuple[str, bytes, int] | None:
        claim = self.claims.get((owner, external_id))
        return claim if claim is not None and self.now_ms < claim[2] else None

    def start(
        self, tx: str, pipeline: str, data: bytes, owner: str, *, priority: int, delay_ms: int,
        deadline_ms: int, external: tuple[str, int] | None, fields: Fields,
    ) -> None:  # fmt: skip
        version, group = self.pipelines[pipeline]
        record = self._new(tx, pipeline, version, group, owner, str(priority), data)
        if deadline_ms:
            record["deadline_ms"] = str(self.now_ms + delay_ms + deadline_ms)
        if external:
            record["external_id"] = external[0]
            self.claims[owner, external[0]] = (tx, data, self.now_ms + external[1])
        if delay_ms:
            self.sleeping[tx] = self.now_ms + delay_ms
            record.update(state="sleeping", wakes_ms=str(self.now_ms + delay_ms))
        record.update(fields)

    def _new(
        self, tx: str, pipeline: str, version: str, group: str, owner: str, priority: str, data: bytes
    ) -> Fields:
        now = str(self.now_ms)
        self.records[tx] = record = {
            "state": "queued", "status": "running", "owner": owner, "pipeline": pipeline, "version": version,
            "group": group, "queue": "In", "priority": priority, "token": "0", "step": "0", "data": "0",
            "created_ms": now, "queued_ms": now, "d:0": data.decode(),
        }  # fmt: skip
        self._push(tx)
        return record

    def _push(self, tx: str) -> None:
        self._pushes += 1
        self.pushed[tx] = self._pushes

    def _requeue(self, tx: str, queue: str, **fields: str) -> None:
        self.records[tx].update(state="queued", queue=queue, queued_ms=str(self.now_ms), **fields)
        self._push(tx)

    # ------------------------------------------------------------------------------ becoming due

    def tend(self) -> None:
        for tx, due_ms in sorted(self.sleeping.items(), key=lambda item: (item[1], item[0])):
            if due_ms <= self.now_ms:
                is_late = self.records[tx]["state"] == "waiting"
                self._wake(tx, **({"timed_out": "1"} if is_late else {}))
        for tx, until_ms in sorted(self.leases.items(), key=lambda item: (item[1], item[0])):
            if until_ms <= self.now_ms:
                self._lose(tx)

    def _wake(self, tx: str, **fields: str) -> None:
        del self.sleeping[tx]
        self._requeue(tx, "In" if self.records[tx]["queue"] == "In" else "Out", **fields)

    def _lose(self, tx: str) -> None:
        del self.leases[tx], self.since[tx]
        record = self.records[tx]
        losses = int(record.get("losses", 0)) + 1
        record.update(losses=str(losses), limits="")
        self.trails[tx] += 1
        if losses > self.max_losses:
            self._finish(
                tx, "internal-error", f"{losses} workers in a row fell silent while they had it", is_dead=True
            )
        else:
            self._requeue(tx, "Out")

    def _finish(
        self, tx: str, status: str, note: str, *, is_dead: bool = False, fields: Fields | None = None
    ) -> None:
        record = self.records[tx]
        record.update(state="ended", status=status, note=note, ended_ms=str(self.now_ms), losses="0")
        record.update(fields or {})
        if "parent" in record:
            self._child_ended(tx, status, note)
        self._disown(tx)
        if is_dead:
            self.dead[tx] = self.now_ms
        if "webhook" in record:
            record["webhook_status"] = "pending"
            self.webhooks[f"{tx} complete.{record.get('run', '0')}"] = self.now_ms
        else:
            self._archive_later(tx)

    def _disown(self, tx: str) -> None:
        """Children that rest come to a worker, those that run are told."""
        record = self.records[tx]
        if int(record.get("pending", 0)) <= 0:
            return
        for slot in range(int(record["width"])):
            child = f"{tx}.{record['join_last']}.{slot}"
            state = self.records.get(child, {}).get("state")
            if state in ("sleeping", "waiting", "joining"):
                self.sleeping.pop(child, None)
                self._requeue(child, "Out")
            elif state == "running":
                self.records[child]["cancel"] = ORPHANED

    def _archive_later(self, tx: str) -> None:
        self.to_archive[tx] = self.now_ms + (self.dead_keep_ms if tx in self.dead else self.archive_delay_ms)

    def has_parent(self, tx: str) -> bool:
        """Whether nobody waits for it, or somebody still does."""
        record = self.records[tx]
        if "parent" not in record:
            return True
        parent = self.records.get(record["parent"], {})
        return parent.get("state") == "joining" and parent["join_last"] == record["join"]

    def is_refused(self, tx: str) -> bool:
        """Whether nobody waits for it any more; one that must be undone is taken nevertheless."""
        return not self.has_parent(tx) and not self.records[tx].get("undo")

    def _child_ended(self, tx: str, status: str, note: str) -> None:
        record = self.records[tx]
        if not self.has_parent(tx):
            return
        parent = self.records[record["parent"]]
        result = record["d:" + record["data"]] if status == "success" else json.dumps(note)
        parent[f"c:{record['join']}.{record['slot']}"] = f"{status} {result}"
        parent["pending"] = str(int(parent["pending"]) - 1)
        if parent["pending"] == "0" or (parent["hurry"] == "1" and status != "success"):
            self.sleeping.pop(record["parent"], None)
            self._requeue(record["parent"], "Out")

    # ------------------------------------------------------------------------------------ taking

    def names_of(self, tx: str) -> list[str]:
        """The limits that there are for it."""
        record = self.records[tx]
        return [name for name in (f"p:{record['pipeline']}", f"o:{record['owner']}") if name in self.limits]

    def running(self, name: str) -> int:
        return sum(name in record.get("limits", "").split() for record in self.records.values())

    def may_take(self, tx: str, groups: Sequence[str]) -> bool:
        record = self.records[tx]
        if record["state"] != "queued" or record["group"] not in groups or self.is_refused(tx):
            return False
        for name in (f"g:{record['group']}", *self.names_of(tx)):
            limit = self.limits.get(name, Limit())
            is_full = name[0] != "g" and 0 < limit.concurrency <= self.running(name)
            if limit.is_paused or is_full:
                return False
        return True

    def take(self, tx: str, worker: str, lease_ms: int) -> None:
        record = self.records[tx]
        record.pop("held", None)
        if not self.has_parent(tx):
            record["cancel"] = ORPHANED
        record.update(
            state="running", token=str(int(record["token"]) + 1), seq="0", worker=worker,
            taken_ms=str(self.now_ms), limits=" ".join(self.names_of(tx)),
        )  # fmt: skip
        self.since[tx], self.leases[tx] = self.now_ms, self.now_ms + lease_ms

    def refuse_orphan(self, tx: str) -> None:
        self._finish(tx, "cancelled", ORPHANED)

    def renew(self, held: Iterable[tuple[str, int]], lease_ms: int) -> tuple[list[str], list[str]]:
        lost, unwanted = [], []
        for tx, token in held:
            record = self.records.get(tx, {})
            if record.get("state") != "running" or record["token"] != str(token):
                lost.append(tx)
                continue
            self.leases[tx] = self.now_ms + lease_ms
            if record.get("cancel"):
                unwanted.append(tx)
        self.tend()
        return lost, unwanted

    # ---------------------------------------------------------------------------------- settling

    def settle(self, one: Settlement) -> str:
        record = self.records.get(one.tx, {})
        if record.get("token") != str(one.token):
            return "lost"
        if int(record.get("seq", 0)) >= one.seq:
            return "ok"
        if record["state"] != "running":
            return "lost"
        fields = {**_pairs(one.fields), "seq": str(one.seq)}
        record.update(fields)
        if "progress" in fields and record.get("webhook_progress") == "1":
            record["progress_n"] = str(int(record.get("progress_n", 0)) + 1)
            event = f"progress.{record['progress_n']}"
            record[f"w:{event}"] = fields["progress"]
            self.webhooks[f"{one.tx} {event}"] = self.now_ms
        self.trails[one.tx] += len(one.trail)
        for at in range(0, len(one.outbox), 2):
            destination, payload = one.outbox[at], one.outbox[at + 1].decode()
            self.numbers[destination] += 1
            self.outbox.append((self.numbers[destination], destination, payload))
        if one.kind != "keep":
            if record.get("limits"):
                record["limits"] = ""
            del self.since[one.tx], self.leases[one.tx]
            self._settle_kind(one, record)
        return "cancel" if record.get("cancel") and one.kind != "end" else "ok"

    def _settle_kind(self, one: Settlement, record: Fields) -> None:
        arguments = [str(word) for word in one.arguments]
        match one.kind:
            case "queue":
                self._requeue(one.tx, arguments[0], group=arguments[1])
            case "sleep":
                if arguments[1] == "1":
                    self._disown(one.tx)
                record.update(state="sleeping", queue="Out")
                self.sleeping[one.tx] = self._wake_time(record, self.now_ms + int(arguments[0]))
            case "wait":
                name, timeout_ms, saw = arguments
                record.update(awaits=name, timed_out="")
                switch = record.get(f"s:{name}")
                if saw != ("-" if switch is None else "=" + switch[1:]):
                    self._requeue(one.tx, "Out")
                    return
                record.update(state="waiting", queue="Out")
                due_ms = self.now_ms + int(timeout_ms) if timeout_ms != "0" else NEVER
                self.sleeping[one.tx] = self._wake_time(record, due_ms)
            case "join":
                self._join(one.tx, record, one.arguments)
            case "end":
                self._finish(one.tx, arguments[0], one.note, is_dead=arguments[1] == "1")

    def _wake_time(self, record: Fields, due_ms: float) -> float:
        deadline_ms = int(record.get("deadline_ms", 0))
        return max(deadline_ms, self.now_ms) if deadline_ms and deadline_ms < due_ms else due_ms

    def _join(self, tx: str, record: Fields, arguments: Sequence[Any]) -> None:
        self._disown(tx)
        join = str(int(record.get("join_last", 0)) + 1)
        pending, has_failed = 0, False
        for at in range(1, len(arguments), 7):
            slot, pipeline, _, path, _, data, depth = arguments[at : at + 7]
            if pipeline not in self.pipelines:
                reason = f"there is no pipeline {pipeline} (or not this version of it): activate it"
                record[f"c:{join}.{slot}"] = f"failed {json.dumps(reason)}"
                has_failed = True
                continue
            version, group = self.pipelines[pipeline]
            child = self._new(
                f"{tx}.{join}.{slot}", pipeline, version, group, record["owner"], record["priority"], data
            )
            child.update(parent=tx, join=join, slot=str(slot), path=path, depth=str(depth))
            pending += 1
        record.update(
            state="joining",
            join_last=join,
            pending=str(pending),
            hurry=str(arguments[0]),
            width=str((len(arguments) - 1) // 7),
            queue="Out",
        )
        if not pending or (has_failed and record["hurry"] == "1"):
            self._requeue(tx, "Out")
        elif "deadline_ms" in record:
            self.sleeping[tx] = self._wake_time(record, NEVER)

    # ----------------------------------------------------------------------------------- control

    def cancel(self, tx: str, who: str) -> list[str] | None:
        """The words after ``ok``; None if it is refused."""
        record = self.records[tx]
        if record["state"] == "ended":
            return None
        self.trails[tx] += 1
        record["cancel"] = who
        if record["state"] == "running":
            return ["requested"]
        children = [f"{tx}.{record['join_last']}."] if record["state"] == "joining" else []
        record.pop("held", None)
        self.sleeping.pop(tx, None)
        if record.get("undo"):
            self._requeue(tx, "Admin")
            return ["requested", *children]
        self._finish(tx, "cancelled", who)
        return ["cancelled", *children]

    def wake(self, tx: str) -> bool:
        if self.records[tx]["state"] not in ("sleeping", "waiting"):
            return False
        self.trails[tx] += 1
        self._wake(tx)
        return True

    def set_priority(self, tx: str, priority: int) -> bool:
        record = self.records[tx]
        if record["state"] == "ended":
            return False
        self.trails[tx] += 1
        record["priority"] = str(priority)
        if record["state"] == "queued":
            self._push(tx)
        return True

    def replay(self, tx: str, step: int) -> bool:
        record = self.records[tx]
        if record["state"] != "ended" or "parent" in record:
            return False
        data = max(number for number in range(step + 1) if f"d:{number}" in record)
        for name in [*record]:
            kind, _, rest = name.partition(":")
            number = rest.partition(":")[0]
            if kind in ("d", "o", "z") and number.isdigit() and int(number) >= step + (kind == "d"):
                del record[name]
        for name in _FORGOTTEN:
            record.pop(name, None)
        record["undo"] = " ".join(word for word in record.get("undo", "").split() if int(word) < step)
        self.to_archive.pop(tx, None)
        self.dead.pop(tx, None)
        self.webhooks.pop(f"{tx} complete.{record.get('run', '0')}", None)
        self.trails[tx] += 1
        run = str(int(record.get("run", 0)) + 1)
        self._requeue(
            tx, "Admin", run=run, status="running", step=str(step), data=str(data), attempt="0", losses="0",
            output="",
        )  # fmt: skip
        return True

    # ---------------------------------------------------------------------------------- switches

    def set_switch(self, tx: str, name: str, value: str | None) -> str:
        record, key = self.records[tx], f"s:{name}"
        if record["state"] == "ended":
            return "ended"
        if record.get(key, "?")[1:] == (value or "") and (key in record) == (value is not None):
            return "nochange"
        count = int(record.get("switches", 0))
        self.trails[tx] += 1
        if value is None:
            del record[key]
            record["switches"] = str(count - 1)
            return "updated"
        if key not in record:
            record["switches"] = str(count + 1)
        record[key] = "!" + value
        if record["state"] == "waiting" and record["awaits"] == name:
            self._wake(tx)
            return "woken"
        return "updated"

    def get_switch(self, tx: str, name: str, *, acknowledge: bool) -> tuple[str | None, bool]:
        record = self.records[tx]
        switch = record.get(f"s:{name}")
        if switch is None:
            return None, False
        if acknowledge:
            record[f"s:{name}"] = "=" + switch[1:]
        return switch[1:], switch[0] == "!"

    # ------------------------------------------------------------------------------- after the end

    def get(self, tx: str, *, watch_ms: int, is_reply: bool, cancels_webhook: bool) -> None:
        record = self.records[tx]
        if record["state"] != "ended":
            if watch_ms and self.now_ms + watch_ms > int(record.get("watched_ms", 0)):
                record["watched_ms"] = str(self.now_ms + watch_ms)
            return
        if is_reply:
            record.setdefault("notified_ms", str(self.now_ms))
        event = f"{tx} complete.{record.get('run', '0')}"
        if cancels_webhook and record.get("webhook_cancellable") == "1" and event in self.webhooks:
            del self.webhooks[event]
            record["webhook_status"] = "cancelled"
            self._archive_later(tx)

    def webhook_done(self, member: str, outcome: str, comment: str) -> None:
        tx, _, event = member.partition(" ")
        if outcome == "later":
            if member in self.webhooks:
                self.webhooks[member] = self.now_ms + int(comment)
            return
        if self.webhooks.pop(member, None) is None or tx not in self.records:
            return
        record = self.records[tx]
        self.trails[tx] += 1
        if event.startswith("progress."):
            record.pop(f"w:{event}", None)
        elif event == f"complete.{record.get('run', '0')}" and record["state"] == "ended":
            record.update(webhook_status=outcome, webhook_comment=comment, webhook_ms=str(self.now_ms))
            self._archive_later(tx)

    def webhooks_due(self, most: int, lease_ms: int) -> list[str]:
        due = sorted((due_ms, member) for member, due_ms in self.webhooks.items() if due_ms <= self.now_ms)[
            :most
        ]
        given = []
        for _, member in due:
            if member.partition(" ")[0] in self.records:
                self.webhooks[member] = self.now_ms + lease_ms
                given.append(member)
            else:
                del self.webhooks[member]
        return given

    def archive_due(self, most: int) -> list[str]:
        due = sorted((due_ms, tx) for tx, due_ms in self.to_archive.items() if due_ms <= self.now_ms)[:most]
        self.batches += bool(due)
        for _, tx in due:
            self.records[tx]["archive_batch"] = str(self.batches)
        return [tx for _, tx in due]

    def archived(self, tx: str, run: int) -> None:
        record = self.records.get(tx)
        if record is None:
            return
        if record["state"] == "ended" and record.get("run", "0") == str(run):
            for place in (self.records, self.trails, self.to_archive, self.dead, self.pushed):
                place.pop(tx, None)  # type: ignore[attr-defined]


def _pairs(flat: Sequence[Any]) -> Fields:
    words = [word.decode() if isinstance(word, bytes) else str(word) for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))
