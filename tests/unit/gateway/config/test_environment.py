"""Variables inside the file and over it, and overrides over both."""

from __future__ import annotations

import pytest

from penstock.gateway.config import GatewayConfig
from tests.unit.gateway.config.conftest import LoadText, ProblemsOf


def test_variables_inside_texts(load_text: LoadText) -> None:
    config = load_text(
        "http: {port: '${PORT}', listen: '${HOST:-127.0.0.1}:${PORT}', readTimeout: '${READ:-7}'}\n"
        "pubsub:\n  enabled: ${PUBSUB}\n"
        "logging: {attributes: {number: '${PORT}', plain: 'a$${b}c$d', "
        "empty: '${EMPTY:-default}', none: '${EMPTY}'}}",
        {"PORT": "8080", "PUBSUB": "true", "EMPTY": ""},
    )
    assert config.http.port == 8080
    assert config.http.listen == "127.0.0.1:8080"
    assert config.http.read_timeout_ms == 7_000
    assert config.pubsub.enabled is True
    assert config.logging.attributes == {
        "number": "8080",
        "plain": "a${b}c$d",
        "empty": "default",
        "none": "",
    }


def test_a_number_that_is_a_password_stays_text(load_text: LoadText) -> None:
    text = "storages: {a: {redis: {singleNode: 'h:1', password: '${PW}'}}}"
    redis = load_text(text, {"PW": "0123"}).storages["a"].redis
    assert redis is not None
    assert redis.password == "0123"


def test_a_variable_that_is_not_set_names_the_key(problems_of: ProblemsOf) -> None:
    assert problems_of("admin: {auth: {bearer: [a, '${TOKEN}']}}\nhttp:\n  port: ${PORT}") == [
        "admin.auth.bearer[1]: the environment variable TOKEN is not set: set it or write ${TOKEN:-default}",
        "http.port: the environment variable PORT is not set: set it or write ${PORT:-default}",
    ]


@pytest.mark.parametrize("text", ["${", "${}", "${1}", "${A-b}", "${A:b}", "${A B}"])
def test_other_forms_are_refused(problems_of: ProblemsOf, text: str) -> None:
    problems = problems_of(f"http: {{listen: '{text}'}}", {"A": "x"})
    assert problems == [
        f'http.listen: "{text}" must be ${{NAME}} or ${{NAME:-default}}, or $${{ for a plain ${{'
    ]


def test_a_wrong_value_names_its_variable(problems_of: ProblemsOf) -> None:
    assert problems_of("http:\n  port: ${PORT}", {"PORT": "many", "PENSTOCK__HTTP__WORKERS": "0"}) == [
        'http.port (from ${PORT}): must be a whole number from 0 to 65535, not "many"',
        "http.workers (from PENSTOCK__HTTP__WORKERS): must be a whole number from 1 to 1024, not 0",
    ]


def test_variables_over_the_file(load_text: LoadText) -> None:
    config = load_text(
        "http: {port: 1, readTimeout: 1s}\nchannels: [{regex: a}, {regex: b}]\n"
        "storages: {Main: {onmemory: {}}}\n"
        "logging: {categories: {auth: INFO}}",
        {
            "PENSTOCK__HTTP__PORT": "9000",
            "penstock__http__readTimeout": "2s",
            "PENSTOCK__HTTP__WRITE_TIMEOUT": "3",
            "PENSTOCK__HTTP__CORS__ORIGINS": "[https://a, https://b]",
            "PENSTOCK__CHANNELS__1__EXPIRE": "1h",
            "PENSTOCK__CHANNELS__2__REGEX": "c",
            "PENSTOCK__STORAGES__MAIN__ONMEMORY__DISABLE_JWT": "true",
            "PENSTOCK__STORAGES__OTHER__REDIS__SINGLE_NODE": "h:1",
            "PENSTOCK__STORAGES__OTHER__REDIS__PASSWORD": "0123",
            "PENSTOCK__LOGGING__CATEGORY__AUTH": "debug",
            "PENSTOCK__ADMIN__AUTH__BEARER": "1234",
            "PENSTOCK__QUORUM": "2",
            "PENSTOCK_HTTP_PORT": "not ours",
            "OTHER": "x",
        },
    )
    http = config.http
    assert (http.port, http.read_timeout_ms, http.write_timeout_ms) == (9000, 2_000, 3_000)
    assert http.cors.origins == ("https://a", "https://b")
    assert [(each.regex.pattern, each.expire_ms) for each in config.channels] == [
        ("a", 1_800_000),
        ("b", 3_600_000),
        ("c", 1_800_000),
    ]
    main, other = config.storages["Main"].onmemory, config.storages["other"].redis
    assert main is not None
    assert main.disable_jwt
    assert other is not None
    assert (other.single_node, other.password) == ("h:1", "0123")
    assert config.logging.categories == {"auth": "DEBUG", "*": "INFO"}
    assert config.admin.auth.bearer == ("1234",)
    assert config.quorum == 2


