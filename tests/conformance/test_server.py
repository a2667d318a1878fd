"""INFO, CONFIG, SLOWLOG, MONITOR, saving and stopping, and what a server knows of itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hiredis
import pytest

from penstock.engine import Engine, LocalSession
from penstock.errors import CommandError
from penstock.testing.own_server import PenstockServer
from tests.conformance.refusals import SYNTAX

NO_CLUSTER = "ERR This instance has cluster support disabled"


def needs_socket(db: Any) -> None:
    if db.kind == "engine":
        pytest.skip("an embedded session has no connection")


def is_ours(db: Any) -> bool:
    return db.kind in ("engine", "server")


def as_dict(reply: Any) -> dict[Any, Any]:
    """A map, whatever the protocol."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


# --------------------------------------------------------------------------------- info


def sections(text: bytes) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for part in text.decode().split("\r\n\r\n"):
        title, *lines = part.strip().splitlines()
        assert title.startswith("# ")
        found[title[2:]] = dict(line.split(":", 1) for line in lines)
    return found


def test_info_has_redis_sections(db):
    facts = sections(db.do("INFO"))
    assert list(facts) == [
        "Server", "Clients", "Memory", "Persistence", "Stats", "Replication", "CPU", "Modules", "Errorstats",
        "Cluster", "Keyspace",
    ]  # fmt: skip
    assert facts["Server"]["redis_mode" if db.kind != "valkey" else "server_mode"] == "standalone"
    assert int(facts["Server"]["process_id"]) > 0
    assert re.fullmatch("[0-9a-f]{40}", facts["Server"]["run_id"])
    assert facts["Replication"]["role"] == "master"
    assert facts["Cluster"] == {"cluster_enabled": "0"}
    assert int(facts["Memory"]["used_memory"]) > 0
    assert float(facts["CPU"]["used_cpu_user"]) >= 0


def test_info_of_some_sections(db):
    assert list(sections(db.do("INFO", "server"))) == ["Server"]
    assert list(sections(db.do("INFO", "KEYSPACE", "nosuch", "clients"))) == ["Clients", "Keyspace"]
    assert db.do("INFO", "nosuch") == b""
    everything = set(sections(db.do("INFO", "everything")))
    assert everything >= set(sections(db.do("INFO", "all"))) >= set(sections(db.do("INFO", "default")))


def test_info_counts_keys(db):
    db.do("SET", "a", "1", "EX", "100")
    db.do("SET", "b", "1")
    db.do("SELECT", "4")
    db.do("SET", "c", "1")
    keyspace = sections(db.do("INFO", "keyspace"))["Keyspace"]
    assert set(keyspace) == {"db0", "db4"}
    assert keyspace["db0"].startswith("keys=2,expires=1,avg_ttl=")
    assert keyspace["db4"].startswith("keys=1,expires=0,avg_ttl=0")


def test_info_counts_clients_and_commands(db):
    before = sections(db.do("INFO"))
    other = db.client()
    other.do("PING")
    after = sections(db.do("INFO"))
    assert int(after["Clients"]["connected_clients"]) == int(before["Clients"]["connected_clients"]) + 1
    received = "total_connections_received"
    assert int(after["Stats"][received]) == int(before["Stats"][received]) + 1
    processed = "total_commands_processed"
    assert int(after["Stats"][processed]) >= int(before["Stats"][processed]) + 2
    other.send("BLPOP", "l", "0")
    assert other.nothing_arrives()
    assert sections(db.do("INFO", "clients"))["Clients"]["blocked_clients"] == "1"
    db.do("RPUSH", "l", "x")
    other.receive()
    assert sections(db.do("INFO", "clients"))["Clients"]["blocked_clients"] == "0"


def test_info_counts_errors(db):
    db.do("CONFIG", "RESETSTAT")
    db.error("NOSUCH")
    db.error("INCR", "k", "x")
    db.do("SET", "k", "v")
    db.error("LPUSH", "k", "x")
    db.do("MULTI")
    db.do("LPUSH", "k", "x")
    db.do("EXEC")
    facts = sections(db.do("INFO", "errorstats", "stats"))
    assert facts["Errorstats"] == {"errorstat_ERR": "count=2", "errorstat_WRONGTYPE": "count=2"}
    assert facts["Stats"]["total_error_replies"] == "4"


