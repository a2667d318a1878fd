"""The command catalogue, checked fact by fact against real servers.

Redis 7.0 must agree in everything. Valkey, which every run has, must agree in
everything but the differences listed here, each of which must really be one.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import CommandError
from penstock.protocol import catalogue
from penstock.protocol.catalogue import (
    CATALOGUE,
    arity_error,
    check_arity,
    command_docs,
    command_info,
    every_command,
    find_keys,
    find_subcommand,
    key_positions,
    keys_and_flags,
    keys_of,
    lookup,
    lookup_full,
    resolve,
    unknown_command,
    unknown_subcommand,
)
from penstock.protocol.catalogue.table import ACCESS, CATEGORY_EXCEPTIONS, DEPRECATED, FLAGS, TIPS
from penstock.protocol.replies import SetReply, Status
from penstock.testing import RealServer

# --- The real servers ---------------------------------------------------------------------------

#: Groups of commands that no Redis has.
OURS = ("stream", "channel")
FIELDS = ("name", "arity", "flags", "first", "last", "step", "categories", "tips", "key specs")

_LIBRARY = "noscript loading stale allow_busy"
_ALL_NODES = "request_policy:all_nodes response_policy:all_succeeded"
_SLOT_FACTS = "cluster|info cluster|myid cluster|nodes cluster|shards cluster|slots".split()

#: What Valkey 9.1 says where it differs from Redis 7.0.
VALKEY_FACTS: dict[tuple[str, str], Any] = {
    ("zrank", "arity"): -3,
    ("zrevrank", "arity"): -3,
    ("script|debug", "arity"): -3,
    ("command|getkeys", "arity"): -3,
    ("command|getkeysandflags", "arity"): -3,
    ("blmove", "flags"): "write denyoom blocking",
    ("blpop", "flags"): "write blocking",
    ("brpop", "flags"): "write blocking",
    ("brpoplpush", "flags"): "write denyoom blocking",
    ("bzpopmax", "flags"): "write blocking fast",
    ("bzpopmin", "flags"): "write blocking fast",
    ("wait", "flags"): "blocking",
    ("wait", "categories"): "@slow @blocking @connection",
    ("script|exists", "flags"): "noscript stale",
    ("script|flush", "flags"): "noscript stale",
    ("exec", "flags"): "noscript loading stale skip_commandlog",
    ("multi", "flags"): "noscript loading stale fast no_multi allow_busy",
    ("watch", "flags"): "noscript loading stale fast no_multi allow_busy",
    ("client|caching", "flags"): _LIBRARY,
    ("client|getname", "flags"): _LIBRARY,
    ("client|getredir", "flags"): _LIBRARY,
    ("client|id", "flags"): _LIBRARY,
    ("client|setname", "flags"): _LIBRARY,
    ("client|no-evict", "flags"): f"admin {_LIBRARY}",
    ("client|reply", "flags"): "noscript loading stale no_multi allow_busy",
    ("select", "flags"): "loading stale fast allow_busy",
    **{(name, "flags"): "loading stale" for name in _SLOT_FACTS},
    ("msetnx", "tips"): "",
    ("randomkey", "tips"): "request_policy:all_shards response_policy:special nondeterministic_output",
    ("scan", "tips"): "nondeterministic_output request_policy:special response_policy:special",
    ("client|setname", "tips"): _ALL_NODES,
    ("config|resetstat", "tips"): _ALL_NODES,
    ("config|rewrite", "tips"): _ALL_NODES,
    ("latency|reset", "tips"): "request_policy:all_nodes response_policy:agg_sum",
}

#: Commands whose key specs differ in Valkey 9.1, by the access flags it gives each of them.
VALKEY_KEY_ACCESS = {
    "sinterstore": ["OW update", "RO access"],
    "georadius": ["RO access", "OW update variable_flags", "OW update variable_flags"],
    "georadiusbymember": ["RO access", "OW update variable_flags", "OW update variable_flags"],
}


class Wire:
    """A RESP3 connection; errors come back as values."""

    def __init__(self, server: RealServer) -> None:
        self.is_redis = server.kind == "redis"
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        self._reader = hiredis.Reader()
        self.call(b"HELLO", b"3")

    def call(self, *words: bytes) -> Any:
        self._socket.sendall(hiredis.pack_command(words))
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return reply

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def wire(real_server: RealServer) -> Iterator[Wire]:
    expected = {"redis": "7.0.", "valkey": "9.1."}[real_server.kind]
    if not real_server.version.startswith(expected):
        pytest.skip(f"the facts are those of version {expected}x, not of {real_server.binary.label}")
    wire = Wire(real_server)
    yield wire
    wire.close()


def plain(value: Any) -> Any:
    """Replies of both sides in one shape: words joined, notes (Redis's prose) dropped."""
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], dict):
            return [{key: plain(item) for key, item in entry.items() if key != b"notes"} for entry in value]
        return b" ".join(value).decode()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.decode() if isinstance(value, bytes) else value


