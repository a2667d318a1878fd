"""The weather of a scene, drawn from a seed before it begins: what happens, when, to whom, how much.

    plan = draw(seed, seconds, offer)
    for event in plan: …

A fault belongs to a lane. Lanes go on at the same time; in a lane one thing happens after the other, so that
a server is not killed while its disk is full already. Within a lane kinds are taken from a bag with their
shares in it, which is filled again when it is empty: each kind comes early and often, whatever the seed.

===========  =========================================================  =========  ====================
kind         what happens                                               lane       amount
===========  =========================================================  =========  ====================
kill         a member is killed, and replaced                           members    –
stop         a member is stopped (SIGSTOP) for a while                  members    –
clock        the clocks of all members jump, and jump back              clock      milliseconds
store-kill   a process of the store is killed, and started again        store      –
store-stop   … is stopped for a while                                   store      –
disk-full    the disk of the store has no byte left for a while         store      –
failover     a replica takes over from its primary                      store      –
cut          connections are reset                                      network    share of connections
delay        all bytes are late for a while                             network    milliseconds a piece
silence      bytes vanish for a while, then connections are reset       network    –
===========  =========================================================  =========  ====================

Rules: pure; the same arguments give the same plan, on every machine. Each lane has dice of its own, so that a
scene that lacks one kind sees the others as before. Everything has ended when the time is over.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

Kind: TypeAlias = Literal[
    "kill", "stop", "clock", "store-kill", "store-stop", "disk-full", "failover", "cut", "delay", "silence"
]
Lane: TypeAlias = Literal["members", "clock", "store", "network"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
#: What happens to members in every scene.
KINDS_OF_MEMBERS: Final[frozenset[Kind]] = frozenset({"kill", "stop", "clock"})
#: The target of what happens to everybody at once.
ALL: Final = "all"
#: Clocks jump by at most so much, forward or backward.
MOST_SHIFT_MS: Final = 20_000
#: Nobody is stopped for longer.
MOST_STOPPED_S: Final = 3.0
#: Beside one node, how often all of them are meant.
_SHARE_OF_ALL: Final = 0.25


@dataclass(frozen=True, slots=True)
class Event:
    """One fault. ``lasts_s`` is how long until it is taken back; 0 where nothing is."""

    at_s: float
    kind: Kind
    target: str
    amount: float = 0.0
    lasts_s: float = 0.0

    def __str__(self) -> str:
        amount = f" by {self.amount:g}" if self.amount else ""
        lasts = f" for {self.lasts_s:.3f} s" if self.lasts_s else ""
        return f"{self.at_s:9.3f}  {self.kind:<10}  {self.target}{amount}{lasts}"


@dataclass(frozen=True, slots=True)
class Offer:
    """What a scene has to be hurt."""

    kinds: frozenset[Kind]
    #: name → how likely it is chosen beside the others
    members: Mapping[str, float] = field(default_factory=dict)
    #: the processes of the store, by name
    nodes: Sequence[str] = ()


def seed_of_life(seed: int, member: str, life: int) -> int:
    """The seed of one life of a member."""
    return random.Random(f"{seed}/{member}/{life}").randrange(1 << 32)


def draw(seed: int, seconds: float, offer: Offer) -> list[Event]:
    """All events, in their order."""
    if seconds <= 0:
        raise ValueError(f"seconds must be more than 0, not {seconds:g}")
    events = [event for lane in _LANES for event in _events_of(lane, seed, seconds, offer)]
    return sorted(events, key=lambda event: event.at_s)


# ------------------------------------------------------------------------------------- lanes


@dataclass(frozen=True, slots=True)
class _Lane:
    name: Lane
    #: between the end of one fault and the next, in the mean
    pause_s: float
    #: how many of each are in the bag
    bag: Mapping[Kind, int]


_LANES: Final = (
    _Lane("members", 0.6, {"kill": 4, "stop": 1}),
    _Lane("clock", 4.0, {"clock": 1}),
    _Lane("store", 3.0, {"store-kill": 2, "store-stop": 1, "disk-full": 1, "failover": 2}),
    _Lane("network", 1.5, {"cut": 3, "delay": 1, "silence": 1}),
)
#: Lanes whose faults need not wait for one another: members are many.
CROWDED: Final = frozenset[Lane]({"members"})
LANE_OF: Final[Mapping[Kind, Lane]] = {kind: lane.name for lane in _LANES for kind in lane.bag}


def _events_of(lane: _Lane, seed: int, seconds: float, offer: Offer) -> Iterator[Event]:
    bag = [kind for kind, count in lane.bag.items() if kind in offer.kinds for _ in range(count)]
    if not bag:
        return
    dice = random.Random(f"{seed}/{lane.name}")
    kinds = _from_bag(bag, dice)
    # However short it is, something happens.
    at_s = dice.random() * min(lane.pause_s, seconds / 2)
    while at_s < seconds:
        event = _event(next(kinds), _whole_ms(at_s), seconds, offer, dice)
        yield event
        end_s = at_s if lane.name in CROWDED else at_s + event.lasts_s
        at_s = end_s + dice.expovariate(1 / lane.pause_s)


def _from_bag(bag: Sequence[Kind], dice: random.Random) -> Iterator[Kind]:
    while True:
        yield from dice.sample(bag, len(bag))


def _event(kind: Kind, at_s: float, seconds: float, offer: Offer, dice: random.Random) -> Event:
    target = _TARGETS[kind](offer, dice)
    amount, lasts_s = _SIZES[kind](dice)
    return Event(at_s, kind, target, amount, _whole_ms(min(lasts_s, seconds - at_s)))


def _whole_ms(seconds: float) -> float:
    """Milliseconds are enough, and can be read. Never more than it was."""
    return math.floor(seconds * 1_000) / 1_000


# ----------------------------------------------------------------------------- targets, sizes


def _a_member(offer: Offer, dice: random.Random) -> str:
    return dice.choices(list(offer.members), list(offer.members.values()))[0]


def _a_node(offer: Offer, dice: random.Random) -> str:
    return dice.choice(list(offer.nodes))


def _a_node_or_all(offer: Offer, dice: random.Random) -> str:
    return ALL if dice.random() < _SHARE_OF_ALL else _a_node(offer, dice)


def _everybody(offer: Offer, dice: random.Random) -> str:
    return ALL


_TARGETS: Final[Mapping[Kind, Callable[[Offer, random.Random], str]]] = {
    "kill": _a_member,
    "stop": _a_member,
    "clock": _everybody,
    "store-kill": _a_node_or_all,
    "store-stop": _a_node,
    "disk-full": _everybody,
    "failover": _a_node,
    "cut": _a_node_or_all,
    "delay": _a_node_or_all,
    "silence": _a_node_or_all,
}

#: amount and duration
_SIZES: Final[Mapping[Kind, Callable[[random.Random], tuple[float, float]]]] = {
    "kill": lambda dice: (0.0, 0.0),
    "stop": lambda dice: (0.0, dice.uniform(0.05, MOST_STOPPED_S)),
    "clock": lambda dice: (float(_shift_ms(dice)), dice.uniform(0.2, 5.0)),
    "store-kill": lambda dice: (0.0, dice.uniform(0.0, 2.0)),
    "store-stop": lambda dice: (0.0, dice.uniform(0.05, MOST_STOPPED_S)),
    "disk-full": lambda dice: (0.0, dice.uniform(0.5, 3.0)),
    "failover": lambda dice: (0.0, 0.0),
    "cut": lambda dice: (dice.choice((0.2, 0.5, 1.0)), 0.0),
    "delay": lambda dice: (float(dice.randrange(1, 80)), dice.uniform(0.2, 3.0)),
    "silence": lambda dice: (0.0, dice.uniform(0.2, 4.0)),
}


def _shift_ms(dice: random.Random) -> int:
    """Small jumps are as likely as large ones."""
    size_ms = int(10 ** dice.uniform(2, 4.302))
    return dice.choice((-1, 1)) * min(size_ms, MOST_SHIFT_MS)
