"""The slot map: what servers answer, in every shape, and what follows from it.

The reply of the first section was recorded from Redis 7.0 in RESP3; the other
shapes are derived from it as the protocol prescribes (``SHAPES``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.router.topology import Node, SlotMap, diff, resolve
from penstock.errors import CommandError, ProtocolError
from penstock.protocol.slots import SLOT_COUNT

ASKED = "seed.example"

# ---------------------------------------------------------------- shapes of one reply


def resp2(reply: Any) -> Any:
    """What RESP2 makes of it: maps are flat arrays."""
    if isinstance(reply, dict):
        return [resp2(item) for pair in reply.items() for item in pair]
    return [resp2(item) for item in reply] if isinstance(reply, list) else reply


def decoded(reply: Any) -> Any:
    """What a connection that decodes makes of it: text instead of bytes."""
    if isinstance(reply, dict):
        return {decoded(name): decoded(value) for name, value in reply.items()}
    if isinstance(reply, list):
        return [decoded(item) for item in reply]
    return reply.decode() if isinstance(reply, bytes) else reply


SHAPES: dict[str, Callable[[Any], Any]] = {
    "resp3": lambda reply: reply,
    "resp2": resp2,
    "resp3 decoded": decoded,
    "resp2 decoded": lambda reply: decoded(resp2(reply)),
}


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return SHAPES[request.param]


def slots(*entries: Any, **options: Any) -> SlotMap:
    return SlotMap.from_slots(list(entries), asked_host=ASKED, **options)


# ---------------------------------------------------------------- recorded replies

SLOTS_7_0 = [
    [
        0,
        8191,
        [b"127.0.0.1", 39883, b"09fb9ddc", {b"hostname": b"a.example"}],
        [b"127.0.0.1", 58947, b"393197c9", {}],
    ],
    [8192, 16383, [b"127.0.0.1", 34557, b"8d4a4dd9", {}]],
]

LOW = Node("127.0.0.1", 39883, "09fb9ddc", "primary")
HIGH = Node("127.0.0.1", 34557, "8d4a4dd9", "primary")
FOLLOWER = Node("127.0.0.1", 58947, "393197c9", "replica")


def test_a_recorded_reply(shape: Callable[[Any], Any]) -> None:
    found = slots(*shape(SLOTS_7_0))
    assert (found.node_of(0), found.node_of(8191), found.node_of(8192), found.node_of(16383)) == (
        LOW,
        LOW,
        HIGH,
        HIGH,
    )
    assert (found.replicas_of(8191), found.replicas_of(8192)) == ((FOLLOWER,), ())
    assert found.primaries == (LOW, HIGH)
    assert found.nodes == (LOW, HIGH, FOLLOWER)
    assert found.is_complete
    assert repr(found) == "<SlotMap 16384/16384 slots, 2 primaries, 1 replicas>"


def test_a_node_that_met_nobody(shape: Callable[[Any], Any]) -> None:
    """It does not know its own address, and serves what it was given."""
    entries = [[1, 2, [b"", 6379, b"x", {}]], [5, 5, [b"", 6379, b"x", {}]]]
    found = slots(*shape(entries))
    assert found.primaries == (Node(ASKED, 6379, "x"),)
    assert [slot for slot in range(20) if found.node_of(slot)] == [1, 2, 5]
    assert found.covered_slots == 3
    assert not found.is_complete


def test_no_slots_at_all() -> None:
    assert slots().covered_slots == 0
    assert slots().nodes == ()
    assert diff(SlotMap.empty(), slots()).is_empty


def test_nodes_of_old_servers_have_no_metadata_or_no_id() -> None:
    found = slots([0, 1, [b"a", 1, b"x"]], [2, 3, [b"b", 2]])
    assert found.primaries == (Node("a", 1, "x"), Node("b", 2, ""))


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("endpoint", "ip", "host"),
    [
        (b"10.0.0.7", b"10.0.0.7", "10.0.0.7"),
        (b"::1", b"::1", "::1"),
        (b"a.example", b"10.0.0.7", "a.example"),
        (b"", b"10.0.0.7", ASKED),
        (None, b"10.0.0.7", ASKED),
        (b"?", b"10.0.0.7", "10.0.0.7"),
    ],
)
def test_which_host_is_used(
    endpoint: bytes | None, ip: bytes, host: str, shape: Callable[[Any], Any]
) -> None:
    found = slots(shape([0, 9, [endpoint, 7000, b"x", {b"ip": ip}]]))
    assert [node.address for node in found.primaries] == [(host, 7000)]


def test_nodes_without_an_address_are_left_out() -> None:
    found = slots(
        [0, 9, [b"?", 7000, b"x", {}], [b"a", 7001, b"y", {}]],
        [10, 19, [b"a", 0, b"z", {}]],
        [20, 29, [b"a", 7002, b"p", {}], [b"?", 7003, b"r", {}], [b"a", 7004, b"s", {}]],
    )
    assert found.covered_slots == 10
    assert found.nodes == (Node("a", 7002, "p"), Node("a", 7004, "s", "replica"))
    assert found.replicas_of(5) == ()


def test_every_address_is_translated_once() -> None:
    seen = []

    def tunnel(host: str, port: int) -> tuple[str, int]:
        seen.append((host, port))
        return "localhost", port + 10_000

    entry = [
        0,
        9,
        [b"10.0.0.1", 7000, b"x", {}],
        [None, 7001, b"y", {}],
        [b"?", 7002, b"z", {b"ip": b"10.0.0.3"}],
    ]
    found = slots(entry, address_map=tunnel)
    assert seen == [("10.0.0.1", 7000), (ASKED, 7001), ("10.0.0.3", 7002)]
    assert [node.address for node in found.nodes] == [("localhost", port) for port in (17000, 17001, 17002)]


def test_addresses_of_redirections_are_read_alike() -> None:
    assert resolve("10.0.0.1", 1, asked_host=ASKED) == ("10.0.0.1", 1)
    assert resolve("", 1, asked_host=ASKED) == (ASKED, 1)
    assert resolve("", 1, asked_host=ASKED, address_map=lambda host, port: (host.upper(), -port)) == (
        "SEED.EXAMPLE",
        -1,
    )


def test_a_node_prints_as_an_address() -> None:
    assert [str(Node("a", 1)), str(Node("::1", 1))] == ["a:1", "[::1]:1"]


# ---------------------------------------------------------------- replies that make no sense


def node_entry(*node: Any) -> list[Any]:
    return [[0, 9, list(node)]]


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (None, "the reply to CLUSTER SLOTS should be an array, not None"),
        ([7], "entry 0 of CLUSTER SLOTS should be an array, not 7"),
        (
            [[0, 9, [b"a", 1]], [0, 9]],
            "entry 1 of CLUSTER SLOTS should be a first slot, a last slot and nodes",
        ),
        ([[0, 16384, [b"a", 1]]], "a slot of entry 0 of CLUSTER SLOTS should be in 0..16383, not 16384"),
        ([[-1, 9, [b"a", 1]]], "a slot of entry 0 of CLUSTER SLOTS should be in 0..16383, not -1"),
        ([[b"x", 9, [b"a", 1]]], "a slot of entry 0 of CLUSTER SLOTS should be an integer, not b'x'"),
        ([[9, 8, [b"a", 1]]], "should be ranges that begin before they end, not [9, 8]"),
        (node_entry(b"a"), "the primary in entry 0 of CLUSTER SLOTS should be a host, a port and an id"),
        (node_entry(5, 1), "the host of the primary in entry 0 of CLUSTER SLOTS should be text, not 5"),
        (node_entry(b"\xff", 1), "should be text, not b'\\xff'"),
        (node_entry(b"a", None), "the port of the primary in entry 0 of CLUSTER SLOTS should be an integer"),
        (node_entry(b"a", 65536), "should be in 0..65535, not 65536"),
        (node_entry(b"a", 1, None), "the id of the primary in entry 0 of CLUSTER SLOTS should be text"),
        (
            node_entry(b"a", 1, b"x", [b"ip"]),
            "the metadata of the primary in entry 0 of CLUSTER SLOTS should be a map",
        ),
        (node_entry(b"a", 1, b"x", {5: b"ip"}), "should be text, not 5"),
        ([[0, 9, [b"a", 1], [b"b"]]], "a replica in entry 0 of CLUSTER SLOTS should be a host"),
        (b"x" * 500, "not b'" + "x" * 118 + "…"),
    ],
)
def test_bad_slots(reply: Any, text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        SlotMap.from_slots(reply, asked_host=ASKED)
    assert text in str(caught.value)


def test_an_error_reply_is_raised_as_it_is() -> None:
    error = CommandError("ERR This instance has cluster support disabled")
    with pytest.raises(CommandError) as caught:
        SlotMap.from_slots(error, asked_host=ASKED)
    assert caught.value is error


# ---------------------------------------------------------------- redirections and differences


def test_a_redirection_moves_one_slot() -> None:
    before = slots(*SLOTS_7_0)
    after = before.with_slot_moved(100, Node(*HIGH.address))
    assert after.node_of(100) is before.node_of(8192)  # with its id
    assert after.replicas_of(100) == ()
    assert (before.node_of(100), before.replicas_of(100)) == (LOW, (FOLLOWER,))
    assert (after.node_of(99), after.node_of(101)) == (LOW, LOW)
    assert diff(before, after).moved_slots == (100,)
    back = after.with_slot_moved(100, LOW)
    assert back.replicas_of(100) == (FOLLOWER,)
    assert diff(before, back).is_empty


def test_a_redirection_to_the_owner_changes_nothing() -> None:
    before = slots(*SLOTS_7_0)
    assert before.with_slot_moved(100, Node(*LOW.address)) is before


def test_a_redirection_to_a_stranger() -> None:
    before = slots(*SLOTS_7_0)
    stranger = Node("10.0.0.9", 1)
    after = before.with_slot_moved(100, stranger).with_slot_moved(200, Node("10.0.0.9", 1))
    assert after.node_of(100) is after.node_of(200)
    assert after.primaries == (LOW, stranger, HIGH)
    assert diff(before, after).added == (stranger,)
    assert diff(after, before).removed == (stranger,)


def test_a_redirection_to_a_replica_promotes_it() -> None:
    before = slots(*SLOTS_7_0)
    after = before.with_slot_moved(100, Node(*FOLLOWER.address)).with_slot_moved(101, Node(*FOLLOWER.address))
    promoted = Node("127.0.0.1", 58947, "393197c9", "primary")
    assert after.node_of(100) == promoted
    assert after.node_of(100) is after.node_of(101)
    assert diff(before, after).changed_roles == (promoted,)
    assert diff(before, after).added == ()
    assert len(after.nodes) == 3


def test_a_redirection_to_an_address_of_both_roles() -> None:
    """All replicas and primaries behind one proxy: a primary there is still one object."""
    before = slots([0, 9, [b"a", 1, b"x"], [b"b", 2, b"y"]], [10, 19, [b"b", 2, b"z"]])
    after = before.with_slot_moved(0, Node("b", 2))
    assert after.node_of(0) is before.node_of(10)
    assert len(after.primaries) == 2


@pytest.mark.parametrize("slot", [-1, SLOT_COUNT])
def test_a_slot_that_does_not_exist_cannot_move(slot: int) -> None:
    with pytest.raises(ValueError, match=r"is not in 0\.\.16383"):
        SlotMap.empty().with_slot_moved(slot, LOW)


def test_a_failover_as_a_difference() -> None:
    before = slots([0, 9, [b"a", 1, b"x"], [b"b", 2, b"y"]], [10, 19, [b"c", 3, b"z"]])
    after = slots([0, 9, [b"b", 2, b"y"], [b"d", 4, b"w"]], [10, 18, [b"c", 3, b"z"]])
    found = diff(before, after)
    assert found.added == (Node("d", 4, "w", "replica"),)
    assert found.removed == (Node("a", 1, "x"),)
    assert found.moved_slots == (*range(10), 19)
    assert found.changed_roles == (Node("b", 2, "y"),)
    assert not found.is_empty


def test_another_id_at_the_same_address_is_the_same_node() -> None:
    assert diff(slots([0, 9, [b"a", 1, b"x"]]), slots([0, 9, [b"a", 1, b"y"]])).is_empty


# ---------------------------------------------------------------- against a model

#: Each example looks at all slots several times; the deadline would measure the machine.
thorough = settings(max_examples=40, deadline=None)


@dataclass
class Shard:
    """One primary's share, from which a reply is made."""

    primary: Node
    replicas: tuple[Node, ...]
    ranges: list[tuple[int, int]]

    def as_slots(self) -> list[Any]:
        nodes = [self.primary, *self.replicas]
        described = [[node.host.encode(), node.port, node.id.encode(), {}] for node in nodes]
        return [[first, last, *described] for first, last in self.ranges]


