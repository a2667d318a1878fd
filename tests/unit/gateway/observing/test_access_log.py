"""The lines of the access log."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from penstock.clock import ManualClock
from penstock.gateway.auth.decisions import Principal
from penstock.gateway.http.requests import Request
from penstock.gateway.observing.access_log import AccessLog
from penstock.gateway.observing.outlet import Outlet

FIELDS = "time method path ip ua referer reqLength status elapsedMs resLength principal".split()


def request(path: str = "/channel/a", **headers: str) -> Request:
    listed = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {
        "method": "PUT",
        "path": path,
        "query_string": b"token=secret",
        "headers": listed,
        "client": ("10.0.0.9", 5),
    }
    made = Request(scope, None, {}, 0)  # type: ignore[arg-type]
    made.peer = "192.0.2.7"
    return made


def lines(tmp_path: Path, *asked: Request, **options: Any) -> list[bytes]:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    log = AccessLog(Outlet(descriptor), clock=ManualClock(1_700_000_000_042), **options)
    for each in asked:
        log.write(each, 200, 0.0123456, 34)
    log.close(10)
    os.close(descriptor)
    assert log.dropped == 0
    return path.read_bytes().splitlines()


def test_json(tmp_path: Path):
    asked = request(
        user_agent="curl/8", referer="https://x/", content_length="12", authorization="Bearer secret"
    )
    asked.principal = Principal("token", "bob")
    (line,) = lines(tmp_path, asked)
    entry = json.loads(line)
    assert list(entry) == FIELDS
    assert entry == {
        "time": "2023-11-14T22:13:20.042Z",
        "method": "PUT",
        "path": "/channel/a",
        "ip": "192.0.2.7",
        "ua": "curl/8",
        "referer": "https://x/",
        "reqLength": 12,
        "status": 200,
        "elapsedMs": 12.345,
        "resLength": 34,
        "principal": "bob",
    }
    assert b"secret" not in line


def test_what_is_not_known_is_empty(tmp_path: Path):
    asked = request(content_length="nonsense")
    asked.peer = ""
    entry = json.loads(lines(tmp_path, asked)[0])
    assert (entry["ip"], entry["ua"], entry["reqLength"], entry["principal"]) == ("10.0.0.9", "", 0, "")


def test_attributes_are_in_every_line(tmp_path: Path):
    for line in lines(tmp_path, request(), request(), attributes={"region": "eu", "zone": "1"}):
        entry = json.loads(line)
        assert (entry["region"], entry["zone"], entry["status"]) == ("eu", "1", 200)


def test_text(tmp_path: Path):
    (line,) = lines(tmp_path, request(user_agent="curl/8"), format="text")
    assert line == b'2023-11-14T22:13:20.042Z 192.0.2.7 - PUT /channel/a 200 34B 12.345ms "curl/8"'


def test_a_request_is_one_line_whatever_it_says(tmp_path: Path):
    nasty = request("/a\nb\u2028c\ud800", user_agent="x\r\ny\x85z")
    for format in ("json", "text"):
        assert len(lines(tmp_path, nasty, nasty, format=format)) == 2


def test_long_values_are_cut(tmp_path: Path):
    (line,) = lines(tmp_path, request("/" + "x" * 50_000, user_agent="y" * 50_000))
    assert len(line) < 3000
