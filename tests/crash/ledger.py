"""What the workers' logs promise, compared with what is in the store and in other logs.

Every judgement answers sentences, one a broken promise; none means that all were kept.
Written for logs of any length: each is read once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.engine import LocalSession
from tests.crash.workers import END, QUEUES, SAFE_QUEUE


@dataclass
class Diary:
    """The log of one worker."""

    worker: str
    #: number → what
    tries: dict[int, str] = field(default_factory=dict)
    #: number → reply
    done: dict[int, Any] = field(default_factory=dict)
    started_ns: dict[int, int] = field(default_factory=dict)
    #: one for each time it began to listen: since when, and what it heard
    heard: list[tuple[int, list[str]]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Diary:
        diary = cls(path.stem)
        # A kill may tear the line that was being written: what is not ended by a newline never happened.
        *lines, _torn = path.read_text().split("\n")
        for line in lines:
            match json.loads(line):
                case ["try", number, what, at_ns]:
                    diary.tries[number] = what
                    diary.started_ns[number] = at_ns
                case ["ok", number, reply]:
                    diary.done[number] = reply
                case ["listening", at_ns]:
                    diary.heard.append((at_ns, []))
                case ["message", text]:
                    diary.heard[-1][1].append(text)
        return diary

    def tried(self, what: str) -> list[int]:
        return [number for number, tried in self.tries.items() if tried == what]

    def confirmed(self, what: str) -> list[int]:
        return [number for number in self.tried(what) if number in self.done]


def read_diaries(directory: Path) -> list[Diary]:
    return [Diary.read(path) for path in sorted(directory.glob("*.log"))]


def _of(diaries: Iterable[Diary], role: str) -> list[Diary]:
    return [diary for diary in diaries if diary.worker.startswith(role)]


# ---------------------------------------------------------------------------------- writes


def judge_writes(diaries: list[Diary], session: LocalSession) -> list[str]:
    """Nothing acknowledged is lost, nothing was applied by half."""
    broken: list[str] = []
    writers = _of(diaries, "writer")
    for diary in writers:
        broken += _judge_own_keys(diary, session)
    names = {what: _names(writers, what) for what in ("hash", "zset", "member")}
    found = {
        "hash": session.execute("HKEYS", "hash"),
        "zset": session.execute("ZRANGE", "zset", "0", "-1"),
        "member": session.execute("SMEMBERS", "members"),
    }
    for what, (confirmed, tried) in names.items():
        there = {name.decode() for name in found[what]}
        broken += [f"{what}: {name} was acknowledged and is lost" for name in confirmed - there]
        broken += [f"{what}: {name} was never written" for name in there - tried]
    broken += _judge_counter(writers, session, "total", "incr")
    broken += _judge_counter(writers, session, "optimistic", "compare-and-set")
    return broken


def _names(writers: list[Diary], what: str) -> tuple[set[str], set[str]]:
    confirmed = {f"{diary.worker}:{number}" for diary in writers for number in diary.confirmed(what)}
    return confirmed, {f"{diary.worker}:{number}" for diary in writers for number in diary.tried(what)}


def _judge_counter(writers: list[Diary], session: LocalSession, key: str, what: str) -> list[str]:
    value = int(session.execute("GET", key) or 0)
    low = sum(diary.done[number] is not False for diary in writers for number in diary.confirmed(what))
    high = low + sum(len(diary.tried(what)) - len(diary.confirmed(what)) for diary in writers)
    return [] if low <= value <= high else [f"{key} is {value}, not between {low} and {high}"]


def _judge_own_keys(diary: Diary, session: LocalSession) -> list[str]:
    worker = diary.worker
    broken = _judge_sets(diary, session)
    pushed = session.execute("LRANGE", f"list:{worker}", "0", "-1")
    broken += _between(f"list:{worker}", diary.confirmed("push"), pushed, diary.tried("push"))

    both = session.execute("LRANGE", f"both:{worker}", "0", "-1")
    broken += _between(f"both:{worker}", diary.confirmed("exec"), both, diary.tried("exec"))
    last = both[-1] if both else None
    pair = session.execute("MGET", f"one:{worker}", f"two:{worker}")
    if pair != [last, last]:
        broken.append(f"a transaction of {worker} was applied by half: {last!r} beside {pair}")

    big = session.execute("GET", f"big:{worker}")
    written = int(big[: big.index(b":")]) if big else 0
    latest = max(diary.confirmed("big"), default=0)
    if written != latest and not (written > latest and written in diary.tried("big")):
        broken.append(f"big:{worker} is of {written}, although {latest} was acknowledged")
    if session.execute("EXISTS", f"dropped:{worker}") and len(diary.tried("drop")) == len(
        diary.confirmed("drop")
    ):
        broken.append(f"dropped:{worker} was deleted and is there")
    return broken


def _judge_sets(diary: Diary, session: LocalSession) -> list[str]:
    tried = diary.tried("set")
    if not tried:
        return []
    values = session.execute("MGET", *(f"set:{diary.worker}:{number}" for number in tried))
    broken = []
    for number, value in zip(tried, values, strict=True):
        if value != b"%d" % number and (number in diary.done or value is not None):
            broken.append(f"set:{diary.worker}:{number} is {value!r}")
    return broken


def _between(key: str, confirmed: list[int], actual: Sequence[bytes], tried: list[int]) -> list[str]:
    """What is there was tried, in that order and once; what was confirmed is there."""
    there = [int(value) for value in actual]
    remaining = iter(tried)
    broken = []
    if not all(number in remaining for number in there):  # consumes: order and number count
        broken.append(f"{key} holds something that was not written in this order, or twice")
    lost = set(confirmed) - set(there)
    return broken + [f"{key}: {number} was acknowledged and is lost" for number in sorted(lost)]


# -------------------------------------------------------------------------------- messages


def judge_messages(diaries: list[Diary], survivors: Sequence[str]) -> list[str]:
    """Who lived all the time heard every confirmed message, once, in one order; others no gaps."""
    broken: list[str] = []
    listeners = _of(diaries, "listener")
    faithful = [diary for diary in listeners if diary.worker in survivors]
    whole: list[str] = []
    for diary in faithful:
        ((since_ns, heard),) = diary.heard
        if heard[-1:] != [END]:
            broken.append(f"{diary.worker} never heard the end")
        broken += _judge_survivor(diary.worker, since_ns, heard, diaries)
        whole = max(whole, heard, key=len)
    places = {text: place for place, text in enumerate(whole)}
    for diary in listeners:
        for _, heard in diary.heard:
            broken += _judge_slice(diary.worker, heard, places)
    return broken


def _judge_survivor(name: str, since_ns: int, heard: list[str], diaries: list[Diary]) -> list[str]:
    broken = [f"{name} heard {text} {times} times" for text, times in Counter(heard).items() if times > 1]
    had = set(heard)
    tried: set[str] = {END}
    for diary in _of(diaries, "writer"):
        for number in diary.tried("publish"):
            text = f"{diary.worker}:{number}"
            tried.add(text)
            in_time = number in diary.done and diary.started_ns[number] > since_ns
            if in_time and text not in had:
                broken.append(f"{name} missed {text}, which was confirmed")
    return broken + [f"{name} heard {text}, which nobody said" for text in had - tried]


def _judge_slice(name: str, heard: list[str], places: dict[str, int]) -> list[str]:
    """Messages have one order for all, and nobody hears the third after the first."""
    if not places:
        return []
    at = [places.get(text) for text in heard]
    start = at[0] if at else 0
    if None in at or start is None or at != list(range(start, start + len(at))):
        gap = next((n for n in range(1, len(at)) if at[n] != (at[n - 1] or 0) + 1), 0)
        return [f"{name} heard a gap or another order around {heard[max(gap - 1, 0) : gap + 2]}"]
    return []


# ------------------------------------------------------------------------------------ jobs


def judge_jobs(diaries: list[Diary], session: LocalSession) -> list[str]:
    """Every job was taken once or is still there; what a killed popper had in hand may be gone."""
    confirmed, tried = _names(_of(diaries, "writer"), "job")
    poppers = _of(diaries, "popper")
    taken = Counter(job for diary in poppers for jobs in diary.done.values() for job in jobs)
    left = Counter(job.decode() for queue in QUEUES for job in session.execute("LRANGE", queue, "0", "-1"))
    everywhere = taken + left
    broken = [f"job {job} exists {times} times" for job, times in everywhere.items() if times > 1]
    broken += [f"job {job} was never pushed" for job in everywhere.keys() - tried]
    in_hand = sum(
        int(count) for diary in poppers for number, count in diary.tries.items() if number not in diary.done
    )
    missing = confirmed - everywhere.keys()
    if len(missing) > in_hand:
        broken.append(
            f"{len(missing)} jobs are lost, killed poppers had at most {in_hand} in hand: {missing}"
        )
    return broken


def judge_safe_jobs(diaries: list[Diary], session: LocalSession) -> list[str]:
    """Jobs that are moved rather than popped are never lost, and taken by one."""
    confirmed, tried = _names(_of(diaries, "writer"), "safe-job")
    movers = _of(diaries, "mover")
    lists = [SAFE_QUEUE, *(f"taken:{diary.worker}" for diary in movers)]
    there = Counter(job.decode() for key in lists for job in session.execute("LRANGE", key, "0", "-1"))
    finished = Counter(what.split()[1] for diary in movers for what in diary.tries.values() if what != "take")
    took = Counter(job for diary in movers for number, job in diary.done.items() if _took(diary, number))
    sure = {what.split()[1] for diary in movers for number, what in diary.tries.items()
            if what != "take" and number in diary.done}  # fmt: skip
    broken = [f"job {job} is there {times} times" for job, times in there.items() if times > 1]
    broken += [f"job {job} was taken {times} times" for job, times in took.items() if times > 1]
    broken += [f"job {job} was finished and is there" for job in sure & there.keys()]
    broken += [f"job {job} was never pushed" for job in there.keys() - tried]
    broken += [f"job {job} is lost" for job in confirmed - there.keys() - finished.keys()]
    return broken


def _took(diary: Diary, number: int) -> bool:
    return diary.tries[number] == "take" and diary.done[number] is not None
