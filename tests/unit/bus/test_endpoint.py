"""The file half of signalling between processes, with real processes and real kills.

``Signaller`` is imported under its own name, ``signal`` as ``send_signal`` because the
standard module of that name is needed too.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import math
import os
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import penstock.errors
from penstock.engine.bus import signalling
from penstock.engine.bus.endpoint import DeadEndpoint, Endpoint, Signaller, probe, sweep
from penstock.engine.bus.endpoint import signal as send_signal
from penstock.errors import ClosedError, StoreError, StoreFullError
from tests.unit.bus.peer import BOARD_BYTES, LOST_S, Player, open_files_in

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")

GONE = bytes(20)


class Peer:
    """Another process, see ``peer.py``."""

    def __init__(self, role: str, *arguments: object) -> None:
        source_root = Path(penstock.errors.__file__).parents[1]
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("peer.py")), role, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(source_root)},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout

    def hear(self) -> str:
        return self._from.readline().decode().strip()

    def tell(self, word: str) -> None:
        self._to.write(word.encode() + b"\n")
        self._to.flush()

    def ask(self, word: str) -> str:
        self.tell(word)
        return self.hear()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self._to.close()  # also ends a forked child that still listens
        self.kill()
        self._from.read()
        self._from.close()


StartPeer = Callable[..., Peer]


@pytest.fixture
def start_peer() -> Iterator[StartPeer]:
    peers: list[Peer] = []

    def start(role: str, *arguments: object) -> Peer:
        peers.append(Peer(role, *arguments))
        return peers[-1]

    yield start
    for peer in peers:
        peer.end()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "signals"


@pytest.fixture
def create(directory: Path) -> Iterator[Callable[[], Endpoint]]:
    endpoints: list[Endpoint] = []

    def create_one() -> Endpoint:
        endpoints.append(Endpoint.create(directory))
        return endpoints[-1]

    yield create_one
    for endpoint in endpoints:
        endpoint.close()


@pytest.fixture
def endpoint(create: Callable[[], Endpoint]) -> Endpoint:
    return create()


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def is_alive(directory: Path, endpoint_id: bytes) -> bool:
    dead = probe(directory, endpoint_id)
    if dead is not None:
        dead.release()
    return dead is None


def make_old(directory: Path, age_s: float = 3600.0) -> None:
    for path in directory.iterdir():
        os.utime(path, (time.time() - age_s,) * 2)


def dead_endpoint(directory: Path, start_peer: StartPeer) -> bytes:
    owner = start_peer("own", directory)
    endpoint_id = bytes.fromhex(owner.hear())
    owner.kill()
    return endpoint_id


# ----------------------------------------------------------------------------- life and files


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


# ---------------------------------------------------------------------------- failed creation


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


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


# ------------------------------------------------------------------------------------ signals


def test_signal_is_sticky_until_drained(directory: Path, endpoint: Endpoint) -> None:
    assert not endpoint.wait(0)
    assert send_signal(directory, endpoint.id)
    assert send_signal(directory, endpoint.id)
    assert select.select([endpoint], [], [], 0)[0]
    endpoint.drain()
    assert not select.select([endpoint], [], [], 0)[0]
    assert not endpoint.wait(0.001)
    send_signal(directory, endpoint.id)
    assert endpoint.wait(LOST_S)
    assert not endpoint.wait(-1.0)


def test_ticket_from_before_a_drain_wakes_at_once(directory: Path, endpoint: Endpoint) -> None:
    ticket = endpoint.drain()
    send_signal(directory, endpoint.id)
    endpoint.drain()  # by another thread, say
    assert endpoint.wait(0, ticket)
    assert not endpoint.wait(0, endpoint.drain())


def test_full_pipe_is_as_good_as_signalled(directory: Path, endpoint: Endpoint) -> None:
    signaller = Signaller(directory)
    writer = os.open(directory / f"{endpoint.id.hex()}.fifo", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"\0")
    os.close(writer)
    assert send_signal(directory, endpoint.id)
    assert signaller.signal(endpoint.id)
    assert signaller.signal(endpoint.id)
    endpoint.drain()
    assert not endpoint.wait(0)
    assert signaller.signal(endpoint.id)
    assert endpoint.wait(0)
    signaller.close()


def test_signalling_the_gone_is_harmless(directory: Path, start_peer: StartPeer) -> None:
    endpoint_id = dead_endpoint(directory, start_peer)
    assert not send_signal(directory, endpoint_id)  # ENXIO: nobody reads
    assert not send_signal(directory, GONE)  # ENOENT
    signaller = Signaller(directory)
    assert not signaller.signal(endpoint_id)
    assert not signaller.signal(GONE)
    assert repr(signaller) == "<Signaller open, 0/128 writers>"


def test_signaller_drops_the_writer_of_a_dead_reader(directory: Path, start_peer: StartPeer) -> None:
    owner = start_peer("own", directory)
    endpoint_id = bytes.fromhex(owner.hear())
    signaller = Signaller(directory)
    assert signaller.signal(endpoint_id)
    owner.kill()
    assert repr(signaller) == "<Signaller open, 1/128 writers>"
    assert not signaller.signal(endpoint_id)  # EPIPE
    assert repr(signaller) == "<Signaller open, 0/128 writers>"


def test_signaller_keeps_the_latest_writers(directory: Path, create: Callable[[], Endpoint]) -> None:
    first, second, third = (create().id for _ in range(3))
    signaller = Signaller(directory, keep=2)
    for endpoint_id in (first, second, first, third):
        assert signaller.signal(endpoint_id)
    assert repr(signaller) == "<Signaller open, 2/2 writers>"
    for path in directory.glob("*.fifo"):
        path.unlink()  # from here on only kept writers reach anybody
    assert [signaller.signal(endpoint_id) for endpoint_id in (first, second, third)] == [True, False, True]
    signaller.forget(first)
    signaller.forget(GONE)
    assert not signaller.signal(first)
    signaller.close()
    signaller.close()
    with pytest.raises(ClosedError):
        signaller.signal(third)
    assert repr(signaller) == "<Signaller closed, 0/2 writers>"


def test_signaller_gives_up_a_writer_when_descriptors_run_out(
    directory: Path, create: Callable[[], Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = create(), create()
    signaller = Signaller(directory)
    assert signaller.signal(first.id)
    outcomes: list[Callable[..., Any]] = [failing(errno.EMFILE), signalling._open_writer]
    monkeypatch.setattr(signalling, "_open_writer", lambda *arguments: outcomes.pop(0)(*arguments))
    assert signaller.signal(second.id)
    assert repr(signaller) == "<Signaller open, 1/128 writers>"
    assert second.wait(0)
    signaller.close()


def test_wait_is_not_ended_by_other_signals_of_the_system(directory: Path, endpoint: Endpoint) -> None:
    interruptions = 0

    def interrupt(*_: object) -> None:
        nonlocal interruptions
        interruptions += 1
        if interruptions == 5:
            send_signal(directory, endpoint.id)

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        assert endpoint.wait(LOST_S)
        assert interruptions >= 5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


async def test_event_loop_reads_the_endpoint(directory: Path, endpoint: Endpoint) -> None:
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def on_readable() -> None:
        endpoint.drain()
        woken.set()

    loop.add_reader(endpoint, on_readable)
    try:
        for _ in range(3):
            woken.clear()
            assert await asyncio.to_thread(send_signal, directory, endpoint.id)
            await asyncio.wait_for(woken.wait(), LOST_S)
    finally:
        loop.remove_reader(endpoint)


# --------------------------------------------------------------------------- no lost wake-ups


def test_two_processes_lose_no_wake_up(
    directory: Path, tmp_path: Path, endpoint: Endpoint, start_peer: StartPeer
) -> None:
    rounds = 2500
    board = tmp_path / "board"
    board.write_bytes(bytes(BOARD_BYTES))
    signaller = Signaller(directory)
    other = start_peer("play", directory, board, endpoint.id.hex(), rounds, 2)
    other_id = bytes.fromhex(other.hear())
    Player(endpoint, board, side=0, seed=1).rally(rounds, lambda: signaller.signal(other_id))
    assert other.hear() == "done"
    signaller.close()
    endpoint.close()
    assert files(directory) == []


def test_threads_of_one_endpoint_lose_no_wake_up(directory: Path, endpoint: Endpoint) -> None:
    """Receivers get balls in turn, while thieves drain the same FIFO all the time."""
    balls = [0, 0, 0]
    caught = threading.Semaphore(0)
    lost: list[int] = []
    stop = threading.Event()
    rounds = 400

    def receive(side: int) -> None:
        for ball in range(1, rounds + 1):
            while True:
                ticket = endpoint.drain()
                if balls[side] == ball:
                    break
                if not endpoint.wait(LOST_S, ticket):
                    lost.append(ball)
                    break
            caught.release()

    def steal() -> None:
        while not stop.is_set():
            endpoint.wait(0.0002, endpoint.drain())

    receivers = [threading.Thread(target=receive, args=(side,)) for side in range(len(balls))]
    thieves = [threading.Thread(target=steal) for _ in range(2)]
    for thread in receivers + thieves:
        thread.start()
    for ball in range(1, rounds + 1):
        for side in range(len(balls)):
            balls[side] = ball
            send_signal(directory, endpoint.id)
            assert caught.acquire(timeout=2 * LOST_S)
            if lost:
                break
    stop.set()
    for thread in thieves:
        thread.join()
    if lost:
        endpoint.close()  # frees receivers that would wait for balls never thrown
    for thread in receivers:
        thread.join()
    assert lost == []


def test_close_wakes_whoever_waits(directory: Path, endpoint: Endpoint) -> None:
    outcomes: list[object] = []

    def wait() -> None:
        try:
            outcomes.append(endpoint.wait(math.inf))
        except ClosedError:
            outcomes.append("closed")

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    while not repr(endpoint).endswith("open, polled>"):
        time.sleep(0)
    endpoint.close()
    for thread in threads:
        thread.join(LOST_S)
    assert outcomes == ["closed"] * 3
    assert files(directory) == []
    if Path("/proc/self/fd").is_dir():
        assert open_files_in(directory) == []


# --------------------------------------------------------------------------------------- fork


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


# -------------------------------------------------------------------------------------- sweep


def sweep_old(directory: Path, **options: Any) -> list[DeadEndpoint]:
    return sweep(directory, now_s=time.time(), **options)


def test_sweep_removes_what_a_killed_owner_left(
    directory: Path, endpoint: Endpoint, start_peer: StartPeer
) -> None:
    endpoint_id = dead_endpoint(directory, start_peer)
    (directory / "README").write_text("not ours")
    assert sweep_old(directory) == []  # too young
    make_old(directory)
    found = sweep_old(directory)
    assert [dead.id for dead in found] == [endpoint_id]
    assert sweep_old(directory) == []  # held by the first sweep
    found[0].release()
    (dead,) = sweep_old(directory)
    dead.bury()
    assert files(directory) == sorted([f"{endpoint.id.hex()}.fifo", f"{endpoint.id.hex()}.lock", "README"])
    endpoint.close()
    assert files(directory) == ["README"]


@pytest.mark.parametrize(
    ("function", "call", "left"),
    [
        ("flock", 1, [".lock"]),  # created, not yet locked
        ("mkfifo", 1, [".lock"]),  # locked, no FIFO
        ("unlink", 1, [".fifo", ".lock"]),  # closing, rows gone
        ("unlink", 2, [".lock"]),  # closing, FIFO gone
    ],
)
def test_sweep_after_a_crash_at(
    directory: Path, start_peer: StartPeer, function: str, call: int, left: list[str]
) -> None:
    peer = start_peer("crash", directory, function, call)
    assert peer.hear() == ""
    assert peer.process.wait() == -signal.SIGKILL
    assert sorted(path.suffix for path in directory.iterdir()) == left
    (dead,) = sweep_old(directory, older_than_s=0.0)
    dead.bury()
    assert files(directory) == []


def test_sweep_of_strays_and_strangers(directory: Path) -> None:
    assert sweep_old(directory) == []  # no directory yet
    directory.mkdir()
    os.mkfifo(directory / f"{'ab' * 20}.fifo")
    strangers = [f"{'AB' * 20}.lock", f"{'ab' * 19}.lock", f"{'ab' * 20}.lock.old", "x.fifo"]
    for name in strangers:
        (directory / name).touch()
    assert sweep_old(directory) == []
    make_old(directory)
    (stray,) = sweep_old(directory)
    assert stray.id == b"\xab" * 20
    stray.bury()
    assert files(directory) == sorted(strangers)


def test_sweep_takes_the_far_future_for_old(directory: Path) -> None:
    directory.mkdir()
    (directory / f"{'00' * 20}.lock").touch()
    make_old(directory, age_s=-3600.0)
    assert len(sweep_old(directory)) == 1


def test_sweep_holds_a_limited_number(directory: Path) -> None:
    directory.mkdir()
    for number in range(5):
        (directory / f"{number:040x}.lock").touch()
    make_old(directory)
    counts = []
    while found := sweep_old(directory, limit=2):
        counts.append(len(found))
        for dead in found:
            dead.bury()
    assert counts == [2, 2, 1]
    assert files(directory) == []


@pytest.mark.parametrize("ending", ["bury", "release", "hold"])
def test_sweeper_between_creation_and_lock(
    directory: Path, create: Callable[[], Endpoint], monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """The creator's lock is refused, or granted on a file without a name: a new id is due."""
    original = fcntl.flock
    swept: list[DeadEndpoint] = []

    def flock_after_a_sweep(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", original)
        swept.extend(sweep_old(directory, older_than_s=0.0))
        if ending != "hold":
            getattr(swept[0], ending)()
        original(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_after_a_sweep)
    endpoint = create()
    (dead,) = swept
    # Released before the lock was taken, the file is as good as new; else its id is burnt.
    assert (endpoint.id == dead.id) is (ending == "release")
    dead.release()
    assert files(directory) == [f"{endpoint.id.hex()}.fifo", f"{endpoint.id.hex()}.lock"]
    assert probe(directory, endpoint.id) is None


def test_creation_gives_up_when_files_keep_vanishing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = fcntl.flock

    def flock_after_a_burial(descriptor: int, operation: int) -> None:
        for path in directory.iterdir():
            path.unlink()
        original(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_after_a_burial)
    with pytest.raises(StoreError, match="what else removes"):
        Endpoint.create(directory)


def test_creators_against_a_sweeper(
    directory: Path, create: Callable[[], Endpoint], start_peer: StartPeer
) -> None:
    """Whatever the sweeper snatches is unfinished; a finished endpoint keeps its files."""
    directory.mkdir()
    sweeper = start_peer("keep_sweeping", directory)
    assert sweeper.hear() == "sweeping"
    for _ in range(250):
        endpoint = create()
        name = endpoint.id.hex()
        assert probe(directory, endpoint.id) is None
        assert send_signal(directory, endpoint.id)
        assert endpoint.wait(0)
        assert {f"{name}.fifo", f"{name}.lock"} <= set(files(directory))
        endpoint.close()
    sweeper.ask("stop")
    assert files(directory) == []
