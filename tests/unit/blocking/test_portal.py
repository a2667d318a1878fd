"""The loop behind synchronous code: who may call, what an interruption does, fork, the end of the program."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.blocking.portal import PORTAL
from penstock.errors import UsageError

WAIT_S = 20


def run_program(text: str, *arguments: str) -> str:
    """Run a program of its own; it must end well, in time, and without a word on stderr."""
    program = [sys.executable, "-W", "error", "-c", textwrap.dedent(text), *arguments]
    done = subprocess.run(program, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


# -------------------------------------------------------------------------- calls


async def where() -> tuple[str, asyncio.AbstractEventLoop]:
    return threading.current_thread().name, asyncio.get_running_loop()


def test_everything_runs_on_one_loop_in_a_thread_of_its_own() -> None:
    name, loop = PORTAL.run(where())
    assert name == "penstock-blocking"
    assert PORTAL.run(where()) == (name, loop)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(PORTAL.run, where()).result() == (name, loop)


async def test_callers_may_have_a_running_loop() -> None:
    _, loop = PORTAL.run(where())
    assert loop is not asyncio.get_running_loop()


def test_threads_meet_on_the_loop() -> None:
    async def make_barrier() -> asyncio.Barrier:
        return asyncio.Barrier(8)

    barrier = PORTAL.run(make_barrier())
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda _: PORTAL.run(barrier.wait()), range(8), timeout=WAIT_S))
    assert sorted(places) == list(range(8))


def test_an_error_comes_with_its_traceback() -> None:
    error = LookupError("here")

    async def fail_deep_inside() -> None:
        raise error

    async def work() -> None:
        await fail_deep_inside()

    with pytest.raises(LookupError) as raised:
        PORTAL.run(work())
    assert raised.value is error
    names = [frame.name for frame in traceback.extract_tb(raised.tb)]
    assert names[0] == "test_an_error_comes_with_its_traceback"
    assert names[-2:] == ["work", "fail_deep_inside"]


def test_a_call_from_the_loop_itself_is_refused() -> None:
    ran = False

    async def inner() -> None:
        nonlocal ran
        ran = True

    async def outer() -> None:
        PORTAL.run(inner())

    with pytest.raises(UsageError, match="its own callbacks"):
        PORTAL.run(outer())
    gc.collect()  # the refused coroutine was closed, or there would be a warning
    assert not ran


def test_an_interrupted_call_is_cancelled_before_the_caller_goes_on() -> None:
    waits = threading.Event()
    steps: list[str] = []

    async def work() -> None:
        try:
            waits.set()
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)  # what a BLPOP needs to be taken back
            steps.append("taken back")
            raise

    # A signal that comes just before the main thread falls asleep does not wake it: Python looks at
    # signals before and after. So it is sent until it is noticed, and counts once.
    noticed = threading.Event()

    def raise_once(*_: object) -> None:
        if not noticed.is_set():
            noticed.set()
            raise KeyboardInterrupt

    def interrupt() -> None:
        waits.wait(WAIT_S)
        while not noticed.wait(0.05):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, raise_once)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            PORTAL.run(work())
        assert steps == ["taken back"]
    finally:
        noticed.set()
        thread.join()
        signal.signal(signal.SIGINT, before)


# ------------------------------------------------------------------------ closing


def test_closings_are_waited_for() -> None:
    steps: list[str] = []

    async def close() -> None:
        await asyncio.sleep(0)
        steps.append(threading.current_thread().name)

    PORTAL.finish(close)
    assert steps == ["penstock-blocking"]


def test_on_the_loop_itself_closings_are_not_waited_for() -> None:
    closed = threading.Event()
    seen_within: list[bool] = []

    async def close() -> None:
        await asyncio.sleep(0)
        closed.set()

    async def collect_garbage() -> None:
        PORTAL.finish(close)
        seen_within.append(closed.is_set())

    PORTAL.run(collect_garbage())
    assert closed.wait(WAIT_S)
    assert seen_within == [False]


def test_what_is_open_is_not_kept_alive() -> None:
    class Thing:
        async def close(self) -> None: ...

    thing = Thing()
    alive = weakref.ref(thing)
    PORTAL.add(thing)
    del thing
    gc.collect()
    assert alive() is None


def test_at_the_end_of_the_program_everything_is_closed_and_nothing_hangs(tmp_path: Path) -> None:
    said = run_program(
        """
        import atexit, sys
        import penstock.blocking
        from penstock.blocking.portal import PORTAL
        from penstock.errors import ClosedError

        class Thing:
            async def close(self):
                print("closed")

        def at_the_very_end():
            try:
                ps.get("k")
            except ClosedError as error:
                print(error)
            ps.close()

        atexit.register(at_the_very_end)  # the first to come is the last to be called
        ps = penstock.blocking.open(sys.argv[1], durability="relaxed")
        ps.mset({f"k{number}": number for number in range(100)})
        names = ps.scan_iter(count=2)
        next(names)
        events = ps.events()
        thing = Thing()
        PORTAL.add(thing)
        """,
        str(tmp_path / "store.pen"),
    )
    assert said == "closed\nthe program is ending: use the blocking client before that\n"


# --------------------------------------------------------------------------- fork


@pytest.mark.parametrize("kind", ["embedded", "server"])
def test_a_forked_child_opens_its_own(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if kind == "embedded":  # LMDB lets no process open a directory again that it has from its parent
        parents_url, childs_url = str(tmp_path / "parent.pen"), str(tmp_path / "child.pen")
    else:
        parents_url = childs_url = request.getfixturevalue("valkey_server").url
    said = run_program(
        """
        import os, sys
        import penstock.blocking
        from penstock.errors import ClosedError

        def child(parents, names):
            for use in (parents.pubsub, lambda: parents.get("k")):
                try:
                    use()
                except ClosedError as error:
                    print("before fork" in str(error), flush=True)
            names.close()
            parents.close()
            with penstock.blocking.open(sys.argv[2]) as own:
                print(own.set("mine", 1), len(list(own.scan_iter())) > 0, flush=True)

        with penstock.blocking.open(sys.argv[1]) as ps:
            for number in range(50):
                ps.set(f"k{number}", number)
            names = ps.scan_iter(count=2)
            next(names)
            pid = os.fork()
            if pid == 0:
                try:
                    child(ps, names)
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            print(ps.get("k1"), len(list(names)) >= 49, flush=True)
        """,
        parents_url,
        childs_url,
    )
    assert said == "True\nTrue\nb'OK' True\nb'1' True\n"
