"""The store and the naive model of one partition of transactions, told the same by chance, and compared.

``Both.step`` does one thing that a user or a worker could do; ``Both.finish`` lets everybody come to an end.
Where the clock is the server's (``clock`` is None) something is due at once or never, and times are left out.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.errors import BackpressureError, DuplicateError, TransactionEndedError
from penstock.transactions.model import Limit, Settlement
from penstock.transactions.store import TransactionStore
from tests.model.transaction_keys import SNAPSHOT, Keys
from tests.model.transaction_model import NEVER, ORPHANED, TransactionModel

_MOST_RECORDS = 45
#: Later than any test ends.
_LONG_MS = 10**9
_PIPELINES = {"noop": ("v1", "shop"), "mail": ("v1", "post"), "ship": ("v2", "shop")}
_OWNERS = ("ann", "bob")
_ENDINGS = ("success", "failed", "aborted", "timeout", "internal-error", "cancelled")
_RANK = {"Admin": 0, "Out": 1, "In": 2}


class Both:
    """The store and the model, told the same."""

    def __init__(self, client: Any, clock: ManualClock | None, seed: int, *, has_limits: bool) -> None:
        self.chance = random.Random(seed)
        self.client = client
        self.clock = clock
        self.has_limits = has_limits
        self.store = TransactionStore(client, clock=clock, partitions=1)
        self.model = TransactionModel(
            clock.now_ms() if clock else 0,
            archive_delay_ms=40 if clock else 0,
            dead_keep_ms=200 if clock else _LONG_MS,
            # On Valkey nobody knows which of two children is lost first.
            max_losses=2 if clock else 10**6,
            pipelines=_PIPELINES,
        )
        #: transaction, token, last seq of every holder; also of those that have lost it
        self.holders: list[list[Any]] = []
        self.handed_out: list[tuple[str, int]] = []
        self.sent: list[str] = []
        self.begun: dict[str, tuple[int, Limit, int]] = {}
        self.keys = Keys([])
        self.counts: Counter[str] = Counter()

    async def prepare(self) -> None:
        model = self.model
        await self.store.configure(
            archive_delay_ms=model.archive_delay_ms,
            dead_keep_ms=model.dead_keep_ms,
            max_losses=model.max_losses,
        )
        for name, (version, group) in _PIPELINES.items():
            line = f"{group} 0 5 1"
            await self.client.execute(
                "HSET", f"{{p0}}.pipelineH:{name}", "active", f"{version} {line}", f"v:{version}", line
            )
        await self.look()

    async def look(self) -> None:
        self.keys = Keys(await self.client.execute("EVAL", SNAPSHOT, 1, "{p0}."))

    async def step(self) -> None:
        usual = [self.start, self.dequeue, self.dequeue, self.settle, self.settle, self.settle, self.wait]
        rare = [self.renew, self.control, self.control, self.switch, self.switch, self.webhooks, self.archive,
                self.get, self.set_limit, self.empty_outbox]  # fmt: skip
        act = self.chance.choice(usual if self.chance.random() < 0.65 else rare)
        await act()
        self.counts[act.__name__] += 1
        await self.compare(act.__name__)

    def some_ms(self, *choices: int) -> int:
        """On Valkey a time has come at once or never comes."""
        chosen = self.chance.choice(choices)
        return chosen if self.clock else self.chance.choice([0, _LONG_MS])

    def pick(self, *states: str) -> str | None:
        found = [tx for tx, record in self.model.records.items() if not states or record["state"] in states]
        return self.chance.choice(found) if found else None

    # ----------------------------------------------------------------------------------- starting

    async def start(self) -> None:
        chance, model = self.chance, self.model
        if len(model.records) >= _MOST_RECORDS:
            return
        pipeline, owner = chance.choice([*_PIPELINES]), chance.choice(_OWNERS)
        data = chance.choice([b"1", b"2"])
        delay_ms = chance.choice([0, 0, 0, 30]) if self.clock else chance.choice([0, 0, _LONG_MS])
        options: dict[str, Any] = {
            "priority": chance.choice([1, 5, 5, 9]), "delay_ms": delay_ms,
            "deadline_ms": chance.choice([0, 0, 25, _LONG_MS] if self.clock else [0, _LONG_MS]),
        }  # fmt: skip
        fields: dict[str, str] = {}
        if chance.random() < 0.4:
            fields = {
                "webhook": "https://a.b",
                "webhook_progress": "1",
                "webhook_cancellable": chance.choice("01"),
            }
        external = (
            (f"x{chance.randrange(4)}", 70 if self.clock else _LONG_MS) if chance.random() < 0.3 else None
        )
        if external and model.claims.get((owner, external[0]), ("", b"", 0))[2] == model.now_ms > 0:
            return  # whether it is still there at this very moment is for servers to say
        claim = model.claim_of(owner, external[0]) if external else None
        call = self.store.start(
            pipeline, data, owner=owner, fields=fields, external_id=external and external[0],
            external_id_ms=external[1] if external else 1, **options,
        )  # fmt: skip
        if claim and not (claim[1] == data and model_pipeline(self, claim[0]) in (pipeline, None)):
            with pytest.raises(DuplicateError) as caught:
                await call
            assert caught.value.transaction == claim[0]
            return
        if claim and model_pipeline(self, claim[0]) is None:
            call.close()
            return  # it was archived: what it was started with is not known any more
        if claim:
            assert await call == (claim[0], False)
            return
        group = _PIPELINES[pipeline][1]
        most = model.limits.get(f"g:{group}", Limit()).max_queued
        waiting = len(self.keys.set(f"qInZ:{group}")) + int(
            self.keys.hashes.get(f"fairH:In:{group}", {}).get("held", 0)
        )
        if 0 < most <= waiting:
            with pytest.raises(BackpressureError):
                await call
            return
        started = await call
        assert started.is_new
        model.start(started.id, pipeline, data, owner, external=external, fields=fields, **options)

    # ------------------------------------------------------------------------------------ working

    async def dequeue(self) -> None:
        chance = self.chance
        groups = chance.choice([["shop"], ["post"], ["shop", "post"], ["post", "shop"]])
        limit = chance.choice([1, 2, 5, 60])
        await self.take(groups, limit, self.some_ms(1, 20, 50, _LONG_MS))

    async def take(self, groups: list[str], limit: int, lease_ms: int) -> None:
        model = self.model
        taken = await self.store.dequeue(0, "w1", groups, limit=limit, lease_ms=lease_ms)
        model.tend()
        candidates = [tx for tx in model.records if model.may_take(tx, groups)]
        orphans = [tx for tx in model.records if self._is_orphan(tx, groups)]
        for record in taken.records:
            expected = model.records[record.id]
            stored = {name.decode(): value.decode() for name, value in record.fields.items()}
            # Told with the record, so that its worker undoes it at once.
            fate = {} if model.has_parent(record.id) else {"cancel": ORPHANED}
            assert self._timeless(stored) == self._timeless({**expected, **fate})
            assert model.may_take(record.id, groups), "it was not queued, or a limit should have stopped it"
            model.take(record.id, "w1", lease_ms)
            assert record.token == int(expected["token"])
            self.holders.append([record.id, record.token, 0])
            self._count_rates(record.id)
        await self.look()
        for tx in orphans:
            if self.keys.records[tx]["state"] == "ended":
                model.refuse_orphan(tx)
        if not self.has_limits:
            ids = [record.id for record in taken.records]
            assert len(ids) == min(limit, len(candidates))
            assert len(ids) == limit or not any(self._is_orphan(tx, groups) for tx in orphans)
            self._check_order(ids, groups)
            if self.clock:
                due = [at for at in (*model.sleeping.values(), *model.leases.values()) if at != NEVER]
                assert taken.next_ms == (min(due) - model.now_ms if due else None)
        del self.holders[:-25]

    def _is_orphan(self, tx: str, groups: list[str]) -> bool:
        record = self.model.records[tx]
        return record["state"] == "queued" and record["group"] in groups and self.model.is_refused(tx)

    def _count_rates(self, tx: str) -> None:
        for name in self.model.names_of(tx):
            since_ms, limit, count = self.begun[name]
            self.begun[name] = (since_ms, limit, count + 1)
            if limit.rate:
                allowed = limit.burst + limit.rate * (self.model.now_ms - since_ms) / 1_000
                assert count + 1 <= allowed + 1e-3, name

    def _check_order(self, ids: list[str], groups: list[str]) -> None:
        """Admin, out, in; the more urgent first; of one owner the first come first."""
        last_of: dict[Any, int] = {}
        places = []
        for tx in ids:
            record = self.model.records[tx]
            place = (_RANK[record["queue"]], groups.index(record["group"]), -int(record["priority"]))
            places.append(place)
            if self.clock:
                assert self.model.pushed[tx] > last_of.get((place, record["owner"]), 0)
                last_of[place, record["owner"]] = self.model.pushed[tx]
        assert places == sorted(places)

    async def settle(self) -> None:
        if not self.holders:
            return
        chance = self.chance
        holder = chance.choice(self.holders)
        tx, token, seq = holder
        record = self.model.records.get(tx, {})
        number = int(record.get("step", 0)) + 1
        fields = chance.choice([
            [], [], ["step", number, "data", number, f"d:{number}", f'"{number}"', f"o:{number - 1}:x", 1],
            ["undo", chance.choice(["", "0 1"])], ["losses", 0], ["progress", '"half"'], ["attempt", 2],
        ])  # fmt: skip
        kind = chance.choice(["keep", "queue", "sleep", "wait", "join", "end", "end"])
        is_repeated = seq > 0 and chance.random() < 0.15
        one = Settlement(
            kind, tx, token + (chance.random() < 0.1), seq if is_repeated else seq + 1, "a note", fields,
            [b"{}"] * chance.randrange(3), chance.choice([[], [], [], ["stream:a", b"1", "stream:b", b"2"]]),
            self._arguments(kind, tx),
        )  # fmt: skip
        answer = self.model.settle(one)
        assert await self.store.settle(0, [one]) == [answer], one
        if one.token == token and not is_repeated:
            holder[2] += 1

    def _arguments(self, kind: str, tx: str) -> list[Any]:
        chance = self.chance
        match kind:
            case "queue":
                return [chance.choice([*_RANK]), chance.choice(["shop", "post"])]
            case "sleep":
                return [self.some_ms(1, 20, _LONG_MS), chance.choice([0, 1])]
            case "wait":
                switch = self.model.records.get(tx, {}).get("s:go")
                saw = chance.choice(["-", "=yes", "-" if switch is None else "=" + switch[1:]])
                return ["go", self.some_ms(0, 20, _LONG_MS), saw]
            case "join":
                count = chance.choice([1, 2, 3]) if tx.count(".") < 4 and len(self.model.records) < 40 else 0
                words: list[Any] = [chance.choice([0, 1])]
                for slot in range(count):
                    words += [str(slot), chance.choice([*_PIPELINES, "nope"]), "", "path", "", b'"in"', 1]
                return words
            case "end":
                return [chance.choice(_ENDINGS), chance.choice([0, 0, 0, 1])]
        return []

    async def renew(self) -> None:
        held = [(tx, token) for tx, token, _ in self.chance.sample(self.holders, min(3, len(self.holders)))]
        lease_ms = self.some_ms(5, 50, _LONG_MS)
        renewal = await self.store.renew(0, held, lease_ms)
        assert (renewal.lost, renewal.unwanted) == self.model.renew(held, lease_ms)

    async def wait(self) -> None:
        if self.clock:
            self.clock.advance_ms(self.chance.choice([1, 1, 5, 20, 60]))
            self.model.now_ms = self.clock.now_ms()

    # ------------------------------------------------------------------------------------ control

    async def control(self) -> None:
        chance, model = self.chance, self.model
        verb = chance.choice(["cancel", "wake", "priority", "priority", "replay"])
        states = {"wake": ("sleeping", "waiting"), "replay": ("ended",)}.get(verb, ())
        tx = self.pick(*states) if chance.random() < 0.8 else self.pick()
        if tx is None:
            return
        argument = (
            chance.randrange(10) if verb == "priority" else chance.randint(0, int(model.records[tx]["step"]))
        )
        expected: list[str] | None
        match verb:
            case "cancel":
                expected = model.cancel(tx, "ann")
            case "wake":
                expected = [] if model.wake(tx) else None
            case "priority":
                expected = [] if model.set_priority(tx, argument) else None
            case _:
                expected = [] if model.replay(tx, argument) else None
        call = self.store.control(verb, tx, "ann", argument=argument)
        if expected is None:
            with pytest.raises(TransactionEndedError):
                await call
        else:
            assert await call == expected

    async def switch(self) -> None:
        chance, model = self.chance, self.model
        tx = self.pick("waiting", "running", "queued") or self.pick()
        if tx is None:
            return
        name, value = chance.choice(["go", "go", "stop"]), chance.choice(["yes", "no", "yes", None])
        if chance.random() < 0.3:
            acknowledge = chance.random() < 0.5
            expected = model.get_switch(tx, name, acknowledge=acknowledge)
            assert await self.store.get_switch(tx, name, acknowledge=acknowledge) == expected
            return
        answer = model.set_switch(tx, name, value)
        if answer == "ended":
            with pytest.raises(TransactionEndedError):
                await self.store.set_switch(tx, name, value, who="ann")
        else:
            assert await self.store.set_switch(tx, name, value, who="ann") == answer

    async def set_limit(self) -> None:
        if not self.has_limits:
            return
        chance = self.chance
        name = chance.choice(
            [*(f"p:{name}" for name in _PIPELINES), *(f"o:{name}" for name in _OWNERS), "g:shop"]
        )
        choices = [None, None, Limit(concurrency=1), Limit(concurrency=2), Limit(is_paused=True), Limit()]
        if name[0] == "g":
            choices = [None, None, Limit(is_paused=True), Limit(max_queued=5)]
        elif self.clock:
            choices += [Limit(rate=20, burst=2), Limit(rate=100, concurrency=2)]
        await self.change_limit(name, chance.choice(choices))

    async def change_limit(self, name: str, limit: Limit | None) -> None:
        model = self.model
        assert await self.store.set_limit(name, limit) == (model.limits.get(name) != limit)
        if limit is None:
            model.limits.pop(name, None)
        elif model.limits.get(name) != limit:
            model.limits[name] = limit
            self.begun[name] = (model.now_ms, limit, 0)

    # ------------------------------------------------------------------------------ after the end

    async def get(self) -> None:
        tx = self.pick("ended") if self.chance.random() < 0.6 else self.pick()
        if tx is None:
            return
        options = {
            "watch_ms": self.some_ms(0, 10, 1_000),
            "is_reply": self.chance.random() < 0.5,
            "cancels_webhook": self.chance.random() < 0.5,
        }
        self.model.get(tx, **options)  # type: ignore[arg-type]
        found = await self.store.get(tx, **options, with_trail=True)  # type: ignore[arg-type]
        assert found is not None
        assert len(found[1]) == self.model.trails[tx]

    async def webhooks(self) -> None:
        chance, model = self.chance, self.model
        words: list[Any] = []
        known = sorted({*model.webhooks, *self.sent})  # also of what is done with, or was begun again
        for member in chance.sample(known, min(len(known), 2)):
            outcome = chance.choice(["delivered", "failed", "later"])
            comment = str(self.some_ms(0, 20)) if outcome == "later" else "200"
            words += [*member.split(" "), outcome, comment]
            model.webhook_done(member, outcome, comment)
        most = chance.choice([0, 2, 1_000]) if self.clock else 1_000
        lease_ms = self.some_ms(0, 30)
        given = model.webhooks_due(most, lease_ms)
        _, *items = await self.store.run("webhooks_to_process", 0, most, lease_ms, len(words) // 4, *words)
        found = [f"{bytes(tx).decode()} {bytes(event).decode()}" for tx, event, _ in items]
        self.sent = [*self.sent, *found][-10:]
        assert found == given if self.clock else sorted(found) == sorted(given)

    async def archive(self) -> None:
        chance, model = self.chance, self.model
        done = chance.sample(self.handed_out, min(len(self.handed_out), 6))
        for tx, run in done:
            model.archived(tx, run)
        most = chance.choice([0, 3, 1_000]) if self.clock else chance.choice([0, 1_000])
        given = model.archive_due(most) if most else []
        words = [word for pair in done for word in pair]
        has_role, _, *items = await self.store.run(
            "to_archive", 0, "n1", most, _LONG_MS * 1_000, _LONG_MS * 1_001, *words
        )
        assert has_role == (most > 0)
        found = [bytes(item[0]).decode() for item in items]
        assert found == given if self.clock else sorted(found) == sorted(given)
        self.handed_out = [*self.handed_out, *((tx, int(model.records[tx].get("run", 0))) for tx in given)][
            -30:
        ]

    async def empty_outbox(self) -> None:
        flat = await self.store.run("outbox", 0, "take", "s1", _LONG_MS, 3)
        expected = self.model.outbox[:3]
        assert [bytes(word).decode() for word in flat] == [str(word) for entry in expected for word in entry]
        if expected:
            assert await self.store.run("outbox", 0, "done", "s1", len(expected)) == 1
            del self.model.outbox[:3]

    # ------------------------------------------------------------------------------------ compare

    def _timeless(self, record: dict[str, str]) -> dict[str, str]:
        """Without who holds it back; and without times where they are the server's."""
        return {
            name: value
            for name, value in record.items()
            if name != "held" and (self.clock or not name.endswith("_ms"))
        }

    async def compare(self, what: str) -> None:
        await self.look()
        keys, model = self.keys, self.model
        assert set(keys.records) == set(model.records), what
        for tx, record in keys.records.items():
            assert self._timeless(record) == self._timeless(model.records[tx]), (what, tx)
        pairs: dict[str, dict[str, Any]] = {
            "sleepingZ": model.sleeping, "leasesZ": model.leases, "processingZ": model.since,
            "deadZ": model.dead, "webhooksZ": model.webhooks, "toArchiveZ": model.to_archive,
        }  # fmt: skip
        for name, expected in pairs.items():
            found = keys.set(name)
            assert found == expected if self.clock else set(found) == set(expected), (what, name)
        trails = {
            name.removeprefix("trailL:"): len(value) for name, value in keys.lists.items() if name[0] == "t"
        }
        assert trails == {tx: count for tx, count in model.trails.items() if count}, what
        assert keys.lists.get("outboxL", []) == [str(word) for entry in model.outbox for word in entry]
        assert set(keys.hashes.get("limitsH", {})) == set(model.limits)
        keys.check()

    async def finish(self) -> None:
        """Pauses end, time goes on, and everybody comes to an end."""
        for name, limit in list(self.model.limits.items()):
            if limit.is_paused:
                await self.change_limit(name, None)
        for _ in range(200):
            for tx in [
                tx for tx, record in self.model.records.items() if record["state"] in ("sleeping", "waiting")
            ]:
                assert self.model.wake(tx)
                await self.store.control("wake", tx, "ann")
            await self.take(["shop", "post"], 60, _LONG_MS)
            for tx, record in [*self.model.records.items()]:
                if record["state"] == "running":
                    seq = int(record["seq"]) + 1
                    one = Settlement("end", tx, int(record["token"]), seq, arguments=["success", 0])
                    assert await self.store.settle(0, [one]) == [self.model.settle(one)] == ["ok"]
            await self.compare("finish")
            if len(self.keys.in_state("ended")) == len(self.model.records):
                return
            await self._pass_a_second()
        raise AssertionError(f"these stand still: {set(self.keys.records) - self.keys.in_state('ended')}")

    async def _pass_a_second(self) -> None:
        if self.clock:
            self.clock.advance_ms(1_000)
            self.model.now_ms = self.clock.now_ms()
        else:  # the time of those who are held, and of nobody else
            for name in self.keys.set("releaseZ"):
                await self.client.execute("ZADD", "{p0}.releaseZ", "XX", 0, name)


def model_pipeline(both: Both, tx: str) -> str | None:
    """What it was started with, if that is still known."""
    return both.model.records[tx]["pipeline"] if tx in both.model.records else None
