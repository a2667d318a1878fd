"""``penstock shell`` on real stores: one command, commands of stdin, and a prompt behind a real pty."""

from __future__ import annotations

import builtins
import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock.blocking
from penstock.testing.servers import RealServer
from tests import places
from tests.cli.conftest import Penstock
from tests.cli.terminal import Terminal

LINES = r"""
set k "two \"words\""
get k
hset h f v
hgetall h
rpush l a b "x\ny"
multi
set x 1
get k
lrange l 0 1
hgetall h
exec
get nope
nonsense x
2 incr n
zadd z 1.5 a
zrange z 0 -1 withscores
eval "return {1,{2,{3,'a'}},'f'}" 0
type k
echo OK
config get maxmemory
"""


@pytest.fixture(params=("embedded", "served", "valkey"))
def url(request: pytest.FixtureRequest) -> str:
    return places.url_of(request.param, request)


# ------------------------------------------------------------------------------ one command


def test_one_command(run: Penstock, url: str) -> None:
    assert run("shell", url, "--", "SET", "k", "-1 ä") == (0, "OK\n", "")
    assert run("shell", url, "--", "GET", "k") == (0, "-1 ä\n", "")
    assert run("shell", url, "GET", "k", "--no-raw") == (0, '"-1 \\xc3\\xa4"\n', "")
    assert run("shell", url, "--json", "--", "MGET", "k", "n") == (0, '["-1 ä",null]\n', "")
    done = run("shell", url, "--", "NOPE", "x")
    assert (done.status, done.out) == (1, "")
    assert done.errors.lower().startswith("penstock: err unknown command 'nope'")
    assert json.loads(run("shell", url, "--json", "--", "NOPE").out)["error"].startswith("ERR unknown")


