"""The command helpers against the catalogue: all there, well-formed, keys where the router looks for them."""

from __future__ import annotations

import importlib.util
import inspect
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.client.commands import Commands
from penstock.client.commands.arguments import expiry
from penstock.client.commands.base import Coming, converted
from penstock.client.facts import Kind, blocking_timeout_ms, exclusive_hint, keys_of, kind_of, to_bytes
from penstock.client.transports.base import Arguments
from penstock.errors import ProtocolError
from penstock.protocol.catalogue import every_command, find_subcommand, resolve

# ------------------------------------------------------------------- commands without a helper

CONNECTION_STATE = "changes the connection that others share"
MANY_REPLIES = "is answered by pushes"
IN_ONE_PIECE = "makes sense only around other commands: use a transaction"
SAME_AS_ANOTHER = "is an old name for what another helper does"
FOR_TERMINALS = "answers text for people at a terminal"
CONTAINER = "does nothing without a subcommand"

WITHOUT_HELPER = {
    **dict.fromkeys("auth hello select quit reset asking readonly readwrite".split(), CONNECTION_STATE),
    **dict.fromkeys("client|caching client|no-evict client|reply".split(), CONNECTION_STATE),
    **dict.fromkeys("client|setname client|tracking script|debug watch unwatch".split(), CONNECTION_STATE),
    **dict.fromkeys("subscribe unsubscribe psubscribe punsubscribe".split(), MANY_REPLIES),
    **dict.fromkeys("ssubscribe sunsubscribe monitor".split(), MANY_REPLIES),
    **dict.fromkeys("multi exec discard".split(), IN_ONE_PIECE),
    **dict.fromkeys("substr hmset georadius georadius_ro".split(), SAME_AS_ANOTHER),
    **dict.fromkeys("georadiusbymember georadiusbymember_ro".split(), SAME_AS_ANOTHER),
    **dict.fromkeys("acl client cluster config latency memory".split(), CONTAINER),
    **dict.fromkeys("object pubsub script slowlog".split(), CONTAINER),
    "shutdown": "ends the server, and the connection without a reply",
    "debug": "is an aid for testing the server itself",
}

#: What the catalogue, which has the embedded engine's commands, does not list.
BEYOND_CATALOGUE = set(
    """
    waitaof
    hexpire hpexpire hexpireat hpexpireat hpersist httl hpttl hexpiretime hpexpiretime hgetex hgetdel hsetex
    xack xadd xautoclaim xclaim xdel xlen xpending xrange xread xreadgroup xrevrange xsetid xtrim
    xgroup|create xgroup|createconsumer xgroup|delconsumer xgroup|destroy xgroup|setid
    xinfo|consumers xinfo|groups xinfo|stream
    fcall fcall_ro function|delete function|dump function|flush function|kill function|list function|load
    function|restore function|stats
    acl|deluser acl|dryrun acl|genpass acl|log acl|setuser
    latency|doctor latency|histogram latency|history memory|purge cluster|links cluster|replicas
    """.split()
)
CONTAINERS = {"xgroup", "xinfo", "function", "acl", "latency", "memory", "cluster"}

#: Helpers that are not called as their command is.
OTHER_NAMES = {"delete": "del", "xpending_range": "xpending", "acl_log_reset": "acl|log"}

# ------------------------------------------------------------------- calling every helper


