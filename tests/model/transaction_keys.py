"""The raw keys of one partition of transactions, and the invariants that must hold over them.

They are those of ``penstock.transactions.model``; ``SNAPSHOT`` reads everything at one moment.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

SNAPSHOT = """
local reply = {}
for _, key in ipairs(redis.call('KEYS', '{p0}.*')) do
  local kind = redis.call('TYPE', key).ok
  if kind == 'hash' then reply[#reply + 1] = {key, kind, redis.call('HGETALL', key)}
  elseif kind == 'zset' then reply[#reply + 1] = {key, kind, redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')}
  elseif kind == 'list' then reply[#reply + 1] = {key, kind, redis.call('LRANGE', key, 0, -1)} end
end
return reply
"""


class Keys:
    """What is stored, by the names of the keys without their prefix."""

    def __init__(self, reply: list[Any]) -> None:
        self.hashes: dict[str, dict[str, str]] = {}
        self.sets: dict[str, dict[str, float]] = {}
        self.lists: dict[str, list[str]] = {}
        for key, kind, flat in reply:
            name = bytes(key).decode().removeprefix("{p0}.")
            words = [bytes(word).decode() for word in flat]
            if kind == b"hash":
                self.hashes[name] = dict(zip(words[::2], words[1::2], strict=True))
            elif kind == b"zset":
                self.sets[name] = {
                    word: float(score) for word, score in zip(words[::2], words[1::2], strict=True)
                }
            else:
                self.lists[name] = words
        self.records = self.hashes_of("stateH:")
        self.queues = {name: members for name, members in self.sets.items() if name[0] == "q"}
        self.held = {name[6:]: members for name, members in self.sets.items() if name.startswith("heldZ:")}

    def hashes_of(self, prefix: str) -> dict[str, dict[str, str]]:
        return {name[len(prefix) :]: value for name, value in self.hashes.items() if name.startswith(prefix)}

    def set(self, name: str) -> dict[str, float]:
        return self.sets.get(name, {})

    def in_state(self, *states: str) -> set[str]:
        return {tx for tx, record in self.records.items() if record["state"] in states}

    # ------------------------------------------------------------------------------- invariants

    def check(self) -> None:
        """What is true whenever nothing is under way."""
        running = self.in_state("running")
        assert running == set(self.set("processingZ")) == set(self.set("leasesZ"))
        usage = Counter(name for tx in running for name in self.records[tx]["limits"].split())
        assert {name: int(number) for name, number in self.hashes.get("usageH", {}).items()} == usage
        assert not any(record.get("limits") for tx, record in self.records.items() if tx not in running)
        self._check_waiting()
        resting = self.in_state("sleeping", "waiting")
        resting |= {tx for tx in self.in_state("joining") if "deadline_ms" in self.records[tx]}
        assert set(self.set("sleepingZ")) == resting
        self._check_joining()
        ended = self.in_state("ended")
        for tx, record in self.records.items():
            is_pending = f"{tx} complete.{record.get('run', '0')}" in self.set("webhooksZ")
            assert is_pending + (tx in self.set("toArchiveZ")) == (tx in ended), tx
        assert set(self.set("deadZ")) <= ended
        assert set(self.set("indexZ")) == set(self.records)
        for tx, record in self.records.items():
            assert tx in self.set(f"ownerZ:{record['owner']}")

    def _check_waiting(self) -> None:
        places = Counter(tx for queue in (*self.queues.values(), *self.held.values()) for tx in queue)
        assert places == Counter(self.in_state("queued")), "each in exactly one queue or hold"
        put_aside: Counter[str] = Counter()
        for tx in self.in_state("queued"):
            record = self.records[tx]
            place = f"{record['queue']}Z:{record['group']}"
            if "held" in record:
                assert tx in self.held[record["held"]]
                assert record["held"] in (f"p:{record['pipeline']}", f"o:{record['owner']}")
                put_aside[f"{record['queue']}:{record['group']}"] += 1
            else:
                assert tx in self.queues[f"q{place}"]
        for name in self.held:  # somebody will look after them, if only when the pause ends
            is_paused = self.hashes.get("limitsH", {}).get(name, "0").startswith("1")
            assert is_paused or name in self.set("releaseZ"), name
        for name, turns in self.hashes_of("fairH:").items():
            queue, _, group = name.partition(":")
            assert int(turns.get("held", 0)) == put_aside[name]
            assert put_aside[name] or f"q{queue}Z:{group}" in self.queues, "turns end with the last who waits"

    def _check_joining(self) -> None:
        waited_for: Counter[str] = Counter()
        for record in self.records.values():
            parent = self.records.get(record.get("parent", ""), {})
            if record["state"] != "ended" and parent.get("join_last", "") == record.get("join"):
                waited_for[record["parent"]] += 1
        for tx in self.in_state("joining"):
            assert int(self.records[tx]["pending"]) == waited_for[tx] > 0