def test_info_tells_what_is_ours(db):
    if not is_ours(db):
        pytest.skip("speaks of our store")
    facts = sections(db.do("INFO"))
    assert facts["Server"]["redis_version"] == "7.0.15"
    assert facts["Server"]["penstock_version"].count(".") == 2
    store = facts["Persistence"]
    assert store["durability"] == "relaxed"
    assert 0 < int(store["store_used_bytes"]) < int(store["store_map_bytes"]) <= int(store["store_max_bytes"])


# ------------------------------------------------------------------------------- config


def test_config_get(db):
    assert db.do("CONFIG", "GET", "databases") == db.map({b"databases": b"16"})
    assert db.do("CONFIG", "GET", "DATABASES") == db.map({b"DATABASES": b"16"})
    assert db.do("CONFIG", "GET", "nosuch", "no*such") == db.map({})
    slow = as_dict(db.do("CONFIG", "GET", "SLOWLOG-*", "data[a-c]ases"))
    assert slow == {b"slowlog-log-slower-than": b"10000", b"slowlog-max-len": b"128", b"databases": b"16"}
    assert db.error("CONFIG", "GET") == "ERR wrong number of arguments for 'config|get' command"


def test_config_set_changes_all_or_nothing(db):
    names = ("slowlog-max-len", "slowlog-log-slower-than")
    failed = "ERR CONFIG SET failed (possibly related to argument '{}') - {}"
    assert db.do("CONFIG", "SET", "SLOWLOG-max-len", "64", "slowlog-log-slower-than", "-1") == b"OK"
    try:
        assert as_dict(db.do("CONFIG", "GET", *names)) == {names[0].encode(): b"64", names[1].encode(): b"-1"}
        assert db.error("CONFIG", "SET", names[0], "1", names[1], "x") == failed.format(
            names[1], "argument couldn't be parsed into an integer"
        )
        assert db.error("CONFIG", "SET", names[0], "1", names[1], "-2") == failed.format(
            names[1], "argument must be between -1 and 9223372036854775807 inclusive"
        )
        assert db.error("CONFIG", "SET", names[0], "1", names[0], "2") == failed.format(
            names[0], "duplicate parameter"
        )
        assert db.error("CONFIG", "SET", names[0], "1", "databases", "3") == failed.format(
            "databases", "can't set immutable config"
        )
        assert db.error("CONFIG", "SET", names[0], "1", "Nosuch", "3") == (
            "ERR Unknown option or number of arguments for CONFIG SET - 'Nosuch'"
        )
        assert db.error("CONFIG", "SET", names[0], "1", names[1]) == SYNTAX
        assert as_dict(db.do("CONFIG", "GET", *names)) == {names[0].encode(): b"64", names[1].encode(): b"-1"}
    finally:
        db.do("CONFIG", "SET", names[0], "128", names[1], "10000")


@pytest.mark.parametrize(
    ("given", "shown"),
    [("KEA", "AKE"), ("EKg$lshzxetd", "AKE"), ("Kg$xn", "g$xnK"), ("mE", "Em"), ("", "")],
)
def test_notify_keyspace_events(db, given, shown):
    assert db.do("CONFIG", "SET", "notify-keyspace-events", given) == b"OK"
    assert as_dict(db.do("CONFIG", "GET", "notify-keyspace-events")) == {
        b"notify-keyspace-events": shown.encode()
    }


def test_a_bad_event_class(db):
    assert db.error("CONFIG", "SET", "notify-keyspace-events", "Kq").startswith(
        "ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid event class"
        " character. Use '"
    )


