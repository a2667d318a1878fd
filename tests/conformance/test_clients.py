"""CLIENT: names, lists, killing, unblocking, pausing, silence."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from tests.conformance.refusals import SYNTAX


def needs_socket(db: Any) -> None:
    if db.kind == "engine":
        pytest.skip("an embedded session has no connection")


def pipeline(client: Any, *commands: tuple[str, ...]) -> None:
    client.raw(b"".join(hiredis.pack_command(words) for words in commands))


def is_closed(client: Any) -> bool:
    """Whether the server closed the connection and sent nothing before."""
    try:
        return client._socket.recv(1) == b""
    except ConnectionResetError:
        return True


def fields(line: bytes) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.decode().split())


def mine(client: Any) -> dict[str, str]:
    return fields(client.do("CLIENT", "INFO"))


def listed(db: Any, *options: Any) -> dict[int, dict[str, str]]:
    """Clients by id, in the order of the list."""
    lines = db.do("CLIENT", "LIST", *options).splitlines()
    return {int(found["id"]): found for found in map(fields, lines)}


# ------------------------------------------------------------------------- introspection


def test_numbers_rise(db):
    first, second = db.client(), db.client()
    assert db.do("CLIENT", "ID") < first.do("CLIENT", "ID") < second.do("CLIENT", "ID")


def test_names(db):
    assert db.do("CLIENT", "GETNAME") is None
    assert db.do("CLIENT", "SETNAME", "worker:1") == b"OK"
    assert db.do("CLIENT", "GETNAME") == b"worker:1"
    assert mine(db)["name"] == "worker:1"
    assert db.do("CLIENT", "SETNAME", "") == b"OK"
    assert db.do("CLIENT", "GETNAME") is None


def test_info_tells_the_state(db):
    facts = mine(db)
    assert facts["id"] == str(db.do("CLIENT", "ID"))
    assert facts["resp"] == str(db.resp)
    assert facts["cmd"] == "client|info"
    assert (facts["db"], facts["multi"]) == ("0", "-1")
    assert (facts["sub"], facts["psub"], facts["ssub"]) == ("0", "0", "0")
    assert (facts["user"], facts["redir"], facts["flags"]) == ("default", "-1", "N")
    assert 0 <= int(facts["age"]) < 60


def test_info_follows_changes(db):
    other = db.client()
    number = other.do("CLIENT", "ID")
    other.do("SELECT", "7")
    assert (listed(db)[number]["db"], listed(db)[number]["cmd"]) == ("7", "select")
    other.do("MULTI")
    other.do("GET", "k")
    assert (listed(db)[number]["multi"], listed(db)[number]["flags"]) == ("1", "x")
    assert listed(db)[number]["cmd"] == "get"
    other.do("DISCARD")
    other.do("CLIENT", "NO-EVICT", "ON")
    assert listed(db)[number]["flags"] == "e"
    other.do("CLIENT", "NO-EVICT", "OFF")
    assert listed(db)[number]["flags"] == "N"
    other.do("SUBSCRIBE", "c", "d")
    assert (listed(db)[number]["sub"], listed(db)[number]["flags"]) == ("2", "P")


def test_addresses(db):
    needs_socket(db)
    host, port = db._socket.getsockname()
    server_host, server_port = db._socket.getpeername()
    facts = mine(db)
    assert facts["addr"] == f"{host}:{port}"
    assert facts["laddr"] == f"{server_host}:{server_port}"


def test_lists_can_be_filtered(db):
    other, subscriber = db.client(), db.client()
    me, him, she = (client.do("CLIENT", "ID") for client in (db, other, subscriber))
    subscriber.do("SUBSCRIBE", "c")
    assert {me, him, she} <= set(listed(db))
    assert list(listed(db, "ID", him, "99999999", me)) in ([him, me], [me, him])
    assert me in listed(db, "TYPE", "NORMAL")
    assert she not in listed(db, "TYPE", "normal")
    assert she in listed(db, "TYPE", "pubsub")
    assert listed(db, "TYPE", "replica") == {}
    assert listed(db, "TYPE", "master") == {}


def test_bad_lists(db):
    assert db.error("CLIENT", "LIST", "TYPE", "strange") == "ERR Unknown client type 'strange'"
    assert db.error("CLIENT", "LIST", "ID") == SYNTAX
    assert db.error("CLIENT", "LIST", "STRANGE") == SYNTAX
    bad_number = SYNTAX if db.kind == "valkey" else "ERR Invalid client ID"
    assert db.error("CLIENT", "LIST", "ID", "x") == bad_number


def test_errors_of_the_container(db):
    assert db.error("CLIENT") == "ERR wrong number of arguments for 'client' command"
    assert db.error("CLIENT", "STRANGE") == "ERR unknown subcommand 'STRANGE'. Try CLIENT HELP."
    assert db.error("CLIENT", "ID", "x") == "ERR wrong number of arguments for 'client|id' command"
    assert db.error("CLIENT", "NO-EVICT", "x") == SYNTAX
    lines = db.do("CLIENT", "HELP")
    assert lines[0] == b"CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    assert b"HELP" in lines


# --------------------------------------------------------------------------------- kill


def test_kill_by_number(db):
    needs_socket(db)
    victim = db.client()
    number = victim.do("CLIENT", "ID")
    assert db.do("CLIENT", "KILL", "ID", number) == 1
    assert is_closed(victim)
    assert db.do("CLIENT", "KILL", "ID", number) == 0


def test_kill_by_address(db):
    needs_socket(db)
    victim, bystander = db.client(), db.client()
    assert db.do("CLIENT", "KILL", mine(victim)["addr"]) == b"OK"
    assert is_closed(victim)
    assert db.error("CLIENT", "KILL", "127.0.0.1:1") == "ERR No such client"
    assert db.do("CLIENT", "KILL", "ADDR", "127.0.0.1:1") == 0
    assert db.do("CLIENT", "KILL", "ADDR", mine(bystander)["addr"], "LADDR", "127.0.0.1:1") == 0
    assert bystander.do("PING") == b"PONG"


def test_kill_subscribers(db):
    needs_socket(db)
    victim, bystander = db.client(), db.client()
    victim.do("SUBSCRIBE", "c")
    assert db.do("CLIENT", "KILL", "TYPE", "pubsub", "USER", "default") == 1
    assert is_closed(victim)
    assert bystander.do("PING") == b"PONG"
    assert db.do("PUBSUB", "NUMSUB", "c") == [b"c", 0]


def test_kill_ends_a_wait(db):
    needs_socket(db)
    victim = db.client()
    number = victim.do("CLIENT", "ID")
    victim.send("BLPOP", "l", "0")
    assert victim.nothing_arrives()
    assert db.do("CLIENT", "KILL", "ID", number) == 1
    assert is_closed(victim)
    db.do("RPUSH", "l", "a")
    assert db.do("LRANGE", "l", "0", "-1") == [b"a"]


def test_a_client_spares_itself_unless_told(db):
    needs_socket(db)
    client = db.client()
    number = str(client.do("CLIENT", "ID"))
    assert client.do("CLIENT", "KILL", "ID", number) == 0
    assert client.do("CLIENT", "KILL", "ID", number, "SKIPME", "yes") == 0
    pipeline(client, ("CLIENT", "KILL", "ID", number, "SKIPME", "no"), ("SET", "k", "v"))
    assert client.receive() == 1
    assert is_closed(client)
    assert db.do("EXISTS", "k") == 0


def test_a_client_can_kill_itself_in_a_transaction(db):
    needs_socket(db)
    if db.kind != "server":
        pytest.skip("Redis cuts off the reply")
    client = db.client()
    number = client.do("CLIENT", "ID")
    client.do("MULTI")
    client.do("CLIENT", "KILL", "ID", number, "SKIPME", "no")
    client.do("SET", "k", "v")
    assert client.do("EXEC") == [1, b"OK"]
    assert is_closed(client)


def test_bad_kills(db):
    cases = {
        ("ID", "0"): "ERR client-id should be greater than 0",
        ("ID", "-1"): "ERR client-id should be greater than 0",
        ("TYPE", "strange"): "ERR Unknown client type 'strange'",
        ("USER", "nobody"): "ERR No such user 'nobody'",
        ("SKIPME", "maybe"): SYNTAX,
        ("STRANGE", "x"): SYNTAX,
        ("ID", "1", "ADDR"): SYNTAX,
    }
    for words, error in cases.items():
        assert db.error("CLIENT", "KILL", *words) == error
    assert db.error("CLIENT", "KILL") == "ERR wrong number of arguments for 'client|kill' command"


# ------------------------------------------------------------------------------ unblock


def waiting(db: Any, *words: str) -> tuple[Any, int]:
    client = db.client()
    number = client.do("CLIENT", "ID")
    client.send(*words)
    assert client.nothing_arrives()
    return client, number


def test_unblock_as_if_time_were_up(db):
    client, number = waiting(db, "BLPOP", "l", "0")
    assert listed(db)[number]["flags"] == "b"
    assert db.do("CLIENT", "UNBLOCK", number) == 1
    assert client.receive() is None
    assert db.do("CLIENT", "UNBLOCK", number, "timeout") == 0
    assert listed(db)[number]["flags"] == "N"


def test_unblock_with_an_error(db):
    client, number = waiting(db, "BZPOPMIN", "z", "0")
    assert db.do("CLIENT", "UNBLOCK", number, "ERROR") == 1
    assert str(client.receive()) == "UNBLOCKED client unblocked via CLIENT UNBLOCK"
    db.do("ZADD", "z", "1", "a")
    assert db.do("ZCARD", "z") == 1


def test_bad_unblocks(db):
    assert db.do("CLIENT", "UNBLOCK", "99999999") == 0
    assert db.do("CLIENT", "UNBLOCK", db.do("CLIENT", "ID")) == 0
    assert db.error("CLIENT", "UNBLOCK", "x") == "ERR value is not an integer or out of range"
    reason = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"
    assert db.error("CLIENT", "UNBLOCK", "x", "STRANGE") == reason


# -------------------------------------------------------------------------------- pause


def test_a_pause_holds_writes_back(db):
    needs_socket(db)
    other = db.client()
    db.do("SET", "k", "old")
    assert db.do("CLIENT", "PAUSE", "60000", "WRITE") == b"OK"
    try:
        assert other.do("GET", "k") == b"old"
        pipeline(other, ("SET", "k", "new"), ("GET", "k"))
        assert other.nothing_arrives()
        assert db.do("GET", "k") == b"old"
    finally:
        assert db.do("CLIENT", "UNPAUSE") == b"OK"
    assert [other.receive(), other.receive()] == [b"OK", b"new"]


def test_a_pause_holds_transactions_that_write(db):
    needs_socket(db)
    reader, writer = db.client(), db.client()
    for client, words in ((reader, ("GET", "k")), (writer, ("SET", "k", "v"))):
        client.do("MULTI")
        assert client.do(*words) == b"QUEUED"
    db.do("CLIENT", "PAUSE", "60000", "WRITE")
    try:
        assert reader.do("EXEC") == [None]
        writer.send("EXEC")
        assert writer.nothing_arrives()
    finally:
        db.do("CLIENT", "UNPAUSE")
    assert writer.receive() == [b"OK"]


def test_a_pause_of_everything_ends_by_itself(db):
    needs_socket(db)
    other = db.client()
    assert db.do("CLIENT", "PAUSE", "30") == b"OK"
    other.send("PING")
    assert db.do("PING") == b"PONG"
    assert other.receive() == b"PONG"


def test_a_pause_can_only_grow(db):
    needs_socket(db)
    other = db.client()
    db.do("CLIENT", "PAUSE", "60000", "WRITE")
    db.do("CLIENT", "PAUSE", "1", "WRITE")
    try:
        other.send("SET", "k", "v")
        assert other.nothing_arrives()
    finally:
        db.do("CLIENT", "UNPAUSE")
    assert other.receive() == b"OK"


def test_bad_pauses(db):
    assert db.error("CLIENT", "PAUSE", "x") == "ERR timeout is not an integer or out of range"
    assert db.error("CLIENT", "PAUSE", "-1") == "ERR timeout is negative"
    assert db.error("CLIENT", "PAUSE", "x", "STRANGE") == "ERR CLIENT PAUSE mode must be WRITE or ALL"
    assert db.do("CLIENT", "UNPAUSE") == b"OK"


# ------------------------------------------------------------------------------ silence


def test_replies_can_be_turned_off(db):
    needs_socket(db)
    pipeline(
        db,
        ("CLIENT", "REPLY", "OFF"),
        ("SET", "k", "v"),
        ("NOSUCH",),
        ("CLIENT", "REPLY", "SKIP"),
        ("GET", "k"),
        ("CLIENT", "REPLY", "ON"),
        ("GET", "k"),
    )
    assert [db.receive(), db.receive()] == [b"OK", b"v"]
    assert db.nothing_arrives()


def test_one_reply_can_be_skipped(db):
    needs_socket(db)
    pipeline(db, ("PING", "1"), ("CLIENT", "REPLY", "SKIP"), ("SET", "k", "v"), ("GET", "k"), ("PING", "2"))
    assert [db.receive(), db.receive(), db.receive()] == [b"1", b"v", b"2"]


def test_silence_lasts_over_batches(db):
    needs_socket(db)
    db.send("CLIENT", "REPLY", "OFF")
    assert db.nothing_arrives()
    db.send("PING")
    assert db.nothing_arrives()
    db.send("CLIENT", "REPLY", "ON")
    assert db.receive() == b"OK"


def test_pushes_are_not_silenced(db):
    needs_socket(db)
    other = db.client(3)
    pipeline(other, ("CLIENT", "REPLY", "OFF"), ("SUBSCRIBE", "c"), ("PING",))
    assert other.receive() == [b"subscribe", b"c", 1]
    db.do("PUBLISH", "c", "hello")
    assert other.receive() == [b"message", b"c", b"hello"]
    assert other.do("RESET") == b"RESET"
    assert other.do("PING") == b"PONG"


def test_a_skipped_subscription_is_still_confirmed(db):
    needs_socket(db)
    other = db.client(3)
    pipeline(other, ("CLIENT", "REPLY", "SKIP"), ("SUBSCRIBE", "c"), ("PING",))
    assert [other.receive(), other.receive()] == [[b"subscribe", b"c", 1], b"PONG"]


def test_bad_modes(db):
    assert db.error("CLIENT", "REPLY", "x") == SYNTAX
    assert db.do("CLIENT", "REPLY", "ON") == b"OK"