class Recorder(Commands):
    """Notes what helpers ask for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Arguments, Callable[[Any], Any] | None]] = []

    def _call(self, arguments: Arguments, convert: Callable[[Any], Any] | None = None) -> Coming[Any]:
        self.calls.append((arguments, convert))
        return typing.cast("Coming[Any]", PLACEHOLDER)


PLACEHOLDER = object()
HELPERS = {
    name: function
    for name, function in inspect.getmembers(Commands, inspect.isfunction)
    if not name.startswith("_")
}
#: Helpers of which no optional argument is needed, but one of several.
NEEDED: Mapping[str, Mapping[str, Any]] = {
    "geosearch": {"frommember": "m", "byradius": 1},
    "geosearchstore": {"fromlonlat": (1.0, 2.0), "bybox": (3.0, 4.0)},
    "xtrim": {"maxlen": 1},
    "client_kill": {"id": 1},
}


class Filled:
    """The smallest call of a helper in which every key is given: arguments, and the keys among them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.keys: list[str] = []
        self.positional: list[Any] = []
        self.named: dict[str, Any] = dict(NEEDED.get(function.__name__, {}))
        hints = typing.get_type_hints(function)
        for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
            annotation = str(parameter.annotation)
            if parameter.kind is parameter.VAR_POSITIONAL:
                self.positional += [self.value(annotation, hints[name]) for _ in range(2)]
            elif parameter.default is parameter.empty or "Key" in annotation:
                value = self.value(annotation.removesuffix(" | None"), hints[name])
                if parameter.kind is parameter.KEYWORD_ONLY:
                    self.named[name] = value
                else:
                    self.positional.append(value)

    def value(self, annotation: str, hint: Any) -> Any:
        fixed: dict[str, Any] = {
            "Value": "value",
            "int": 1,
            "float": 1.5,
            "int | timedelta": timedelta(seconds=1),
            "int | datetime": datetime(2030, 1, 1, tzinfo=UTC),
            "int | timedelta | datetime": 0,
            "bytes | memoryview": b"\xff",
            "Mapping[ValueT, Value]": {"field": "value"},
            "Mapping[ValueT, float]": {"member": 1.5},
            "Mapping[ValueT, Position]": {"member": (1.5, 2.5)},
            "tuple[Value, ...]": ("GET", "u8", 0),
            "tuple[Value, Value]": ("u8", 0),
        }
        if annotation == "Key":
            return self.new_key()
        if annotation == "Sequence[Key]":
            return [self.new_key(), self.new_key()]
        if annotation == "Mapping[KeyT, Value]":
            return {self.new_key(): "0", self.new_key(): "0"}
        if annotation in fixed:
            return fixed[annotation]
        return typing.get_args(hint)[0]  # of a Literal

    def new_key(self) -> str:
        self.keys.append(f"key-{len(self.keys)}")
        return self.keys[-1]


def recorded(name: str) -> tuple[Arguments, Filled]:
    recorder = Recorder()
    filled = Filled(HELPERS[name])
    assert getattr(recorder, name)(*filled.positional, **filled.named) is PLACEHOLDER
    ((arguments, _),) = recorder.calls
    return arguments, filled


def full_name(arguments: Arguments) -> str:
    words = [str(word).lower() for word in arguments[:2]]
    spec = find_subcommand([to_bytes(word) for word in arguments])
    if spec is not None:
        return spec.full_name.decode()
    return "|".join(words) if words[0] in CONTAINERS else words[0]


@pytest.mark.parametrize("name", HELPERS)
def test_a_helper_asks_for_its_command(name: str) -> None:
    arguments, filled = recorded(name)
    command = full_name(arguments)
    assert command == OTHER_NAMES.get(name, name.replace("_", "|", 1) if "|" in command else name)
    if command not in BEYOND_CATALOGUE:
        assert resolve([to_bytes(word) for word in arguments]).full_name.decode() == command
    assert keys_of(arguments) == [key.encode() for key in filled.keys]


@pytest.mark.parametrize("name", HELPERS)
def test_a_helper_may_be_called_by_everybody(name: str) -> None:
    arguments, _ = recorded(name)
    # WAIT means the writes of its own connection, so these two are for those who have one.
    assert (exclusive_hint(arguments) is None) is (name not in ("wait", "waitaof"))
    assert kind_of(arguments[0]) is not Kind.SUBSCRIBE


@pytest.mark.parametrize("name", HELPERS)
def test_a_helper_is_plain_typed_and_says_what_it_does(name: str) -> None:
    function = HELPERS[name]
    assert not inspect.iscoroutinefunction(function)
    assert str(inspect.signature(function).return_annotation).startswith("Coming[")
    documentation = function.__doc__
    assert documentation is not None
    assert "\n" not in documentation
    assert documentation.endswith(".")


def test_every_command_has_a_helper_or_a_reason_why_not() -> None:
    helped = {full_name(recorded(name)[0]) for name in HELPERS}
    # Streams and channels have fronts of their own, which run them on servers that do not know them, too.
    ours = ("stream", "channel")
    catalogued = {spec.full_name.decode() for spec in every_command() if spec.group not in ours}
    helps = {name for name in catalogued if name.endswith("|help")}
    assert helped & set(WITHOUT_HELPER) == set()
    assert catalogued - helped - helps == set(WITHOUT_HELPER)
    assert helped - catalogued == BEYOND_CATALOGUE


