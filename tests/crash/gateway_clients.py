"""Clients of a gateway that are killed: they publish and subscribe over HTTP, and write down what they know.

A client keeps its name and its log over all its lives. A line is a JSON array, written by one system call;
times are of the monotonic clock, which all processes of a machine share:

    ["try", id]                        before a publish is sent
    ["ok", id]                         after it was answered with 200
    ["got", begun_ns, [id, …]]         a batch, and when it was asked for
    ["acked", at_ns, [id, …]]          after its handle was answered with 204

So a *try* without *ok* may have happened or not. A publisher goes on to the next message only after the 200
for the last one, also in another life: it repeats what nobody confirmed. Must not import pytest.
"""

from __future__ import annotations

import json
import random
import time
import traceback
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from tests.crash.stream_workers import StreamLog, read_lines

CHANNEL: Final = "storm"
PUBLISHERS: Final = ("p0", "p1", "p2")
SUBSCRIBERS: Final = ("s0", "s1", "s2")

#: Nobody is away for so long: a worker that hangs is a failure.
_TIMEOUT_S: Final = 30.0
_PAUSE_S: Final = 0.01


class Caller:
    """Requests that are repeated until a living worker answers them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: HTTPConnection | None = None

    def ask(self, method: str, target: str, body: bytes | None = None) -> tuple[int, Any]:
        """The status and the body of the first answer that is not "try again later"."""
        while True:
            try:
                status, answer = self._ask_once(method, target, body)
            except (ConnectionError, HTTPException):
                self._connection = None
                time.sleep(_PAUSE_S)
                continue
            if status != 503:
                return status, json.loads(answer) if answer else None
            time.sleep(_PAUSE_S)

    def _ask_once(self, method: str, target: str, body: bytes | None) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        self._connection.request(method, target, body)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def reconnect(self) -> None:
        """The next request may reach another worker."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def polling(subscriber: str) -> str:
    return f"/channel/{CHANNEL}/subscription/polling/{subscriber}"


def content_of(name: str) -> dict[str, str]:
    return {"text": f"{name} <says>"}


def publish(caller: Caller, diary: StreamLog, name: str, chance: random.Random) -> None:
    """Publish for ever, one after the other."""
    tried = [line[1] for line in read_lines(diary.path) if line[0] == "try"]
    number = int(tried[-1].partition("-")[2]) if tried else 0
    while True:
        message = f"{name}-{number}"
        body = json.dumps(content_of(message)).encode()
        diary.write("try", message)
        status, _ = caller.ask("PUT", f"/channel/{CHANNEL}/message/{message}", body)
        assert status == 200, f"publishing {message} was answered with {status}"
        diary.write("ok", message)
        if chance.random() < 0.1:  # somebody who repeats what was confirmed
            status, _ = caller.ask("PUT", f"/channel/{CHANNEL}/message/{message}", b'"again"')
            assert status == 200, f"repeating {message} was answered with {status}"
        if chance.random() < 0.1:
            caller.reconnect()
        number += 1


def subscribe(caller: Caller, diary: StreamLog, name: str, chance: random.Random) -> None:
    """Fetch and acknowledge for ever; some batches are left to come again."""
    while True:
        take_batch(caller, diary, name, chance.choice((1, 3, 64)), chance.choice((0, 100, 1_000)), chance)
        if chance.random() < 0.1:
            caller.reconnect()


def take_batch(
    caller: Caller,
    diary: StreamLog,
    name: str,
    limit: int,
    timeout_ms: int,
    chance: random.Random | None = None,
) -> int:
    """One fetch, and its acknowledgement; how many messages it gave."""
    begun_ns = time.monotonic_ns()
    status, batch = caller.ask("GET", f"{polling(name)}?max={limit}&timeout={timeout_ms}ms")
    assert status == 200, f"{name} was answered with {status}: {batch}"
    messages = batch["messages"]
    if not messages:
        return 0
    for message in messages:
        assert message["content"] == content_of(message["messageID"]), message
    ids = [message["messageID"] for message in messages]
    diary.write("got", begun_ns, ids)
    if chance is None or chance.random() < 0.8:
        status, answer = caller.ask("DELETE", f"{polling(name)}/message?ackHandle={batch['ackHandle']}")
        assert status == 204, f"{name}'s acknowledgement was answered with {status}: {answer}"
        diary.write("acked", time.monotonic_ns(), ids)
    return len(ids)


_ROLES: Final[dict[str, Callable[[Caller, StreamLog, str, random.Random], None]]] = {
    "p": publish,
    "s": subscribe,
}


def work(name: str, port: int, log: str, seed: int) -> None:
    """The whole life of a client; the first letter of its name is its role. Faults stand beside its log."""
    path = Path(log)
    try:
        _ROLES[name[0]](Caller(port), StreamLog(path), name, random.Random(seed))
    except BaseException:
        path.with_suffix(".error").write_text(traceback.format_exc())
        raise
