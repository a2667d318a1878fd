"""One open store a process and URL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import ClosedError, StoreError
from penstock.host import registry
from penstock.spark.stores import close_stores, store
from penstock.testing.servers import RealServer

FORKING = """
import os, sys

from penstock.errors import ClosedError
from penstock.spark.stores import store

client = store(sys.argv[1])
client.set("k", "v")
pid = os.fork()
if pid == 0:
    try:
        client.get("k")
    except ClosedError:
        print(store(sys.argv[1]).get("k"), store(sys.argv[1]) is store(sys.argv[1]), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(store(sys.argv[1]) is client, client.get("k"), flush=True)
"""


def test_it_is_opened_once(tmp_path: Path) -> None:
    url, same = f"embedded:{tmp_path / 'store.pen'}", str(tmp_path / "store.pen")
    with pytest.raises(StoreError, match=r"there is no store at .*store\.pen: check the option url"):
        store(url, create=False)
    client = store(url)
    client.set("k", "v")
    assert store(url) is store(url, create=False) is client
    assert store(same) is not client
    assert store(same).get("k") == b"v"


def test_closing_lets_go_of_the_directory(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'store.pen'}"
    client = store(url)
    client.set("k", "v")
    assert registry._hosts
    close_stores()
    assert not registry._hosts
    with pytest.raises(ClosedError):
        client.get("k")
    assert store(url).get("k") == b"v"
    close_stores()
    close_stores()


def test_a_forked_child_opens_its_own(valkey_server: RealServer) -> None:
    """As the workers of Spark are, should the parent have opened one before."""
    program = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, valkey_server.url]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    assert (ran.stdout, ran.stderr) == ("b'v' True\nTrue b'v'\n", "")
