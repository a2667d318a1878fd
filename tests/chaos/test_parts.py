"""The parts of the chaos program, each alone: clocks, the disk, lives of members, the network, the report."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.clock import SystemClock
from tests.chaos import clocks
from tests.chaos.disk import Disk
from tests.chaos.model import Member, Scene, Verdict
from tests.chaos.plan import ALL, Event
from tests.chaos.processes import Fleet, Forked
from tests.chaos.report import RunReport, SceneReport, render
from tests.chaos.scenes.network import Network
from tests.integration.proxy import HOST
from tests.places import until


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    scene = Scene("embedded", "", "", tmp_path, tmp_path / "clock")
    scene.logs.mkdir()
    clocks.set_shift(scene.clock_file, 0)
    return scene


# ------------------------------------------------------------------------------------ clocks


def test_every_clock_of_a_process_follows_the_file(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is installed is taken back after the test.
    monkeypatch.setattr(SystemClock, "now_us", SystemClock.now_us)
    monkeypatch.setattr(SystemClock, "now_ms", SystemClock.now_ms)
    clock, before_s = SystemClock(), SystemClock().monotonic_s()
    clocks.install(scene.clock_file)
    for shift_ms in (0, 20_000, -20_000, 0):
        clocks.set_shift(scene.clock_file, shift_ms)
        assert abs(clock.now_ms() - time.time_ns() // 1_000_000 - shift_ms) < 5_000
        assert abs(clock.now_us() // 1_000 - clock.now_ms()) < 5_000
    assert 0 <= clock.monotonic_s() - before_s < 15


# -------------------------------------------------------------------------------------- disk


def test_a_disk_is_full_free_and_gone(tmp_path: Path) -> None:
    with Disk(tmp_path / "disk", size_bytes=1 << 20) as disk:
        if not disk.is_small:
            assert disk.why_not  # a machine on which nothing may be mounted
            return
        (disk.path / "some").write_bytes(bytes(10_000))
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.path / "more").write_bytes(bytes(1))
        disk.free()
        (disk.path / "more").write_bytes(bytes(100_000))
    assert list(disk.path.iterdir()) == []
    assert not disk.path.is_mount()


def test_without_the_right_to_mount_it_is_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with Disk(tmp_path / "disk") as disk:
        assert (disk.is_small, disk.why_not) == (False, "only root can mount a small disk")
        disk.free()
        (disk.path / "some").write_bytes(b"x")
    assert (tmp_path / "disk" / "some").exists()


# ------------------------------------------------------------------------------------- lives


def _beat(path: Path) -> None:
    """Lives, and shows it."""
    while True:
        with path.open("a") as log:
            log.write(".")
        time.sleep(0.005)


def _faint() -> None:
    os._exit(3)


def _beating(name: str, **facts: bool) -> Member:
    return Member(name, lambda scene, seed: Forked(_beat, scene.log_of(name)), **facts)


def _is_beating(scene: Scene, name: str) -> Callable[[], bool]:
    """From now on."""
    log = scene.log_of(name)
    size = log.stat().st_size if log.exists() else 0
    return lambda: log.exists() and log.stat().st_size > size


async def test_members_are_killed_replaced_stopped_and_retired(scene: Scene) -> None:
    seeds: list[int] = []

    def spawn(scene: Scene, seed: int) -> Forked:
        seeds.append(seed)
        return Forked(_beat, scene.log_of("a"))

    async with Fleet(scene, [Member("a", spawn), _beating("b")], seed=1) as fleet:
        await until(_is_beating(scene, "a"))
        assert await fleet.kill("a")
        await until(_is_beating(scene, "a"))
        with fleet.stopped("b") as is_stopped:
            assert is_stopped
            await until(_is_beating(scene, "a"))
            size = scene.log_of("b").stat().st_size
            await until(_is_beating(scene, "a"))
            assert scene.log_of("b").stat().st_size == size
        await until(_is_beating(scene, "b"))
        await fleet.retire(["a"])
        assert not await fleet.kill("a")
        with fleet.stopped("a") as is_stopped:
            assert not is_stopped
        await until(_is_beating(scene, "b"))
    assert len(set(seeds)) == 2
    assert (fleet.lives, fleet.failures) == (3, [])
    size = scene.log_of("b").stat().st_size
    await asyncio.sleep(0.05)  # longer than a beat
    assert scene.log_of("b").stat().st_size == size


async def test_who_ends_alone_is_replaced_and_noted(scene: Scene) -> None:
    faint = Member("faint", lambda scene, seed: Forked(_faint))
    moody = Member("moody", lambda scene, seed: Forked(_faint), may_end=True)
    async with Fleet(scene, [faint, moody], seed=1) as fleet:
        await until(lambda: min(fleet.ends["faint"], fleet.ends["moody"]) >= 2)
    assert fleet.lives >= 4
    assert set(fleet.failures) == {"faint ended by itself and left no word"}
    scene.error_of("faint").write_text("Traceback …\nValueError: no\n")
    assert "faint ended by itself:\nTraceback …\nValueError: no" in fleet.failures


def test_names_must_differ(scene: Scene) -> None:
    with pytest.raises(ValueError, match="names of their own"):
        Fleet(scene, [_beating("a"), _beating("a")], seed=1)


# ----------------------------------------------------------------------------------- network


async def test_connections_are_cut_delayed_and_silenced() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"hello")
        return await reader.read(100)

    server = await asyncio.start_server(echo, HOST, 0)
    network = Network(["server"])
    proxy = network.proxies["server"]
    proxy.upstream_port = server.sockets[0].getsockname()[1]
    connect = partial(asyncio.open_connection, HOST)
    async with server, proxy:
        first, second = await connect(proxy.port), await connect(proxy.port)
        assert [await ask(*first), await ask(*second)] == [b"hello"] * 2
        await network.carry_out(Event(0, "cut", ALL, 0.5))
        with pytest.raises(ConnectionResetError):
            await ask(*first)
        assert await ask(*second) == b"hello"

        delay = asyncio.create_task(network.carry_out(Event(0, "delay", "server", 20.0, 30.0)))
        await asyncio.sleep(0)
        start_s = time.monotonic()
        assert await ask(*second) == b"hello"
        assert time.monotonic() - start_s >= 0.04
        delay.cancel()
        await asyncio.gather(delay, return_exceptions=True)
        assert proxy.live[0].plan.delay_s == 0

        await network.carry_out(Event(0, "silence", ALL, 0, 0.01))
        with pytest.raises(ConnectionResetError):
            await ask(*second)
        third = await connect(proxy.port)
        assert await ask(*third) == b"hello"
        third[1].close()


# ------------------------------------------------------------------------------------ report


def test_a_report_tells_what_was_survived_and_what_was_not() -> None:
    verdict = Verdict("streams", {"writes confirmed": 1_234, "messages delivered": 10}, ["7 is lost"] * 40)
    scene = SceneReport(
        "redis",
        60,
        about="valkey-9",
        happened={"kill": 1_000, "clock": 3},
        left_out={"failover": 2},
        notes=["the disk was never full: no"],
        settled_s={"streams": 1.26},
        verdicts=[verdict, Verdict("channels")],
        wrong=["a ended by itself:\nTraceback\n  line"],
    )
    page = render(RunReport(7, 1.0, [scene]))
    assert "Seed 7, 1 minutes of storm." in page
    assert "**1,003 faults survived, 1,244 operations checked, 41 broken promises.**" in page
    assert "Faults: members killed 1,000, jumps of the clock 3.\nThe disk was never full: no.\n" in page
    assert "was not over: failovers 2." in page
    assert "| streams | 1,234 writes confirmed, 10 messages delivered | 40 | 1.3 s |" in page
    assert "| channels |  | 0 | never |" in page
    assert "- a ended by itself:\n      Traceback\n        line\n- streams: 7 is lost\n" in page
    assert "- streams: … and 10 more" in page


def test_a_report_without_faults_of_ours() -> None:
    scene = SceneReport("embedded", 6, verdicts=[Verdict("streams", {"writes": 1})], settled_s={"streams": 0})
    page = render(RunReport(7, 0.1, [scene]))
    assert "0 broken promises" in page
    assert "Broken:" not in page
