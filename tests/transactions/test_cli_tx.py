"""``penstock tx …``: what it prints, what it does, how it fails, how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.lake import Lake
from tests.places import wait_until
from tests.shell import Shell
from tests.transactions.cli_places import deploy, on_store, working

COMMAND = [sys.executable, "-m", "penstock.cli.main", "tx"]
UNKNOWN = "tx-0-" + "0" * 31


@pytest.fixture(params=["embedded", "server"])
def where(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with pipelines, which the environment names."""
    if request.param == "embedded":
        where = str(tmp_path / "store.pen")
    else:
        where = str(request.getfixturevalue("real_servers").get("valkey").url)
    deploy(where)
    monkeypatch.setenv("PENSTOCK_STORE", where)
    return where


@pytest.fixture
def tx(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell("tx", capsysbinary, monkeypatch)


def started(tx: Shell, *words: str) -> str:
    return tx("start", *words).strip()


def facts(tx: Shell, *words: str) -> Any:
    """Of a command that answers in JSON."""
    return json.loads(tx(*words, "--json"))


def rows(tx: Shell, *words: str) -> list[Any]:
    return [json.loads(line) for line in tx(*words, "--json").splitlines()]


def outcome(tx: Shell, *words: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of a command that may fail after it has answered."""
    return tx._run(words, b"")


def is_in(tx: Shell, id: str, *states: str) -> bool:
    return facts(tx, "status", id)["state"] in states


# ---------------------------------------------------------------------------------------- start


def test_start_and_status(tx: Shell, where: str) -> None:
    id = started(
        tx, "checkout", '{"total": 3}', "--owner", "acme", "--external-id", "o-1", "--priority", "7",
        "--metadata", '{"by": "test"}', "--deadline", "1h", "--webhook", "https://shop.example/hook",
    )  # fmt: skip
    found = facts(tx, "status", id)
    assert found["input"] == {"total": 3}
    assert (found["state"], found["status"], found["owner"], found["external_id"]) == (
        "queued", "running", "acme", "o-1",
    )  # fmt: skip
    assert (found["priority"], found["metadata"], found["webhook"]) == (
        7, {"by": "test"}, "https://shop.example/hook",
    )  # fmt: skip
    assert found["deadline_ms"] - found["created_ms"] == 3_600_000
    assert found == facts(tx, "status", "--external-id", "o-1", "--owner", "acme")
    text = tx("status", id)
    assert f"id           {id}\nstatus       queued\n" in text
    assert 'input        {"total":3}\n' in text


def test_an_external_id_is_begun_once(tx: Shell, where: str) -> None:
    words = ("start", "checkout", "--external-id", "o-1")
    first = facts(tx, *words, '{"total": 1}')
    assert first["is_new"]
    assert facts(tx, *words, '{"total":1}') == {"id": first["id"], "is_new": False}
    assert "was started with another body" in tx.failure(*words, '{"total": 2}')


def test_input_of_a_file_and_of_stdin(tx: Shell, where: str, tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text('{"total": 5}\n')
    assert facts(tx, "status", started(tx, "checkout", f"@{file}"))["input"] == {"total": 5}
    id = tx("start", "checkout", "-", stdin=b'{"total": 6}').strip()
    assert facts(tx, "status", id)["input"] == {"total": 6}
    assert facts(tx, "status", started(tx, "checkout"))["input"] is None


def test_wait_shows_the_end_and_its_status(tx: Shell, where: str) -> None:
    with working(where):
        ended = facts(tx, "start", "checkout", '{"total": 3}', "--wait", "20")
        assert (ended["status"], ended["output"]) == ("success", {"total": 3, "receipt": "r-3"})
        status, out, errors = outcome(tx, "start", "checkout", '{"total": -3}', "--wait", "20")
        assert status == 1
        assert "status      failed\nnote        total must not be negative\n" in out
        assert errors.endswith("has ended as failed: total must not be negative\n")
        assert errors.count("\n") == 1
        status, out, errors = outcome(tx, "start", "approval", '{"total": 3}', "--wait", "50ms")
        assert (status, errors.count("\n")) == (1, 1)
        assert "has not ended within 50 ms" in errors


def test_a_later_begin_and_waking(tx: Shell, where: str) -> None:
    later = started(tx, "checkout", '{"total": 1}', "--delay", "1h")
    found = facts(tx, "status", later)
    assert found["state"] == "sleeping"
    moment = (datetime.now(UTC) + timedelta(days=30)).isoformat()
    at = started(tx, "checkout", '{"total": 1}', "--at", moment, "--owner", "acme")
    assert facts(tx, "status", at)["state"] == "sleeping"
    with working(where):
        assert tx("wake", later, "--reason", "now") == "it goes on\n"
        wait_until(lambda: is_in(tx, later, "ended"))
    trail = facts(tx, "status", later, "--trail")["trail"]
    assert [entry["note"].endswith(": now") for entry in trail if entry["kind"] == "wake"] == [True]
    assert is_in(tx, at, "sleeping")


# -------------------------------------------------------------------------------------- looking


def test_lists(tx: Shell, where: str) -> None:
    with working(where):
        for total in range(4):
            facts(tx, "start", "checkout", f'{{"total": {total}}}', "--wait", "20")
        outcome(tx, "start", "checkout", '{"total": -1}', "--owner", "acme", "--wait", "20")
    waiting = started(tx, "approval", '{"total": 1}')
    assert len(rows(tx, "list")) == 6
    assert [row["input"] for row in rows(tx, "list", "--limit", "2") if "input" in row] == []
    assert [row["id"] for row in rows(tx, "list", "--state", "queued")] == [waiting]
    assert [row["status"] for row in rows(tx, "list", "--owner", "acme")] == ["failed"]
    assert len(rows(tx, "list", "--pipeline", "checkout", "--status", "success", "--limit", "3")) == 3
    assert len(rows(tx, "list", "--until", "2001-01-01T00:00:00Z")) == 0
    assert len(rows(tx, "list", "--since", "2001-01-01T00:00:00Z", "--roots")) == 6
    head, first, *_ = tx("list").splitlines()
    assert head.split()[:4] == ["id", "status", "pipeline", "owner"]
    assert first.split()[:4] == [waiting, "queued", "approval", "default"]


def test_a_trail(tx: Shell, where: str) -> None:
    with working(where):
        id = facts(tx, "start", "checkout", '{"total": 1}', "--wait", "20")["id"]
    lines = tx("status", id, "--trail").partition("\n\n")[2].splitlines()
    assert lines[0].split()[:3] == ["at", "what", "step"]
    assert [line.split()[1:5] for line in lines[1:]] == [
        ["step", "0", "check-total", "success"], ["step", "1", "charge", "success"],
    ]  # fmt: skip
    assert lines[2].endswith("info: charged")


def test_watch_tells_what_happens_until_the_end(tx: Shell, where: str) -> None:
    id = started(tx, "approval", '{"total": 1}')
    with working(where):
        wait_until(lambda: is_in(tx, id, "waiting"))
        with subprocess.Popen([*COMMAND, "watch", id], stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            lines = [watch.stdout.readline() for _ in range(3)]
            assert lines[2] == "waiting  at step 1\n"
            assert tx("switch", id, "approved=yes") == "woken\n"
            rest = watch.stdout.read().splitlines()
            assert watch.wait(20) == 0
    assert rest[-1] == 'success  {"total":1,"approved":"yes","receipt":"r-1"}'
    assert sum("charge" in line for line in rest) >= 1
    assert len(rows(tx, "watch", id)) == 1


def test_ctrl_c_ends_watch_quietly(tx: Shell, where: str) -> None:
    id = started(tx, "checkout", '{"total": 1}')
    command = [*COMMAND, "watch", id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        assert watch.stdout.readline() == "queued  at step 0\n"
        watch.send_signal(signal.SIGINT)
        assert watch.wait(20) == 0
        assert watch.stderr.read() == ""


# -------------------------------------------------------------------------------------- control


def test_cancel(tx: Shell, where: str) -> None:
    id = started(tx, "checkout", '{"total": 1}')
    assert tx("cancel", id, "--reason", "not wanted") == "cancelled\n"
    found = facts(tx, "status", id)
    assert found["status"] == "cancelled"
    assert found["note"].endswith(": not wanted")
    assert "it has ended already" in tx.failure("cancel", id)


def test_retry_and_replay(tx: Shell, where: str) -> None:
    with working(where):
        id = json.loads(outcome(tx, "start", "boom", "--wait", "20", "--json")[1])["id"]
        assert tx("retry", id, "--reason", "again") == "it goes on\n"
        wait_until(lambda: is_in(tx, id, "ended"))
        assert facts(tx, "status", id)["run"] == 1
        done = facts(tx, "start", "checkout", '{"total": 1}', "--wait", "20")["id"]
        assert tx("replay", done, "--from", "charge") == "it goes on at step 1\n"
        wait_until(lambda: is_in(tx, done, "ended"))
        assert facts(tx, "replay", done, "--from", "0") == {"id": done, "step": 0}
        wait_until(lambda: is_in(tx, done, "ended"))
    steps = [e["name"] for e in facts(tx, "status", done, "--trail")["trail"] if e["kind"] == "step"]
    assert steps == ["check-total", "charge", "charge", "check-total", "charge"]
    assert "one of check-total, charge, not 'nowhere'" in tx.failure("replay", done, "--from", "nowhere")


def test_a_sleeper_and_a_retry_that_waits_can_be_woken(tx: Shell, where: str) -> None:
    sleeper, id = started(tx, "napping"), started(tx, "stubborn")
    with working(where):
        wait_until(lambda: is_in(tx, sleeper, "sleeping"))
        tx("wake", sleeper)
        wait_until(lambda: is_in(tx, sleeper, "ended"))
        wait_until(lambda: is_in(tx, id, "sleeping"))
        tx("wake", id)
        wait_until(lambda: facts(tx, "status", id)["attempt"] == 2)


def test_switches(tx: Shell, where: str) -> None:
    id = started(tx, "approval", '{"total": 1}')
    assert tx("switch", id) == ""
    assert tx("switch", id, "approved=yes") == "updated\n"
    assert tx("switch", id, "approved=yes") == "nochange\n"
    assert tx("switch", id, "empty=") == "updated\n"
    assert tx("switch", id, "approved") == "yes\n"
    assert facts(tx, "switch", id) == {"approved": "yes", "empty": ""}
    assert tx("switch", id, "approved", "--delete") == "updated\n"
    assert facts(tx, "switch", id, "approved") == {"approved": None}
    assert "switch 'approved' is not set" in tx.failure("switch", id, "approved")


def test_priority(tx: Shell, where: str) -> None:
    id = started(tx, "checkout", '{"total": 1}')
    assert tx("priority", id, "9") == "9\n"
    assert facts(tx, "status", id)["priority"] == 9
    assert "priority must be 0 to 9" in tx.failure("priority", id, "10")


def test_pause_and_limits(tx: Shell, where: str) -> None:
    assert tx("pause", "--pipeline", "checkout") == "paused\n"
    with working(where):
        id = started(tx, "checkout", '{"total": 1}')
        # Whoever is not paused goes on meanwhile, so the worker has looked.
        facts(tx, "start", "approval", '{"total": 1}', "--external-id", "other")
        other = facts(tx, "status", "--external-id", "other")["id"]
        wait_until(lambda: is_in(tx, other, "waiting"))
        assert is_in(tx, id, "queued")
        assert facts(tx, "limit", "--pipeline", "checkout", "--concurrency", "3") == {
            "of": "pipeline", "name": "checkout", "is_paused": True, "concurrency": 3, "rate": 0.0,
            "burst": 1, "max_queued": 0,
        }  # fmt: skip
        assert tx("resume", "--pipeline", "checkout") == "resumed\n"
        wait_until(lambda: is_in(tx, id, "ended"))
    assert tx("limit").splitlines()[1].split() == ["pipeline", "checkout", "-", "3", "-", "1", "-"]
    tx("limit", "--node-group", "shop", "--max-queued", "1", "--rate", "2.5", "--burst", "5")
    assert [row["rate"] for row in rows(tx, "limit", "--node-group", "shop")] == [2.5]
    started(tx, "checkout", '{"total": 1}')
    assert "transactions wait for node group 'shop'" in tx.failure("start", "checkout")
    assert rows(tx, "limit", "--node-group", "shop", "--none") == []
    assert len(rows(tx, "limit")) == 1


# -------------------------------------------------------------------------------------- numbers


def test_numbers(tx: Shell, where: str) -> None:
    with working(where):
        facts(tx, "start", "checkout", '{"total": 1}', "--wait", "20")
        outcome(tx, "start", "boom", "--wait", "20")
        (worker,) = rows(tx, "workers")
        assert worker["node_groups"] == ["shop"]
        assert tx("workers").splitlines()[1].split()[1] == "working"
    (dead,) = rows(tx, "dead")
    assert (dead["reason"], dead["transaction"]["pipeline"]) == ("RuntimeError: boom", "boom")
    assert tx("dead").splitlines()[1].endswith("boom      RuntimeError: boom")
    stats = facts(tx, "stats", "--level", "5s")
    assert (stats["now"]["dead"], stats["now"]["total"]) == (1, 2)
    assert stats["total"]["ended"] == {"success": 1, "internal-error": 1}
    assert stats["pipeline"]["checkout"]["latency_ms"]["p50"] >= 0
    assert set(facts(tx, "stats", "--by", "node-group", "--pipeline", "boom")["node_group"]) == {"shop"}
    assert [line.split()[:4] for line in tx("stats").splitlines()[-3:]] == [
        ["boom", "1", "1", "1"], ["checkout", "1", "1", "1"], ["(all)", "2", "2", "2"],
    ]  # fmt: skip
    started(tx, "checkout", '{"total": 1}')
    assert [(row["name"], row["in_"]) for row in rows(tx, "groups")] == [("shop", 1)]
    assert tx("groups").splitlines()[1].split()[:4] == ["shop", "0", "0", "1"]


# -------------------------------------------------------------------------------------- archive


@pytest.mark.parametrize("kind", ["files", "lake"])
def test_the_archive(tx: Shell, where: str, tmp_path: Path, kind: str) -> None:
    on_store(where, lambda ps: ps.transactions.store.configure(archive_delay_ms=0))
    if kind == "lake":
        Lake.open(tmp_path / "archive")
    archive = ("--archive", str(tmp_path / "archive"))
    with working(where):
        words = ("start", "checkout", "--external-id", "o-1", "--wait", "20")
        id = facts(tx, *words, '{"total": 1}')["id"]
        failed = json.loads(outcome(tx, "start", "boom", "--wait", "20", "--json")[1])["id"]
        assert facts(tx, "archive", *archive, "--once") == {"archived": 1}  # the dead one is kept
        assert tx("archive", *archive, "--once") == "0\n"
        assert [row["id"] for row in rows(tx, "list")] == [failed]
        assert [row["id"] for row in rows(tx, "list", *archive, "--archived")] == [id]
        assert rows(tx, "list", *archive, "--archived", "--status", "failed") == []
        assert "there is no transaction" in tx.failure("status", id)
        found = facts(tx, "status", id, *archive)
        assert (found["is_archived"], found["output"]) == (True, {"total": 1, "receipt": "r-1"})
        assert "archived     yes" in tx("status", "--external-id", "o-1", *archive)
        tx("replay", id, *archive, "--from", "1")
        wait_until(lambda: is_in(tx, id, "ended"))


def test_archiving_until_it_is_told_to_stop(tx: Shell, where: str, tmp_path: Path) -> None:
    on_store(where, lambda ps: ps.transactions.store.configure(archive_delay_ms=0))
    archive = ("--archive", str(tmp_path / "archive"))
    with (
        working(where),
        subprocess.Popen([*COMMAND, "archive", *archive], stdout=subprocess.PIPE, text=True) as archiving,
    ):
        id = facts(tx, "start", "checkout", '{"total": 1}', "--wait", "20")["id"]
        wait_until(lambda: not rows(tx, "list"))
        archiving.send_signal(signal.SIGTERM)
        assert archiving.wait(20) == 0
        assert archiving.stdout is not None
        assert archiving.stdout.read() == "1\n"
    assert facts(tx, "status", id, *archive)["is_archived"]


# ------------------------------------------------------------------------------------ schedules


def test_schedules(tx: Shell, where: str) -> None:
    put = ("schedule", "put", "nightly", "checkout")
    zone = ("--cron", "0 2 * * *", "--timezone", "Europe/Berlin")
    assert tx(*put, '{"total": 1}', *zone).startswith("next fire 20")
    tx("schedule", "put", "often", "checkout", "--every", "90m", "--owner", "acme", "--paused")
    tx("schedule", "put", "then", "checkout", "--at", "2100-01-01T00:00:00Z")
    found = {row["name"]: row for row in rows(tx, "schedule", "list")}
    assert (found["nightly"]["cron"], found["nightly"]["input"]) == ("0 2 * * *", {"total": 1})
    assert (found["often"]["every_ms"], found["often"]["next_ms"]) == (5_400_000, None)
    assert [line.split()[0] for line in tx("schedule", "list").splitlines()] == [
        "name", "nightly", "often", "then",
    ]  # fmt: skip
    assert len(facts(tx, "schedule", "show", "nightly", "--times", "3")["next_times_ms"]) == 3
    assert "next fires\n  2100-01-01T00:00:00.000Z" in tx("schedule", "show", "then")
    assert tx("schedule", "resume", "often").startswith("next fire")
    assert tx("schedule", "pause", "often") == "paused\n"
    id = tx("schedule", "run", "nightly").strip()
    assert facts(tx, "status", id)["input"] == {"total": 1}
    assert tx("schedule", "remove", "then") == "removed\n"
    assert "there is no schedule 'then'" in tx.failure("schedule", "remove", "then")


# -------------------------------------------------------------------------------------- failing


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("start", "nope"), "there is no pipeline 'nope'"),
        (("start", "a b"), "pipeline must be 1 to 128"),
        (("start", "checkout", "{"), "INPUT must be JSON"),
        (("start", "checkout", "@/not/there.json"), "cannot read /not/there.json: No such file"),
        (("start", "checkout", "--webhook", "ftp://x"), "webhook cannot be called"),
        (("start", "checkout", "--owner", "a b"), "owner must be 1 to 128"),
        (("start", "checkout", "--version", "0123"), "has no version '0123'"),
        (("status", "tx-1"), "'tx-1' is not the id of a transaction"),
        (("status", UNKNOWN), f"there is no transaction {UNKNOWN}"),
        (("status", "--external-id", "o-9"), "there is no transaction with external id 'o-9'"),
        (("watch", UNKNOWN), f"there is no transaction {UNKNOWN}"),
        (("retry", UNKNOWN), f"there is no transaction {UNKNOWN}"),
        (("switch", UNKNOWN, "a=b"), f"there is no transaction {UNKNOWN}"),
        (("schedule", "run", "nope"), "there is no schedule 'nope'"),
        (("schedule", "put", "x", "checkout", "--cron", "every day"), "cron"),
        (("list", "--store", "/not/there.pen"), "there is no store at"),
        (("list", "--store", "ftp://x"), "ftp"),
    ],
)
def test_what_does_not_work_is_one_sentence(
    tx: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], sentence: str
) -> None:
    where = str(tmp_path / "store.pen")
    deploy(where)
    monkeypatch.setenv("PENSTOCK_STORE", where)
    errors = tx.failure(*words)
    assert errors.startswith("penstock: ")
    assert sentence in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("status",), "give either ID or --external-id"),
        (("status", UNKNOWN, "--external-id", "x"), "give either ID or --external-id"),
        (("start", "checkout", "--delay", "soon"), "must be seconds, or a number with"),
        (("start", "checkout", "--at", "2026-01-31T09:00:00"), "must be a time with its zone"),
        (("start", "checkout", "--delay", "1", "--at", "2026-01-31T09:00:00Z"), "not allowed with"),
        (("list", "--state", "lost"), "invalid choice: 'lost'"),
        (("list", "--archived"), "--archived needs --archive DIR"),
        (("pause",), "one of the arguments --pipeline --owner --node-group is required"),
        (("limit", "--rate", "3"), "say what to limit"),
        (("limit", "--rate", "fast"), "must be a number from 0"),
        (("switch", UNKNOWN, "--delete"), "--delete needs NAME"),
        (("schedule",), "the following arguments are required: ACTION"),
        (("schedule", "put", "x", "y"), "one of the arguments --cron --every --at is required"),
        (("frobnicate",), "invalid choice"),
    ],
)
def test_what_is_not_understood_is_usage(
    tx: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], sentence: str
) -> None:
    where = str(tmp_path / "store.pen")
    deploy(where)
    monkeypatch.setenv("PENSTOCK_STORE", where)
    errors = tx.failure(*words, status=2)
    assert errors.startswith("usage: ")
    assert sentence in errors


def test_a_store_must_be_named(tx: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_STORE", raising=False)
    assert "say which store" in tx.failure("list", status=2)