@st.composite
def clusters(draw: st.DrawFn) -> list[Shard]:
    """Up to five primaries with up to three replicas each; slots in runs, some served by nobody."""
    ports = iter(range(7000, 7100))
    hosts = st.sampled_from(["a", "b.example", "::1"])
    shards: list[Shard] = []
    for _ in range(draw(st.integers(1, 5))):
        port = next(ports)
        count = draw(st.integers(0, 3))
        replicas = tuple(
            Node(draw(hosts), number, f"id{number}", "replica") for number in islice(ports, count)
        )
        shards.append(Shard(Node(draw(hosts), port, f"id{port}"), replicas, []))
    bounds = sorted(draw(st.sets(st.integers(1, SLOT_COUNT - 1), max_size=12)) | {0, SLOT_COUNT})
    for first, end in pairwise(bounds):
        owner = draw(st.sampled_from([None, *shards]))
        if owner is not None:
            owner.ranges.append((first, end - 1))
    return shards


def owners_of(cluster: list[Shard]) -> list[Shard | None]:
    owners: list[Shard | None] = [None] * SLOT_COUNT
    for shard in cluster:
        for first, last in shard.ranges:
            owners[first : last + 1] = [shard] * (last + 1 - first)
    return owners


def read_slots(cluster: list[Shard]) -> SlotMap:
    return slots(*(entry for shard in cluster for entry in shard.as_slots()))


