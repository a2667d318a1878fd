"""``penstock channel …``: what it prints, how it fails, how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penstock.blocking
from tests.shell import Shell

COMMAND = [sys.executable, "-m", "penstock.cli.main", "channel"]


@pytest.fixture(params=["embedded", "server"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "embedded":
        return str(tmp_path / "store.pen")
    return str(request.getfixturevalue("real_servers").get("valkey").url)


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell("channel", capsysbinary, monkeypatch)


def test_a_subscriber_gets_each_message_once(run: Shell, where: str) -> None:
    assert run("subscribe", where, "room", "alice", "--once") == ""
    assert run("publish", where, "room", '{"n": 1}', "plain text") == "2\n"
    assert run("publish", where, "room", "--id", "m-3", "3") == "1\n"
    assert run("publish", where, "room", "--id", "m-3", "4") == "0\n"
    seen = [line.split("\t") for line in run("subscribe", where, "room", "alice", "--once").splitlines()]
    assert [content for _, content in seen] == ['{"n":1}', '"plain text"', "3"]
    assert seen[2][0] == "m-3"
    assert run("subscribe", where, "room", "alice", "--once") == ""


def test_looking_acknowledges_nothing(run: Shell, where: str) -> None:
    run("subscribe", where, "room", "alice", "--once")
    run("publish", where, "room", "--id", "m-1", "1")
    assert run("subscribe", where, "room", "alice", "--no-ack") == "m-1\t1\n"
    assert run("subscribe", where, "room", "alice", "--no-ack") == "m-1\t1\n"


def test_lines_of_stdin_and_json_out(run: Shell, where: str) -> None:
    run("subscribe", where, "room", "alice", "--once")
    lines = b"".join(b'{"n":%d}\n' % number for number in range(1_200))
    assert json.loads(run("publish", where, "room", "--json", stdin=lines)) == {
        "published": 1_200,
        "duplicates": 0,
    }
    out = run("subscribe", where, "room", "alice", "--once", "--json")
    assert [json.loads(line)["content"]["n"] for line in out.splitlines()] == list(range(1_200))


def test_info(run: Shell, where: str) -> None:
    run("subscribe", where, "room", "alice", "--once")
    assert "nobody" in run("info", where, "other")
    run("publish", where, "room", "1", "2")
    assert json.loads(run("info", where, "room", "--json"))["unread"] == {"alice": 2}
    assert "unread   2\talice" in run("info", where, "room")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("publish", "{where}", "ROOM", "1"), "name must be 1 to 63 of the characters"),
        (("publish", "{where}", "room", "--id", "a b", "1"), "message_id must be 1 to 63"),
        (("subscribe", "{where}", "room", "Alice"), "subscriber must be 1 to 63"),
        (("info", "{where}-not", "room"), "there is no store at"),
        (("publish", "ftp://x", "room", "1"), "ftp"),
    ],
)
def test_bad_words_are_one_sentence(
    run: Shell, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    where = str(tmp_path / "store.pen")
    errors = run.failure(*(word.replace("{where}", where) for word in words))
    assert errors.startswith("penstock: ")
    assert sentence in errors
    assert errors.count("\n") == 1


def test_tail_shows_what_comes_and_leaves_nothing_behind(where: str) -> None:
    with (
        subprocess.Popen(
            [*COMMAND, "tail", where, "room"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as tail,
        penstock.blocking.open(where) as ps,
    ):
        room = ps.channel("room")
        try:
            while not ((info := room.info()) and info.unread):
                assert tail.poll() is None
            room.publish("m-1", "hello")
            assert tail.stdout is not None
            assert tail.stdout.readline() == b'm-1\t"hello"\n'
            tail.send_signal(signal.SIGINT)
            assert tail.wait(20) == 0
        finally:
            tail.kill()
        info = room.info()
        assert info is not None
        assert not info.unread
        assert tail.stderr is not None
        assert tail.stderr.read() == b""
