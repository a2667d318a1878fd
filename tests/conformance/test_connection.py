"""PING, ECHO, SELECT, HELLO, AUTH, RESET, QUIT: the life of one connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hiredis
import pytest

from penstock.engine import Engine, LocalSession
from penstock.errors import CommandError

NOAUTH = "NOAUTH Authentication required."
WRONGPASS = "WRONGPASS invalid username-password pair or user is disabled."
NO_CLUSTER = "ERR This instance has cluster support disabled"


def needs_socket(db: Any) -> None:
    if db.kind == "engine":
        pytest.skip("an embedded session has no connection")


def pipeline(client: Any, *commands: tuple[str, ...]) -> None:
    """Send all at once, so that the server finds them together."""
    client.raw(b"".join(hiredis.pack_command(words) for words in commands))


def is_closed(client: Any) -> bool:
    """Whether the server closed the connection and sent nothing before."""
    return client._socket.recv(1) == b""


# ------------------------------------------------------------------------------- simple


def test_ping_and_echo(db):
    assert db.do("PING") == b"PONG"
    assert db.do("ping", "hello") == b"hello"
    assert db.do("ECHO", b"\x00\xff") == b"\x00\xff"
    assert db.error("PING", "a", "b") == "ERR wrong number of arguments for 'ping' command"
    assert db.error("ECHO") == "ERR wrong number of arguments for 'echo' command"


def test_ping_of_a_subscriber(db):
    needs_socket(db)
    db.do("SUBSCRIBE", "c")
    plain, words = (b"PONG", b"x") if db.resp == 3 else ([b"pong", b""], [b"pong", b"x"])
    assert db.do("PING") == plain
    assert db.do("PING", "x") == words


def test_unknown_commands(db):
    assert db.error("NOSUCH") == "ERR unknown command 'NOSUCH', with args beginning with: "
    assert db.error("NOSUCH", "a", "b") == "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' "


def test_select(db):
    assert db.do("SELECT", "15") == b"OK"
    db.do("SET", "k", "v")
    assert db.do("SELECT", "0") == b"OK"
    assert db.do("GET", "k") is None
    assert db.error("SELECT", "16") == "ERR DB index is out of range"
    assert db.error("SELECT", "-1") == "ERR DB index is out of range"
    assert db.error("SELECT", "x") == "ERR value is not an integer or out of range"
    assert db.do("GET", "k") is None


def test_cluster_modes(db):
    # A single Valkey takes the first two and ignores them.
    for command in ("ASKING",) if db.kind == "valkey" else ("READONLY", "READWRITE", "ASKING"):
        assert db.error(command) == NO_CLUSTER


# -------------------------------------------------------------------------------- hello


def greeting(db: Any, *words: str) -> dict[bytes, Any]:
    reply = db.do("HELLO", *words)
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def test_hello_tells_who_answers(db):
    facts = greeting(db)
    assert facts[b"proto"] == db.resp
    assert facts[b"id"] == db.do("CLIENT", "ID")
    assert facts[b"role"] == b"master"
    if db.kind != "valkey":
        assert facts[b"modules"] == []
        assert facts[b"server"] == b"redis"
        assert facts[b"version"] == b"7.0.15"
        assert facts[b"mode"] == b"standalone"


def test_hello_switches_the_protocol_for_the_replies_that_follow(db):
    needs_socket(db)
    db.do("HSET", "h", "f", "v")
    commands = [words for version in "232" for words in (("HELLO", version), ("HGETALL", "h"))]
    pipeline(db, *commands)
    replies = [db.receive() for _ in range(6)]
    assert replies[1::2] == [[b"f", b"v"], {b"f": b"v"}, [b"f", b"v"]]
    assert isinstance(replies[2], dict)
    assert isinstance(replies[4], list)


def test_hello_names_the_client(db):
    greeting(db, str(db.resp), "SETNAME", "worker", "AUTH", "default", "anything")
    assert db.do("CLIENT", "GETNAME") == b"worker"


def test_hello_refuses(db):
    cases = {
        ("1",): "NOPROTO unsupported protocol version",
        ("4",): "NOPROTO unsupported protocol version",
        ("x",): "ERR Protocol version is not an integer or out of range",
        ("3", "NOSUCH"): "ERR Syntax error in HELLO option 'NOSUCH'",
        ("3", "AUTH", "default"): "ERR Syntax error in HELLO option 'AUTH'",
        ("3", "SETNAME"): "ERR Syntax error in HELLO option 'SETNAME'",
        ("3", "AUTH", "nobody", "x"): WRONGPASS,
    }
    if db.kind != "valkey":
        cases["3", "AUTH", "nobody", "x", "NOSUCH"] = WRONGPASS
    for words, error in cases.items():
        assert db.error("HELLO", *words) == error
    assert greeting(db)[b"proto"] == db.resp


@pytest.mark.parametrize("name", ["a b", "a\n", "\x7f", "é"])
def test_bad_names(db, name):
    error = "ERR Client names cannot contain spaces, newlines or special characters."
    assert db.error("HELLO", str(db.resp), "SETNAME", name) == error
    assert db.error("CLIENT", "SETNAME", name) == error


# --------------------------------------------------------------------------------- auth


@pytest.fixture
def guarded(db: Any) -> Iterator[Any]:
    """A store that asks for the password ``secret``; the client itself came before that."""
    needs_socket(db)
    assert db.do("CONFIG", "SET", "requirepass", "secret") == b"OK"
    try:
        yield db
    finally:
        assert db.do("CONFIG", "SET", "requirepass", "") == b"OK"


def test_auth_without_a_password(db):
    assert db.error("AUTH", "x") == (
        "ERR AUTH <password> called without any password configured for the default user."
        " Are you sure your configuration is correct?"
    )
    assert db.do("AUTH", "default", "x") == b"OK"
    assert db.error("AUTH", "nobody", "x") == WRONGPASS
    assert db.error("AUTH", "a", "b", "c") == "ERR syntax error"


def test_a_password_is_asked_for(guarded):
    assert guarded.do("PING") == b"PONG"
    newcomer = guarded.client(2)
    for words in (("PING",), ("GET", "k"), ("MULTI",), ("CLIENT", "ID"), ("SUBSCRIBE", "c")):
        assert newcomer.error(*words) == NOAUTH
    if guarded.kind != "valkey":
        assert newcomer.error("NOSUCH") == "ERR unknown command 'NOSUCH', with args beginning with: "
        assert newcomer.error("GET") == "ERR wrong number of arguments for 'get' command"
    assert newcomer.error("HELLO", "3").startswith("NOAUTH HELLO must be called with the client already")
    for words in (("Secret",), ("default", ""), ("nobody", "secret")):
        assert newcomer.error("AUTH", *words) == WRONGPASS
    assert newcomer.error("PING") == NOAUTH
    assert newcomer.do("AUTH", "secret") == b"OK"
    assert newcomer.do("PING") == b"PONG"
    assert newcomer.error("AUTH", "wrong") == WRONGPASS
    assert newcomer.do("PING") == b"PONG"


def test_hello_authenticates(guarded):
    newcomer = guarded.client(2)
    assert newcomer.error("HELLO", "3", "AUTH", "default", "wrong") == WRONGPASS
    assert newcomer.do("HELLO", "3", "AUTH", "default", "secret")[b"proto"] == 3
    assert newcomer.do("PING") == b"PONG"


def test_auth_counts_for_what_follows_in_the_same_pipeline(guarded):
    newcomer = guarded.client(2)
    pipeline(newcomer, ("PING",), ("AUTH", "secret"), ("PING",))
    replies = [newcomer.receive() for _ in range(3)]
    assert [str(replies[0]), *replies[1:]] == [NOAUTH, b"OK", b"PONG"]


def test_reset_asks_again(guarded):
    newcomer = guarded.client(2)
    newcomer.do("AUTH", "secret")
    assert newcomer.do("RESET") == b"RESET"
    assert newcomer.error("PING") == NOAUTH


def test_a_password_taken_back(guarded):
    newcomer = guarded.client(2)
    assert newcomer.error("PING") == NOAUTH
    guarded.do("CONFIG", "SET", "requirepass", "")
    assert newcomer.do("PING") == b"PONG"
    assert guarded.client(2).do("PING") == b"PONG"


def test_a_password_is_nothing_to_who_has_the_directory(tmp_path: Path):
    with Engine.open(tmp_path / "store.pen") as engine, LocalSession(engine) as session:
        session.execute("CONFIG", "SET", "requirepass", "secret")
        with LocalSession(engine) as other:
            assert other.execute("PING") == b"PONG"
            assert other.execute("RESET") == b"RESET"
            assert other.execute("PING") == b"PONG"
            with pytest.raises(CommandError, match="WRONGPASS"):
                other.execute("AUTH", "wrong")


# ------------------------------------------------------------------------------- reset


def test_reset_makes_a_connection_as_good_as_new(db):
    db.do("CLIENT", "SETNAME", "x")
    db.do("SELECT", "3")
    db.do("MULTI")
    assert db.do("RESET") == b"RESET"
    assert db.do("CLIENT", "GETNAME") is None
    assert b" db=0 " in db.do("CLIENT", "INFO")
    assert db.error("EXEC") == "ERR EXEC without MULTI"
    assert db.error("RESET", "x") == "ERR wrong number of arguments for 'reset' command"


def test_reset_speaks_resp2_again(db):
    needs_socket(db)
    db.do("HSET", "h", "f", "v")
    db.do("RESET")
    assert db.do("HGETALL", "h") == [b"f", b"v"]


def test_reset_ends_subscriptions(db):
    needs_socket(db)
    other = db.client(2)
    other.do("SUBSCRIBE", "c")
    other.send("PSUBSCRIBE", "p*")
    other.receive()
    assert other.do("RESET") == b"RESET"
    assert db.do("PUBLISH", "c", "x") == 0
    assert db.do("PUBSUB", "NUMPAT") == 0
    assert other.do("GET", "k") is None


# -------------------------------------------------------------------------------- quit


def test_quit_answers_and_hangs_up(db):
    needs_socket(db)
    other = db.client()
    assert other.do("QUIT") == b"OK"
    assert is_closed(other)


def test_what_follows_quit_is_ignored(db):
    needs_socket(db)
    other = db.client()
    pipeline(other, ("SET", "k", "before"), ("QUIT",), ("SET", "k", "after"), ("GET", "k"))
    assert [other.receive(), other.receive()] == [b"OK", b"OK"]
    assert is_closed(other)
    assert db.do("GET", "k") == b"before"


def test_quit_is_not_queued(db):
    needs_socket(db)
    other = db.client()
    pipeline(other, ("MULTI",), ("SET", "k", "v"), ("QUIT",), ("EXEC",))
    assert [other.receive() for _ in range(3)] == [b"OK", b"QUEUED", b"OK"]
    assert is_closed(other)
    assert db.do("EXISTS", "k") == 0


# -------------------------------------------------------------------- RESP2 subscribers


def test_what_a_resp2_subscriber_may_do(db):
    needs_socket(db)
    other = db.client(2)
    other.do("SUBSCRIBE", "c")
    for words, name in ((("GET", "k"), "get"), (("CLIENT", "LIST"), "client|list"), (("MULTI",), "multi")):
        assert other.error(*words) == (
            f"ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are"
            " allowed in this context"
        )
    assert other.error("NOSUCH") == "ERR unknown command 'NOSUCH', with args beginning with: "
    assert other.do("UNSUBSCRIBE", "c") == [b"unsubscribe", b"c", 0]
    assert other.do("GET", "k") is None


def test_a_resp3_subscriber_may_do_anything(db):
    other = db.client(3)
    (other.do if db.kind == "engine" else other.send)("SUBSCRIBE", "c")
    assert other.receive() == [b"subscribe", b"c", 1]
    assert other.do("SET", "k", "v") == b"OK"
