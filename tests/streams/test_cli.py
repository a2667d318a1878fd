"""``penstock stream …``: what it prints, how it fails, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock.blocking
from tests.shell import Shell

COMMAND = [sys.executable, "-m", "penstock.cli.main", "stream"]


@pytest.fixture(params=["embedded", "server"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "embedded":
        return str(tmp_path / "store.pen")
    return str(request.getfixturevalue("real_servers").get("valkey").url)


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell("stream", capsysbinary, monkeypatch)


def test_writing_and_reading(run: Shell, where: str) -> None:
    assert run("write", where, "orders", "--tag", "eu", "one", "two") == "2\n"
    assert run("write", where, "orders", stdin=b"three\nfo\xffur\n") == "4\n"
    lines = b"a\tfive\nsix\n"
    assert json.loads(run("write", where, "orders", "--tagged", "--json", stdin=lines)) == {
        "last": 6,
        "written": 2,
    }
    assert run("write", where, "orders", "--tag", "eu", "--tombstone") == "7\n"
    assert run("read", where, "orders").splitlines() == [
        "1\teu\tone", "2\teu\ttwo", "3\t\tthree", "4\t\tfo\\xffur", "5\ta\tfive", "6\t\tsix",
        "7\teu\t(tombstone)",
    ]  # fmt: skip
    assert run("read", where, "orders", "--from", "2", "--to", "3", "--raw") == "two\nthree\n"
    read = [json.loads(line) for line in run("read", where, "orders", "--json", "--tail", "4").splitlines()]
    assert [line["offset"] for line in read] == [4, 5, 6, 7]
    assert (read[0]["entry_base64"], read[1]["tag"], read[3]["entry"]) == ("Zm//dXI=", "a", None)


def test_bulk(run: Shell, where: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(2_500))
    assert run("write", where, "orders", stdin=lines) == "2500\n"
    assert run("read", where, "orders", "--raw").encode() == lines


def test_looking_after(run: Shell, where: str) -> None:
    run("write", where, "orders", "--tag", "a", "1", "2", "3")
    with penstock.blocking.open(where) as ps:
        ps.stream("orders").group("billing").create(at=2)
    facts = json.loads(run("info", where, "orders", "--json"))
    assert (facts["first"], facts["last"], facts["groups"]) == (1, 3, 1)
    assert any(line.split() == ["last", "3"] for line in run("info", where, "orders").splitlines())
    head, row = run("groups", where, "orders").splitlines()
    assert head.split()[:2] == ["name", "cursor"]
    assert row.split()[:2] == ["billing", "2"]
    (group,) = map(json.loads, run("groups", where, "orders", "--json").splitlines())
    assert (group["name"], group["lag"]) == ("billing", 2)
    assert run("evict", where, "orders", "--upto", "3", "--acked") == "1\n"
    assert json.loads(run("evict", where, "orders", "--keep", "1", "--json")) == {"removed": 1}
    assert run("compact", where, "orders") == "0\n"


def test_dropping(run: Shell, where: str) -> None:
    run("write", where, "orders", *"123456")
    assert run("drop", where, "orders", "2", "4-5", "99") == "3\n"
    assert json.loads(run("drop", where, "orders", "--json", "1-2")) == {"removed": 1}
    assert run("read", where, "orders", "--raw") == "3\n6\n"
    assert "must be a whole number" in run.failure("drop", where, "orders", "3", "x", status=2)
    assert "must be a whole number" in run.failure("drop", where, "orders", "3", "6-", status=2)
    assert "must not run backwards" in run.failure("drop", where, "orders", "3", "6-5")
    assert run("read", where, "orders", "--raw") == "3\n6\n"


def follow(*words: str, **more: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, "follow", *words], stdout=subprocess.PIPE, **more)


def test_following_until_ctrl_c(run: Shell, where: str) -> None:
    run("write", where, "orders", "one")
    process = follow(where, "orders", "--from", "1", stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\t\tone\n"
        run("write", where, "orders", "two")
        assert process.stdout.readline() == b"2\t\ttwo\n"
        process.send_signal(signal.SIGINT)
        rest, complaints = process.communicate(timeout=20)
        assert (process.returncode, rest, complaints) == (0, b"", b"")
    finally:
        process.kill()
        process.wait()


def test_ctrl_c_while_lines_are_awaited(run: Shell, where: str) -> None:
    run("write", where, "orders", "zero")
    process = subprocess.Popen(
        [*COMMAND, "write", where, "orders"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        process.stdin.write(b"x\n" * 1_000)
        process.stdin.flush()
        with penstock.blocking.open(where) as ps:
            messages = ps.stream("orders").follow(2)
            assert next(message.offset for message in messages if message.offset == 1_001)
            messages.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.communicate()


def test_a_reader_that_has_seen_enough(run: Shell, where: str) -> None:
    run("write", where, "orders", stdin=b"x\n" * 20_000)
    process = subprocess.Popen(
        [*COMMAND, "read", where, "orders"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"1\t\tx\n"
    process.stdout.close()
    assert (process.stderr.read(), process.wait(20)) == (b"", 0)
    process.stderr.close()


def test_progress_on_a_terminal(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    (tmp_path / "lines").write_bytes(b"x\n" * 5_000)
    ours, theirs = pty.openpty()
    with (tmp_path / "lines").open("rb") as lines:
        done = subprocess.run(
            [*COMMAND, "write", str(tmp_path / "s.pen"), "orders"],
            stdin=lines, stdout=subprocess.PIPE, stderr=theirs, timeout=30,
        )  # fmt: skip
    os.close(theirs)
    drawn = os.read(ours, 100_000).decode()
    os.close(ours)
    assert (done.returncode, done.stdout) == (0, b"5000\n")
    assert "writing [#####" in drawn
    assert "1,000" in drawn
    assert drawn.endswith("\r\x1b[K")


def test_failures_are_one_sentence(run: Shell, where: str, tmp_path: Path) -> None:
    run("write", where, "orders", "x")
    assert run.failure("info", where, "missing") == "penstock: ERR no such key\n"
    assert run.failure("write", where, "") == "penstock: name must not be empty\n"
    assert (
        run.failure("write", where, "orders", "--tombstone")
        == "penstock: --tombstone needs --tag and no entries\n"
    )
    nowhere = tmp_path / "nowhere.pen"
    assert run.failure("read", str(nowhere), "orders") == f"penstock: there is no store at {nowhere}\n"
    assert not nowhere.exists()
    assert run.failure("read", "redis://127.0.0.1:1", "orders").count("\n") == 1
    assert "unknown scheme" in run.failure("read", "http://localhost", "orders")


def test_what_is_not_understood(run: Shell, tmp_path: Path) -> None:
    where = str(tmp_path)
    assert "must be a whole number, not -1" in run.failure("read", where, "orders", "--from=-1", status=2)
    assert "--upto --keep --older-than-ms is required" in run.failure("evict", where, "orders", status=2)
    assert "not allowed with argument" in run.failure(
        "evict", where, "o", "--upto", "1", "--keep", "2", status=2
    )
    assert "required: WHERE, STREAM" in run.failure("info", status=2)


def test_help(run: Shell) -> None:
    shown = run("--help")
    for action in ("write", "read", "follow", "groups", "info", "evict", "compact"):
        assert f"\n    {action} " in shown
        assert "WHERE" in run(action, "--help")
    assert "examples:" in shown