def test_a_store_that_is_not_there(run: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "shop.pen"
    assert run("shell", str(place), "--", "GET", "k").errors == f"penstock: there is no store at {place}\n"
    assert not place.exists()
    assert run("shell", str(place), "--", "INCR", "n").out == "1\n"
    monkeypatch.setenv("PENSTOCK_STORE", str(place))
    assert run("shell", "--", "GET", "n").out == "1\n"
    assert run("shell", "redis://127.0.0.1:1", "--", "GET", "n").status == 1


def test_no_store_at_all_is_explained(run: Penstock) -> None:
    done = run("shell")
    assert done.status == 2
    assert "say which store" in done.errors


# ---------------------------------------------------------------------------- many commands


def test_lines_of_stdin(run: Penstock, url: str) -> None:
    done = run("shell", url, "--no-raw", stdin=LINES)
    assert (done.status, done.errors) == (1, "penstock: 1 of 20 commands were refused\n")
    found = done.out.splitlines()
    assert found[:8] == [
        "OK", '"two \\"words\\""', "(integer) 1", '1# "f" => "v"', "(integer) 3", "OK", "QUEUED", "QUEUED",
    ]  # fmt: skip
    assert found[10:16] == [
        "1) OK", '2) "two \\"words\\""', '3) 1) "a"', '   2) "b"', '4) 1# "f" => "v"', "(nil)",
    ]  # fmt: skip
    assert found[16].startswith("(error) ERR unknown command 'nonsense'")
    assert found[17:19] == ["(integer) 1", "(integer) 2"]


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not on PATH")
def test_answers_are_those_of_redis_cli(run: Penstock, request: pytest.FixtureRequest) -> None:
    url = places.url_of("valkey", request)
    port = url.rpartition(":")[2].partition("/")[0]
    theirs = subprocess.run(
        ["redis-cli", "-3", "--no-raw", "-p", port], input=LINES, capture_output=True, text=True, timeout=60
    )
    with penstock.blocking.open(url) as client:
        client.flushall()
    assert run("shell", url, "--no-raw", stdin=LINES).out == theirs.stdout


def test_raw_and_json_and_the_shells_own_words(run: Penstock, url: str) -> None:
    lines = 'rpush l a b\nlrange l 0 -1\n.json\nlrange l 0 -1\n"bad\n.json\nget nope\nhelp get\n# no\nexit\n'
    lines += "set k v\n"
    done = run("shell", url, stdin=lines)
    out = done.out.splitlines()
    assert out[:5] == [
        "2",
        "a",
        "b",
        '["a","b"]',
        '{"error":"quotes do not pair, or something follows one at once"}',
    ]
    assert out[5:8] == ["", "", "  GET key"]
    assert done.status == 1
    with penstock.blocking.open(url) as client:
        assert client.get("k") is None


def test_bytes_that_are_no_text_pass_as_they_are(run: Penstock, url: str) -> None:
    assert run("shell", url, stdin='echo "\\xff\\x00a"\n').out == "\udcff\x00a\n"


def test_a_connection_remembers(run: Penstock, url: str) -> None:
    lines = "set w 1\nwatch w\nset w 2\nmulti\nset w 3\nexec\nselect 1\nset k v\nget k\n"
    out = run("shell", url, "--no-raw", stdin=lines).out.splitlines()
    assert out == ["OK", "OK", "OK", "OK", "QUEUED", "(nil)", "OK", "OK", '"v"']
    assert run("shell", url, "--no-raw", "--", "GET", "k").out == "(nil)\n"


def test_refusals_leave_the_shell_as_it_was(run: Penstock, url: str) -> None:
    lines = "multi\nincr\nexec\nget k\nunsubscribe\nclient reply off\nmulti\nsubscribe c\ndiscard\nping\n"
    lines += "subscribe\n"
    out = run("shell", url, "--no-raw", stdin=lines).out.splitlines()
    assert out[0] == "OK"
    assert out[1].startswith("(error) ERR wrong number of arguments")
    assert out[2].startswith("(error) EXECABORT")
    assert out[3] == "(nil)"
    assert out[4] == "(error) nothing is subscribed to here: Ctrl-C ends a subscription"
    assert "silence" in out[5]
    assert out[6:10] == ["OK", "(error) SUBSCRIBE cannot be queued: EXEC or DISCARD first", "OK", "PONG"]
    assert out[10] == "(error) ERR wrong number of arguments for 'subscribe' command"


def test_a_server_that_comes_back(tmp_path: Path) -> None:
    with RealServer() as server, Terminal("shell", server.url, XDG_STATE_HOME=str(tmp_path)) as terminal:
        terminal.wait_for(">")
        terminal.send("set k v\r")
        terminal.wait_for("OK")
        terminal.wait_for(">")
        terminal.send("multi\r")
        terminal.wait_for("(TX)>")
        server.kill()
        server.restart()
        terminal.send("get k\r")
        terminal.wait_for("MULTI and what was queued are forgotten")
        terminal.wait_for(">")
        terminal.send("get k\r")
        terminal.wait_for("(nil)")


# -------------------------------------------------------------------------------- the prompt


def test_the_prompt(tmp_path: Path) -> None:
    where, state = str(tmp_path / "shop.pen"), tmp_path / "state"
    with Terminal("shell", where, XDG_STATE_HOME=str(state)) as terminal:
        terminal.wait_for("shop.pen>")
        terminal.send("hgeta\t")
        terminal.wait_for("hgetall")
        terminal.send(" h\r")
        terminal.wait_for("(empty hash)")
        terminal.wait_for(">")
        terminal.send("set k ")
        terminal.wait_for("value [NX|XX]")
        terminal.send("v\r")
        terminal.wait_for("OK")
        terminal.wait_for(">")
        terminal.send("nonsense\r")
        terminal.wait_for("(error) ERR unknown command")
        terminal.wait_for(">")
        terminal.send("auth secret\r")
        terminal.wait_for("(error)")
        terminal.wait_for(">")
        terminal.send("select 3\r")
        terminal.wait_for("shop.pen[3]>")
        terminal.send("half a line")
        terminal.wait_for("half a line")
        terminal.interrupt("shop.pen[3]>")
        terminal.send("\x04")
        assert terminal.wait_for_end() == 0
    history = state / "penstock" / "shell_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "+hgetall h\n" in history.read_text()
    assert "secret" not in history.read_text()


def test_what_waits_ends_with_ctrl_c(url: str, tmp_path: Path) -> None:
    with (
        Terminal("shell", url, XDG_STATE_HOME=str(tmp_path)) as terminal,
        penstock.blocking.open(url) as client,
    ):
        terminal.wait_for(">")
        terminal.send("subscribe news\r")
        terminal.wait_for("Reading messages... (press Ctrl-C to quit)")
        terminal.wait_for('1) "subscribe"\n2) "news"\n3) (integer) 1\n')
        client.publish("news", "hello")
        terminal.wait_for('1) "message"\n2) "news"\n3) "hello"\n')
        terminal.interrupt()
        terminal.send("monitor\r")
        terminal.wait_for("OK")
        if "embedded" not in url:  # there it sees its own process alone
            client.set("seen", "by all")
            terminal.wait_for('] "SET" "seen" "by all"')
        terminal.interrupt()
        terminal.send("blpop list 0\r")
        terminal.wait_for("blpop list 0\n")
        terminal.interrupt()
        terminal.send("ping\r")
        terminal.wait_for("PONG")
        client.rpush("list", "kept")
        assert client.llen("list") == 1


def test_without_prompt_toolkit_the_rest_works(
    run: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = builtins.__import__

    def import_(name: str, *more: Any) -> Any:
        if name.startswith(("prompt_toolkit", "rich")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return really(name, *more)

    monkeypatch.delitem(sys.modules, "penstock.cli.shell_prompt", raising=False)
    monkeypatch.setattr(builtins, "__import__", import_)
    place = str(tmp_path / "shop.pen")
    assert run("shell", place, "--", "SET", "k", "v").out == "OK\n"
    assert run("shell", place, stdin="GET k\n").out == "v\n"
    from penstock.cli import shell
    from penstock.errors import ConfigError

    with pytest.raises(ConfigError, match=r"pip install 'penstock\[cli\]'"):
        shell._need_prompt()
