"""redis-py on a real server: XADD in pipelines of a thousand; XREADGROUP and XACK of a hundred at a time."""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from typing import Any

import redis

from bench.stream_peers.messages import BATCH, GROUP_BATCH, STREAM, make_messages


def append(client: redis.Redis, messages: list[bytes]) -> None:
    for start in range(0, len(messages), BATCH):
        pipe = client.pipeline(transaction=False)
        for message in messages[start : start + BATCH]:
            pipe.xadd(STREAM, {"e": message})
        pipe.execute()


def consume(client: redis.Redis, count: int) -> None:
    client.xgroup_create(STREAM, "group", "0")
    read = 0
    while read < count:
        found: Any = client.xreadgroup("group", "me", {STREAM: ">"}, count=GROUP_BATCH)
        entries = found[0][1] if isinstance(found, list) else next(iter(found.values()))[0]
        client.xack(STREAM, "group", *(entry[0] for entry in entries))
        read += len(entries)


def main(port: int, count: int) -> None:
    messages = list(make_messages(count))
    with redis.Redis(port=port) as client:
        client.delete(STREAM)
        started = time.perf_counter()
        append(client, messages)
        appended = time.perf_counter()
        consume(client, count)
        consumed = time.perf_counter()
        used: Any = client.execute_command("MEMORY", "USAGE", STREAM, "SAMPLES", 0)
        client.delete(STREAM)
    figures = {
        "append_per_s": count / (appended - started),
        "consume_per_s": count / (consumed - appended),
        "bytes": int(used) / count,
        "versions": {"redis": version("redis"), "hiredis": version("hiredis")},
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
