"""What Sentinels and ROLE answer. The replies were recorded from Redis 7.0 and Valkey 9.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.router.sentinel_replies import (
    SWITCH_CHANNEL,
    FollowerOffset,
    Peer,
    PrimaryRole,
    ReplicaRole,
    SentinelRole,
    Switch,
    parse_primary_address,
    parse_replicas,
    parse_role,
    parse_sentinels,
    parse_switch,
)
from penstock.errors import CommandError, ProtocolError


def flat(peers: list[dict[bytes, bytes]]) -> list[list[bytes]]:
    """The same peers in RESP2."""
    return [[word for pair in peer.items() for word in pair] for peer in peers]


def decoded(value: Any) -> Any:
    if isinstance(value, dict):
        return {decoded(name): decoded(field) for name, field in value.items()}
    if isinstance(value, list):
        return [decoded(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


SHAPES: dict[str, Callable[[Any], Any]] = {
    "resp3": lambda reply: reply,
    "resp2": flat,
    "resp3 decoded": decoded,
    "resp2 decoded": lambda reply: decoded(flat(reply)),
}


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return SHAPES[request.param]


def tunnel(host: str, port: int) -> tuple[str, int]:
    return f"via-{host}", port + 1


# ---------------------------------------------------------------- the primary's address


@pytest.mark.parametrize("reply", [[b"127.0.0.1", b"38357"], ["127.0.0.1", "38357"], [b"127.0.0.1", 38357]])
def test_the_primary(reply: Any) -> None:
    assert parse_primary_address(reply) == ("127.0.0.1", 38357)
    assert parse_primary_address(reply, address_map=tunnel) == ("via-127.0.0.1", 38358)


def test_a_name_that_the_sentinel_does_not_know() -> None:
    assert parse_primary_address(None) is None


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (b"x", "the primary's address should be an array, not b'x'"),
        ([b"a"], "the primary's address should be a host and a port, not [b'a']"),
        ([b"a", b"b"], "the port of the primary's address should be an integer, not b'b'"),
        ([b"a", b"65536"], "the port of the primary's address should be in 0..65535"),
        ([None, b"1"], "the host of the primary's address should be text, not None"),
    ],
)
def test_a_bad_address(reply: Any, text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_primary_address(reply)
    assert text in str(caught.value)


# ---------------------------------------------------------------- peers

SENTINEL = {
    b"name": b"789f6597",
    b"ip": b"127.0.0.1",
    b"port": b"47465",
    b"runid": b"789f6597",
    b"flags": b"sentinel",
    b"link-pending-commands": b"0",
    b"link-refcount": b"1",
    b"last-ping-sent": b"0",
    b"last-ok-ping-reply": b"59",
    b"last-ping-reply": b"59",
    b"down-after-milliseconds": b"500",
    b"last-hello-message": b"97",
    b"voted-leader": b"?",
    b"voted-leader-epoch": b"0",
}
REPLICA = {
    b"name": b"127.0.0.1:43481",
    b"ip": b"127.0.0.1",
    b"port": b"43481",
    b"runid": b"66f51beb",
    b"flags": b"slave",
    b"link-pending-commands": b"0",
    b"down-after-milliseconds": b"500",
    b"info-refresh": b"938",
    b"role-reported": b"slave",
    b"master-link-down-time": b"0",
    b"master-link-status": b"ok",
    b"master-host": b"127.0.0.1",
    b"master-port": b"38357",
    b"slave-priority": b"90",
    b"slave-repl-offset": b"1234",
    b"replica-announced": b"1",
}
#: The former primary, an instant after the failover.
JUST_LOST = REPLICA | {
    b"port": b"38357",
    b"runid": b"",
    b"flags": b"slave,disconnected",
    b"master-link-status": b"err",
    b"master-host": b"?",
    b"master-port": b"0",
    b"slave-priority": b"100",
    b"slave-repl-offset": b"0",
}


def test_sentinels(shape: Callable[[Any], Any]) -> None:
    reply = shape([SENTINEL, SENTINEL | {b"port": b"1", b"flags": b"s_down,sentinel,disconnected"}])
    up, down = parse_sentinels(reply)
    assert up == Peer("127.0.0.1", 47465, "789f6597", frozenset({"sentinel"}))
    assert (up.address, up.is_down, up.is_disconnected) == (("127.0.0.1", 47465), False, False)
    assert (down.address, down.is_down, down.is_disconnected) == (("127.0.0.1", 1), True, True)


def test_replicas(shape: Callable[[Any], Any]) -> None:
    good, lost = parse_replicas(shape([REPLICA, JUST_LOST]))
    assert (good.address, good.run_id, good.flags) == (("127.0.0.1", 43481), "66f51beb", {"slave"})
    assert (good.is_linked, good.priority, good.offset, good.is_announced) == (True, 90, 1234, True)
    assert (good.is_readable, good.is_down) == (True, False)
    assert (lost.is_linked, lost.priority, lost.offset) == (False, 100, 0)
    assert (lost.is_readable, lost.is_down, lost.is_disconnected) == (False, False, True)


@pytest.mark.parametrize(
    ("change", "is_down", "is_readable"),
    [
        ({b"flags": b"slave"}, False, True),
        ({b"flags": b"s_down,slave"}, True, False),
        ({b"flags": b"o_down,slave"}, True, False),
        ({b"flags": b"s_down,slave,disconnected"}, True, False),
        ({b"flags": b"slave,disconnected"}, False, False),
        ({b"flags": b"slave,reconf_sent"}, False, True),
        ({b"replica-announced": b"0"}, False, False),
        ({b"master-link-status": b"err"}, False, True),
    ],
)
def test_which_replicas_may_be_read(change: dict[bytes, bytes], is_down: bool, is_readable: bool) -> None:
    (replica,) = parse_replicas([REPLICA | change])
    assert (replica.is_down, replica.is_readable) == (is_down, is_readable)


def test_old_sentinels_say_less() -> None:
    (replica,) = parse_replicas([{b"ip": b"a", b"port": b"1", b"flags": b"slave"}])
    assert (replica.run_id, replica.is_linked, replica.is_announced, replica.is_readable) == (
        "",
        False,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("parse", "peer"), [(parse_sentinels, SENTINEL), (parse_replicas, REPLICA)], ids=["sentinels", "replicas"]
)
def test_peers_in_general(parse: Callable[..., list[Peer]], peer: dict[bytes, bytes]) -> None:
    assert parse([]) == []
    assert [each.host for each in parse([peer], address_map=tunnel)] == ["via-127.0.0.1"]
    error = CommandError("ERR No such master with that name")
    with pytest.raises(CommandError) as refused:
        parse(error)
    assert refused.value is error


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (None, "the reply to SENTINEL REPLICAS should be an array, not None"),
        ([b"x"], "entry 0 of SENTINEL REPLICAS should be a map, not b'x'"),
        ([REPLICA, [b"ip"]], "entry 1 of SENTINEL REPLICAS should be a map"),
        ([{**REPLICA, b"port": b"x"}], "the port of entry 0 of SENTINEL REPLICAS should be an integer"),
        ([{b"port": b"1"}], "the host of entry 0 of SENTINEL REPLICAS should be text, not None"),
        ([{b"ip": b"a", b"port": b"1"}], "the flags of entry 0 of SENTINEL REPLICAS should be text"),
        ([{**REPLICA, b"slave-priority": b"high"}], "the priority of entry 0 of SENTINEL REPLICAS"),
    ],
)
def test_bad_peers(reply: Any, text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_replicas(reply)
    assert text in str(caught.value)


# ---------------------------------------------------------------- ROLE


@pytest.mark.parametrize("change", [lambda reply: reply, decoded], ids=["bytes", "text"])
@pytest.mark.parametrize(
    ("reply", "role"),
    [
        ([b"master", 0, []], PrimaryRole(0, ())),
        (
            [b"master", 14, [[b"127.0.0.1", b"48893", b"0"], [b"::1", b"1", b"14"]]],
            PrimaryRole(14, (FollowerOffset("127.0.0.1", 48893, 0), FollowerOffset("::1", 1, 14))),
        ),
        ([b"slave", b"127.0.0.1", 60921, b"connected", 14], ReplicaRole("127.0.0.1", 60921, "connected", 14)),
        ([b"slave", b"127.0.0.1", 60921, b"handshake", -1], ReplicaRole("127.0.0.1", 60921, "handshake", -1)),
        ([b"sentinel", [b"mymaster", b"other"]], SentinelRole(("mymaster", "other"))),
    ],
)
def test_roles(reply: Any, role: Any, change: Callable[[Any], Any]) -> None:
    assert parse_role(change(reply)) == role


def test_whether_a_replica_follows() -> None:
    assert ReplicaRole("a", 1, "connected", 0).is_linked
    assert not ReplicaRole("a", 1, "sync", 0).is_linked


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (None, "the reply to ROLE should be an array, not None"),
        ([], "the reply to ROLE should be that of a primary, a replica or a Sentinel, not []"),
        ([b"boss", 1, []], "should be that of a primary, a replica or a Sentinel"),
        ([b"master", 1], "should be that of a primary, a replica or a Sentinel"),
        ([5], "the role should be text, not 5"),
        ([b"master", b"x", []], "the offset of ROLE should be an integer, not b'x'"),
        ([b"master", 1, [[b"a", b"1"]]], "a replica of ROLE should be a host, a port and an offset"),
        ([b"slave", b"a", b"x", b"connected", 1], "the primary's port of ROLE should be an integer"),
        ([b"sentinel", None], "the names of ROLE should be an array, not None"),
    ],
)
def test_bad_roles(reply: Any, text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_role(reply)
    assert text in str(caught.value)


def test_role_refused() -> None:
    with pytest.raises(CommandError, match="NOPERM"):
        parse_role(CommandError("NOPERM this user has no permissions"))


# ---------------------------------------------------------------- +switch-master


@pytest.mark.parametrize(
    "payload", [b"mymaster 127.0.0.1 38357 ::1 43481", "mymaster 127.0.0.1 38357 ::1 43481"]
)
def test_a_failover_is_announced(payload: bytes | str) -> None:
    assert SWITCH_CHANNEL == b"+switch-master"
    assert parse_switch(payload) == Switch("mymaster", ("127.0.0.1", 38357), ("::1", 43481))
    assert parse_switch(payload, address_map=tunnel) == Switch(
        "mymaster", ("via-127.0.0.1", 38358), ("via-::1", 43482)
    )


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"mymaster 127.0.0.1 38357", "the message of +switch-master should be a name and two addresses"),
        (b"mymaster a 1 b x", "the port of the message of +switch-master should be an integer, not 'x'"),
        (b"\xff", "the message of +switch-master should be text"),
    ],
)
def test_a_bad_announcement(payload: bytes, text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_switch(payload)
    assert text in str(caught.value)
