"""From replies to values: RESP2 and RESP3, bytes and decoded text give the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.commands import conversions as to
from penstock.client.commands import server_conversions as server
from penstock.client.commands import stream_conversions as stream

CASES: list[tuple[Callable[[Any], Any], Any, Any, Any]] = [
    # conversion, RESP2, RESP3, value
    (to.mapping, [b"f", b"1", b"g", b"2"], {b"f": b"1", b"g": b"2"}, {b"f": b"1", b"g": b"2"}),
    (to.mapping, [], {}, {}),
    (to.pairs, [b"f", b"1"], [[b"f", b"1"]], [(b"f", b"1")]),
    (to.pairs, None, {}, []),
    (to.scored, [b"a", b"1.5", b"b", b"2"], [[b"a", 1.5], [b"b", 2.0]], [(b"a", 1.5), (b"b", 2.0)]),
    (to.scored, [b"a", b"-inf"], [[b"a", float("-inf")]], [(b"a", float("-inf"))]),
    (to.scored, [b"a", b"-0"], [b"a", -0.0], [(b"a", 0.0)]),
    (to.optional_float, b"2.5", 2.5, 2.5),
    (to.optional_float, None, None, None),
    (to.optional_floats, [b"1", None], [1.0, None], [1.0, None]),
    (to.text, b"string", b"string", "string"),
    (to.binary, b"\x00\xff\xc3", b"\x00\xff\xc3", b"\x00\xff\xc3"),
    (to.booleans, [1, 0], [True, False], [True, False]),
    (to.page, [b"17", [b"a"]], [b"17", [b"a"]], (17, [b"a"])),
    (to.mapping_page, [b"0", [b"f", b"v"]], [b"0", {b"f": b"v"}], (0, {b"f": b"v"})),
    (to.scored_page, [b"0", [b"m", b"3"]], [b"0", [b"m", 3.0]], (0, [(b"m", 3.0)])),
    (to.optional_pair, [b"k", b"v"], [b"k", b"v"], (b"k", b"v")),
    (to.popped, None, None, None),
    (to.popped_member, [b"k", b"m", b"1"], [b"k", b"m", 1.0], (b"k", b"m", 1.0)),
    (to.popped_scored, [b"k", [[b"m", b"1"]]], [b"k", [[b"m", 1.0]]], (b"k", [(b"m", 1.0)])),
    (to.ranked, [2, b"1.5"], [2, 1.5], (2, 1.5)),
    (to.positions, [[b"1.5", b"2.5"], None], [[1.5, 2.5], None], [(1.5, 2.5), None]),
    (to.text_map, [b"maxmemory", b"0"], {b"maxmemory": b"0"}, {"maxmemory": "0"}),
    (
        to.geo_matches(withdist=True, withhash=False, withcoord=True),
        [[b"m", b"190.4", [b"1.5", b"2.5"]]],
        [[b"m", 190.4, [1.5, 2.5]]],
        [to.GeoMatch(b"m", 190.4, None, (1.5, 2.5))],
    ),
    (
        server.memory_stats,
        [b"peak.allocated", 7, b"db.0", [b"overhead.main", 1], b"peak.percentage", b"99.5"],
        {b"peak.allocated": 7, b"db.0": {b"overhead.main": 1}, b"peak.percentage": 99.5},
        {"peak.allocated": 7, "db.0": {"overhead.main": 1}, "peak.percentage": 99.5},
    ),
    (
        stream.streams,
        [[b"s", [[b"1-1", [b"f", b"v"]], [b"1-2", None]]]],
        {b"s": [[b"1-1", [b"f", b"v"]], [b"1-2", None]]},
        {b"s": [(b"1-1", {b"f": b"v"}), (b"1-2", None)]},
    ),
    (stream.streams, None, None, {}),
    (stream.auto_claimed, [b"0-0", []], [b"0-0", [], []], stream.AutoClaimed(b"0-0", [], [])),
]  # fmt: skip

#: Replies of RESP3, and their values. In RESP2 their maps are flat arrays.
NESTED: list[tuple[Callable[[Any], Any], Any, Any]] = [
    (
        to.lcs_matches,
        {b"matches": [[[4, 7], [5, 8], 4], [[2, 3], [0, 1], 2]], b"len": 6},
        to.Lcs(6, [to.LcsMatch((4, 7), (5, 8), 4), to.LcsMatch((2, 3), (0, 1), 2)]),
    ),
    (
        server.optional_commands,
        [
            [b"get", 2, [b"fast"], 1, 1, 1, [b"@read"], [], [
                {b"flags": [b"RO"], b"find_keys": {b"type": b"range", b"spec": {b"limit": 0}}}
            ], []],
            None,
        ],
        [
            server.CommandInfo("get", 2, frozenset({"fast"}), 1, 1, 1, frozenset({"@read"}), [], [
                {"flags": frozenset({"RO"}), "find_keys": {"type": "range", "spec": {"limit": 0}}}
            ], []),
            None,
        ],
    ),
    (
        server.command_docs,
        {b"get": {
            b"summary": b"Read",
            b"history": [[b"7", b"new"]],
            b"arguments": [{b"name": b"key", b"key_spec_index": 0, b"arguments": [{b"name": b"a"}]}],
            b"subcommands": {b"get|x": {b"since": b"1"}},
        }},
        {"get": {
            "summary": "Read",
            "history": [("7", "new")],
            "arguments": [{"name": "key", "key_spec_index": 0, "arguments": [{"name": "a"}]}],
            "subcommands": {"get|x": {"since": "1"}},
        }},
    ),
    (
        server.latency_histograms,
        {b"get": {b"calls": 3, b"histogram_usec": {1: 2, 4: 3}}},
        {"get": {"calls": 3, "histogram_usec": {1: 2, 4: 3}}},
    ),
    (
        server.function_stats,
        {
            b"running_script": {b"name": b"f", b"command": [b"fcall", b"f"], b"duration_ms": 5},
            b"engines": {b"LUA": {b"libraries_count": 1}},
        },
        {
            "running_script": {"name": "f", "command": ["fcall", "f"], "duration_ms": 5},
            "engines": {"LUA": {"libraries_count": 1}},
        },
    ),
    (
        server.libraries,
        [{b"library_name": b"l", b"functions": [
            {b"name": b"f", b"description": None, b"flags": [b"no-writes"]}
        ]}],
        [{"library_name": "l", "functions": [
            {"name": "f", "description": None, "flags": frozenset({"no-writes"})}
        ]}],
    ),
    (
        server.optional_user,
        {b"flags": [b"on"], b"passwords": [b"x"], b"keys": b"~*", b"selectors": [{b"keys": b"~a"}]},
        {"flags": frozenset({"on"}), "passwords": ["x"], "keys": "~*", "selectors": [{"keys": "~a"}]},
    ),
    (server.optional_user, None, None),
    (
        server.cluster_slots,
        [[0, 100, [b"127.0.0.1", 7000, b"id", {b"hostname": b"a"}], [None, 7001]]],
        [server.SlotRange(0, 100, [
            server.SlotNode("127.0.0.1", 7000, "id", {"hostname": "a"}), server.SlotNode(None, 7001, "", {})
        ])],
    ),
    (
        server.cluster_shards,
        [{b"slots": [0, 5, 7, 9], b"nodes": [{b"id": b"x", b"port": 7000}]}],
        [{"slots": [(0, 5), (7, 9)], "nodes": [{"id": "x", "port": 7000}]}],
    ),
    (
        stream.entries,
        [[b"1-1", [b"f", b"v"]], None, [b"1-2", None]],
        [(b"1-1", {b"f": b"v"}), (b"1-2", None)],
    ),
    (stream.pending_summary, [0, None, None, None], stream.PendingSummary(0, None, None, {})),
    (
        stream.full_stream,
        {b"length": 1, b"entries": [[b"1-1", [b"f", b"v"]]], b"groups": [{
            b"name": b"g",
            b"pending": [[b"1-1", b"c", 5, 1]],
            b"consumers": [{b"name": b"c", b"pending": [[b"1-1", 5, 1]]}],
        }]},
        {"length": 1, "entries": [(b"1-1", {b"f": b"v"})], "groups": [{
            "name": b"g",
            "pending": [(b"1-1", b"c", 5, 1)],
            "consumers": [{"name": b"c", "pending": [(b"1-1", 5, 1)]}],
        }]},
    ),
]  # fmt: skip


def flattened(value: Any) -> Any:
    """The same reply in RESP2."""
    if isinstance(value, dict):
        return [flattened(item) for pair in value.items() for item in pair]
    return [flattened(item) for item in value] if isinstance(value, list) else value


CASES += [(convert, flattened(resp3), resp3, expected) for convert, resp3, expected in NESTED]


def decoded(value: Any) -> Any:
    """What a connection that decodes would have sent."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, dict):
        return {decoded(key): decoded(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(map(decoded, value))
    return type(value)(map(decoded, value)) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize(("convert", "resp2", "resp3", "expected"), CASES, ids=range(len(CASES)))
def test_both_protocols_give_the_same(
    convert: Callable[[Any], Any], resp2: Any, resp3: Any, expected: Any
) -> None:
    assert convert(resp2) == expected
    assert convert(resp3) == expected
    # Binary data is bytes even on a connection that decodes.
    wanted = expected if convert is to.binary else decoded(expected)
    assert convert(decoded(resp2)) == wanted
    assert convert(decoded(resp3)) == wanted


def test_info() -> None:
    report = (
        b"# Server\r\nredis_version:7.0.15\r\nredis_git_sha1:00000000\r\nrun_id:123\r\nprocess_id:42\r\n"
        b"executable:/a=b/redis\r\nio_threads:0\r\n\r\n# Memory\r\nratio:1.50\r\nhuman:1.5M\r\nempty:\r\n"
        b"# Keyspace\r\ndb0:keys=3,expires=0,ratio=0.50\r\nlisten0:name=tcp,bind=127.0.0.1\r\n"
    )
    expected = {
        "redis_version": "7.0.15", "redis_git_sha1": "00000000", "run_id": "123", "process_id": 42,
        "executable": "/a=b/redis", "io_threads": 0, "ratio": 1.5, "human": "1.5M", "empty": "",
        "db0": {"keys": 3, "expires": 0, "ratio": 0.5}, "listen0": {"name": "tcp", "bind": "127.0.0.1"},
    }  # fmt: skip
    assert server.info(report) == server.info(report.decode()) == expected


def test_client_lists() -> None:
    report = b"id=3 addr=127.0.0.1:5 name= cmd=client|list\nid=4 addr=/tmp/x=y:0 name=a cmd=get\n"
    clients = server.client_list(report)
    assert clients == server.client_list(report.decode())
    assert [client["id"] for client in clients] == ["3", "4"]
    assert clients[0]["name"] == ""
    assert clients[1]["addr"] == "/tmp/x=y:0"
    assert server.client_info(report.split(b"\n")[0] + b"\n") == clients[0]


def test_cluster_nodes() -> None:
    lines = (
        b"a1 127.0.0.1:7000@17000,name myself,master - 0 5 2 connected 0-99 200 [93-<-b2]\n"
        b"b2 127.0.0.1:7001@17001 slave a1 1 6 2 connected\n"
    )
    first, second = server.cluster_nodes(lines)
    assert server.cluster_nodes(lines.splitlines()) == server.cluster_nodes(lines.decode()) == [first, second]
    assert first.flags == {"myself", "master"}
    assert (first.primary_id, first.slots, first.migrations) == (None, [(0, 99), (200, 200)], ["[93-<-b2]"])
    assert (second.primary_id, second.slots, second.ping_sent_ms) == ("a1", [], 1)


@pytest.mark.parametrize("convert", [to.mapping, to.pairs, to.text_map, to.record({})])
def test_half_a_pair_is_no_value(convert: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError):
        convert([b"a", b"b", b"c"])