def test_timeouts_stand_where_the_client_reads_them() -> None:
    recorder = Recorder()
    recorder.blpop("a", "b", timeout_s=1.5)
    recorder.blmpop("a", timeout_s=2, where="LEFT")
    recorder.bzmpop("a", "b", timeout_s=2, where="MIN")
    recorder.blmove("a", "b", "LEFT", "RIGHT", timeout_s=2)
    recorder.xread({"a": "0"}, block_ms=7)
    recorder.xreadgroup("block", "c", {"a": ">"}, block_ms=0)
    recorder.xread({"a": "0"})
    recorder.wait(1, 30)
    timeouts_ms = [blocking_timeout_ms(arguments) for arguments, _ in recorder.calls]
    assert timeouts_ms == [1500, 2000, 2000, 2000, 7, 0, None, 30]


# ------------------------------------------------------------------- options

NOW = datetime(2030, 1, 1, 0, 0, 0, 1500, tzinfo=UTC)
NOW_S = int(NOW.timestamp())

VECTORS: list[tuple[Callable[[Commands], Any], str]] = [
    (lambda c: c.set("k", "v"), "SET k v"),
    (lambda c: c.set("k", "v", ex=0), "SET k v EX 0"),
    (lambda c: c.set("k", "v", nx=True, get=True, keepttl=True), "SET k v NX GET KEEPTTL"),
    (lambda c: c.set("k", "v", xx=True, px=timedelta(microseconds=1500)), "SET k v XX PX 2"),
    (lambda c: c.set("k", "v", exat=NOW), f"SET k v EXAT {NOW_S + 1}"),
    (lambda c: c.set("k", "v", pxat=NOW), f"SET k v PXAT {NOW_S * 1000 + 2}"),
    (lambda c: c.getex("k", persist=True), "GETEX k PERSIST"),
    (lambda c: c.expire("k", timedelta(minutes=1), gt=True, xx=True), "EXPIRE k 60 XX GT"),
    (lambda c: c.restore("k", NOW, b"x", absttl=True, freq=3),
     f"RESTORE k {NOW_S * 1000 + 2} x ABSTTL FREQ 3"),
    (lambda c: c.sort("k", by="w_*", limit=(1, 2), get=["#", "n_*"], desc=True, alpha=True, store="d"),
     "SORT k BY w_* LIMIT 1 2 GET # GET n_* DESC ALPHA STORE d"),
    (lambda c: c.scan(7, match="a*", count=3, type="hash"), "SCAN 7 MATCH a* COUNT 3 TYPE hash"),
    (lambda c: c.zadd("z", {"a": 1, "b": 2.5}, xx=True, gt=True, ch=True), "ZADD z XX GT CH 1 a 2.5 b"),
    (lambda c: c.zrange("z", "(1", "+inf", byscore=True, rev=True, limit=(0, 5), withscores=True),
     "ZRANGE z (1 +inf BYSCORE REV LIMIT 0 5 WITHSCORES"),
    (lambda c: c.zunionstore("d", "a", "b", weights=[1, 2], aggregate="MAX"),
     "ZUNIONSTORE d 2 a b WEIGHTS 1 2 AGGREGATE MAX"),
    (lambda c: c.lpos("l", "x", rank=-1, count=0, maxlen=9), "LPOS l x RANK -1 COUNT 0 MAXLEN 9"),
    (lambda c: c.lcs("a", "b", idx=True, minmatchlen=2, withmatchlen=True),
     "LCS a b IDX MINMATCHLEN 2 WITHMATCHLEN"),
    (lambda c: c.bitcount("k", 0, -1, unit="BIT"), "BITCOUNT k 0 -1 BIT"),
    (lambda c: c.bitfield("k", ("OVERFLOW", "SAT"), ("INCRBY", "u8", "#1", 3)),
     "BITFIELD k OVERFLOW SAT INCRBY u8 #1 3"),
    (lambda c: c.geosearch("g", fromlonlat=(1.5, 2.5), bybox=(3, 4), unit="km", sort="DESC", withdist=True),
     "GEOSEARCH g FROMLONLAT 1.5 2.5 BYBOX 3 4 km DESC WITHDIST"),
    (lambda c: c.geosearchstore("d", "g", frommember="m", byradius=9, count=2, any=True, storedist=True),
     "GEOSEARCHSTORE d g FROMMEMBER m BYRADIUS 9 m COUNT 2 ANY STOREDIST"),
    (lambda c: c.xadd("s", {"f": 1}, id="5-*", nomkstream=True, maxlen=9, approximate=True, limit=4),
     "XADD s NOMKSTREAM MAXLEN ~ 9 LIMIT 4 5-* f 1"),
    (lambda c: c.xtrim("s", minid="5-0"), "XTRIM s MINID = 5-0"),
    (lambda c: c.xclaim("s", "g", "c", 0, "1-1", "1-2", time=NOW, force=True, justid=True),
     f"XCLAIM s g c 0 1-1 1-2 TIME {NOW_S * 1000 + 2} FORCE JUSTID"),
    (lambda c: c.xpending_range("s", "g", count=5, consumer="c", min_idle_ms=9),
     "XPENDING s g IDLE 9 - + 5 c"),
    (lambda c: c.hexpire("h", 5, "a", "b", nx=True), "HEXPIRE h 5 NX FIELDS 2 a b"),
    (lambda c: c.hsetex("h", {"a": 1}, fnx=True, ex=5), "HSETEX h FNX EX 5 FIELDS 1 a 1"),
    (lambda c: c.client_list(ids=[3, 4]), "CLIENT LIST ID 3 4"),
    (lambda c: c.client_list(type="pubsub"), "CLIENT LIST TYPE pubsub"),
    (lambda c: c.client_kill(user="u", skipme=False), "CLIENT KILL USER u SKIPME no"),
    (lambda c: c.command_list(aclcat="set"), "COMMAND LIST FILTERBY ACLCAT set"),
    (lambda c: c.eval("return 1", ["a"], [1, 2]), "EVAL return 1 1 a 1 2"),
    (lambda c: c.function_load("code", replace=True), "FUNCTION LOAD REPLACE code"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "expected"), VECTORS, ids=[expected for _, expected in VECTORS])
