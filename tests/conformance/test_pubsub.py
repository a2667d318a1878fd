"""SUBSCRIBE, PUBLISH and relatives on every backend."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import CommandError

Message = list[Any]


def confirmed(client: Any, *words: Any, count: int | None = None) -> list[Message]:
    """Run a command of the subscribe family; its confirmations, one a name unless told otherwise."""
    if client.kind == "engine":
        assert client.do(*words) is None
    else:
        client.send(*words)
    return [client.receive() for _ in range(len(words) - 1 if count is None else count)]


def subscriber(db: Any, *words: Any) -> Any:
    """Another client that has subscribed."""
    client = db.client()
    confirmed(client, *words)
    return client


def counts(reply: list[Any]) -> dict[bytes, int]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


def needs_socket(db: Any) -> None:
    """For what only a connection shows: the order of replies and pushes in one stream of bytes."""
    if db.kind == "engine":
        pytest.skip("in process, replies and pushes are taken separately")


# -------------------------------------------------------------------- confirmations


def test_each_channel_is_confirmed_with_the_count_so_far(db):
    assert confirmed(db, "SUBSCRIBE", "a", "b") == [[b"subscribe", b"a", 1], [b"subscribe", b"b", 2]]
    assert confirmed(db, "PSUBSCRIBE", "p*", "q*") == [[b"psubscribe", b"p*", 3], [b"psubscribe", b"q*", 4]]
    assert confirmed(db, "UNSUBSCRIBE", "a") == [[b"unsubscribe", b"a", 3]]
    assert confirmed(db, "PUNSUBSCRIBE", "q*", "p*") == [
        [b"punsubscribe", b"q*", 2],
        [b"punsubscribe", b"p*", 1],
    ]


def test_shard_channels_count_by_themselves(db):
    assert confirmed(db, "SUBSCRIBE", "c") == [[b"subscribe", b"c", 1]]
    assert confirmed(db, "SSUBSCRIBE", "s", "t") == [[b"ssubscribe", b"s", 1], [b"ssubscribe", b"t", 2]]
    assert confirmed(db, "PSUBSCRIBE", "p*") == [[b"psubscribe", b"p*", 2]]
    assert confirmed(db, "SUNSUBSCRIBE", "s") == [[b"sunsubscribe", b"s", 1]]
    assert confirmed(db, "UNSUBSCRIBE", "c") == [[b"unsubscribe", b"c", 1]]
    assert confirmed(db, "SUNSUBSCRIBE", "t") == [[b"sunsubscribe", b"t", 0]]


@pytest.mark.parametrize(
    ("verb", "publish", "kind"),
    [("SUBSCRIBE", "PUBLISH", b"subscribe"), ("SSUBSCRIBE", "SPUBLISH", b"ssubscribe")],
)
def test_subscribing_twice_is_subscribing_once(db, verb, publish, kind):
    other = db.client()
    assert confirmed(other, verb, "c", "c") == [[kind, b"c", 1], [kind, b"c", 1]]
    assert confirmed(other, verb, "c") == [[kind, b"c", 1]]
    assert db.do(publish, "c", "once") == 1
    assert other.receive()[-1] == b"once"
    assert other.nothing_arrives()


def test_a_pattern_twice_is_one_subscription(db):
    other = db.client()
    assert confirmed(other, "PSUBSCRIBE", "c*", "c*") == [[b"psubscribe", b"c*", 1]] * 2
    assert db.do("PUBLISH", "c", "once") == 1


@pytest.mark.parametrize("verb", ["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"])
def test_who_is_not_subscribed_gets_a_reply_all_the_same(db, verb):
    word = verb.lower().encode()
    assert confirmed(db, verb, "a", "b") == [[word, b"a", 0], [word, b"b", 0]]
    assert confirmed(db, verb, count=1) == [[word, None, 0]]
    assert db.do("PING") == b"PONG"


@pytest.mark.parametrize("verb", ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"])
def test_without_names_everything_of_that_kind_ends(db, verb):
    word = (verb[:-9].lower() + "unsubscribe").encode()
    confirmed(db, verb, "a", "b", "c")
    ended = confirmed(db, word.decode().upper(), count=3)
    assert sorted(name for _, name, _ in ended) == [b"a", b"b", b"c"]
    assert [[kind, left] for kind, _, left in ended] == [[word, 2], [word, 1], [word, 0]]


def test_without_names_other_kinds_go_on(db):
    confirmed(db, "SUBSCRIBE", "a")
    confirmed(db, "PSUBSCRIBE", "p*")
    confirmed(db, "SSUBSCRIBE", "s")
    assert confirmed(db, "UNSUBSCRIBE", count=1) == [[b"unsubscribe", b"a", 1]]
    assert confirmed(db, "UNSUBSCRIBE", count=1) == [[b"unsubscribe", None, 1]]
    assert confirmed(db, "PUNSUBSCRIBE", count=1) == [[b"punsubscribe", b"p*", 0]]
    other = db.client()
    assert other.do("SPUBLISH", "s", "still") == 1
    assert db.receive() == [b"smessage", b"s", b"still"]


# ------------------------------------------------------------------------ messages


def test_a_message_has_the_shape_of_its_subscription(db):
    channel = subscriber(db, "SUBSCRIBE", "news")
    pattern = subscriber(db, "PSUBSCRIBE", "n*")
    shard = subscriber(db, "SSUBSCRIBE", "news")
    assert db.do("PUBLISH", "news", "hello") == 2
    assert db.do("SPUBLISH", "news", "bye") == 1
    assert channel.receive() == [b"message", b"news", b"hello"]
    assert pattern.receive() == [b"pmessage", b"n*", b"news", b"hello"]
    assert shard.receive() == [b"smessage", b"news", b"bye"]
    assert channel.nothing_arrives()
    assert pattern.nothing_arrives()
    assert shard.nothing_arrives()


def test_nobody_listens(db):
    assert db.do("PUBLISH", "nobody", "m") == 0
    assert db.do("SPUBLISH", "nobody", "m") == 0


def test_one_client_gets_a_message_for_each_subscription_that_matches(db):
    other = db.client()
    confirmed(other, "SUBSCRIBE", "abc")
    confirmed(other, "PSUBSCRIBE", "a*", "*c", "x*")
    assert db.do("PUBLISH", "abc", "m") == 3
    messages = [other.receive() for _ in range(3)]
    # The channel comes first, patterns in any order.
    assert messages[0] == [b"message", b"abc", b"m"]
    assert sorted(messages[1:]) == [[b"pmessage", b"*c", b"abc", b"m"], [b"pmessage", b"a*", b"abc", b"m"]]


def test_the_reply_counts_deliveries_to_all_clients(db):
    listeners = [subscriber(db, "SUBSCRIBE", "c") for _ in range(5)]
    listeners += [subscriber(db, "PSUBSCRIBE", "c*") for _ in range(3)]
    assert db.do("PUBLISH", "c", "m") == 8
    assert [client.receive()[-1] for client in listeners] == [b"m"] * 8
    confirmed(listeners[0], "UNSUBSCRIBE", "c")
    confirmed(listeners[7], "PUNSUBSCRIBE", count=1)
    assert db.do("PUBLISH", "c", "n") == 6
    assert [client.receive()[-1] for client in listeners[1:7]] == [b"n"] * 6


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*", [b"anything", b"a/b\nc"], []),
        ("h?llo", [b"hello", b"h\xffllo"], [b"hllo", b"heello"]),
        ("h[ae]llo", [b"hallo", b"hello"], [b"hillo"]),
        ("h[^e]llo", [b"hallo"], [b"hello"]),
        ("h[a-c]llo", [b"hbllo"], [b"hdllo"]),
        (r"h\*llo", [b"h*llo"], [b"hello"]),
        ("news.*.eu", [b"news.sport.eu", b"news..eu"], [b"news.eu"]),
        ("plain", [b"plain"], [b"plainer"]),
    ],
)
def test_patterns(db, pattern, matching, other):
    client = subscriber(db, "PSUBSCRIBE", pattern)
    for channel in matching:
        assert db.do("PUBLISH", channel, "m") == 1
        assert client.receive() == [b"pmessage", pattern.encode(), channel, b"m"]
    for channel in other:
        assert db.do("PUBLISH", channel, "m") == 0


def test_a_channel_is_no_pattern_and_a_pattern_no_channel(db):
    plain = subscriber(db, "SUBSCRIBE", "n*")
    subscriber(db, "PSUBSCRIBE", "exact")
    assert db.do("PUBLISH", "news", "m") == 0
    assert db.do("PUBLISH", "n*", "m") == 1
    assert db.do("PUBLISH", "exact", "m") == 1
    assert plain.receive() == [b"message", b"n*", b"m"]


def test_names_and_messages_are_bytes_of_any_length(db):
    long = b"x" * 1000
    names = [b"", b"\x00\xff\r\n", b"x" * 449, b"x" * 450, long + b"1", long + b"2"]
    client = subscriber(db, "SUBSCRIBE", *names)
    for name in names:
        for message in (b"", b"\r\n\x00", b"m" * 100_000):
            assert db.do("PUBLISH", name, message) == 1
            assert client.receive() == [b"message", name, message]
    assert db.do("PUBLISH", long, "m") == 0
    assert sorted(db.do("PUBSUB", "CHANNELS")) == sorted(names)
    confirmed(client, "UNSUBSCRIBE", long + b"1")
    assert counts(db.do("PUBSUB", "NUMSUB", long + b"1", long + b"2")) == {long + b"1": 0, long + b"2": 1}


def test_names_that_begin_alike_are_different(db):
    client = subscriber(db, "SUBSCRIBE", "a", "ab", "abc")
    assert db.do("PUBLISH", "ab", "m") == 1
    assert client.receive() == [b"message", b"ab", b"m"]
    assert counts(db.do("PUBSUB", "NUMSUB", "a", "abcd")) == {b"a": 1, b"abcd": 0}


def test_messages_keep_their_order(db):
    client = subscriber(db, "SUBSCRIBE", "a", "b")
    confirmed(client, "PSUBSCRIBE", "b*")
    writers = [db, db.client(), db.client()]
    expected = []
    for number in range(200):
        channel = "ab"[number % 2]
        writers[number % 3].do("PUBLISH", channel, number)
        text = b"%d" % number
        expected.append([b"message", channel.encode(), text])
        if channel == "b":
            expected.append([b"pmessage", b"b*", b"b", text])
    assert [client.receive() for _ in expected] == expected


def test_messages_before_unsubscribing_come_before_its_confirmation(db):
    client = subscriber(db, "SUBSCRIBE", "c")
    for number in range(3):
        assert db.do("PUBLISH", "c", number) == 1
    got = confirmed(client, "UNSUBSCRIBE", "c", count=4)
    assert got == [*([b"message", b"c", b"%d" % n] for n in range(3)), [b"unsubscribe", b"c", 0]]
    assert db.do("PUBLISH", "c", "late") == 0
    assert client.nothing_arrives()


def test_channels_are_the_same_in_every_database(db):
    client = db.client()
    client.do("SELECT", "3")
    confirmed(client, "SUBSCRIBE", "c")
    assert db.do("PUBLISH", "c", "m") == 1
    assert client.receive() == [b"message", b"c", b"m"]


# ------------------------------------------------------------ what keeps and what ends


@pytest.mark.parametrize("words", [["FLUSHALL"], ["FLUSHDB"], ["SWAPDB", "0", "1"], ["SCRIPT", "FLUSH"]])
def test_emptying_the_store_keeps_subscriptions(db, words):
    client = subscriber(db, "SUBSCRIBE", "c")
    confirmed(client, "PSUBSCRIBE", "c*")
    assert db.do(*words) == b"OK"
    assert db.do("PUBLISH", "c", "m") == 2
    assert client.receive() == [b"message", b"c", b"m"]
    assert client.receive() == [b"pmessage", b"c*", b"c", b"m"]


def test_reset_ends_every_subscription(db):
    client = subscriber(db, "SUBSCRIBE", "c")
    confirmed(client, "PSUBSCRIBE", "p*")
    confirmed(client, "SSUBSCRIBE", "s")
    assert client.do("RESET") == b"RESET"
    assert db.do("PUBLISH", "c", "m") == 0
    assert db.do("PUBLISH", "p", "m") == 0
    assert db.do("SPUBLISH", "s", "m") == 0
    assert client.do("GET", "k") is None


def test_a_closed_connection_is_forgotten(db):
    client = subscriber(db, "SUBSCRIBE", "c")
    confirmed(client, "PSUBSCRIBE", "p*")
    assert db.do("PUBSUB", "NUMSUB", "c") == [b"c", 1]
    client.close()
    # A server notices when it gets to read from that socket.
    while db.do("PUBSUB", "NUMSUB", "c") != [b"c", 0]:
        pass
    assert db.do("PUBLISH", "c", "m") == 0
    assert db.do("PUBSUB", "NUMPAT") == 0


# ------------------------------------------------------------------------ while subscribed

_ONLY = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"


@pytest.mark.parametrize("verb", ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"])
def test_resp2_allows_nothing_else_while_subscribed(db, verb):
    confirmed(db, verb, "c")
    if db.resp == 3:
        assert db.do("SET", "k", "v") == b"OK"
        assert db.do("GET", "k") == b"v"
        assert db.do("PUBSUB", "NUMPAT") == (1 if verb == "PSUBSCRIBE" else 0)
        return
    assert db.error("GET", "k") == f"ERR Can't execute 'get': {_ONLY}"
    assert db.error("PUBLISH", "c", "m") == f"ERR Can't execute 'publish': {_ONLY}"
    assert db.error("MULTI") == f"ERR Can't execute 'multi': {_ONLY}"
    assert db.error("HELLO", "3") == f"ERR Can't execute 'hello': {_ONLY}"
    # What is wrong with a command comes first.
    assert db.error("GET") == "ERR wrong number of arguments for 'get' command"
    assert db.error("NOSUCH").startswith("ERR unknown command 'NOSUCH'")
    confirmed(db, verb[:-9] + "UNSUBSCRIBE", "c")
    assert db.do("GET", "k") is None


def test_ping_while_subscribed(db):
    confirmed(db, "SUBSCRIBE", "c")
    assert db.do("PING") == ([b"pong", b""] if db.resp == 2 else b"PONG")
    assert db.do("PING", "text") == ([b"pong", b"text"] if db.resp == 2 else b"text")
    assert db.error("PING", "a", "b") == "ERR wrong number of arguments for 'ping' command"
    confirmed(db, "UNSUBSCRIBE", "c")
    assert db.do("PING") == b"PONG"


def test_leaving_resp3_while_subscribed_leaves_its_freedom(db):
    needs_socket(db)
    if db.resp == 2:
        pytest.skip("begins in RESP3")
    confirmed(db, "SUBSCRIBE", "c")
    db.do("HELLO", "2")
    assert db.error("GET", "k") == f"ERR Can't execute 'get': {_ONLY}"
    confirmed(db, "UNSUBSCRIBE", "c")
    assert db.do("GET", "k") is None


def test_quit_while_subscribed(db):
    needs_socket(db)
    confirmed(db, "SUBSCRIBE", "c")
    assert db.do("QUIT") == b"OK"
    with pytest.raises(AssertionError, match="closed the connection"):
        db.receive()


def test_publishing_to_oneself(db):
    if db.resp == 2:
        pytest.skip("RESP2 cannot publish while subscribed")
    confirmed(db, "SUBSCRIBE", "c")
    db.send("PUBLISH", "c", "m")
    # Redis 7.0 and we send the message first, Valkey the reply.
    assert sorted([db.receive(), db.receive()], key=str) == [1, [b"message", b"c", b"m"]]


# -------------------------------------------------------------------- in transactions


def test_publishing_in_a_transaction(db):
    client = subscriber(db, "SUBSCRIBE", "c")
    db.do("MULTI")
    assert db.do("PUBLISH", "c", "one") == b"QUEUED"
    assert db.do("SET", "k", "v") == b"QUEUED"
    assert db.do("PUBLISH", "c", "two") == b"QUEUED"
    assert client.nothing_arrives()
    assert db.do("EXEC") == [1, b"OK", 1]
    assert client.receive() == [b"message", b"c", b"one"]
    assert client.receive() == [b"message", b"c", b"two"]


def test_publishing_to_oneself_in_a_transaction(db):
    if db.resp == 2:
        pytest.skip("RESP2 cannot publish while subscribed")
    if db.kind == "redis":
        pytest.skip("Redis 7.0 sends the message in the middle of the reply, mended since")
    confirmed(db, "SUBSCRIBE", "c")
    for words in (["MULTI"], ["PING", "abc"], ["PUBLISH", "c", "m"], ["PING", "xyz"]):
        db.do(*words)
    assert db.do("EXEC") == [b"abc", 1, b"xyz"]
    assert db.receive() == [b"message", b"c", b"m"]


def test_subscribing_in_a_transaction(db):
    client = db.client()
    for words in (["MULTI"], ["SUBSCRIBE", "c"], ["UNSUBSCRIBE", "d"]):
        client.do(*words)
    assert [list(item) for item in client.do("EXEC")] == [[b"subscribe", b"c", 1], [b"unsubscribe", b"d", 1]]
    assert db.do("PUBLISH", "c", "m") == 1
    assert client.receive() == [b"message", b"c", b"m"]


def test_shard_channels_refuse_transactions(db):
    db.do("MULTI")
    db.do("SSUBSCRIBE", "c")
    (reply,) = db.do("EXEC")
    assert isinstance(reply, CommandError)
    assert str(reply) == "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"
    assert db.do("PUBSUB", "SHARDCHANNELS") == []


def test_a_discarded_transaction_publishes_nothing(db):
    client = subscriber(db, "SUBSCRIBE", "c")
    db.do("MULTI")
    db.do("PUBLISH", "c", "m")
    assert db.do("DISCARD") == b"OK"
    assert client.nothing_arrives()


# ---------------------------------------------------------------------- introspection


def test_pubsub_channels(db):
    subscriber(db, "SUBSCRIBE", "news.a", "news.b", "other")
    subscriber(db, "SUBSCRIBE", "news.a")
    subscriber(db, "PSUBSCRIBE", "pattern*")
    subscriber(db, "SSUBSCRIBE", "shard")
    assert sorted(db.do("PUBSUB", "CHANNELS")) == [b"news.a", b"news.b", b"other"]
    assert sorted(db.do("PUBSUB", "CHANNELS", "news.*")) == [b"news.a", b"news.b"]
    assert db.do("PUBSUB", "CHANNELS", "none*") == []
    assert db.do("PUBSUB", "SHARDCHANNELS") == [b"shard"]
    assert db.do("PUBSUB", "SHARDCHANNELS", "x*") == []


def test_pubsub_numsub(db):
    subscriber(db, "SUBSCRIBE", "a", "b")
    subscriber(db, "SUBSCRIBE", "a")
    subscriber(db, "PSUBSCRIBE", "a*")
    subscriber(db, "SSUBSCRIBE", "s")
    assert db.do("PUBSUB", "NUMSUB") == []
    assert db.do("PUBSUB", "NUMSUB", "a", "none", "b", "a", "s") == [
        b"a", 2, b"none", 0, b"b", 1, b"a", 2, b"s", 0,
    ]  # fmt: skip
    assert db.do("PUBSUB", "SHARDNUMSUB") == []
    assert db.do("PUBSUB", "SHARDNUMSUB", "s", "a") == [b"s", 1, b"a", 0]


def test_pubsub_numpat_counts_patterns_not_clients(db):
    assert db.do("PUBSUB", "NUMPAT") == 0
    clients = [subscriber(db, "PSUBSCRIBE", "a*", pattern) for pattern in ("b*", "c*")]
    assert db.do("PUBSUB", "NUMPAT") == 3
    confirmed(clients[0], "PUNSUBSCRIBE", count=2)
    assert db.do("PUBSUB", "NUMPAT") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["SUBSCRIBE"], "ERR wrong number of arguments for 'subscribe' command"),
        (["PSUBSCRIBE"], "ERR wrong number of arguments for 'psubscribe' command"),
        (["SSUBSCRIBE"], "ERR wrong number of arguments for 'ssubscribe' command"),
        (["PUBLISH", "c"], "ERR wrong number of arguments for 'publish' command"),
        (["PUBLISH", "c", "m", "x"], "ERR wrong number of arguments for 'publish' command"),
        (["SPUBLISH", "c"], "ERR wrong number of arguments for 'spublish' command"),
        (["PUBSUB"], "ERR wrong number of arguments for 'pubsub' command"),
        (["PUBSUB", "NUMPAT", "x"], "ERR wrong number of arguments for 'pubsub|numpat' command"),
        (["PUBSUB", "NOPE"], "ERR unknown subcommand 'NOPE'. Try PUBSUB HELP."),
        (
            ["PUBSUB", "channels", "a", "b"],
            "ERR unknown subcommand or wrong number of arguments for 'channels'. Try PUBSUB HELP.",
        ),
    ],
)
def test_refusals(db, words, message):
    assert db.error(*words) == message