def test_every_fact_is_the_servers(wire: Wire) -> None:
    specs = [spec for spec in every_command() if spec.group not in OURS]
    rows = wire.call(b"COMMAND", b"INFO", *(spec.full_name for spec in specs))
    differences: dict[tuple[str, str], Any] = {}
    for spec, row in zip(specs, rows, strict=True):
        for field, theirs, ours in zip(FIELDS, row, command_info(spec), strict=False):
            if plain(theirs) != plain(ours):
                differences[spec.full_name.decode(), field] = plain(theirs)
    if not wire.is_redis:
        access = {name: differences.pop((name, "key specs")) for name in VALKEY_KEY_ACCESS}
        assert {name: [spec[b"flags"] for spec in specs] for name, specs in access.items()} == (
            VALKEY_KEY_ACCESS
        )
    assert differences == ({} if wire.is_redis else VALKEY_FACTS)


def test_rows_have_the_servers_shape(wire: Wire) -> None:
    """Sets, maps and simple strings where the server sends them, containers nested alike."""
    row = wire.call(b"COMMAND", b"INFO", b"memory")[0]
    ours = command_info(CATALOGUE[b"MEMORY"])
    assert len(row) == len(ours) == 10
    theirs = {sub[0] for sub in row[9]}
    assert {sub[0] for sub in ours[9]} <= theirs
    usage = next(sub for sub in row[9] if sub[0] == b"memory|usage")
    our_usage = next(sub for sub in ours[9] if sub[0] == b"memory|usage")
    assert our_usage[8] == list(usage[8])
    assert all(isinstance(our_usage[index], SetReply) for index in (2, 6, 7, 8, 9))
    assert all(isinstance(word, Status) for index in (2, 6) for word in our_usage[index])
    assert all(isinstance(word, Status) for word in our_usage[8][0][b"flags"])


def test_docs_agree_on_age_group_and_deprecation(wire: Wire) -> None:
    # What is deprecated is each project's own choice; the rest is history.
    facts = [b"since", b"group", *([b"doc_flags", b"deprecated_since"] if wire.is_redis else [])]
    differences = {}
    for spec in every_command():
        if spec.group in OURS:
            continue  # our own
        theirs = wire.call(b"COMMAND", b"DOCS", spec.full_name)[spec.full_name]
        ours = command_docs(spec)
        assert (b"replaced_by" in ours) == (b"deprecated_since" in ours)
        for fact in facts:
            if ours.get(fact) != theirs.get(fact):
                differences[spec.full_name, fact] = theirs.get(fact)
    assert differences == ({} if wire.is_redis else {(b"client|pause", b"since"): b"3.0.0"})


def test_docs_of_a_container_hold_its_subcommands() -> None:
    docs = command_docs(CATALOGUE[b"OBJECT"])[b"subcommands"]
    assert docs[b"object|freq"] == command_docs(CATALOGUE[b"OBJECT"].subcommands[b"FREQ"])