def test_items_are_appended_in_order_of_their_numbers(load_text: LoadText) -> None:
    names = [f"c{number}" for number in range(12)]
    variables = {f"PENSTOCK__CHANNELS__{at}__REGEX": name for at, name in reversed(list(enumerate(names)))}
    assert [each.regex.pattern for each in load_text("", variables).channels] == names


def test_a_name_of_an_algorithm_keeps_its_case(problems_of: ProblemsOf) -> None:
    problems = problems_of(
        "channels: [{regex: a, jwt: {iss: [i]}}]", {"PENSTOCK__CHANNELS__0__JWT__KEYS__EDDSA__0": "/nowhere"}
    )
    assert problems == [
        "channels[0].jwt.keys.EdDSA[0] (from PENSTOCK__CHANNELS__0__JWT__KEYS__EDDSA__0): "
        'cannot read "/nowhere": No such file or directory'
    ]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "PENSTOCK__HTTP__PROT",
            'http.prot (from PENSTOCK__HTTP__PROT): is not a known key: did you mean "port"?',
        ),
        ("PENSTOCK__HTTP____PORT", "PENSTOCK__HTTP____PORT: must name a key, as PENSTOCK__HTTP__PORT does"),
        ("PENSTOCK__", "PENSTOCK__: must name a key, as PENSTOCK__HTTP__PORT does"),
        (
            "PENSTOCK__CHANNELS__1__REGEX",
            'channels (from PENSTOCK__CHANNELS__1__REGEX): "1" must be the number of an item, 0 to 0',
        ),
        (
            "PENSTOCK__CHANNELS__X",
            'channels (from PENSTOCK__CHANNELS__X): "x" must be the number of an item, 0 to 0',
        ),
        (
            "PENSTOCK__HTTP__PORT__X",
            'http.port (from PENSTOCK__HTTP__PORT__X): holds no keys, so "x" cannot be set in it',
        ),
        (
            "PENSTOCK__HTTP",
            "http (from PENSTOCK__HTTP): must be a mapping, not 1",
        ),
    ],
)
def test_variables_that_lead_nowhere(problems_of: ProblemsOf, name: str, problem: str) -> None:
    assert problems_of("http: {port: 1}", {name: "1"}) == [problem]


def test_overrides_come_last(load_text: LoadText) -> None:
    config: GatewayConfig = load_text(
        "http: {port: 1}\nlogging: {category: {auth: WARN, http: WARN}}\nchannels: [{regex: a}]",
        {"PENSTOCK__HTTP__PORT": "2"},
        {
            "http.port": 3,
            "http.listen": None,
            "logging.category": {"*": "DEBUG"},
            "channels[0].expire": "1m",
            "channels.1.regex": "b",
        },
    )
    assert config.http.port == 3
    assert config.logging.categories == {"*": "DEBUG"}
    assert [(each.regex.pattern, each.expire_ms) for each in config.channels] == [
        ("a", 60_000),
        ("b", 1_800_000),
    ]


def test_an_override_of_an_unknown_key(problems_of: ProblemsOf) -> None:
    assert problems_of("", None, **{"http.prot": 3}) == [
        'http.prot (from override): is not a known key: did you mean "port"?'
    ]
