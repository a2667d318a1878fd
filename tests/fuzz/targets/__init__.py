"""What hostile input is tried on, by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz.running import Target
from tests.fuzz.targets.dumps import Dumps
from tests.fuzz.targets.http_bytes import HttpBytes
from tests.fuzz.targets.lua_scripts import LuaScripts
from tests.fuzz.targets.records import Records
from tests.fuzz.targets.resp_replies import RespReplies
from tests.fuzz.targets.resp_requests import RespRequests
from tests.fuzz.targets.tickets import Tickets
from tests.fuzz.targets.webhook_urls import WebhookUrls

TARGETS: Final[dict[str, type[Target]]] = {
    target.name: target
    for target in (RespRequests, RespReplies, HttpBytes, LuaScripts, Tickets, WebhookUrls, Dumps, Records)
}
