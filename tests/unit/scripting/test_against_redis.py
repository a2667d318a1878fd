"""Hundreds of small scripts, on a real Redis 7.0 and on our runtime: the replies must be equal.

The scripts are in ``corpus/``, a file a topic. Where we differ on purpose, the difference
has a test of its own at the end.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import CommandError
from penstock.protocol.replies import Reply
from penstock.testing.servers import RealServer
from tests.unit.scripting.harness import CORPUS, Scripts, corpus

TOPICS = sorted(path.stem for path in CORPUS.glob("*.txt"))


@pytest.fixture
def redis7(redis_server: RealServer) -> RealServer:
    if not redis_server.version.startswith("7.0."):
        pytest.skip("the reference is Redis 7.0")
    return redis_server


def as_resp2(reply: Reply) -> Any:
    """A reply as a RESP2 client reads it; errors as their text."""
    match reply:
        case CommandError():
            return f"-{reply}".replace("\r", " ").replace("\n", " ")
        case bool():
            return int(reply)
        case float():
            return b"%.17g" % reply
        case dict():
            return [as_resp2(item) for pair in reply.items() for item in pair]
        case list():
            return [as_resp2(item) for item in reply]
        case bytes():
            return bytes(reply)
    return reply


def on_server(server: RealServer, source: str) -> Any:
    server.execute("FLUSHALL")
    server.execute("SET", "str", "v")
    try:
        return server.execute("EVAL", source, 0)
    except CommandError as error:
        return f"-{error}"


def on_runtime(scripts: Scripts, source: str) -> Any:
    scripts.values = {b"str": b"v"}
    return as_resp2(scripts.outcome(source))


@pytest.mark.parametrize("topic", TOPICS)
def test_same_replies(topic: str, scripts: Scripts, redis7: RealServer) -> None:
    differences = []
    for source in corpus(topic):
        expected, actual = on_server(redis7, source), on_runtime(scripts, source)
        if actual != expected:
            differences.append(f"{source}\n  Redis: {expected!r}\n  here:  {actual!r}")
    assert not differences, "\n".join(differences)


GLOBALS = """
local names = {}
for name, value in pairs(_G) do
  names[#names + 1] = name .. ' ' .. type(value)
  if type(value) == 'table' and value ~= _G and value ~= KEYS and value ~= ARGV then
    for field, x in pairs(value) do
      names[#names + 1] = name .. '.' .. field .. ' ' .. type(x)
      if type(x) == 'number' then names[#names] = names[#names] .. ' ' .. x end
    end
  end
end
table.sort(names)
return names
"""


def test_same_globals(scripts: Scripts, redis7: RealServer) -> None:
    # The name of whose work Redis's own library is would be wrong here.
    ours_not = {b"cmsgpack._COPYRIGHT string", b"cmsgpack._DESCRIPTION string"}
    theirs = [name for name in on_server(redis7, GLOBALS) if name not in ours_not]
    patch = redis7.version.rpartition(".")[2]
    theirs = [name.replace(b"NUM number %d" % (458752 + int(patch)), b"NUM number 458767") for name in theirs]
    assert on_runtime(scripts, GLOBALS) == theirs


def test_order_of_keys_is_the_same(scripts: Scripts, redis7: RealServer) -> None:
    source = """
    local t = {}
    for i = 1, 50 do t['key' .. i * 7919] = i end
    for i = 1, 20 do t['key' .. i * 7919] = nil end
    return {cjson.encode(t), cmsgpack.pack(t), cjson.encode(cjson.decode(cjson.encode(t)))}
    """
    assert on_runtime(scripts, source) == on_server(redis7, source)


class TestDifferencesOnPurpose:
    def test_settings_of_cjson_end_with_the_script(self, scripts: Scripts) -> None:
        # In Redis they last until the server stops; here the next script may run in another process.
        scripts.run("cjson.encode_max_depth(1) cjson.encode_number_precision(3)")
        assert scripts.run("return cjson.encode({{1/3}})") == b"[[0.33333333333333]]"

    def test_pcall_cannot_catch_a_kill(self, scripts: Scripts) -> None:
        error = scripts.error("pcall(function() while true do end end) return 1", instruction_limit=200_000)
        assert error == "ERR Script used up its instructions"

    def test_an_error_table_without_a_text(self, scripts: Scripts) -> None:
        # Redis 7.0 crashes.
        assert scripts.error("error({foo = 1})") == "ERR unknown error"

    def test_a_guarded_function_is_named_even_if_pcall_calls_it(self, scripts: Scripts) -> None:
        # Redis says '?'.
        reply = scripts.run("local ok, e = pcall(pairs) return e")
        assert reply == b"bad argument #1 to 'pairs' (table expected, got no value)"

    def test_a_guarded_method_counts_its_string_as_an_argument(self, scripts: Scripts) -> None:
        # Redis says #1 if called with a colon.
        error = scripts.error("return ('x'):rep({})")
        assert error == "ERR user_script:1: bad argument #2 to 'rep' (number expected, got table)"

    def test_no_position_beyond_pcall(self, scripts: Scripts) -> None:
        # In Redis level 2 is the caller of pcall, which here is a function of ours.
        assert scripts.run("local ok, e = pcall(error, 'text', 2) return e") == b"text"

    def test_a_reader_that_returns_no_string(self, scripts: Scripts) -> None:
        # Redis hands out the error as a table.
        assert scripts.run("local f, e = load(function() return {} end) return e") == (
            b"reader function must return a string"
        )

    def test_settings_of_the_collector_are_ignored(self, scripts: Scripts) -> None:
        source = "collectgarbage('setpause', 1000) return collectgarbage('setpause', 1000)"
        assert scripts.run(source) == 200

    def test_every_command_is_allowed(self, scripts: Scripts) -> None:
        # There are no access lists, and the runtime knows no commands.
        assert scripts.run("return redis.acl_check_cmd('no-such-command')") == 1