def test_events_come_from_the_next_command_on(db):
    listener = db.client()
    (listener.do if db.kind == "engine" else listener.send)("SUBSCRIBE", "__keyevent@0__:set")
    assert listener.receive()[0] == b"subscribe"
    db.do("MULTI")
    db.do("SET", "before", "v")
    db.do("CONFIG", "SET", "notify-keyspace-events", "KEA")
    db.do("SET", "after", "v")
    db.do("EXEC")
    assert listener.receive() == [b"message", b"__keyevent@0__:set", b"after"]
    db.do("CONFIG", "SET", "notify-keyspace-events", "")
    db.do("SET", "later", "v")
    assert listener.nothing_arrives()


def test_events_are_wanted_by_all_processes_of_a_store(tmp_path: Path):
    path = tmp_path / "store.pen"
    with PenstockServer(path) as server, Engine.open(path) as engine, LocalSession(engine) as session:
        client = _Client(server.port)
        assert client.do("CONFIG", "SET", "notify-keyspace-events", "KEA") == b"OK"
        assert session.execute("CONFIG", "GET", "notify-*") == {b"notify-keyspace-events": b"AKE"}
        client.do("SUBSCRIBE", "__keyevent@0__:set")
        session.execute("SET", "k", "v")
        assert client.read() == [b"message", b"__keyevent@0__:set", b"k"]
        client.close()


class _Client:
    def __init__(self, port: int) -> None:
        import socket

        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._reader = hiredis.Reader(notEnoughData=Ellipsis)

    def do(self, *words: str) -> Any:
        self._socket.sendall(hiredis.pack_command(words))
        return self.read()

    def read(self) -> Any:
        while (reply := self._reader.gets()) is Ellipsis:
            data = self._socket.recv(65536)
            if not data:
                raise EOFError
            self._reader.feed(data)
        return reply

    def close(self) -> None:
        self._socket.close()


def test_constants_can_be_set_to_what_they_are(db):
    if not is_ours(db):
        pytest.skip("a setting elsewhere")
    assert db.do("CONFIG", "SET", "save", "", "appendonly", "YES", "maxmemory", "0") == b"OK"
    assert db.error("CONFIG", "SET", "appendonly", "no") == (
        "ERR CONFIG SET failed (possibly related to argument 'appendonly') - can't set immutable config"
    )


def test_maxclients(tmp_path: Path):
    with PenstockServer(tmp_path / "store.pen") as server:
        first = _Client(server.port)
        assert first.do("CONFIG", "SET", "maxclients", "1") == b"OK"
        second = _Client(server.port)
        assert str(second.read()) == "ERR max number of clients reached"
        first.do("CONFIG", "SET", "maxclients", "2")
        third = _Client(server.port)
        assert third.do("PING") == b"PONG"
        for client in (first, second, third):
            client.close()


def test_the_rest_of_config(db):
    assert db.do("CONFIG", "RESETSTAT") == b"OK"
    assert db.error("CONFIG", "REWRITE") == "ERR The server is running without a config file"
    assert db.error("CONFIG", "NOSUCH") == "ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP."
    assert db.do("CONFIG", "HELP")[0].startswith(b"CONFIG <subcommand> ")


# ------------------------------------------------------------------------------ slowlog


def test_slowlog(db):
    db.do("CONFIG", "SET", "slowlog-log-slower-than", "0")
    try:
        db.do("CLIENT", "SETNAME", "slow")
        db.do("SLOWLOG", "RESET")
        db.do("SET", "k", "x" * 200)
        db.do("RPUSH", "l", *range(40))
        db.do("AUTH", "default", "secret")
        db.do("MULTI")
        db.do("ECHO", "inside")
        db.do("EXEC")
        entries = db.do("SLOWLOG", "GET", "-1")
        assert db.do("SLOWLOG", "LEN") >= 5
    finally:
        db.do("CONFIG", "SET", "slowlog-log-slower-than", "10000")
    commands = [entry[3] for entry in entries]
    assert [b"SET", b"k", b"x" * 128 + b"... (72 more bytes)"] in commands
    assert [b"AUTH", b"(redacted)", b"(redacted)"] in commands
    assert [b"ECHO", b"inside"] in commands
    assert [b"EXEC"] not in commands
    (pushed,) = [words for words in commands if words[0] == b"RPUSH"]
    assert pushed[-2:] == [b"28", b"... (11 more arguments)"]
    assert len(pushed) == 32
    number, unix_time_s, duration_us, _, address, name = entries[0]
    assert number == entries[1][0] + 1
    assert unix_time_s > 1_600_000_000
    assert duration_us >= 0
    assert name == b"slow"
    assert address or db.kind == "engine"
    assert db.do("SLOWLOG", "RESET") == b"OK"
    assert db.do("SLOWLOG", "LEN") == 0


