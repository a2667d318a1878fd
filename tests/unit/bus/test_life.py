"""Endpoints: who is alive, who is dead, creation that fails, forks."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.engine.bus.endpoint import Endpoint, Signaller, probe, sweep
from penstock.engine.bus.endpoint import signal as send_signal
from penstock.errors import ClosedError, StoreError, StoreFullError
from tests.unit.bus.endpoints import StartPeer, dead_endpoint, failing, files, is_alive, needs_proc
from tests.unit.bus.peer import open_files_in


def test_create_and_close(directory: Path, endpoint: Endpoint) -> None:
    name = endpoint.id.hex()
    assert len(endpoint.id) == 20
    assert files(directory) == [f"{name}.fifo", f"{name}.lock"]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert (directory / f"{name}.fifo").stat().st_mode == stat.S_IFIFO | 0o600
    assert (directory / f"{name}.lock").stat().st_mode == stat.S_IFREG | 0o600
    assert repr(endpoint) == f"<Endpoint {name[:12]} open>"
    endpoint.close()
    endpoint.close()
    assert files(directory) == []
    assert repr(endpoint) == f"<Endpoint {name[:12]} closed>"
    for use in (endpoint.fileno, endpoint.drain, lambda: endpoint.wait(0)):
        with pytest.raises(ClosedError, match="closed"):
            use()


@needs_proc
def test_descriptors_close_on_exec_and_on_close(directory: Path, endpoint: Endpoint) -> None:
    assert probe(directory, endpoint.id) is None  # leaves none of its own behind
    descriptors = open_files_in(directory)
    assert len(descriptors) == 3
    assert not any(os.get_inheritable(descriptor) for descriptor in descriptors)
    endpoint.close()
    assert open_files_in(directory) == []


def test_own_endpoint_is_alive(directory: Path, endpoint: Endpoint) -> None:
    assert probe(directory, endpoint.id) is None
    assert sweep(directory, now_s=time.time(), older_than_s=0.0) == []


def test_no_lock_file_is_dead(directory: Path, endpoint: Endpoint) -> None:
    endpoint.close()
    dead = probe(directory, endpoint.id)
    assert dead is not None
    dead.bury()
    assert repr(dead) == f"<DeadEndpoint {endpoint.id.hex()[:12]} buried>"


def test_closed_by_its_owner_in_another_process(directory: Path, start_peer: StartPeer) -> None:
    owner = start_peer("own", directory)
    endpoint_id = bytes.fromhex(owner.hear())
    assert is_alive(directory, endpoint_id)
    assert owner.ask("close") == "closed"
    assert files(directory) == []
    assert not is_alive(directory, endpoint_id)


def test_killed_owner_is_dead_and_held_until_the_burial(directory: Path, start_peer: StartPeer) -> None:
    owner = start_peer("own", directory)
    endpoint_id = bytes.fromhex(owner.hear())
    assert is_alive(directory, endpoint_id)
    owner.kill()
    left = files(directory)
    assert len(left) == 2

    dead = probe(directory, endpoint_id)
    assert dead is not None
    assert dead.id == endpoint_id
    assert probe(directory, endpoint_id) is None  # ours to bury, so alive to all others
    dead.release()
    dead.release()
    assert files(directory) == left
    with pytest.raises(AssertionError, match="I5"):
        dead.bury()

    dead = probe(directory, endpoint_id)
    assert dead is not None
    dead.bury()
    dead.bury()
    dead.release()
    assert files(directory) == []


def test_stopped_owner_is_alive(directory: Path, start_peer: StartPeer) -> None:
    owner = start_peer("own", directory)
    endpoint_id = bytes.fromhex(owner.hear())
    pid = owner.process.pid
    os.kill(pid, signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    assert probe(directory, endpoint_id) is None
    assert send_signal(directory, endpoint_id)
    os.kill(pid, signal.SIGCONT)
    assert owner.ask("wait") == "waiting"
    assert owner.hear() == "True"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.EIO])
def test_doubt_means_alive(
    directory: Path, start_peer: StartPeer, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    endpoint_id = dead_endpoint(directory, start_peer)
    monkeypatch.setattr(fcntl, "flock", failing(number))
    assert probe(directory, endpoint_id) is None
    monkeypatch.undo()
    monkeypatch.setattr(os, "open", failing(errno.EMFILE))
    assert probe(directory, endpoint_id) is None
    monkeypatch.undo()
    assert not is_alive(directory, endpoint_id)


def test_forgotten_endpoint_dies_and_leaves_its_files_to_the_sweep(directory: Path) -> None:
    endpoint = Endpoint.create(directory)
    endpoint_id = endpoint.id
    with pytest.warns(ResourceWarning, match="unclosed <Endpoint"):
        del endpoint
    (dead,) = sweep(directory, now_s=time.time(), older_than_s=0.0)
    assert dead.id == endpoint_id
    dead.bury()
    assert files(directory) == []


# ---------------------------------------------------------------------------------- failed creation


@pytest.mark.parametrize(
    ("function", "number", "kind", "advice"),
    [
        ("flock", errno.ENOTSUP, StoreError, "local disk"),
        ("flock", errno.ENOLCK, StoreError, "local disk"),
        ("mkfifo", errno.EPERM, StoreError, "local disk"),
        ("mkfifo", errno.ENOSPC, StoreFullError, "free some disk space"),
        ("mkfifo", errno.EROFS, StoreError, "write permission"),
        ("mkfifo", errno.EMFILE, StoreError, "ulimit -n"),
        ("mkfifo", errno.EIO, StoreError, "check that"),
    ],
)
def test_failed_creation_says_what_to_do_and_leaves_nothing(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    number: int,
    kind: type[StoreError],
    advice: str,
) -> None:
    monkeypatch.setattr({"flock": fcntl, "mkfifo": os}[function], function, failing(number))
    with pytest.raises(kind, match=advice) as caught:
        Endpoint.create(directory)
    assert str(directory) in str(caught.value)
    assert type(caught.value) is kind
    assert files(directory) == []
    if Path("/proc/self/fd").is_dir():
        assert open_files_in(directory) == []


def test_no_store_directory(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="exists"):
        Endpoint.create(tmp_path / "missing" / "signals")


# --------------------------------------------------------------------------------------------- fork


def in_child(action: Callable[[], None]) -> int:
    """Run in a forked child; 0 if nothing was raised there."""
    child = os.fork()
    if not child:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_forked_child_owns_nothing(directory: Path, endpoint: Endpoint, start_peer: StartPeer) -> None:
    dead_id = dead_endpoint(directory, start_peer)
    signaller = Signaller(directory)
    assert signaller.signal(endpoint.id)
    held = probe(directory, dead_id)
    assert held is not None
    before = files(directory)

    def inspect() -> None:
        if Path("/proc/self/fd").is_dir():
            assert open_files_in(directory) == []
        assert repr(endpoint).endswith("forked>")
        assert "forked" in repr(signaller)
        for use in (endpoint.drain, lambda: endpoint.wait(0), lambda: signaller.signal(endpoint.id)):
            with pytest.raises(ClosedError, match="forked"):
                use()
        endpoint.close()
        signaller.close()
        signaller.forget(endpoint.id)
        held.release()
        assert probe(directory, endpoint.id) is None
        second = Endpoint.create(directory)  # one of its own works
        assert second.id != endpoint.id
        second.close()

    assert in_child(inspect) == 0
    assert files(directory) == before
    assert probe(directory, endpoint.id) is None
    assert probe(directory, dead_id) is None  # still held here
    assert endpoint.wait(0)
    signaller.close()
    endpoint.close()
    held.bury()
    assert files(directory) == []


def test_forked_child_does_not_keep_its_parent_alive(directory: Path, start_peer: StartPeer) -> None:
    owner = start_peer("own_and_fork", directory)
    endpoint_id = bytes.fromhex(owner.hear())
    assert owner.ask("one") == "child heard one"
    assert is_alive(directory, endpoint_id)
    owner.kill()
    assert not is_alive(directory, endpoint_id)
    assert owner.ask("two") == "child heard two"


@needs_proc
def test_fork_among_threads_leaks_no_lock(directory: Path, start_peer: StartPeer) -> None:
    endpoint_id = dead_endpoint(directory, start_peer)
    assert start_peer("fork_among_threads", directory, endpoint_id.hex(), 80).hear() == "0"
