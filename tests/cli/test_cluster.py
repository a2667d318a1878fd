"""``penstock shell``, ``top`` and ``doctor`` of a real cluster."""

from __future__ import annotations

import json

import pytest

import penstock
from tests import places
from tests.cli.conftest import Penstock
from tests.transactions.cli_places import on_store


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> str:
    return places.url_of("cluster", request)


def test_the_shell_sends_commands_where_their_keys_are(run: Penstock, cluster: str) -> None:
    lines = (
        "set a 1\nset b 2\nset c 3\nmulti\nping\nincr {u}x\nincr {u}y\nexec\nwatch {u}x\nmulti\nget {u}x\n"
        "exec\nmulti\ntime\ndiscard\nmulti\nget a\ndiscard\nget b\n"
    )
    out = run("shell", cluster, "--no-raw", stdin=lines).out.splitlines()
    assert out == [
        *["OK"] * 4, *["QUEUED"] * 3, "1) PONG", "2) (integer) 1", "3) (integer) 1", "OK", "OK", "QUEUED",
        '1) "1"', "OK", "QUEUED", "OK", "OK", "QUEUED", "OK", '"2"',
    ]  # fmt: skip


def test_a_transaction_that_was_refused_leaves_the_shell_free(run: Penstock, cluster: str) -> None:
    lines = "watch\nset a 1\nset b 2\nwatch {u}x\nmulti\nincr\nexec\nget a\nget b\n"
    out = run("shell", cluster, "--no-raw", stdin=lines).out.splitlines()
    assert out[0] == "(error) ERR wrong number of arguments for 'watch' command"
    assert out[1:5] == ["OK"] * 4
    assert [line[:15] for line in out[5:7]] == ["(error) ERR wro", "(error) EXECABO"]
    assert out[7:] == ['"1"', '"2"']


def test_top_adds_servers_up(run: Penstock, cluster: str) -> None:
    async def fill(ps: penstock.Penstock) -> None:
        for number in range(30):
            await ps.set(f"k{number}", "v")
        await ps.stream("orders").write("eu", b"x")

    on_store(cluster, fill)
    frame = json.loads(run("top", cluster, "--json").out)
    assert frame["store"]["kind"] == "cluster"
    assert frame["store"]["keys"] >= 30
    assert [stream["name"] for stream in frame["streams"]] == ["orders"]


def test_the_doctor_asks_every_primary(run: Penstock, cluster: str) -> None:
    found = [json.loads(line) for line in run("doctor", cluster, "--json").out.splitlines()]
    assert len([each for each in found if each["check"].startswith("eviction of 127.0.0.1:")]) == 3