def test_slowlog_is_bounded(db):
    db.do("CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "2")
    try:
        for _ in range(5):
            db.do("PING")
        assert db.do("SLOWLOG", "LEN") == 2
        assert len(db.do("SLOWLOG", "GET", "1")) == 1
    finally:
        db.do("CONFIG", "SET", "slowlog-log-slower-than", "10000", "slowlog-max-len", "128")
    db.do("SLOWLOG", "RESET")


def test_bad_slowlogs(db):
    error = "ERR count should be greater than or equal to -1"
    assert db.error("SLOWLOG", "GET", "x") == error
    assert db.error("SLOWLOG", "GET", "-2") == error
    assert db.error("SLOWLOG", "NOSUCH") == "ERR unknown subcommand 'NOSUCH'. Try SLOWLOG HELP."


# ------------------------------------------------------------------------------ monitor


def shown(line: Any) -> tuple[str, str]:
    """Database and words of a line of MONITOR."""
    found = re.fullmatch(rb"\d+\.\d{6} \[(\d+) [^ ]+\] (.*)", line[1] if isinstance(line, list) else line)
    assert found, line
    return found[1].decode(), found[2].decode()


def test_monitor_shows_what_others_do(db):
    watcher = db.client()
    assert watcher.do("MONITOR") == b"OK"
    db.do("SET", "k", b'1\n\x00\xff"\\')
    db.do("NOSUCH")
    db.do("GET")
    db.do("CONFIG", "GET", "port")
    db.do("INCR", "k")
    db.do("AUTH", "default", "secret")
    db.do("SELECT", "2")
    db.do("PING")
    assert shown(watcher.receive()) == ("0", r'"SET" "k" "1\n\x00\xff\"\\"')
    assert shown(watcher.receive()) == ("0", '"INCR" "k"')
    assert shown(watcher.receive()) == ("0", '"AUTH" "(redacted)" "(redacted)"')
    assert shown(watcher.receive()) == ("2", '"SELECT" "2"')
    assert shown(watcher.receive()) == ("2", '"PING"')


def test_monitor_shows_transactions_as_they_run(db):
    watcher = db.client()
    watcher.do("MONITOR")
    db.do("MULTI")
    db.do("SET", "k", "v")
    db.do("GET", "k")
    db.do("EXEC")
    lines = [shown(watcher.receive())[1] for _ in range(4)]
    assert lines == ['"MULTI"', '"SET" "k" "v"', '"GET" "k"', '"EXEC"']


def test_who_monitors_touches_no_keys(db):
    watcher = db.client()
    number = watcher.do("CLIENT", "ID")
    watcher.do("MONITOR")
    for words in (("GET", "k"), ("SET", "k", "v"), ("PUBLISH", "c", "x")):
        assert watcher.error(*words) == "ERR Replica can't interact with the keyspace"
    assert b" flags=O " in db.do("CLIENT", "LIST", "ID", number)


def test_reset_ends_monitoring(db):
    watcher = db.client()
    watcher.do("MONITOR")
    assert watcher.do("RESET") == b"RESET"
    db.do("SET", "k", "v")
    assert watcher.do("GET", "k") == b"v"
    assert watcher.nothing_arrives()


def test_monitor_takes_no_arguments(db):
    assert db.error("MONITOR", "x") == "ERR wrong number of arguments for 'monitor' command"


# ------------------------------------------------------------------------ save and stop


def test_saving(db):
    before = db.do("LASTSAVE")
    assert db.do("SAVE") == b"OK"
    assert db.do("LASTSAVE") >= before > 1_600_000_000
    assert db.error("BGSAVE", "x") == SYNTAX
    if is_ours(db):
        assert db.do("BGSAVE") == db.do("BGSAVE", "SCHEDULE") == b"Background saving started"


def test_bad_shutdowns(db):
    assert db.error("SHUTDOWN", "ABORT") == "ERR No shutdown in progress."
    for words in (("x",), ("SAVE", "NOSAVE"), ("ABORT", "NOW")):
        assert db.error("SHUTDOWN", *words) == SYNTAX
    assert db.do("PING") == b"PONG"


@pytest.mark.parametrize(
    "words", [("SHUTDOWN",), ("shutdown", "nosave"), ("SHUTDOWN", "SAVE", "NOW", "FORCE")]
)
def test_shutdown_stops_the_server_and_loses_nothing(tmp_path: Path, words):
    path = tmp_path / "store.pen"
    with PenstockServer(path, durability="relaxed") as server:
        client = _Client(server.port)
        client.do("SET", "k", "v")
        with pytest.raises(EOFError):
            client.do(*words)
        client.close()
        assert server.process.wait(20) == 0
    with Engine.open(path) as engine, LocalSession(engine) as session:
        assert session.execute("GET", "k") == b"v"


def test_an_embedded_engine_is_not_shut_down(tmp_path: Path):
    with Engine.open(tmp_path / "store.pen") as engine, LocalSession(engine) as session:
        with pytest.raises(CommandError, match="SHUTDOWN is for servers"):
            session.execute("SHUTDOWN")
        assert session.execute("PING") == b"PONG"


# ------------------------------------------------------------------------ small answers


def test_time_role_latency(db):
    seconds, micros = db.do("TIME")
    assert int(seconds) > 1_600_000_000
    assert 0 <= int(micros) < 1_000_000
    assert db.do("ROLE")[0] == b"master"
    assert db.do("LATENCY", "LATEST") == []
    assert db.do("LATENCY", "RESET", "a", "b") == 0
    assert b"ver. " in db.do("LOLWUT")
    assert db.error("LOLWUT", "VERSION", "x") == "ERR value is not an integer or out of range"


def test_memory(db):
    facts = as_dict(db.do("MEMORY", "STATS"))
    assert facts[b"keys.count"] == 0
    db.do("SET", "k", "v")
    assert as_dict(db.do("MEMORY", "STATS"))[b"keys.count"] == 1
    assert facts[b"total.allocated"] > 0
    assert len(db.do("MEMORY", "DOCTOR")) > 20
    assert db.do("MEMORY", "HELP")[0].startswith(b"MEMORY <subcommand> ")


def test_debug(db):
    if not is_ours(db):
        pytest.skip("DEBUG is off by default elsewhere")
    unknown = "ERR unknown subcommand or wrong number of arguments for '{}'. Try DEBUG HELP."
    assert db.do("DEBUG", "SLEEP", "0.001") == b"OK"
    assert db.do("DEBUG", "SET-ACTIVE-EXPIRE", "1") == b"OK"
    assert db.error("DEBUG", "SLEEP") == unknown.format("SLEEP")
    assert db.error("DEBUG", "nosuch") == unknown.format("nosuch")
    assert db.do("DEBUG", "HELP")[0].startswith(b"DEBUG <subcommand> ")


# ------------------------------------------------------------------------------ command


def test_command_info(db):
    get, unknown, client = db.do("COMMAND", "INFO", "GET", "nosuch", "client|id")
    assert get[:6] == [b"get", 2, [b"readonly", b"fast"], 1, 1, 1]
    assert get[6] == [b"@read", b"@string", b"@fast"]
    assert unknown is None
    assert client[:2] == [b"client|id", 2]


def test_command_lists_everything(db):
    rows = db.do("COMMAND")
    assert len(rows) == db.do("COMMAND", "COUNT") == len(db.do("COMMAND", "INFO"))
    names = db.do("COMMAND", "LIST")
    assert {row[0] for row in rows} <= set(names)
    assert b"client|list" in names


def test_command_list_filters(db):
    assert sorted(db.do("COMMAND", "LIST", "FILTERBY", "PATTERN", "HGET*")) == [b"hget", b"hgetall"] or (
        db.kind == "valkey"
    )
    assert b"client|id" in db.do("COMMAND", "LIST", "FILTERBY", "ACLCAT", "CONNECTION")
    assert db.do("COMMAND", "LIST", "FILTERBY", "ACLCAT", "nosuch") == []
    assert db.do("COMMAND", "LIST", "FILTERBY", "MODULE", "nosuch") == []
    for words in (("FILTERBY", "x", "y"), ("FILTERBY",), ("x",), ("FILTERBY", "PATTERN", "a", "b")):
        assert db.error("COMMAND", "LIST", *words) == SYNTAX


def test_command_docs(db):
    docs = as_dict(db.do("COMMAND", "DOCS", "get", "nosuch"))
    assert list(docs) == [b"get"]
    facts = as_dict(docs[b"get"])
    assert (facts[b"since"], facts[b"group"]) == (b"1.0.0", b"string")
    assert facts[b"summary"]


def test_command_getkeys(db):
    assert db.do("COMMAND", "GETKEYS", "MSET", "a", "1", "b", "2") == [b"a", b"b"]
    assert db.do("COMMAND", "GETKEYS", "ZUNIONSTORE", "d", "2", "a", "b") == [b"d", b"a", b"b"]
    assert db.do("COMMAND", "GETKEYSANDFLAGS", "LMOVE", "a", "b", "LEFT", "LEFT") == [
        [b"a", [b"RW", b"access", b"delete"]],
        [b"b", [b"RW", b"insert"]],
    ]
    assert db.error("COMMAND", "GETKEYS", "nosuch", "a") == "ERR Invalid command specified"
    assert db.error("COMMAND", "GETKEYS", "PING", "a") == "ERR The command has no key arguments"
    assert db.error("COMMAND", "GETKEYS", "GET", "a", "b") == (
        "ERR Invalid number of arguments specified for command"
    )


# ------------------------------------------------------------------------- ACL, CLUSTER


def test_the_one_user(db):
    assert db.do("ACL", "WHOAMI") == b"default"
    assert db.do("ACL", "USERS") == [b"default"]
    (line,) = db.do("ACL", "LIST")
    assert line.startswith(b"user default on nopass ")
    user = as_dict(db.do("ACL", "GETUSER", "default"))
    assert {b"on", b"nopass"} <= set(user[b"flags"])
    assert (user[b"passwords"], user[b"commands"], user[b"keys"]) == ([], b"+@all", b"~*")
    assert db.do("ACL", "GETUSER", "nobody") is None


def test_a_password_shows_as_its_digest(db):
    needs_socket(db)
    digest = b"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
    db.do("CONFIG", "SET", "requirepass", "secret")
    try:
        assert b"#" + digest in db.do("ACL", "LIST")[0].split()
        assert as_dict(db.do("ACL", "GETUSER", "default"))[b"passwords"] == [digest]
    finally:
        db.do("CONFIG", "SET", "requirepass", "")


def test_categories(db):
    assert {b"keyspace", b"string", b"blocking", b"scripting"} <= set(db.do("ACL", "CAT"))
    assert {b"hget", b"hset", b"hscan"} <= set(db.do("ACL", "CAT", "HASH"))
    assert db.error("ACL", "CAT", "nosuch") == "ERR Unknown category 'nosuch'"


def test_cluster_is_off(db):
    for words in (("INFO",), ("MYID",), ("NODES",), ("SLOTS",), ("SHARDS",), ("COUNTKEYSINSLOT", "1")):
        assert db.error("CLUSTER", *words) == NO_CLUSTER
    assert db.error("CLUSTER", "NOSUCH") == "ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP."
    if is_ours(db):
        assert db.do("CLUSTER", "KEYSLOT", "{foo}.bar") == db.do("CLUSTER", "KEYSLOT", "foo") == 12182
        assert db.do("CLUSTER", "HELP")[0].startswith(b"CLUSTER <subcommand> ")
