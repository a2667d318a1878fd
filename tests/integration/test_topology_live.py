"""The slot map and split commands against real clusters, of Valkey and of Redis.

What a map says is checked by asking the nodes themselves; nothing is assumed of who serves what,
so the tests do not depend on their order. One node stays the witness and is never harmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.client.router.sentinel_replies import PrimaryRole, ReplicaRole, parse_role
from penstock.client.router.splitting import same_slot, split
from penstock.client.router.topology import Node, SlotMap, diff, resolve
from penstock.errors import CommandError
from penstock.protocol.slots import SLOT_COUNT, key_slot
from penstock.testing.clusters import RealCluster, start_cluster
from penstock.testing.control import HOST
from penstock.testing.servers import RealServer, ServerUnavailableError, find_server
from tests.integration.wire import Wire, connect
from tests.places import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["valkey", "redis"])
def cluster(request: pytest.FixtureRequest) -> Iterator[RealCluster]:
    try:
        binary = find_server(request.param)
    except ServerUnavailableError as error:
        pytest.skip(str(error))
    # A replica is listed once its offset has moved, which takes a ping from its primary: usually ten seconds.
    options = {"cluster-node-timeout": "1000", "repl-ping-replica-period": "1"}
    with start_cluster(3, 1, binary=binary, options=options) as running:
        yield running


@pytest.fixture
def witness(cluster: RealCluster) -> Iterator[Wire]:
    with connect(cluster.nodes[0].port, 3) as wire:
        wait_until(lambda: len(look(wire).nodes) == sum(node.is_running for node in cluster.nodes))
        yield wire


def look(wire: Wire) -> SlotMap:
    return SlotMap.from_slots(wire.do("CLUSTER", "SLOTS"), asked_host=HOST)


def agree(one: SlotMap, other: SlotMap) -> bool:
    return diff(one, other).is_empty and set(one.nodes) == set(other.nodes)


def ask(node: Node | None, *args: Any, before: tuple[Any, ...] = ("PING",)) -> Any:
    """The answer of one node, on a connection that sent ``before`` first."""
    assert node is not None
    with connect(node.port) as wire:
        assert not isinstance(wire.do(*before), CommandError)
        return wire.do(*args)


def moved_to(reply: Any) -> tuple[int, tuple[str, int]]:
    assert isinstance(reply, CommandError), reply
    code, slot, address = str(reply).split()
    assert code == "MOVED"
    host, _, port = address.rpartition(":")
    return int(slot), resolve(host, int(port), asked_host=HOST)


def test_every_node_in_both_protocols_draws_the_same_map(cluster: RealCluster, witness: Wire) -> None:
    expected = look(witness)
    assert expected.is_complete
    assert len(expected.primaries) == 3
    for server in cluster.nodes:
        if not server.is_running:
            continue
        for hello in ((), (3,)):
            with connect(server.port, *hello) as wire:
                wait_until(lambda wire=wire: agree(look(wire), expected))
        mine = [node for node in expected.nodes if node.port == server.port]
        assert [node.id.encode() for node in mine] == [server.execute("CLUSTER", "MYID")]
        role = parse_role(server.execute("ROLE"))
        assert isinstance(role, PrimaryRole if mine[0].role == "primary" else ReplicaRole)


def test_nodes_serve_what_the_map_says(witness: Wire) -> None:
    known = look(witness)
    for number in range(30):
        key = f"key-{number}".encode()
        slot = key_slot(key)
        owner = known.node_of(slot)
        assert owner is not None
        assert ask(owner, "SET", key, number) == b"OK"
        for replica in known.replicas_of(slot):
            assert isinstance(ask(replica, "EXISTS", key, before=("READONLY",)), int)
            assert moved_to(ask(replica, "GET", key)) == (slot, owner.address)
        for other in known.primaries:
            if other != owner:
                assert moved_to(ask(other, "GET", key)) == (slot, owner.address)


def test_split_commands_run_on_their_nodes(witness: Wire) -> None:
    known = look(witness)

    def run(*args: Any) -> Any:
        work = split(args)
        assert len(work.parts) > 1
        return work.merge([ask(known.node_of(slot), *part) for slot, part in work.parts])

    keys = [f"split-{number}" for number in range(12)] + ["{split-3}same"]
    assert run("MSET", *(word for key in keys for word in (key, f"value of {key}"))) == b"OK"
    wanted = [keys[5], "split-absent", *keys, keys[5]]
    expected = [None if key == "split-absent" else f"value of {key}".encode() for key in wanted]
    assert run("MGET", *wanted) == expected
    assert run("EXISTS", *wanted) == 15
    assert run("TOUCH", *wanted) == 15
    assert run("UNLINK", *keys[:4]) == 4
    assert run("DEL", *keys) == 9
    assert run("MGET", *keys) == [None] * 13


def test_keys_of_several_slots_are_refused_in_the_servers_words(witness: Wire) -> None:
    with pytest.raises(CommandError) as ours:
        same_slot(["a", "b"])
    theirs = ask(look(witness).node_of(key_slot(b"a")), "MGET", "a", "b")
    assert str(ours.value) == str(theirs)


def test_a_slot_moves_while_we_look(witness: Wire) -> None:
    before = look(witness)
    slot = next(number for number in range(SLOT_COUNT) if not keys_in(before, number))
    key = key_in(slot)
    old, new = before.node_of(slot), next(node for node in before.primaries if node != before.node_of(slot))
    assert old is not None
    # The whole procedure: only an importing node takes the higher epoch that convinces the others.
    assert ask(new, "CLUSTER", "SETSLOT", slot, "IMPORTING", old.id) == b"OK"
    assert ask(old, "CLUSTER", "SETSLOT", slot, "MIGRATING", new.id) == b"OK"
    for node in (new, old):
        assert ask(node, "CLUSTER", "SETSLOT", slot, "NODE", new.id) == b"OK"

    where, address = moved_to(ask(old, "GET", key))
    patched = before.with_slot_moved(where, Node(*address))
    assert patched.node_of(slot) == new
    assert ask(patched.node_of(slot), "GET", key) is None
    assert diff(before, patched).moved_slots == (slot,)
    with connect(new.port) as wire:
        assert agree(look(wire), patched)
    wait_until(lambda: agree(look(witness), patched))


def keys_in(known: SlotMap, slot: int) -> int:
    count: int = ask(known.node_of(slot), "CLUSTER", "COUNTKEYSINSLOT", slot)
    return count


def key_in(slot: int) -> bytes:
    return next(key for key in (b"%d" % number for number in range(1_000_000)) if key_slot(key) == slot)


def test_names_instead_of_addresses(cluster: RealCluster, witness: Wire) -> None:
    server = cluster.nodes[0]
    by_address = look(witness)
    with configured(server, "cluster-announce-hostname", "localhost", ""):
        with configured(server, "cluster-preferred-endpoint-type", "hostname", "ip"):
            named = look(witness)
            assert {node.port: node.host for node in named.nodes if node.host != HOST} == {
                server.port: "localhost"
            }
            assert [node.port for node in named.nodes] == [node.port for node in by_address.nodes]
        with configured(server, "cluster-preferred-endpoint-type", "unknown-endpoint", "ip"):
            assert agree(look(witness), by_address)
            foreign = next(slot for slot in range(SLOT_COUNT) if owner_port(by_address, slot) != server.port)
            reply = witness.do("GET", key_in(foreign))
            assert f" :{owner_port(by_address, foreign)}" in str(reply)
            assert moved_to(reply) == (foreign, (HOST, owner_port(by_address, foreign)))
    assert agree(look(witness), by_address)


def owner_port(known: SlotMap, slot: int) -> int:
    owner = known.node_of(slot)
    assert owner is not None
    return owner.port


class configured:  # noqa: N801 - reads as a clause
    """A setting for the length of a block."""

    def __init__(self, server: RealServer, name: str, value: str, usual: str) -> None:
        self._set: Callable[[str], Any] = lambda word: server.execute("CONFIG", "SET", name, word)
        self._value, self._usual = value, usual

    def __enter__(self) -> None:
        self._set(self._value)

    def __exit__(self, *_: object) -> None:
        self._set(self._usual)


def test_a_replica_takes_over(cluster: RealCluster, witness: Wire) -> None:
    """At every moment of it the two commands tell the same (``look`` checks that)."""
    before = look(witness)
    victim = next(
        node
        for node in before.primaries
        if node.port != cluster.nodes[0].port and before.replicas_of(slot_of(before, node))
    )
    lost = [slot for slot in range(SLOT_COUNT) if before.node_of(slot) == victim]
    (heir,) = before.replicas_of(lost[0])
    next(server for server in cluster.nodes if server.port == victim.port).stop()

    wait_until(lambda: look(witness).node_of(lost[0]) != victim)
    after = look(witness)
    change = diff(before, after)
    promoted = Node(heir.host, heir.port, heir.id, "primary")
    assert (change.added, change.removed) == ((), (victim,))
    assert change.changed_roles == (promoted,)
    assert list(change.moved_slots) == lost
    assert after.is_complete
    wait_until(lambda: ask(after.node_of(lost[0]), "SET", key_in(lost[0]), "x") == b"OK")


def slot_of(known: SlotMap, node: Node) -> int:
    return next(slot for slot in range(SLOT_COUNT) if known.node_of(slot) == node)
