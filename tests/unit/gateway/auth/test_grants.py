"""What tokens permit, and tokens of the configuration."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.gateway.auth.decisions import Action, Resource
from penstock.gateway.auth.grants import Grant, StaticToken, StaticTokens, is_secret_of, problem_of

SECRET = "a-secret-of-the-configuration"


def grant(*scopes: Action, channels: Any = (), streams: Any = (), name: str = "worker") -> Grant:
    return Grant(name, frozenset(scopes), tuple(channels), tuple(streams))


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders", "my-orders", False),
        ("orders", "Orders", False),
        ("orders", "orders\n", False),
        ("orders-*", "orders-", True),
        ("orders-*", "orders-eu/de:x", True),
        ("*", "", True),
        ("*", "a\nb", True),
        ("?", "ab", False),
        ("[ab]x", "bx", True),
        ("[!ab]x", "bx", False),
        (".*", "ab", False),
        ("a+", "aa", False),
        ("(a|b)", "a", False),
    ],
)
def test_patterns(pattern: str, name: str, matches: bool) -> None:
    held = grant(Action.PUBLISH, channels=[pattern])
    assert held.allows(Action.PUBLISH, Resource("channel", name)) is matches


def test_a_pattern_cannot_be_made_slow() -> None:
    held = grant(Action.PUBLISH, channels=["*a" * 60 + "b"])
    assert not held.allows(Action.PUBLISH, Resource("channel", "a" * 5_000))


def test_scopes_do_not_include_one_another() -> None:
    for scope in Action:
        held = grant(scope, channels=["*"], streams=["*"])
        for action in Action:
            for kind in ("channel", "stream", "pubsub"):
                assert held.allows(action, Resource(kind, "x")) is (action is scope)
            assert held.allows(action, Resource("admin")) is (action is scope is Action.ADMIN)


def test_which_patterns_are_for_what() -> None:
    held = grant(Action.READ, channels=["c*"], streams=["s*"])
    assert held.allows(Action.READ, Resource("channel", "c1"))
    assert held.allows(Action.READ, Resource("pubsub", "c1"))
    assert held.allows(Action.READ, Resource("stream", "s1"))
    assert not held.allows(Action.READ, Resource("channel", "s1"))
    assert not held.allows(Action.READ, Resource("pubsub", "s1"))
    assert not held.allows(Action.READ, Resource("stream", "c1"))


def test_an_administrator_of_some_names() -> None:
    held = grant(Action.ADMIN, channels=["team-*"])
    assert held.allows(Action.ADMIN, Resource("channel", "team-a"))
    assert not held.allows(Action.ADMIN, Resource("channel", "other"))
    assert not held.allows(Action.ADMIN, Resource("stream", "team-a"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (grant(Action.READ, channels=["*"], name=""), "name"),
        (grant(Action.READ, channels=["*"], name="x" * 201), "name"),
        (grant(Action.READ, channels=["*"], name="a\nb"), "name"),
        (grant(channels=["*"]), "scopes is empty"),
        (grant(Action.READ), "nothing would match"),
        (grant(Action.READ, Action.ADMIN), "nothing would match"),
        (grant(Action.READ, channels=[""]), "channels: a pattern"),
        (grant(Action.READ, streams=["x" * 201]), "streams: a pattern"),
        (grant(Action.READ, streams=["x"] * 65), "streams has 65"),
    ],
)
def test_grants_that_make_no_sense(wrong: Grant, words: str) -> None:
    assert words in (problem_of(wrong) or "")
    with pytest.raises(ConfigError, match=words):
        StaticToken(wrong, secret=SECRET)


def test_static_tokens() -> None:
    reader, writer = grant(Action.READ, channels=["*"]), grant(Action.PUBLISH, streams=["*"])
    digest = hashlib.sha256(b"the other secret of it").hexdigest()
    tokens = StaticTokens([StaticToken(reader, secret=SECRET), StaticToken(writer, sha256=digest.upper())])
    assert len(tokens) == 2
    assert tokens.find(SECRET) is reader
    assert tokens.find("the other secret of it") is writer
    for text in ("", SECRET[:-1], SECRET + "x", SECRET.upper(), digest, "ü", "\ud800"):
        assert tokens.find(text) is None
        assert StaticTokens().find(text) is None


def test_static_tokens_that_make_no_sense() -> None:
    good = grant(Action.READ, channels=["*"])
    for settings in (
        {},
        {"secret": SECRET, "sha256": "0" * 64},
        {"secret": "short"},
        {"secret": "with spaces in between it"},
        {"secret": "ünter-den-lïnden-sechzehn"},
        {"sha256": "0" * 63},
        {"sha256": "x" * 64},
    ):
        with pytest.raises(ConfigError, match="worker"):
            StaticToken(good, **settings)
    with pytest.raises(ConfigError, match="secret of another"):
        StaticTokens([StaticToken(good, secret=SECRET), StaticToken(good, secret=SECRET)])
    assert SECRET not in repr(StaticToken(good, secret=SECRET))


def test_secrets_are_compared_whatever_they_are() -> None:
    assert is_secret_of("x", hashlib.sha256(b"x").hexdigest())
    for digest in ("", "ü", "\ud800", hashlib.sha256(b"y").hexdigest()):
        assert not is_secret_of("x", digest)
