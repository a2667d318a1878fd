"""Every endpoint of the DSPS API: what it takes, what it answers, and the grammar of its values."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic

import pytest

from tests.gateway.conftest import Start, Worker, polling

ADMIN = [("Authorization", "Bearer sesame")]
ADMIN_AUTH = {"auth": {"bearer": ["sesame"]}}


# --------------------------------------------------------------------------- publishing


@pytest.mark.parametrize(
    ("published", "stored"),
    [
        (b'{"b": 1, "a": [true, null]}', b'{"b":1,"a":[true,null]}'),
        (b" \t\r\n[ 1 , 2 ]\n ", b"[1,2]"),
        (b'"text"', b'"text"'),
        (b"true", b"true"),
        (b"null", b"null"),
        (b"0", b"0"),
        (b"1.0", b"1.0"),
        (b"1e400", b"1e400"),
        (b"-0", b"-0"),
        (b"123456789012345678901234567890", b"123456789012345678901234567890"),
        (b'{"k":1,"k":2}', b'{"k":1,"k":2}'),
        (b'"\\u00e9\\ud83d\\ude00\\/"', b'"\\u00e9\\ud83d\\ude00\\/"'),
        (b'"\\ud800"', b'"\\ud800"'),
        ('"é😀"'.encode(), '"é😀"'.encode()),
        (b"{}", b"{}"),
    ],
    ids=lambda text: text.decode().strip(),
)
async def test_content_is_kept_as_it_was_spelt(published: bytes, stored: bytes, start_here: Start) -> None:
    gateway = await start_here()
    await gateway.subscribe()
    assert (await gateway.publish("m-1", published)).status == 200
    assert b'"messages":[{"content":%b,"messageID":"m-1"}]' % stored in (await gateway.fetch()).body


@pytest.fixture
def start_here(starter: Start, tmp_path: object) -> Start:
    """On an embedded store: for what no storage has a part in."""

    async def start(**settings: object) -> Worker:
        storages = {"default": {"embedded": {"directory": f"{tmp_path}/here.pen", "durability": "relaxed"}}}
        return await starter(**{"storages": storages, **settings})

    return start


async def test_content_survives_every_storage(gateway: Worker) -> None:
    await gateway.subscribe()
    content = '{"z":1.0,"a":[1e400,"\\u0000\\ud800é"],"a":null}'.encode()
    await gateway.publish("m-1", content)
    assert b'"content":%b,' % content in (await gateway.fetch()).body


async def test_a_chunked_body(gateway: Worker) -> None:
    await gateway.subscribe()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"PUT /channel/room/message/m-1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    for chunk in (b'{"a":', b"1", b"}"):
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"200"
    writer.close()
    await writer.wait_closed()
    assert (await gateway.fetch()).json["messages"] == [{"content": {"a": 1}, "messageID": "m-1"}]


# ------------------------------------------------------------------------- subscriptions


async def test_subscribing_again_and_unsubscribing_without_need_are_the_same_answer(gateway: Worker) -> None:
    expected = {"channelID": "room", "subscriberID": "ann"}
    for ask in (
        gateway.unsubscribe,
        gateway.subscribe,
        gateway.subscribe,
        gateway.unsubscribe,
        gateway.unsubscribe,
    ):
        answer = await ask()
        assert (answer.status, answer.json) == (200, expected)


async def test_the_handle_is_there_only_with_messages(gateway: Worker) -> None:
    await gateway.subscribe()
    assert (await gateway.fetch()).json == {"channelID": "room", "messages": [], "moreMessages": False}
    await gateway.publish("m-1")
    fields = (await gateway.fetch()).json
    assert fields.keys() == {"ackHandle", "channelID", "messages", "moreMessages"}
    assert (await gateway.ack(fields["ackHandle"])).status == 204
    assert "ackHandle" not in (await gateway.fetch()).json


# -------------------------------------------------------------------------------- values


GOOD_TIMEOUTS = (
    "0", "0s", "-0", "%2B0", "1ns", "1us", "1%C2%B5s", "1%CE%BCs", "1ms", ".5ms", "1.ms", "1.5ms",
    "0h0m0s1ms", "-1s", "-1h30m", "1ms1ns", "%2B1ms", "0.000000001s", "-2562047h47m16.854775807s", "00001ms",
)  # fmt: skip
BAD_TIMEOUTS = (
    "", "30", "s", ".s", "1", "1S", "1%20s", "%201s", "1s%20", "1sec", "1d", "1h30", "--1s", "+1s", "1e3s",
    "0x1s", "1,5s", "9999999h", "%D9%A1s", "inf", "NaN", "null", "1s%00", ".", "-",
)  # fmt: skip


async def test_timeouts_are_durations_as_go_spells_them(gateway: Worker) -> None:
    await gateway.subscribe()
    for text in GOOD_TIMEOUTS:
        assert (await gateway.fetch(f"?timeout={text}", limit_s=5)).status == 200, text
    for text in BAD_TIMEOUTS:
        answer = await gateway.fetch(f"?timeout={text}")
        assert (answer.status, answer.json) == (400, {"error": 'Invalid "timeout" parameter'}), text


async def test_a_long_timeout_is_cut_to_the_limit(start: Start) -> None:
    gateway = await start(http={"longPollingMaxTimeout": "300ms"})
    await gateway.subscribe()
    began = monotonic()
    assert (await gateway.fetch("?timeout=1h30m", limit_s=10)).json["messages"] == []
    assert 0.29 <= monotonic() - began < 5


GOOD_LIMITS = {
    "1": 1,
    "2": 2,
    "%2B2": 2,
    "0002": 2,
    "1000": 3,
    "1001": 3,
    "9223372036854775807": 3,
    "0": 0,
    "-0": 0,
}
BAD_LIMITS = (
    "", "-1", "-9223372036854775808", "9223372036854775808", "1" * 30, "1.0", "1e3", "0x10", "1_000", "ten",
    "%201", "1%20", "--1", "%D9%A3", "+1", "null",
)  # fmt: skip


async def test_limits_are_whole_numbers_of_63_bits(gateway: Worker) -> None:
    await gateway.subscribe()
    for number in range(3):
        await gateway.publish(f"m-{number}")
    for text, count in GOOD_LIMITS.items():
        answer = await gateway.fetch(f"?max={text}")
        assert (answer.status, len(answer.json["messages"])) == (200, count), text
        assert answer.json["moreMessages"] is (count < 3), text
    for text in BAD_LIMITS:
        answer = await gateway.fetch(f"?max={text}")
        assert (answer.status, answer.json) == (400, {"error": 'Invalid "max" parameter'}), text
    assert await gateway.ids() == ["m-0", "m-1", "m-2"], "the gateway is still there"


async def test_64_messages_unless_told_otherwise(gateway: Worker) -> None:
    await gateway.subscribe()
    for number in range(66):
        await gateway.publish(f"m-{number}")
    fields = (await gateway.fetch()).json
    assert (len(fields["messages"]), fields["moreMessages"]) == (64, True)


async def test_a_limit_of_nothing_does_not_wait_where_there_is_something(gateway: Worker) -> None:
    await gateway.subscribe()
    await gateway.publish("m-1")
    answer = await gateway.fetch("?max=0&timeout=20s", limit_s=5)
    assert answer.json == {"channelID": "room", "messages": [], "moreMessages": True}


LONGEST = "a" + "0-_z" * 15 + "xy"
BAD_IDS = (
    LONGEST + "z",
    "",
    "-a",
    "_a",
    "A",
    "aA",
    "a.b",
    "a b",
    "a%0A",
    "%C3%A9",
    "a%00",
    "a:b",
    "a%2Fb",
    "{a}",
    "*",
)


async def test_ids_have_up_to_63_characters(gateway: Worker) -> None:
    assert len(LONGEST) == 63
    assert (await gateway.subscribe(LONGEST, LONGEST)).status == 200
    assert (await gateway.publish(LONGEST, channel=LONGEST)).status == 200
    fields = (await gateway.fetch("", LONGEST, LONGEST)).json
    assert fields["messages"] == [{"content": "hi", "messageID": LONGEST}]
    assert (await gateway.ack(fields["ackHandle"], LONGEST, LONGEST)).status == 204
    for good in ("a", "0", "9-", "a_"):
        assert (await gateway.publish(good, channel=good)).status == 200, good


async def test_other_ids_are_refused(gateway: Worker) -> None:
    for bad in BAD_IDS:
        bad = bad.replace(" ", "%20")
        for method, target, name in (
            ("PUT", f"/channel/{bad}/message/m", "channelID"),
            ("PUT", f"/channel/room/message/{bad}", "messageID"),
            ("PUT", polling("room", bad), "subscriberID"),
            ("GET", polling("room", bad), "subscriberID"),
            ("DELETE", polling("room", bad), "subscriberID"),
            ("DELETE", polling("room", bad) + "/message?ackHandle=x", "subscriberID"),
            ("GET", polling(bad), "channelID"),
        ):
            answer = await gateway.ask(method, target, b"1" if method == "PUT" else None)
            assert (answer.status, answer.json) == (400, {"error": f'Invalid "{name}" parameter'}), target


# ---------------------------------------------------------------------------------- admin


async def test_revocation_answers_what_it_recorded(start: Start) -> None:
    gateway = await start(admin=ADMIN_AUTH)
    answer = await gateway.ask("PUT", "/admin/jwt/revoke?jti=a%20%26%3C&exp=4000000000", headers=ADMIN)
    assert (answer.status, answer.body) == (200, b'{"exp":4000000000,"jti":"a \\u0026\\u003c"}\n')


async def test_revocation_adds_the_largest_leeway(start: Start) -> None:
    keys = {"iss": ["me"], "keys": {"none": []}}
    channels = [
        {"regex": "a", "jwt": {**keys, "clockSkewLeeway": "10s"}},
        {"regex": "b", "jwt": {**keys, "clockSkewLeeway": "1m30s"}},
    ]
    gateway = await start(admin=ADMIN_AUTH, channels=channels)
    answer = await gateway.ask("PUT", "/admin/jwt/revoke?jti=x&exp=4000000000", headers=ADMIN)
    assert answer.json == {"exp": 4000000090, "jti": "x"}


async def test_exp_is_a_whole_number_of_64_bits(start: Start) -> None:
    gateway = await start(admin=ADMIN_AUTH)
    for text in ("0", "-1", "%2B5", "9223372036854775807", "-9223372036854775808"):
        answer = await gateway.ask("PUT", f"/admin/jwt/revoke?jti=x&exp={text}", headers=ADMIN)
        assert (answer.status, answer.json["exp"]) == (200, int(text.replace("%2B", "+"))), text
    for text in ("", "1.5", "x", "9223372036854775808", "1e3", "+1", "%201", "2020-01-01"):
        answer = await gateway.ask("PUT", f"/admin/jwt/revoke?jti=x&exp={text}", headers=ADMIN)
        assert (answer.status, answer.json) == (400, {"error": 'Invalid "exp" parameter'}), text


async def test_log_levels(start: Start) -> None:
    gateway = await start(admin=ADMIN_AUTH)
    for level in ("DEBUG", "info", "Warn", "ERROR", "fatal"):
        target = f"/admin/log/level?category=*&level={level}"
        answer = await gateway.ask("PUT", target, headers=ADMIN)
        assert (answer.status, answer.body) == (204, b""), level
    for level in ("", "LOUD", "10"):
        answer = await gateway.ask("PUT", f"/admin/log/level?category=*&level={level}", headers=ADMIN)
        assert (answer.status, answer.json) == (400, {"error": 'Invalid "level" parameter'}), level
    assert logging.getLogger().level == logging.WARNING, "this process is a test's, whose logs nobody set up"


async def test_a_log_level_is_told_to_every_worker(start: Start) -> None:
    workers = [await start(admin=ADMIN_AUTH), await start(admin=ADMIN_AUTH)]
    heard: list[dict[str, str]] = []
    listening: list[object] = []
    for worker in workers:
        worker.services.control.on("log-level", heard.append)
        worker.services.control.on("ping", listening.append)
    async with asyncio.timeout(10):
        while len(listening) < 2:  # both listen; what was said before is lost
            listening.clear()
            await workers[0].services.control.tell("ping", {})
            await asyncio.sleep(0.02)
    await workers[0].ask("PUT", "/admin/log/level?category=auth&level=debug", headers=ADMIN)
    async with asyncio.timeout(10):
        while len(heard) < 2:
            await asyncio.sleep(0.005)
    assert heard == [{"category": "auth", "level": "DEBUG"}] * 2


# --------------------------------------------------------------------------------- probes


async def test_probes(gateway: Worker) -> None:
    for probe in ("liveness", "readiness"):
        answer = await gateway.ask("GET", f"/probe/{probe}")
        assert (answer.status, answer.body) == (200, b'{"storage":{"children":{"default":"ok"}}}\n')


async def test_a_worker_that_stops_is_alive_and_not_ready(gateway: Worker) -> None:
    gateway.services.life.is_stopping = True
    assert (await gateway.ask("GET", "/probe/liveness")).status == 200
    answer = await gateway.ask("GET", "/probe/readiness")
    assert (answer.status, answer.body) == (503, b'{"storage":{}}\n')