def test_options_become_words(call: Callable[[Commands], Any], expected: str) -> None:
    recorder = Recorder()
    call(recorder)
    ((arguments, _),) = recorder.calls
    assert b" ".join(to_bytes(word) for word in arguments).decode() == expected


REFUSED: list[tuple[Callable[[Commands], Any], str]] = [
    (lambda c: c.set("k", "v", nx=True, xx=True), "nx and xx exclude one another"),
    (lambda c: c.set("k", "v", ex=0, px=5), "ex and px"),
    (lambda c: c.set("k", "v", ex=1, keepttl=True), "ex and keepttl"),
    (lambda c: c.set("k", "v", exat=datetime(2030, 1, 1)), "exat must be a datetime with a time zone"),  # noqa: DTZ001 - refused
    (lambda c: c.getex("k", ex=1, persist=True), "ex and persist"),
    (lambda c: c.expire("k", 1, nx=True, gt=True), "nx and gt"),
    (lambda c: c.expire("k", 1, gt=True, lt=True), "gt and lt"),
    (lambda c: c.restore("k", NOW, b""), "needs absttl"),
    (lambda c: c.restore("k", 0, b"", idletime=1, freq=1), "idletime and freq"),
    (lambda c: c.sort("k", get="abc"), "get must be a sequence"),
    (lambda c: c.mset({}), "mapping must not be empty"),
    (lambda c: c.hset("h", {}), "mapping must not be empty"),
    (lambda c: c.hrandfield("h", withvalues=True), "withvalues means nothing without count"),  # type: ignore[call-overload]
    (lambda c: c.lcs("a", "b", len=True, idx=True), "len and idx"),  # type: ignore[call-overload]
    (lambda c: c.lcs("a", "b", minmatchlen=1), "minmatchlen means nothing without idx"),  # type: ignore[call-overload]
    (lambda c: c.zadd("z", {"a": 1}, nx=True, lt=True), "nx and lt"),
    (lambda c: c.zadd("z", {"a": 1, "b": 2}, incr=True), "incr takes one member, not 2"),
    (lambda c: c.zadd("z", {}), "mapping must not be empty"),
    (lambda c: c.zrange("z", 0, 1, byscore=True, bylex=True), "byscore and bylex"),
    (lambda c: c.zrange("z", 0, 1, limit=(0, 1)), "limit needs byscore or bylex"),
    (lambda c: c.zrange("z", "-", "+", bylex=True, withscores=True), "bylex and withscores"),
    (lambda c: c.zunion("a", "b", weights=[1]), "one number for each of 2 keys, not 1"),
    (lambda c: c.bitcount("k", 1), "start and end belong together"),
    (lambda c: c.bitpos("k", 1, end=1), "end means nothing without start"),
    (lambda c: c.geosearch("g", byradius=1), "exactly one of frommember, fromlonlat, not none"),
    (lambda c: c.geosearch("g", frommember="m", byradius=1, bybox=(1, 1)), "not byradius and bybox"),
    (lambda c: c.geosearch("g", frommember="m", byradius=1, any=True), "any means nothing without count"),
    (lambda c: c.geoadd("g", {}), "mapping must not be empty"),
    (lambda c: c.eval("return 1", "key"), "keys must be a sequence of arguments, not str"),
    (lambda c: c.evalsha("0", args=b"key"), "args must be a sequence"),
    (lambda c: c.xadd("s", {}), "fields must not be empty"),
    (lambda c: c.xadd("s", {"f": 1}, limit=1), "limit means nothing without maxlen or minid"),
    (lambda c: c.xadd("s", {"f": 1}, maxlen=1, limit=1), "limit means nothing without approximate"),
    (lambda c: c.xtrim("s"), "exactly one of maxlen, minid, not none"),
    (lambda c: c.xread({}), "streams must not be empty"),
    (lambda c: c.xclaim("s", "g", "c", 0, "1-1", idle_ms=1, time=1), "idle_ms and time"),
    (lambda c: c.xinfo_stream("s", count=1), "count means nothing without full"),
    (lambda c: c.hexpire("h", 1, "f", nx=True, xx=True), "nx and xx"),
    (lambda c: c.hsetex("h", {"f": 1}, fnx=True, fxx=True), "fnx and fxx"),
    (lambda c: c.hsetex("h", {}), "mapping must not be empty"),
    (lambda c: c.client_kill(), "at least one of id"),
    (lambda c: c.client_list(type="normal", ids=[1]), "type and ids"),
    (lambda c: c.command_list(module="m", pattern="p"), "module and pattern"),
    (lambda c: c.delete(), "missing 1 required positional argument: 'key'"),  # type: ignore[call-arg]
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_right_is_refused_before_it_is_sent(
    call: Callable[[Commands], Any], message: str
) -> None:
    recorder = Recorder()
    with pytest.raises((ValueError, TypeError)) as refused:
        call(recorder)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert recorder.calls == []


def test_points_in_time_are_the_same_in_every_time_zone() -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert expiry(pxat=elsewhere) == expiry(pxat=NOW)
    assert expiry(exat=datetime(1970, 1, 1, tzinfo=UTC)) == ("EXAT", 0)


def test_a_reply_of_an_unknown_shape_names_the_command() -> None:
    with pytest.raises(ProtocolError, match=r"the reply to 'ZRANGE' has an unknown shape: \[b'a'\]"):
        converted(("ZRANGE", "z"), lambda reply: reply[1], [b"a"])


# ------------------------------------------------------------------- the blocking twin


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    path = Path(__file__).parents[3] / "scripts/make_blocking_stub.py"
    spec = importlib.util.spec_from_file_location("make_blocking_stub", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_blocking_types_are_current(generator: ModuleType) -> None:
    assert generator.main(["--check"]) == 0, "run: python scripts/make_blocking_stub.py"


def test_stale_blocking_types_are_noticed(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generator, "OUTPUT", tmp_path / "_commands.pyi")
    assert generator.main(["--check"]) == 1
    assert "run: python scripts/make_blocking_stub.py" in capsys.readouterr().err
    assert not (tmp_path / "_commands.pyi").exists()
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0
    assert generator.main(["--nonsense"]) == 2


def test_the_blocking_types_have_every_helper(generator: ModuleType) -> None:
    stub = generator.OUTPUT.read_text()
    assert [name for name in HELPERS if f"    def {name}(" not in stub] == []
    assert "Coming" not in stub
