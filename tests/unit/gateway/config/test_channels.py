"""What holds for one channel: merging, templates, identities, and what is remembered."""

from __future__ import annotations

import pytest

from penstock.gateway.config import ChannelRules, StreamAccess, StreamRules
from penstock.gateway.config.templates import Template
from tests.unit.gateway.config.conftest import LoadText

RULES = r"""
channels:
  - regex: 'room-(?P<id>\d+)(?P<rest>-x)?'
    expire: 10m
    webhooks: [{url: 'https://h/{{.channel.id}}/{{ .channel.rest }}', headers: {X-Id: 'r{{.channel.id}}'}}]
    jwt:
      {iss: [i1], aud: [a], keys: {none: []}, claims: {room: '{{.channel.id}}', role: [x, '{{.channel.id}}']}}
  - regex: '(?P<kind>room|hall)-(?P<id>.+)'
    expire: 1h
    webhooks: [{url: https://h/all, name: all}]
    jwt: {iss: [i2], keys: {none: []}, clockSkewLeeway: 7m}
  - regex: 'a|ab'
webhooks:
  - {regex: '(?P<first>.).*', url: 'https://e/{{.channel.first}}', name: every}
"""


def test_all_that_match_are_merged(load_text: LoadText) -> None:
    policy = ChannelRules(load_text(RULES)).match("room-7")
    assert policy is not None
    assert policy.expire_ms == 3_600_000
    assert policy.groups == {"id": "7", "rest": "", "kind": "room"}
    assert [each.url for each in policy.webhooks] == ["https://h/7/", "https://h/all", "https://e/r"]
    assert [each.method for each in policy.webhooks] == ["PUT", "PUT", "POST"]
    assert [each.is_endpoint for each in policy.webhooks] == [False, False, True]
    assert policy.webhooks[0].headers == {"X-Id": "r7"}
    assert [each.issuers for each in policy.jwt] == [("i1",), ("i2",)]
    assert policy.jwt[0].claims == {"room": ("7",), "role": ("x", "7")}
    assert (policy.jwt[0].audiences, policy.jwt[0].leeway_ms) == (("a",), 300_000)


def test_templates_see_the_groups_of_their_own_entry(load_text: LoadText) -> None:
    policy = ChannelRules(load_text(RULES)).match("hall-b")
    assert policy is not None
    assert policy.groups == {"kind": "hall", "id": "b"}
    assert [each.url for each in policy.webhooks] == ["https://h/all", "https://e/h"]
    assert len(policy.jwt) == 1


@pytest.mark.parametrize(
    "channel",
    [
        "",
        "room-",
        "xroom-7",
        "room-7\n",
        "Room-7",
        "-room",
        "abc",
        "b",
        "a" * 64,
        "room-" + "7" * 59,
        "é",
        "a\0",
    ],
)
def test_no_entry_or_no_channel(load_text: LoadText, channel: str) -> None:
    assert ChannelRules(load_text(RULES)).match(channel) is None


@pytest.mark.parametrize("channel", ["a", "ab", "room-" + "7" * 58])
def test_the_whole_name_matches(load_text: LoadText, channel: str) -> None:
    assert ChannelRules(load_text(RULES)).match(channel) is not None


def test_endpoints_open_no_channel(load_text: LoadText) -> None:
    config = load_text("channels: [{regex: a}]\nwebhooks: [{regex: '.+', url: http://h/}]")
    assert ChannelRules(config).match("b") is None


def test_identities_of_webhooks(load_text: LoadText) -> None:
    first = ChannelRules(load_text(RULES))
    reordered = ChannelRules(load_text(RULES.replace("- regex: 'a|ab'", "- regex: 'zzz'")))

    def ids(rules: ChannelRules, channel: str) -> list[str]:
        policy = rules.match(channel)
        assert policy is not None
        return [each.id for each in policy.webhooks]

    room7, room8 = ids(first, "room-7"), ids(first, "room-8")
    assert room7[1:2] == ["all"]
    assert room7[2].startswith("every-")
    assert room7[0] != room8[0]  # another URL: its failures are its own
    assert room7[1:] == room8[1:]
    assert ids(reordered, "room-7") == room7


def test_two_webhooks_of_one_url_are_two(load_text: LoadText) -> None:
    config = load_text("channels: [{regex: a, webhooks: [{url: http://h/}, {url: http://h/}]}]")
    policy = ChannelRules(config).match("a")
    assert policy is not None
    first, second = (each.id for each in policy.webhooks)
    assert second == f"{first}-2"


def test_answers_are_remembered_within_a_bound(load_text: LoadText) -> None:
    rules = ChannelRules(load_text(RULES), cache_entries=3)
    first = rules.match("room-1")
    assert rules.match("room-1") is first
    for number in range(2, 9):
        rules.match(f"room-{number}")
    rules.match("nobody")
    assert repr(rules) == "<ChannelRules entries=3 remembered=3>"
    assert rules.match("room-1") is not first


def test_the_longest_leeway(load_text: LoadText) -> None:
    assert ChannelRules(load_text(RULES)).max_leeway_ms == 7 * 60_000
    assert ChannelRules(load_text("")).max_leeway_ms == 0


def test_streams(load_text: LoadText) -> None:
    rules = StreamRules(
        load_text(r"streams: [{regex: 'orders\..+'}, {regex: '.+\.in', readable: false, writable: true}]")
    )
    assert rules.match("orders.eu") == StreamAccess(readable=True, writable=False)
    assert rules.match("x.in") == StreamAccess(readable=False, writable=True)
    assert rules.match("orders.in") == StreamAccess(readable=True, writable=True)
    assert rules.match("orders") is None
    assert rules.match("orders." + "x" * 300) is None
    assert StreamRules(load_text("")).match("orders") is None


@pytest.mark.parametrize(
    "text", ["{{", "{{.channel}}", "{{.channel.a b}}", "{{-.channel.a}}", "{{.x.a}}", "{{{{.channel.a}}"]
)
def test_forms_of_templates_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"may hold \{\{\.channel\.NAME\}\} and plain text alone"):
        Template(text)


def test_braces_that_are_plain_text() -> None:
    template = Template('{"a": {"b": "{{.channel.a}}"}}')
    assert template.render({"a": "1"}) == '{"a": {"b": "1"}}'