@thorough
@given(clusters(), st.sampled_from(sorted(SHAPES)))
def test_every_form_of_a_cluster_reads_back_as_it(cluster: list[Shard], shape_name: str) -> None:
    found = slots(*SHAPES[shape_name]([entry for shard in cluster for entry in shard.as_slots()]))
    owners = owners_of(cluster)
    assert [found.node_of(slot) for slot in range(SLOT_COUNT)] == [
        owner and owner.primary for owner in owners
    ]
    assert [found.replicas_of(slot) for slot in range(SLOT_COUNT)] == [
        owner.replicas if owner else () for owner in owners
    ]
    assert found.covered_slots == sum(owner is not None for owner in owners)
    assert found.is_complete == all(owners)
    assert {*found.primaries} == {shard.primary for shard in cluster if shard.ranges}


@thorough
@given(clusters(), clusters())
def test_a_difference_leads_from_one_map_to_the_other(old: list[Shard], new: list[Shard]) -> None:
    before, after = read_slots(old), read_slots(new)
    found = diff(before, after)
    old_addresses = {node.address for node in before.nodes}
    new_addresses = {node.address for node in after.nodes}
    assert {node.address for node in found.added} == new_addresses - old_addresses
    assert {node.address for node in found.removed} == old_addresses - new_addresses
    expected = [
        slot
        for slot in range(SLOT_COUNT)
        if getattr(before.node_of(slot), "address", None) != getattr(after.node_of(slot), "address", None)
    ]
    assert list(found.moved_slots) == expected


MOVES = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 8000, SLOT_COUNT - 1]), st.integers(6999, 7004)), max_size=12
)


@thorough
@given(clusters(), MOVES)
def test_redirections_one_by_one(cluster: list[Shard], moves: list[tuple[int, int]]) -> None:
    first = current = read_slots(cluster)
    model = {slot: getattr(first.node_of(slot), "address", None) for slot in range(SLOT_COUNT)}
    original = dict(model)
    for slot, port in moves:
        current = current.with_slot_moved(slot, Node("a", port))
        model[slot] = ("a", port)
    assert {slot: getattr(current.node_of(slot), "address", None) for slot in model} == model
    assert all(node.role == "primary" for node in current.primaries)
    assert len({node.address for node in current.primaries}) == len(current.primaries)
    assert {slot: getattr(first.node_of(slot), "address", None) for slot in original} == original
    assert list(diff(first, current).moved_slots) == [slot for slot in model if model[slot] != original[slot]]
