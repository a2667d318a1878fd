"""What is refused, and in which words: each line names the key, what was found, what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.configuration.problems import Problems
from penstock.configuration.variables import expand
from penstock.configuration.yamltext import format_yaml
from penstock.errors import ConfigError
from penstock.gateway.config import GatewayConfig, load
from penstock.gateway.config.checks import CHECKS
from penstock.gateway.config.describing import rows
from penstock.gateway.config.reading import Reader
from tests.unit.gateway.config.conftest import LoadText, ProblemsOf

CASES = [
    # ---- keys
    ("htpt: {}", 'htpt: is not a known key: did you mean "http"?'),
    ("http: {prot: 1}", 'http.prot: is not a known key: did you mean "port"?'),
    ("http: {read_timeout: 1s}", 'http.read_timeout: is not a known key: did you mean "readTimeout"?'),
    ("pubsub: {zzz: 1}", "pubsub.zzz: is not a known key: allowed are enabled"),
    ("5: {}", "[\"5\"]: is not a known key: allowed are storages, quorum, breaker, http, channels, webhooks, "
     "streams, pubsub, transactions, lake, receipts, tokens, requireTokens, admin, logging, metrics, "
     "telemetry, sentry"),
    ("logging: {category: {}, categories: {}}",
     'logging.categories: means the same as "category": remove one of them'),
    ("storages: {}\nstorage: {}", 'storage: means the same as "storages": remove one of them'),
    # ---- types
    ("[]", "must be a mapping, not a list"),
    ("http: 5", "http: must be a mapping, not 5"),
    ("channels: {}", "channels: must be a list, not a mapping"),
    ("http: {port: '80'}", 'http.port: must be a whole number from 0 to 65535, not "80"'),
    ("http: {port: true}", "http.port: must be a whole number from 0 to 65535, not true"),
    ("http: {port: 1.5}", "http.port: must be a whole number from 0 to 65535, not 1.5"),
    ("http: {port: 65536}", "http.port: must be a whole number from 0 to 65535, not 65536"),
    ("http: {listen: 80}", "http.listen: must be text, not 80: put it in quotes"),
    ("pubsub: {enabled: yes}", 'pubsub.enabled: must be true or false, not "yes"'),
    ("telemetry: {tracing: {sampling: 1.1}}",
     "telemetry.tracing.sampling: must be a number from 0 to 1, not 1.1"),
    ("telemetry: {tracing: {sampling: .nan}}",
     "telemetry.tracing.sampling: must be a number from 0 to 1, not nan"),
    ("sentry: {sampleRate: -1}", "sentry.sampleRate: must be a number from 0 to 1, not -1"),
    # ---- durations
    ("http: {readTimeout: '30'}",
     'http.readTimeout: "30" has no unit: must be a duration such as 1h30m, .5s or 100ms'),
    ("http: {readTimeout: 1d}", 'http.readTimeout: "1d" must be a duration such as 1h30m, .5s or 100ms'),
    ("http: {readTimeout: 0}", "http.readTimeout: must be longer than 0, not 0"),
    ("http: {gracefulShutdownTimeout: -1s}",
     'http.gracefulShutdownTimeout: must be 0 or longer, not "-1s"'),
    ("http: {readTimeout: .inf}",
     "http.readTimeout: must be a duration such as 1h30m or a number of seconds, not inf"),
    ("http: {readTimeout: [1]}",
     "http.readTimeout: must be a duration such as 1h30m or a number of seconds, not a list"),
    ("http: {readTimeout: 1s, headerTimeout: 2s}", "http.headerTimeout: must not be longer than readTimeout"),
    # ---- choices
    ("logging: {format: xml}", 'logging.format: must be one of json, text, not "xml"'),
    ("logging: {category: {auth: warm}}",
     'logging.category.auth: must be one of DEBUG, INFO, WARN, ERROR, FATAL, not "warm": '
     'did you mean "WARN"?'),
    ("quorum: most", 'quorum: must be one of any, majority, all or a whole number from 1 on, not "most"'),
    ("quorum: 0", "quorum: must be one of any, majority, all or a whole number from 1 on, not 0"),
    ("quorum: 2", "quorum: must be at most the number of storages, 1, not 2"),
    # ---- http
    ("http: {listen: '127.0.0.1'}",
     'http.listen: must be address:port or :port, as in 127.0.0.1:3000, not "127.0.0.1"'),
    ("http: {listen: ':99999'}",
     'http.listen: must be address:port or :port, as in 127.0.0.1:3000, not ":99999"'),
    ("http: {trustedProxyRanges: [10.0.0.0/33]}",
     'http.trustedProxyRanges[0]: must be a network such as 10.0.0.0/8 or fc00::/7, not "10.0.0.0/33"'),
    ("admin: {auth: {networks: [1]}}",
     "admin.auth.networks[0]: must be a network such as 10.0.0.0/8 or fc00::/7, not 1"),
    ("http: {defaultHeaders: {'a b': c}}",
     'http.defaultHeaders["a b"]: must be the name of an HTTP header, not "a b"'),
    ('http: {defaultHeaders: {a: "b\\r\\nc: d"}}',
     'http.defaultHeaders.a: must be text without line ends and control characters, not "b\\r\\nc: d"'),
    ("http: {cors: {origins: ['*'], credentials: true}}",
     'http.cors.credentials: cannot be true while origins has "*": list the origins'),
    ("http: {cors: {origins: [example.com]}}",
     'http.cors.origins[0]: must be an origin such as https://example.com or "*", not "example.com"'),
    ("http: {tls: {certFile: /nowhere/c.pem, keyFile: /dev/null}}",
     'http.tls.certFile: cannot read "/nowhere/c.pem": No such file or directory'),
    ("http: {workers: 2}",
     'http.workers: must be 1 with onmemory, since each process would have '
     'its own storage "default": use embedded'),
    ("metrics: {path: metrics}", 'metrics.path: must be a path that starts with a slash, not "metrics"'),
    # ---- storages
    ("storages: {a: {}}", "storages.a: must have one of onmemory, embedded, redis, as in onmemory: {}"),
    ("storages: {a: }", "storages.a: must have one of onmemory, embedded, redis, as in onmemory: {}"),
    ("storages: {a: {onmemory: {}, embedded: {directory: x}}}",
     "storages.a: must have only one of onmemory, embedded, redis, not onmemory and embedded"),
    ("storages: {a: {embedded: {}}}", "storages.a.embedded.directory: is missing"),
    ("storages: {a: {embedded: {directory: ~/x}}}",
     "storages.a.embedded.directory: '~' in '~/x' is not expanded: use Path(…).expanduser()"),
    ("storages: {a: {embedded: {directory: x}}, b: {embedded: {directory: ./x}}}", None),
    ("storages: {a: {redis: {}}}",
     "storages.a.redis: must have exactly one of singleNode, cluster, url, not none"),
    ("storages: {a: {redis: {singleNode: 'h:1', cluster: ['h:1']}}}",
     "storages.a.redis: must have exactly one of singleNode, cluster, url, not singleNode and cluster"),
    ("storages: {a: {redis: {singleNode: 'h:x'}}}",
     "storages.a.redis.singleNode: port 'x' is not a number between 1 and 65535"),
    ("storages: {a: {redis: {url: 'http://h'}}}", None),
    ("storages: {a: {redis: {url: 'embedded:x'}}}",
     "storages.a.redis.url: names a directory: use embedded: {directory: …} for that"),
    ("storages: {a: {redis: {url: 'redis://h', password: hush}}}",
     "storages.a.redis.password: must stand in the url when there is one"),
    ("storages: {a: {redis: {singleNode: 'h:1', password: 123456}}}",
     "storages.a.redis.password: must be text, not what was found: put it in quotes"),
    ("storages: {'a.b': {redis: {}}}",
     'storages["a.b"].redis: must have exactly one of singleNode, cluster, url, not none'),
    # ---- channels
    ("channels: [{expire: 1m}]", "channels[0].regex: is missing"),
    ("channels: [{}, ]", "channels[0].regex: is missing"),
    ("channels: [{regex: '('}]",
     'channels[0].regex: "(" is not a regular expression of Python: '
     'missing ), unterminated subpattern at position 0'),
    ("channels: [{regex: '[[:alpha:]]'}]",
     'channels[0].regex: "[[:alpha:]]" is not a regular expression of Python: '
     'Possible nested set at position 1'),
    ("channels: [{regex: a, expire: 0s}]", 'channels[0].expire: must be longer than 0, not "0s"'),
    ("channels: [{regex: '(?P<id>a)', webhooks: [{url: 'http://h/{{.channel.ix}}'}]}]",
     'channels[0].webhooks[0].url: the regex has no group named "ix" for {{.channel.ix}}: it has id'),
    ("channels: [{regex: '(a)', webhooks: [{url: http://h/, headers: {X-A: '{{.channel.a}}'}}]}]",
     'channels[0].webhooks[0].headers.X-A: the regex has no group named "a" for {{.channel.a}}: it has none'),
    ("channels: [{regex: a, webhooks: [{url: 'http://h/{{if .x}}'}]}]",
     'channels[0].webhooks[0].url: "http://h/{{if .x}}" may hold {{.channel.NAME}} and plain text alone'),
    ("channels: [{regex: a, webhooks: [{url: /x}]}]",
     'channels[0].webhooks[0].url: must be a URL that starts with http:// or https://, not "/x"'),
    ("channels: [{regex: a, webhooks: [{url: 'http://u:p@h/'}]}]",
     "channels[0].webhooks[0].url: must not hold a user name or password: use headers for that"),
    ("channels: [{regex: a, webhooks: [{url: http://h/, method: GET}]}]",
     'channels[0].webhooks[0].method: must be one of PUT, POST, not "GET"'),
    ("channels: [{regex: a, webhooks: [{url: http://h/, retry: {intervalMultiplier: 0.5}}]}]",
     "channels[0].webhooks[0].retry.intervalMultiplier: must be a number from 1 to 1000, not 0.5"),
    ("channels: [{regex: a, webhooks: [{url: http://h/, retry: {count: 1}, schedule: standard}]}]",
     "channels[0].webhooks[0].retry: has no meaning with schedule standard: remove one of them"),
    ("webhooks: [{regex: a, url: http://h/, secrets: [hush]}]",
     "webhooks[0].secrets[0]: must start with whsec_ or whsk_"),
    ("webhooks: [{regex: a, url: http://h/, secrets: [whsec_aHVzaA==]}]",
     "webhooks[0].secrets[0]: must be 24 to 64 bytes as Base64 after whsec_, not 4"),
    ("webhooks: [{regex: a, url: http://h/, secrets: [whsec_!]}]",
     "webhooks[0].secrets[0]: must be Base64 after whsec_"),
    ("webhooks: [{regex: a, url: http://h/, name: n}, {regex: a, url: http://i/, name: n}]",
     'webhooks: two webhooks are named "n": give each a name of its own'),
    # ---- jwt
    ("channels: [{regex: a, jwt: {keys: {none: []}}}]", "channels[0].jwt.iss: is missing"),
    ("channels: [{regex: a, jwt: {iss: [], keys: {none: []}}}]",
     "channels[0].jwt.iss: must list at least one issuer"),
    ("channels: [{regex: a, jwt: {iss: [i], keys: {}}}]",
     "channels[0].jwt.keys: must have at least one algorithm with its keys"),
    ("channels: [{regex: a, jwt: {iss: [i], keys: {RS256: []}}}]",
     "channels[0].jwt.keys.RS256: must list at least one key file"),
    ("channels: [{regex: a, jwt: {iss: [i], keys: {none: [x]}}}]",
     "channels[0].jwt.keys.none[0]: the algorithm none has no keys: write none: []"),
    ("channels: [{regex: a, jwt: {iss: [i], keys: {RS256: [x.pem]}}}]",
     'channels[0].jwt.keys.RS256[0]: cannot read "x.pem": No such file or directory'),
    ("channels: [{regex: a, jwt: {iss: [i], keys: {HS256: [{fill: x}]}}}]",
     'channels[0].jwt.keys.HS256[0]: "fill" is not a known key: did you mean "file"?'),
    ("channels: [{regex: a, jwt: {iss: [i], keys: {none: []}, claims: {c: [1]}}}]",
     "channels[0].jwt.claims.c[0]: must be text, not 1: put it in quotes"),
    # ---- who may call
    ("transactions: {maxWait: 10m}",
     "transactions.maxWait: must not be longer than http.writeTimeout and http.longPollingMaxTimeout "
     "together"),
    ("transactions: {replyConverter: shop}",
     'transactions.replyConverter: must be module:function, as in shop.replies:convert, not "shop"'),
    ("tokens: [{name: t, secret: hush-hush-hush-hush, scopes: ['transactions:read'], owner: a b}]",
     'tokens[0].owner: must be 1 to 128 letters, digits or any of _ . @ : / + -, not "a b"'),
    ("tokens: [{name: t, scopes: [admin]}]", "tokens[0]: must have exactly one of secret and sha256"),
    ("tokens: [{name: t, secret: hush, scopes: [admin]}]",
     "tokens[0].secret: must have at least 16 characters"),
    ("tokens: [{name: t, sha256: abc, scopes: [admin]}]",
     'tokens[0].sha256: must be 64 hexadecimal digits, not "abc"'),
    ("tokens: [{name: t, secret: hush-hush-hush-hush, scopes: [publsh], channels: [a]}]",
     'tokens[0].scopes[0]: must be one of publish, subscribe, read, admin, observe, transactions:start, '
     'transactions:read, transactions:control, transactions:*, pipelines:read, pipelines:write, '
     'not "publsh": did you mean "publish"?'),
    ("tokens: [{name: t, secret: hush-hush-hush-hush, scopes: [publish]}]",
     'tokens[0]: must say where its scopes hold: add channels or streams, e.g. channels: ["*"]'),
    ("tokens: [{name: t, secret: hush-hush-hush-hush}]",
     "tokens[0].scopes: must list at least one of publish, subscribe, read, admin, observe, "
     "transactions:start, transactions:read, transactions:control, transactions:*, pipelines:read, "
     "pipelines:write; or give a role instead: viewer, operator"),
    ("tokens: [{name: t, secret: hush-hush-hush-hush, role: viewer, scopes: [read]}]",
     "tokens[0].scopes: must be left out: the role viewer says it all"),
    ("tokens: [{name: t, secret: hush-hush-hush-hush, role: operator, streams: ['*']}]",
     "tokens[0].streams: must be left out: the role operator says it all"),
    ("tokens: [{name: t, secret: hush-hush-hush-hush, role: vewer}]",
     'tokens[0].role: must be one of viewer, operator, not "vewer": did you mean "viewer"?'),
    ("receipts: {secret: hush}", "receipts.secret: must have at least 16 characters"),
    ("admin: {auth: {bearer: ['']}}", None),
    ("admin: {auth: {bearer: ['***']}}",
     "admin.auth.bearer[0]: is a secret that a dump has masked: write the real one"),
    ("storages: {a: {redis: {url: 'redis://:***@h'}}}",
     "storages.a.redis.url: is a secret that a dump has masked: write the real one"),
    # ---- what we do not have
    ("telemetry: {ot: {exporters: {stdout: {enable: true}}}}",
     "telemetry.ot.exporters.stdout.enable: there is no stdout exporter: set it to false, and let the OTEL_* "
     "variables choose the exporter of the installed SDK"),
    ("telemetry: {ot: {exporters: {gcp: {enableTrace: true}}}}", None),
    ("telemetry: {ot: {tracing: {}}, tracing: {}}",
     "telemetry.ot.tracing: means the same as telemetry.tracing: remove one of them"),
    ("telemetry: {tracing: {batch: {batchSize: 9, maxQueueSize: 8}}}",
     "telemetry.tracing.batch.batchSize: must not be larger than maxQueueSize"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), CASES, ids=[text[:60] for text, _ in CASES])
def test_one_line_a_problem(problems_of: ProblemsOf, text: str, problem: str | None) -> None:
    problems = problems_of(text)
    assert len(problems) == 1
    if problem is not None:
        assert problems == [problem]
    assert "hush" not in problems[0]


def test_all_problems_are_told_at_once(problems_of: ProblemsOf) -> None:
    problems = problems_of(
        "http: {port: -1, prot: 2, listen: x}\n"
        "storages: {a: {redis: {db: -1, timeout: {read: x}}}, b: {}}\n"
        "channels:\n"
        "  - {regex: '(', expire: 0, webhooks: "
        "[{url: 'http://h/{{.channel.a}}', timeout: 0}, {method: GET}]}\n"
        "  - {regex: a, webhooks: [{url: ftp://h, retry: {count: -1}}], jwt: {iss: [], keys: {X: []}}}\n"
    )
    assert {line.partition(": ")[0] for line in problems} == {
        "http.port",
        "http.prot",
        "http.listen",
        "storages.a.redis.db",
        "storages.a.redis.timeout.read",
        "storages.b",
        "channels[0].regex",
        "channels[0].expire",
        "channels[0].webhooks[0].timeout",
        "channels[0].webhooks[1].url",
        "channels[0].webhooks[1].method",
        "channels[1].webhooks[0].url",
        "channels[1].webhooks[0].retry.count",
        "channels[1].jwt.iss",
        "channels[1].jwt.keys.X",
    }


def test_sentry_is_refused_only_when_it_is_wanted(load_text: LoadText, problems_of: ProblemsOf) -> None:
    load_text("sentry: {environment: x}")
    load_text("http: {}", {"SENTRY_DSN": "https://key@sentry.example.com/1"})
    assert problems_of("sentry: {environment: x}", {"SENTRY_DSN": "https://key@sentry.example.com/1"}) == [
        "sentry: there is no Sentry exporter: remove the block or SENTRY_DSN"
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http: {port: 1, port: 2}", 'line 1, column 17: key "port" stands twice'),
        ("http:\n\tport: 1", "line 2, column 1:"),
        ("http: [", "line 1, column 8:"),
        ("a: 1\n---\nb: 2", "line 2, column 1:"),
        ("{[a]: b}", "line 1, column 2:"),
        ("a: !!python/object:os.system {}", "line 1, column 4:"),
        ("http: {port: " + "9" * 5000 + "}", "the number is too long"),
        ("a: \x01", "is not YAML"),
        ("[" * 5000, "nested too deeply"),
        ("a: &a [*a]", "nested too deeply"),
        ("a: &a [*a, *a]", "nested too deeply"),
    ],
)
def test_what_is_not_yaml(problems_of: ProblemsOf, text: str, words: str) -> None:
    problems = problems_of(text)
    assert len(problems) == 1
    assert words in problems[0]


def test_aliases_that_repeat_each_other(problems_of: ProblemsOf) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 12)]
    assert "repeats too much" in problems_of("\n".join(lines))[0]


# ---------------------------------------------------------------- keys of tokens


@pytest.mark.parametrize(
    ("name", "content", "spec", "words"),
    [
        ("empty", b" \n", "HS256: [FILE]", "is empty: it must hold a key"),
        ("bad.b64", b"!!!", "HS256: [FILE]", "is not Base64: use encoding raw if its bytes are the key"),
        ("public.pem", b"-----BEGIN PUBLIC KEY-----", "HS256: [FILE]", "is PEM, but HS256 needs a secret"),
        ("plain", b"hush", "RS256: [FILE]", "is not PEM: RS256 needs a public key or certificate as PEM"),
        ("plain", b"hush", "RS256: [{file: FILE, encoding: raw}]", "encoding raw is not for RS256: use pem"),
        ("plain", b"hush", "HS256: [{file: FILE, encoding: pem}]", "encoding pem is not for HS256"),
        (
            "plain",
            b"hush",
            "HS256: [{file: FILE, encoding: hex}]",
            "encoding must be one of raw, base64, pem",
        ),
        ("big", b"x" * (1 << 20) + b"y", "HS256: [FILE]", "is larger than 1048576 bytes"),
    ],
)
def test_key_files_that_are_of_no_use(
    problems_of: ProblemsOf, tmp_path: Path, name: str, content: bytes, spec: str, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    keys = spec.replace("FILE", str(tmp_path / name))
    problems = problems_of(f"channels: [{{regex: a, jwt: {{iss: [i], keys: {{{keys}}}}}}}]")
    assert len(problems) == 1
    assert words in problems[0]
    assert problems[0].startswith(f"channels[0].jwt.keys.{spec[:5]}[0]: ")
    assert "hush" not in problems[0]


@pytest.mark.parametrize(
    ("name", "content", "spec", "key", "encoding"),
    [
        ("secret", b"a+b/\n", "HS256: [FILE]", b"a+b/\n", "raw"),
        ("secret.b64", b"AAEC\nAw==\n", "HS512: [FILE]", b"\0\1\2\3", "base64"),
        ("secret.b64", b"_-8", "HS384: [FILE]", b"\xff\xef", "base64"),
        ("secret.b64", b"AAEC", "HS256: [{file: FILE, encoding: raw}]", b"AAEC", "raw"),
        ("secret", b"AAEC", "HS256: [{file: FILE, encoding: base64}]", b"\0\1\2", "base64"),
        ("k.pem", b"-----BEGIN X-----", "EdDSA: [FILE]", b"-----BEGIN X-----", "pem"),
    ],
)
def test_key_files(
    load_text: LoadText, tmp_path: Path, name: str, content: bytes, spec: str, key: bytes, encoding: str
) -> None:
    (tmp_path / name).write_bytes(content)
    keys = spec.replace("FILE", str(tmp_path / name))
    config = load_text(f"channels: [{{regex: a, jwt: {{iss: [i], keys: {{{keys}}}}}}}]")
    jwt = config.channels[0].jwt
    assert jwt is not None
    ((file,),) = jwt.keys.values()
    assert (file.content, file.encoding) == (key, encoding)
    assert repr(key) not in repr(file)


# ---------------------------------------------------------------- nothing but ConfigError

_words = st.sampled_from(sorted({word for row in rows() for word in row.path.replace("[]", "").split(".")}))
_leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(
        ["${A}", "${", "30s", "redis://h", "{{.channel.a}}", "http://h/", "(?P<a>.+)", "***", "10.0.0.0/8"]
    )
)
_trees = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_words | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(_trees)
def test_no_tree_raises_anything_else(tree: object) -> None:
    problems = Problems()
    try:
        expanded = expand(tree, {"A": "1"}, problems)
        config = Reader(problems, CHECKS).read_model(GatewayConfig, expanded)
        problems.raise_if_any()
        assert isinstance(config, GatewayConfig)
    except ConfigError as error:
        assert str(error)  # noqa: PT017 - both ends are right, and each is looked at


def _tree_at(path: str, leaf: object) -> object:
    """The leaf under its path, items of lists and names made up."""
    for word in reversed(path.split(".")):
        name = word.removesuffix("[]")
        leaf = {name: [leaf] if word.endswith("[]") else leaf}
    return leaf


@pytest.mark.parametrize("path", [row.path for row in rows()])
def test_every_key_refuses_what_it_cannot_be(tmp_path: Path, path: str) -> None:
    """A list in a list is nothing that any key takes."""
    file = tmp_path / "gateway.yml"
    file.write_text(format_yaml(_tree_at(path, [[[]]])))
    with pytest.raises(ConfigError) as caught:
        load(file, environment={})
    expected = path.replace("[]", "[0]")
    assert any(line.startswith(expected) for line in str(caught.value).split("\n"))
