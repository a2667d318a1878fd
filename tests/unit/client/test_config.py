"""URLs and settings: what they mean, what is refused, and that no secret is ever shown."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path, PurePosixPath
from typing import get_args, get_type_hints
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client import config
from penstock.client.config import Credentials, Settings, open_settings
from penstock.client.policies import Constant, Exponential, NoReconnect
from penstock.client.targets import Address, Target, parse_url
from penstock.errors import ConfigError


def complaint(url, **overrides) -> str:
    with pytest.raises(ConfigError) as caught:
        open_settings(url, **overrides)
    text = str(caught.value)
    assert text
    assert "\n" not in text
    return text


# ------------------------------------------------------------------- good URLs


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("./shop.pen", "shop.pen"),
        ("shop.pen", "shop.pen"),
        ("/var/lib/shop.pen", "/var/lib/shop.pen"),
        (Path("data") / "shop.pen", "data/shop.pen"),
        (PurePosixPath("/srv/x"), "/srv/x"),
        ("embedded:///var/lib/shop.pen", "/var/lib/shop.pen"),
        ("embedded:shop.pen", "shop.pen"),
        ("embedded:./a/shop.pen", "a/shop.pen"),
        ("embedded:/var/lib/shop.pen", "/var/lib/shop.pen"),
        ("EMBEDDED:shop.pen", "shop.pen"),
        ("embedded:my%20shop%3F.pen", "my shop?.pen"),
        ("embedded:///mail/a@b.pen", "/mail/a@b.pen"),
        # A plain path is taken as it stands.
        ("what?.pen", "what?.pen"),
        ("100%.pen", "100%.pen"),
        ("./localhost:6379", "localhost:6379"),
        ("a:b", "a:b"),
        ("C:/shop.pen", "C:/shop.pen"),
        ("dir~", "dir~"),
        (".", "."),
    ],
)
def test_embedded(url, path):
    assert parse_url(url) == Target(kind="embedded", path=Path(path))


def test_embedded_with_settings():
    target, settings = open_settings("embedded:shop.pen?durability=relaxed&db=3")
    assert (target.path, target.db) == (Path("shop.pen"), 3)
    assert (settings.durability, settings.db) == ("relaxed", 3)


LOCAL = Address("127.0.0.1", 6379)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("redis://", Target(kind="server", addresses=(LOCAL,))),
        ("redis:///", Target(kind="server", addresses=(LOCAL,))),
        ("redis:///2", Target(kind="server", addresses=(LOCAL,), db=2)),
        ("redis://localhost", Target(kind="server", addresses=(Address("localhost", 6379),))),
        ("REDIS://Example.COM:1", Target(kind="server", addresses=(Address("Example.COM", 1),))),
        ("redis://:7000", Target(kind="server", addresses=(Address("127.0.0.1", 7000),))),
        ("valkey://h:65535/0", Target(kind="server", addresses=(Address("h", 65535),))),
        ("rediss://h", Target(kind="server", addresses=(Address("h", 6379),), uses_tls=True)),
        ("valkeys://h", Target(kind="server", addresses=(Address("h", 6379),), uses_tls=True)),
        ("redis://[::1]", Target(kind="server", addresses=(Address("::1", 6379),))),
        (
            "redis://[2001:db8::7]:7000/15",
            Target(kind="server", addresses=(Address("2001:db8::7", 7000),), db=15),
        ),
        ("redis://[fe80::1%25eth0]:1", Target(kind="server", addresses=(Address("fe80::1%eth0", 1),))),
        ("redis://h?db=4", Target(kind="server", addresses=(Address("h", 6379),), db=4)),
        ("redis://h/4?db=4", Target(kind="server", addresses=(Address("h", 6379),), db=4)),
        ("redis://bücher.example", Target(kind="server", addresses=(Address("bücher.example", 6379),))),
        (
            "redis://ann:s%40cr%2Fet%3A%C3%BC@h",
            Target(kind="server", addresses=(Address("h", 6379),), username="ann", password="s@cr/et:ü"),
        ),
        ("redis://:pw@h", Target(kind="server", addresses=(Address("h", 6379),), password="pw")),
        ("redis://:p:w@x@h", Target(kind="server", addresses=(Address("h", 6379),), password="p:w@x")),
        ("redis://:@h", Target(kind="server", addresses=(Address("h", 6379),))),
        (
            "redis://ann:@h",
            Target(kind="server", addresses=(Address("h", 6379),), username="ann", password=""),
        ),
        ("redis://:a+b@h", Target(kind="server", addresses=(Address("h", 6379),), password="a+b")),
        (
            "redis-cluster://a,b:7001,[::1]:7002,[::2]",
            Target(
                kind="cluster",
                addresses=(
                    Address("a", 6379),
                    Address("b", 7001),
                    Address("::1", 7002),
                    Address("::2", 6379),
                ),
            ),
        ),
        ("rediss-cluster://a/0", Target(kind="cluster", addresses=(Address("a", 6379),), uses_tls=True)),
        ("valkey-cluster://", Target(kind="cluster", addresses=(LOCAL,))),
        ("valkeys-cluster://a", Target(kind="cluster", addresses=(Address("a", 6379),), uses_tls=True)),
        (
            "redis-sentinel://a,b:5000/mymaster/2",
            Target(
                kind="sentinel",
                addresses=(Address("a", 26379), Address("b", 5000)),
                service="mymaster",
                db=2,
            ),
        ),
        (
            "rediss-sentinel://a?service=my%20master",
            Target(kind="sentinel", addresses=(Address("a", 26379),), uses_tls=True, service="my master"),
        ),
        (
            "valkey-sentinel://a/3?service=m",
            Target(kind="sentinel", addresses=(Address("a", 26379),), service="m", db=3),
        ),
        (
            "redis-sentinel://a/m/3?service=m",
            Target(kind="sentinel", addresses=(Address("a", 26379),), service="m", db=3),
        ),
        (
            "redis-sentinel:///7",
            Target(kind="sentinel", addresses=(Address("127.0.0.1", 26379),), service="7"),
        ),
        ("unix:///run/redis.sock", Target(kind="unix", path=Path("/run/redis.sock"))),
        ("unix:///run/redis.sock?db=1", Target(kind="unix", path=Path("/run/redis.sock"), db=1)),
        ("redis+unix:///run/a@b", Target(kind="unix", path=Path("/run/a@b"))),
        (
            "valkey+unix://ann:pw@/run/my%20sock",
            Target(kind="unix", path=Path("/run/my sock"), username="ann", password="pw"),
        ),
    ],
)
def test_servers(url, target):
    assert parse_url(url) == target
    open_settings(url)


def test_query_values_are_typed():
    _, settings = open_settings(
        "redis://h?protocol=2&client_name=worker-1&decode_responses=yes&command_timeout_ms=0&when_full=error"
        "&fail_fast=TRUE&tcp_keepalive=0&reconnect=constant:base_ms=70&blocking_policy=interrupt"
        "&username=ann&password=p%26w&read_from=prefer_replica&max_attempts=1"
    )
    assert settings == Settings(
        protocol=2,
        client_name="worker-1",
        decode_responses=True,
        command_timeout_ms=0,
        when_full="error",
        fail_fast=True,
        tcp_keepalive=False,
        reconnect=Constant(base_ms=70),
        blocking_policy="interrupt",
        username="ann",
        password="p&w",
        read_from="prefer_replica",
        max_attempts=1,
    )


def test_login_and_database_reach_the_settings():
    _, settings = open_settings("redis://ann:pw@h/5")
    assert (settings.username, settings.password, settings.db) == ("ann", "pw", 5)


def test_arguments_win_over_the_query_and_the_query_over_the_rest():
    _, settings = open_settings("redis://ann:pw@h/1?username=bob&max_attempts=7", max_attempts=2, db=3)
    assert (settings.username, settings.password, settings.max_attempts, settings.db) == ("bob", "pw", 2, 3)
    _, settings = open_settings("redis://ann:pw@h", password=None, username=None)
    assert (settings.username, settings.password) == (None, None)


def test_sentinels_have_a_login_of_their_own():
    _, settings = open_settings("redis-sentinel://a/m?sentinel_username=s&sentinel_password=t")
    assert (settings.sentinel_username, settings.sentinel_password) == ("s", "t")
    assert (settings.username, settings.password) == (None, None)


def test_files_may_be_named_by_text():
    _, settings = open_settings(
        "rediss://h?tls_ca_file=/etc/ca.pem", tls_cert_file="c.pem", tls_key_file=Path("k")
    )
    assert (settings.tls_ca_file, settings.tls_cert_file) == (Path("/etc/ca.pem"), Path("c.pem"))


def test_settings_of_another_kind_of_target_are_ignored():
    for url in ("./shop.pen", "redis://h", "redis-cluster://h", "unix:///s"):
        open_settings(url, durability="relaxed", split_multi_key=True, sentinel_password="x")
    open_settings("./shop.pen", tls_ca_file="ca.pem")


# ------------------------------------------------------------------- bad URLs


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "the path of the embedded store is empty"),
        ("embedded:", "the path of the embedded store is empty"),
        ("embedded://", "the path of the embedded store is empty"),
        (
            "embedded://host/path",
            "an embedded URL has no host: write embedded:rel/path or embedded:///abs/path",
        ),
        ("embedded:a%zz", "the path contains a '%' that starts no escape: write %25"),
        ("embedded:a%00b", "the path of the embedded store contains a NUL character"),
        ("~/shop.pen", "'~' in '~/shop.pen' is not expanded: use Path(…).expanduser()"),
        ("embedded:x?service=m", "service is for sentinels: use redis-sentinel://"),
        (None, "the URL must be text or a path, not NoneType"),
        (b"redis://h", "the URL must be text or a path, not bytes"),
        ("localhost:6379", "'localhost:6379' looks like a host and port: write redis://localhost:6379,"),
        ("10.0.0.1:6379/2", "'10.0.0.1:6379/2' looks like a host and port"),
        ("redis:h", "'redis:' must be followed by two slashes, as in redis://host"),
        ("rediss:/h", "'rediss:' must be followed by two slashes, as in rediss://host"),
        (
            "http://h",
            "unknown scheme 'http': use one of embedded, unix, redis+unix, valkey+unix, redis, rediss,",
        ),
        ("redis-clustre://h", "unknown scheme 'redis-clustre'"),
        ("redis://h:abc", "port 'abc' is not a number between 1 and 65535"),
        ("redis://h:0", "port '0' is not a number between 1 and 65535"),
        ("redis://h:65536", "port '65536' is not a number between 1 and 65535"),
        ("redis://h:", "port '' is not a number between 1 and 65535"),
        ("redis://h:-1", "port '-1' is not a number between 1 and 65535"),
        ("redis://h:6_379", "port '6_379' is not a number between 1 and 65535"),
        ("redis://h:٣", "port '٣' is not a number between 1 and 65535"),
        ("redis-cluster://a,b:x,c", "port 'x' is not a number between 1 and 65535"),
        ("redis://::1", "an IPv6 address must stand in brackets: '::1'"),
        ("redis://[::1", "host '[::1' must be of the form [address]:port"),
        ("redis://[::1]6379", "host '[::1]6379' must be of the form [address]:port"),
        ("redis://[not-an-address]:1", "host 'not-an-address' is not an IPv6 address"),
        ("redis://[]", "host '' is not an IPv6 address"),
        ("redis://a b", "host 'a b' contains a character that no host has"),
        ("redis://h\n", "host 'h\\n' contains a character that no host has"),
        ("redis://h%41", "host 'h%41' contains a character that no host has"),
        ("redis://h/99x", "database '99x' is not a number from 0 on"),
        ("redis://h/-1", "database '-1' is not a number from 0 on"),
        ("redis://h/1/2", "database '1/2' is not a number from 0 on"),
        ("redis://h/99999999999", "database '99999999999' is not a number from 0 on"),
        ("redis://h?db=x", "database 'x' is not a number from 0 on"),
        ("redis://h/1?db=2", "two databases: /1 in the path and db=2 in the query"),
        ("redis-cluster://h/2", "a cluster has no databases: remove /2"),
        ("redis-cluster://h?db=2", "a cluster has no databases: remove db=2"),
        ("redis-cluster://h/two", "database 'two' is not a number from 0 on"),
        (
            "redis://a,b",
            "several hosts are a cluster or sentinels: use redis-cluster:// or redis-sentinel://",
        ),
        ("redis://h?service=m", "service is for sentinels: use redis-sentinel://"),
        (
            "redis-sentinel://h",
            "the service name is missing: write redis-sentinel://host/service or ?service=…",
        ),
        ("redis-sentinel://h/?service=", "the service name is missing"),
        ("redis-sentinel://h/a?service=b", "two services: 'a' in the path and 'b' in the query"),
        ("redis-sentinel://h/m/x", "database 'x' is not a number from 0 on"),
        ("unix://tmp/sock", "'tmp' is no socket: its path starts with a slash, as in unix:///tmp/socket"),
        ("unix://", "the path of the unix socket is missing: write unix:///path/to/socket"),
        ("unix:///", "the path of the unix socket is missing: write unix:///path/to/socket"),
        ("redis://h#1", "a URL of a store has no '#' part: write %23 for a '#' in a name or a password"),
        ("redis://h?db", "a part of the query is not of the form name=value"),
        ("redis://h?db=1&", "a part of the query is not of the form name=value"),
        ("redis://h?=1", "a part of the query is not of the form name=value"),
        ("redis://h?max_attempts=1&max_attempts=1", "max_attempts stands twice in the query"),
        ("redis://h?client_name=%FF", "the value of client_name contains escapes that are not UTF-8"),
        ("redis://ann@h", "username 'ann' has no password: write user:password@host,"),
        (
            "redis://h?credential_provider=x",
            "credential_provider cannot stand in a URL: pass it as an argument",
        ),
        (
            "redis://h?max_attempts=many",
            "max_attempts must be a whole number from 0 to 2147483647, not 'many'",
        ),
        (
            "redis://h?connect_timeout_ms=0",
            "connect_timeout_ms must be a whole number from 1 to 2147483647, not 0",
        ),
        ("redis://h?fail_fast=maybe", "fail_fast must be True or False, not 'maybe'"),
        ("redis://h?protocol=4", "protocol must be 2 or 3, not '4'"),
        ("redis://h?reconnect=never", "unknown reconnect policy 'never': use one of none, constant,"),
        ("redis://h?client_name=a%20b", "client_name must be printable ASCII without spaces, not 'a b'"),
        ("redis://h?maxattempts=1", "unknown setting 'maxattempts': did you mean max_attempts?"),
        (
            "redis://h?tls_ca_file=ca.pem",
            "tls_ca_file is set but the URL asks for no TLS: write rediss instead",
        ),
        ("redis-sentinel://h/m?tls_verify=no", "tls_verify is set but the URL asks for no TLS"),
    ],
)
def test_a_url_that_makes_no_sense_names_the_part(url, text):
    assert complaint(url).startswith(text)


@pytest.mark.parametrize(
    "url",
    [
        "redis://ann:sec/ret@h",
        "redis://ann:sec?ret@h",
        "redis://ann:sec?ret=1@h",
        "redis://ann:sec#ret@h",
        "redis://ann:sec%ret@h",
        "redis://ann:sec%FFret@h",
        "redis://ann:sec/ret@h:x/99x",
        "redis://:sec@ret/x@h",
        "redis://ann:123?sec@h",
        "redis://h?password=sec%ret",
        "redis://h/1?sentinel_password=a&sentinel_password=sec",
    ],
)
def test_errors_do_not_show_passwords(url):
    text = complaint(url)
    assert "sec" not in text
    assert "ret" not in text.replace("secret", "")


# ------------------------------------------------------------------- settings


def test_defaults_make_sense():
    Settings().check()
    _, settings = open_settings("./shop.pen")
    assert settings == Settings()
    assert isinstance(settings.reconnect, Exponential)
    with pytest.raises(FrozenInstanceError):
        settings.db = 1  # type: ignore[misc]


def test_every_setting_has_a_rule_and_every_choice_is_the_type_s():
    assert set(config._RULES) == {item.name for item in fields(Settings)}
    for name, hint in get_type_hints(Settings).items():
        choices = [choice for choice in get_args(hint) if isinstance(choice, str | int)]
        for choice in choices:
            assert config._RULES[name].accepts(choice)
            assert config._parse_setting(name, str(choice)) == choice


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"protocol": 4}, "protocol must be 2 or 3, not 4"),
        ({"protocol": "3"}, "protocol must be 2 or 3, not '3'"),
        ({"db": -1}, "db must be a whole number from 0 to 2147483647, not -1"),
        ({"db": True}, "db must be a whole number"),
        ({"command_timeout_ms": 1.5}, "command_timeout_ms must be a whole number"),
        ({"connect_timeout_ms": 0}, "connect_timeout_ms must be a whole number from 1"),
        ({"max_in_flight": 0}, "max_in_flight must be a whole number from 1"),
        ({"fail_fast": 1}, "fail_fast must be True or False, not 1"),
        ({"when_full": "panic"}, "when_full must be 'wait' or 'error', not 'panic'"),
        (
            {"blocking_policy": None},
            "blocking_policy must be 'dedicated', 'block', 'error' or 'interrupt', not None",
        ),
        ({"reconnect": 5}, "reconnect must be a reconnect policy, not 5"),
        ({"credential_provider": "x"}, "credential_provider must be an async function or None"),
        ({"username": b"ann"}, "username must be text or None, not b'ann'"),
        ({"tls_ca_file": 7}, "tls_ca_file must be a Path or None, not 7"),
        ({"client_name": "two words"}, "client_name must be printable ASCII without spaces"),
        ({"client_name": ""}, "client_name must be printable ASCII without spaces"),
        ({"username": "ann"}, "username 'ann' has no password"),
        ({"sentinel_username": "ann"}, "sentinel_username 'ann' has no sentinel_password"),
        ({"tls_key_file": "k.pem"}, "tls_cert_file and tls_key_file belong together: give both or none"),
        ({"comand_timeout_ms": 5}, "unknown setting 'comand_timeout_ms': did you mean command_timeout_ms?"),
        ({"when_ful": "wait"}, "unknown setting 'when_ful': did you mean when_full?"),
        ({"timeout": 5}, "unknown setting 'timeout': did you mean "),
        ({"service": "m"}, "unknown setting 'service'"),
        ({"xyzzy": 5}, "unknown setting 'xyzzy'"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(overrides, text):
    assert complaint("rediss://h", **overrides).startswith(text)


def test_secrets_are_not_shown_when_they_are_refused():
    for name in ("password", "sentinel_password", "tls_key_password"):
        assert "hunter2" not in complaint("rediss://h", **{name: b"hunter2"})


async def provide(address: Address) -> Credentials:
    return Credentials("ann", "pw")


def test_one_source_of_credentials():
    assert complaint("redis://:pw@h", credential_provider=provide) == (
        "password and credential_provider are both set: give one of them"
    )
    _, settings = open_settings("redis://ann@h", credential_provider=provide)
    assert settings.credential_provider is provide


def test_a_cluster_has_no_databases_by_argument_either():
    assert complaint("redis-cluster://h", db=2) == "a cluster has no databases: remove db=2"


def test_no_reconnection_on_request():
    for _, settings in (
        open_settings("redis://h?reconnect=none"),
        open_settings("redis://h", reconnect=NoReconnect()),
    ):
        assert settings.reconnect == NoReconnect()


# ------------------------------------------------------------------- what is shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://ann:secret@h/2", "redis://ann:***@h:6379/2"),
        ("redis://:secret@h", "redis://:***@h:6379"),
        ("redis://a%40b:secret@[::1]:7", "redis://a%40b:***@[::1]:7"),
        ("rediss://h?password=secret&max_attempts=2", "rediss://h:6379?password=***&max_attempts=2"),
        ("valkeys-cluster://ann:secret@a,b:1", "rediss-cluster://ann:***@a:6379,b:1"),
        (
            "redis-sentinel://a/m%2Fn/1?sentinel_password=secret",
            "redis-sentinel://a:26379/m%2Fn/1?sentinel_password=***",
        ),
        ("unix://:secret@/run/s?db=1", "unix://:***@/run/s?db=1"),
        ("./my shop.pen", "embedded:my%20shop.pen"),
        ("embedded:///a/b?db=1&durability=relaxed", "embedded:/a/b?durability=relaxed&db=1"),
    ],
)
def test_redacted(url, shown):
    target = parse_url(url)
    assert target.redacted == shown
    assert repr(target) == f"<Target {shown}>"
    assert "secret" not in str(target)


def test_settings_and_credentials_do_not_show_secrets():
    _, settings = open_settings(
        "rediss://ann:secret1@h", sentinel_password="secret2", tls_key_password="secret3"
    )
    for shown in (repr(settings), str(settings), repr(Credentials("ann", "secret4"))):
        assert "secret" not in shown
        assert "ann" in shown


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(username=words, password=words, db=st.integers(0, 2**31 - 1), name=words)
def test_anything_can_be_escaped(username, password, db, name):
    login = f"{quote(username, safe='')}:{quote(password, safe='')}"
    target = parse_url(f"redis-sentinel://{login}@h/{quote(name, safe='')}/{db}")
    assert (target.username, target.password, target.service, target.db) == (username, password, name, db)
    again = parse_url(target.redacted)
    assert (again.username, again.password, again.service, again.db) == (username, "***", name, db)


@given(st.one_of(words, words.map("redis://".__add__), words.map("redis-sentinel://h/".__add__)))
def test_any_text_is_a_target_or_a_config_error(text):
    try:
        target, _ = open_settings(text)
    except ConfigError:
        return
    assert parse_url(target.redacted).kind == target.kind