# --- Keys ---------------------------------------------------------------------------------------

KEY_SAMPLES = """
get k; mget a b c; mset a 1 b 2; mset a 1 b; msetnx a 1; lcs a b; lcs a b LEN; set k v; set k v GET
set k v ex 1
del a b; exists a b; touch a; unlink a; rename a b; renamenx a b; copy a b DB 1; restore k 0 x
move k 1; type k
object encoding k; OBJECT Freq k; object help; memory usage k; memory usage k samples 5
memory stats
sort k; sort k store d; sort k store; sort k by x get y STORE d limit 0 1; sort k store a store b
sort_ro k by x
sort k get store d; sort k by store store d; sort k limit store 1 store d; sort k limit 0 store d
sort k asc store d
sort k alpha desc; sort_ro k get store d; sort k store store; sort k store store d; sort k store store asc
lmove a b left right; blmove a b left right 0; rpoplpush a b; brpoplpush a b 0; blpop a b 0
brpop a 0
lmpop 2 a b left; blmpop 0 2 a b left; zmpop 1 a max; bzmpop 0 1 a min; lmpop 3 a left
lmpop 0 a left
smove a b m; sdiff a b; sdiffstore d a b; sunionstore d a; sintercard 2 a b limit 1; sintercard 1 a
sintercard 2 a
zunion 2 a b withscores; zunion 0 a; zunion -1 a; zunion x a; zunion 99999999999999999999 a
zunion 1 a b c
zunionstore d 2 a b weights 1 2; zunionstore d 3 a b; zunionstore d 0 a; zunionstore d x a
zinterstore d 1 a
zdiffstore d 1 a; zintercard 1 a; zrangestore d s 0 1; bzpopmin a b 0
bitop and d a b; bitop not d; bitcount k 0 1; pfcount a b; pfmerge d a b; pfmerge d; pfadd k
bitfield k; bitfield k get u8 0; bitfield k set u8 0 1; bitfield k get u8 0 incrby u8 0 1
bitfield k get u8
bitfield k overflow sat; bitfield k overflow; bitfield k nonsense; bitfield_ro k get u8 0
georadius k 1 2 3 km; georadius k 1 2 3 km STORE d; georadius k 1 2 3 km storedist d
georadius_ro k 1 2 3 km
georadius k 1 2 3 km store a storedist b; georadius k 1 2 3 km store
georadius k 1 2 3 km count 1 store d
georadius k 1 2 3 km store a store b; georadius k 1 2 3 km storedist a store
georadiusbymember k m 3 km store d
geosearchstore d s frommember m byradius 1 km; geosearch k frommember m byradius 1 km
geoadd k 1 2 m
eval s 0; eval s 0 a; eval s 2 a b c; eval s 3 a; eval s x; eval s -1 a; eval s 1; evalsha s 1 k
eval_ro s 1 k
evalsha_ro s 0; eval s 9223372036854775807 a
watch a b; publish c m; spublish c m; subscribe c; ssubscribe c d; sunsubscribe c; keys *
swapdb 0 1; scan 0
client list; client nope; nope x; get k extra; set k; ping x; debug sleep 0; cluster keyslot k
pubsub numsub c
""".replace("\n", ";").split(";")

SAMPLES = [sample.strip() for sample in KEY_SAMPLES if sample.strip()]

#: Valkey 9.1 knows better than the rule that governs these in Redis 7.0.
VALKEY_SAMPLES = {
    # The destination is the last one named, as the command itself understands it.
    "georadius k 1 2 3 km store a storedist b": ["k RO access", "b OW update"],
    "georadius k 1 2 3 km store a store b": ["k RO access", "b OW update"],
}


def our_answer(argv: list[bytes]) -> list[str] | str:
    try:
        return [" ".join((argv[use.position].decode(), *use.access)) for use in keys_and_flags(argv)]
    except CommandError as error:
        return str(error)


