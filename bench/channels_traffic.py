"""Channels as people use them: on each, one publisher and three subscribers that poll and acknowledge.

    python -m bench.channels_traffic PORT CHANNELS SECONDS SALT

A publisher sends three messages one after the other and pauses for a second. A subscriber polls for up to
three seconds, acknowledges what it got, and polls again at once. Everybody has a connection of its own.
Nobody sleeps between a poll and its acknowledgement, so a delay is what the gateway and this program take:
from the moment a publish is sent to the moment a subscriber has the message. Publishers begin spread over a
second.

Every answer is checked: status and ids of a publish; content, order and number of what is delivered, each
message once after its acknowledgement; 204 for that; and at the end that every subscriber has every message.

One process for all: it says what part of a core it took, and is the bottleneck if that comes near 1.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final
from urllib.parse import quote

import msgspec
import uvloop

from bench.channels_http import Connection, make_request, open_connections, quantile, raise_file_limit

SUBSCRIBERS: Final = 3
_BURST: Final = 3
_PAUSE_S: Final = 1.0
_POLL: Final = "3s"
#: How long the last messages may take to arrive before they count as lost.
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """What came of one run."""

    publishes_a_second: float
    deliveries_a_second: float
    delay_p50_ms: float
    delay_p95_ms: float
    delay_p99_ms: float
    publish_p50_ms: float
    publish_p99_ms: float
    ack_p50_ms: float
    ack_p99_ms: float
    failed_checks: int
    load_cpu: float


class _Content(msgspec.Struct):
    n: int


class _Message(msgspec.Struct):
    content: _Content
    messageID: str  # noqa: N815 - the API's name


class _Batch(msgspec.Struct):
    channelID: str  # noqa: N815
    messages: list[_Message]
    moreMessages: bool  # noqa: N815
    ackHandle: str = ""  # noqa: N815


_batches: Final = msgspec.json.Decoder(_Batch)


class _Totals:
    """What all channels of this process found out."""

    def __init__(self) -> None:
        self.is_over = False
        self.failures: list[str] = []
        self.failed = 0
        self.publish_ms: list[float] = []
        self.ack_ms: list[float] = []
        self.delay_ms: list[float] = []

    def check(self, is_right: bool, what: str) -> None:
        if not is_right:
            self.failed += 1
            if len(self.failures) < 10:
                self.failures.append(what)


class _Channel:
    """One publisher. It knows when each of its messages was sent."""

    def __init__(self, name: str, salt: str, connection: Connection, totals: _Totals) -> None:
        self.name = name
        self.salt = salt
        #: by number: when the call began
        self.sent_s: list[float] = []
        self._connection = connection
        self._totals = totals
        self._loop = asyncio.get_running_loop()
        self.is_done = False

    def publish(self) -> None:
        if self._totals.is_over:
            self.is_done = True
            return
        number = len(self.sent_s)
        body = b'{"n":%d,"text":"%b"}' % (number, b"x" * 12)
        request = make_request("PUT", f"/channel/{self.name}/message/{self.salt}-{number}", body)
        self.sent_s.append(time.perf_counter())
        self._connection.ask(request, self._published)

    def _published(self, status: int, body: bytes) -> None:
        number = len(self.sent_s) - 1
        self._totals.publish_ms.append((time.perf_counter() - self.sent_s[number]) * 1e3)
        wanted = f'{{"channelID":"{self.name}","messageID":"{self.salt}-{number}"}}\n'
        is_right = status == 200 and body == wanted.encode()
        self._totals.check(is_right, f"publish: {status} {body[:100]!r}")
        if self._connection.lost:
            self.is_done = True
        elif len(self.sent_s) % _BURST:
            self.publish()
        else:
            self._loop.call_later(_PAUSE_S, self.publish)


class _Subscriber:
    """Polls, acknowledges, polls; checks that it gets every message once and in order."""

    def __init__(self, channel: _Channel, name: str, connection: Connection, totals: _Totals) -> None:
        path = f"/channel/{channel.name}/subscription/polling/{name}"
        self.subscribing = make_request("PUT", path)
        self._polling = make_request("GET", f"{path}?timeout={_POLL}")
        self._ack_path = f"{path}/message?ackHandle="
        self._channel = channel
        self.connection = connection
        self._totals = totals
        self._got = 0
        self._acking_s = 0.0

    @property
    def missing(self) -> int:
        return len(self._channel.sent_s) - self._got

    def poll(self) -> None:
        if not (self._totals.is_over and self._channel.is_done and not self.missing):
            self.connection.ask(self._polling, self._polled)

    def _polled(self, status: int, body: bytes) -> None:
        now_s = time.perf_counter()
        if status != 200:
            self._totals.check(False, f"poll: {status} {body[:100]!r}")
            if not self.connection.lost:
                asyncio.get_running_loop().call_later(_PAUSE_S, self.poll)
            return
        batch = _batches.decode(body)
        channel, sent_s = self._channel, self._channel.sent_s
        for message in batch.messages:
            number = message.content.n
            is_right = number == self._got and message.messageID == f"{channel.salt}-{number}"
            self._totals.check(is_right, f"poll: message {number} instead of {self._got}")
            self._got = max(number + 1, self._got)
            self._totals.delay_ms.append((now_s - sent_s[number]) * 1e3)
        if batch.messages:
            self._acking_s = time.perf_counter()
            target = self._ack_path + quote(batch.ackHandle, safe="")
            self.connection.ask(make_request("DELETE", target), self._acked)
        else:
            self.poll()

    def _acked(self, status: int, body: bytes) -> None:
        self._totals.ack_ms.append((time.perf_counter() - self._acking_s) * 1e3)
        self._totals.check(status == 204, f"ack: {status} {body[:100]!r}")
        if not self.connection.lost:
            self.poll()


async def _run(port: int, count: int, seconds: float, salt: str) -> Traffic:
    raise_file_limit(count * (SUBSCRIBERS + 1) + 100)
    totals = _Totals()
    connections = iter(await open_connections(port, count * (SUBSCRIBERS + 1)))
    channels = [_Channel(f"{salt}-{n}", salt, next(connections), totals) for n in range(count)]
    subscribers = [
        _Subscriber(channel, f"s{number}", next(connections), totals)
        for channel in channels
        for number in range(SUBSCRIBERS)
    ]
    for status, body in await asyncio.gather(*(s.connection.call(s.subscribing) for s in subscribers)):
        totals.check(status == 200, f"subscribe: {status} {body[:100]!r}")
    for subscriber in subscribers:
        subscriber.poll()
    loop = asyncio.get_running_loop()
    spent_s, started_s = _cpu_s(), time.perf_counter()
    for place, channel in enumerate(channels):
        loop.call_later(place / count * _PAUSE_S, channel.publish)
    await asyncio.sleep(seconds)
    took_s, load_cpu = time.perf_counter() - started_s, _cpu_s() - spent_s
    publishes, deliveries = len(totals.publish_ms), len(totals.delay_ms)
    await _finish(totals, channels, subscribers)
    for what in totals.failures:
        print(what, file=sys.stderr)
    return _summary(totals, publishes / took_s, deliveries / took_s, load_cpu / took_s)


async def _finish(totals: _Totals, channels: list[_Channel], subscribers: list[_Subscriber]) -> None:
    """Nobody publishes any more; what is on its way must arrive."""
    totals.is_over = True
    end_s = time.perf_counter() + _PATIENCE_S
    while time.perf_counter() < end_s:
        if all(channel.is_done for channel in channels) and not any(s.missing for s in subscribers):
            break
        await asyncio.sleep(0.05)
    for subscriber in subscribers:
        totals.check(subscriber.missing == 0, f"{subscriber.missing} messages never came")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _summary(totals: _Totals, publishes: float, deliveries: float, load_cpu: float) -> Traffic:
    delays, publish_ms, ack_ms = totals.delay_ms, totals.publish_ms, totals.ack_ms
    return Traffic(
        publishes_a_second=publishes,
        deliveries_a_second=deliveries,
        delay_p50_ms=quantile(delays, 0.5),
        delay_p95_ms=quantile(delays, 0.95),
        delay_p99_ms=quantile(delays, 0.99),
        publish_p50_ms=quantile(publish_ms, 0.5),
        publish_p99_ms=quantile(publish_ms, 0.99),
        ack_p50_ms=quantile(ack_ms, 0.5),
        ack_p99_ms=quantile(ack_ms, 0.99),
        failed_checks=totals.failed,
        load_cpu=load_cpu,
    )


def traffic(port: int, channels: int, seconds: float, salt: str) -> Traffic:
    """Run it in a process of its own; what failed is told on stderr."""
    words = map(str, (port, channels, seconds, salt))
    command = [sys.executable, "-m", "bench.channels_traffic", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Traffic(**json.loads(done.stdout))


if __name__ == "__main__":
    _result = uvloop.run(_run(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))
    print(json.dumps(asdict(_result)))