def server_answer(wire: Wire, argv: list[bytes]) -> list[str] | str:
    reply = wire.call(b"COMMAND", b"GETKEYSANDFLAGS", *argv)
    if isinstance(reply, hiredis.ReplyError):
        return str(reply)
    return [b" ".join((key, *flags)).decode() for key, flags in reply]


@pytest.mark.parametrize("sample", SAMPLES)
def test_keys_are_the_servers(wire: Wire, sample: str) -> None:
    argv = [word.encode() for word in sample.split()]
    theirs = server_answer(wire, argv)
    ours: list[str] | str = our_answer(argv)
    if not wire.is_redis and sample in VALKEY_SAMPLES:
        assert ours != VALKEY_SAMPLES[sample]
        ours = VALKEY_SAMPLES[sample]
    assert ours == theirs


_WORDS = st.lists(
    st.sampled_from("k d 0 1 2 -1 x u8 BY get Store limit ASC set Overflow sat".split()), max_size=8
)
_MOVABLE = [
    "sort k",
    "eval s",
    "zunionstore d",
    "zunion",
    "lmpop",
    "bzmpop 0",
    "bitfield k",
    "set k v",
    "sort_ro k",
]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command=st.sampled_from(_MOVABLE), words=_WORDS)
def test_random_arguments_have_the_servers_keys(wire: Wire, command: str, words: list[str]) -> None:
    argv = [word.encode() for word in (*command.split(), *words)]
    if len(argv) > 1:  # GETKEYS itself wants two words
        assert our_answer(argv) == server_answer(wire, argv)


def test_keys_of_and_key_positions_tell_the_same() -> None:
    argv = b"ZUNIONSTORE d 2 a b WEIGHTS 1 2".split()
    assert key_positions(argv) == [1, 3, 4]
    assert keys_of(argv) == [b"d", b"a", b"b"]
    assert keys_of(b"eval s 0".split()) == []


def test_a_number_of_keys_counts_as_far_as_it_is_one() -> None:
    assert keys_of(b"ZUNION 1a k".split()) == [b"k"]
    assert keys_of(b"ZUNION +1 k".split()) == [b"k"]


@pytest.mark.parametrize(
    ("request_text", "positions"),
    [
        ("GET k", [1]),
        ("PFMERGE d", [1]),  # GETKEYS refuses it, the router must not
        ("ZUNIONSTORE d 3 a b", [1]),
        ("ZUNION 9 a", []),
        ("MSET a 1 b", [1, 3]),
        ("BLPOP a b 0", [1, 2]),
        ("GET", []),
        ("BLPOP a", []),
        ("PING", []),
        ("EVAL s 2 a b", [3, 4]),
        ("EVAL s", []),
        ("OBJECT ENCODING k", [2]),
        ("SORT k STORE d", [1, 3]),
        ("SPUBLISH c m", []),
    ],
)
def test_find_keys_finds_what_it_can(request_text: str, positions: list[int]) -> None:
    argv = request_text.encode().split()
    spec = find_subcommand(argv)
    assert spec is not None
    assert find_keys(spec, argv) == positions


def test_shard_channels_are_found_when_asked_for() -> None:
    argv = b"SSUBSCRIBE a b".split()
    assert find_keys(CATALOGUE[b"SSUBSCRIBE"], argv, channels=True) == [1, 2]
    assert find_keys(CATALOGUE[b"SUNSUBSCRIBE"], [b"SUNSUBSCRIBE"], channels=True) == []
    assert find_keys(CATALOGUE[b"SUBSCRIBE"], b"SUBSCRIBE a".split(), channels=True) == []


@given(spec=st.sampled_from(list(every_command())), arguments=st.lists(st.binary(max_size=8), max_size=8))
def test_any_bytes_give_positions_inside_the_request(
    spec: catalogue.CommandSpec, arguments: list[bytes]
) -> None:
    argv = [*spec.full_name.split(b"|"), *arguments]
    assert find_subcommand(argv) is spec or (spec.subcommands and arguments)
    found = find_keys(spec, argv)
    assert all(0 < position < len(argv) for position in found)
    try:
        strict = key_positions(argv)
    except CommandError:
        return
    assert set(strict) <= set(found)


# --- Errors -------------------------------------------------------------------------------------

REFUSED = [
    [b"foo"],
    [b"foo", b"a", b"b"],
    [b"", b"a"],
    [b"client|list"],
    [b"foo\r\nbar", b"a\nb"],
    [b"fo\0o", b"a\0b", b"c"],
    [b"f" * 200, b"x" * 100, b"y" * 100, b"z" * 50],
    [b"foo", b"x" * 125, b"y"],
    [b"foo", b"x" * 124, b"y", b"z"],
    [b"foo", *[b"a"] * 60],
    [b"caf\xc3\xa9", b"\xff\x01"],
    [b"get"],
    [b"GET", b"a", b"b"],
    [b"client"],
    [b"Client", b"ID", b"3"],
    [b"CLIENT", b"setname"],
    [b"cOnfig", b"nope", b"a"],
    [b"client", b"no\r\npe"],
    [b"client", b"x\0y"],
    [b"client", b"y" * 200],
    [b"command", b"nope"],
    [b"object", b"nope", b"k"],
]


@pytest.mark.parametrize("argv", REFUSED, ids=lambda argv: repr(b" ".join(argv))[:40])
def test_refusals_are_the_servers(wire: Wire, argv: list[bytes]) -> None:
    theirs = wire.call(*argv)
    assert isinstance(theirs, hiredis.ReplyError)
    with pytest.raises(CommandError) as refusal:
        resolve(argv)
    # hiredis decodes errors with replacement characters.
    ours = str(refusal.value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    assert ours == str(theirs)


def test_error_texts() -> None:
    assert str(arity_error(b"GET")) == "ERR wrong number of arguments for 'get' command"
    assert str(arity_error(b"client|list")) == "ERR wrong number of arguments for 'client|list' command"
    assert str(unknown_command([b"foo", b"a", b"b"])) == (
        "ERR unknown command 'foo', with args beginning with: 'a' 'b' "
    )
    assert str(unknown_subcommand(b"client", b"x")) == "ERR unknown subcommand 'x'. Try CLIENT HELP."


def test_bytes_in_errors_survive() -> None:
    text = str(unknown_command([b"\xff\xfe"]))
    assert b"'\xff\xfe'" in text.encode("utf-8", "surrogateescape")


# --- Lookup -------------------------------------------------------------------------------------


def test_lookup_ignores_case() -> None:
    spec = CATALOGUE[b"GETEX"]
    assert lookup(b"GETEX") is lookup(b"getex") is lookup(b"gEtEx") is spec
    assert lookup(b"nope") is None
    assert lookup(b"client|list") is None


def test_full_names_reach_subcommands() -> None:
    spec = CATALOGUE[b"CLIENT"].subcommands[b"LIST"]
    assert lookup_full(b"CLIENT|list") is spec
    assert lookup_full(b"client") is CATALOGUE[b"CLIENT"]
    assert lookup_full(b"client|nope") is lookup_full(b"get|x") is lookup_full(b"nope|x") is None


def test_a_request_is_ruled_by_its_subcommand() -> None:
    assert find_subcommand([b"client", b"List", b"x"]) is CATALOGUE[b"CLIENT"].subcommands[b"LIST"]
    assert find_subcommand([b"COMMAND"]) is CATALOGUE[b"COMMAND"]
    assert find_subcommand([b"GET", b"LIST"]) is CATALOGUE[b"GET"]
    assert find_subcommand([b"CLIENT", b"NOPE"]) is None
    assert find_subcommand([b"NOPE"]) is None
    assert resolve([b"client", b"id"]).full_name == b"client|id"


@pytest.mark.parametrize(
    ("name", "fitting"), [(b"GET", [2]), (b"SET", [3, 4, 5]), (b"PING", [1, 2, 3, 4, 5]), (b"TIME", [1])]
)
def test_arity(name: bytes, fitting: list[int]) -> None:
    assert [argc for argc in range(1, 6) if check_arity(CATALOGUE[name], argc)] == fitting


# --- The table itself ---------------------------------------------------------------------------


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CATALOGUE[b"X"] = CATALOGUE[b"GET"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        CATALOGUE[b"GET"].arity = 3  # type: ignore[misc]


def test_booleans_follow_the_flags() -> None:
    blpop = CATALOGUE[b"BLPOP"]
    assert blpop.is_write
    assert blpop.is_blocking
    assert blpop.noscript
    assert not blpop.is_fast
    assert not blpop.movable_keys
    assert {spec.name for spec in every_command() if spec.may_replicate} == {
        *(b"CHFETCH", b"EVAL", b"EVALSHA", b"PFCOUNT", b"PUBLISH", b"SPUBLISH")
    }
    assert {spec.name for spec in every_command() if spec.no_auth} == {b"AUTH", b"HELLO", b"QUIT", b"RESET"}
    assert not any(spec.is_write and spec.is_readonly for spec in every_command())


def test_may_replicate_stays_private() -> None:
    assert b"may_replicate" not in command_info(CATALOGUE[b"EVAL"])[2]


def test_fixed_keys_form_one_run() -> None:
    """``find_keys`` relies on the first/last/step triple covering every fixed key."""
    for spec in every_command():
        if spec.movable_keys or not spec.key_specs:
            continue
        argv = [b"x"] * max(abs(spec.arity), 5)
        every = [position for keys in spec.key_specs for position in _positions(keys, len(argv))]
        assert find_keys(spec, argv, channels=True) == every, spec


def _positions(keys: catalogue.KeySpec, argc: int) -> range:
    return range(keys.start, (keys.last if keys.last > 0 else argc + keys.last) + 1, keys.step)


def test_side_tables_name_real_commands_and_every_word_is_used() -> None:
    names = {spec.full_name.decode().upper().replace("|", " ") for spec in every_command()}
    tipped = [name for line in TIPS.strip().splitlines() for name in line.split("  ")[-1].strip().split(", ")]
    deprecated = [line.split("  ")[0] for line in DEPRECATED.strip().splitlines()]
    assert {*tipped, *deprecated, *CATEGORY_EXCEPTIONS} <= names
    assert len(tipped) == len(set(tipped))
    assert {flag for spec in every_command() for flag in spec.flags} == set(FLAGS.values())
    assert {keys.access for spec in every_command() for keys in spec.key_specs} == set(ACCESS.values())


def test_every_command_has_one_line_of_purpose() -> None:
    for spec in every_command():
        assert spec.summary, spec
        assert "\n" not in spec.summary, spec
        assert not spec.summary.endswith("."), spec


def test_what_is_in_and_what_is_not() -> None:
    for name in b"EVALSHA_RO SPUBLISH LOLWUT GEORADIUSBYMEMBER_RO SUBSTR RESET".split():
        assert name in CATALOGUE
    for name in b"XADD FCALL FUNCTION MIGRATE MODULE PSYNC PFDEBUG RESTORE-ASKING".split():
        assert name not in CATALOGUE
    containers = {name for name, spec in CATALOGUE.items() if spec.subcommands}
    assert containers == set(
        b"ACL CLIENT CLUSTER COMMAND CONFIG LATENCY MEMORY OBJECT PUBSUB SCRIPT SLOWLOG TGROUP TINFO".split()
    )
    assert all(b"HELP" in CATALOGUE[name].subcommands for name in containers)


def test_repr_tells_the_facts() -> None:
    assert repr(CATALOGUE[b"GET"]) == "<CommandSpec get arity=2 fast readonly>"
    assert repr(lookup_full(b"client|id")) == "<CommandSpec client|id arity=2 loading noscript stale>"
