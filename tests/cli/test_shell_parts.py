"""Parts of ``penstock shell`` that need no store: quoting, replies, hints."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli import shell_hints
from penstock.cli.shell_replies import Style, shown, texture_of
from penstock.cli.shell_words import split_line
from penstock.errors import CommandError
from penstock.protocol.catalogue import every_command


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  get  k ", [b"get", b"k"]),
        ('set k "two words"', [b"set", b"k", b"two words"]),
        (r'"\n\r\t\b\a\xff\"\\\q"', [b'\n\r\t\b\a\xff"\\q']),
        (r"'it\'s \n'", [rb"it's \n"]),
        ('""', [b""]),
        ("ä", ["ä".encode()]),
        ('"\\xzz"', [b"xzz"]),
        ('"open', None),
        ("'open", None),
        ('"a"b', None),
        ("'a''b'", None),
    ],
)
def test_quotes_are_those_of_redis_cli(line: str, words: list[bytes] | None) -> None:
    assert split_line(line) == words


@pytest.mark.parametrize(
    ("reply", "people", "raw", "json"),
    [
        (b'a"\n\xff', '"a\\"\\n\\xff"', 'a"\n\udcff', '{"base64":"YSIK/w=="}'),
        (1, "(integer) 1", "1", "1"),
        (1.5, "(double) 1.5", "1.5", "1.5"),
        (True, "(true)", "(true)", "true"),
        (None, "(nil)", "", "null"),
        ([], "(empty array)", "", "[]"),
        ({}, "(empty hash)", "", "{}"),
        ([b"a", [1, [None]], b"b"], '1) "a"\n2) 1) (integer) 1\n   2) 1) (nil)\n3) "b"', "a\n1\n\nb",
         '["a",[1,[null]],"b"]'),
        ({b"f": b"v", b"g": [1]}, '1# "f" => "v"\n2# "g" => \n   1) (integer) 1', "f v\ng 1",
         '{"f":"v","g":[1]}'),
        ([b"x"] * 10, "\n".join(f'{at:>2}) "x"' for at in range(1, 11)), "\n".join("x" * 10),
         '["x","x","x","x","x","x","x","x","x","x"]'),
        (CommandError("ERR no"), "(error) ERR no", "ERR no", '{"error":"ERR no"}'),
    ],
)  # fmt: skip
def test_replies(reply: Any, people: str, raw: str, json: str) -> None:
    styles: tuple[tuple[Style, str], ...] = (("people", people), ("raw", raw), ("json", json))
    for style, text in styles:
        assert shown(reply, "data", style) == f"{text}\n"


@pytest.mark.parametrize(
    ("command", "reply", "texture"),
    [
        ("SET k v", b"OK", "status"),
        ("set k v get", b"OK", "data"),
        ("GET k", b"OK", "data"),
        ("PING", b"PONG", "status"),
        ("PING hi", b"hi", "data"),
        ("config set a b", b"OK", "status"),
        ("CONFIG GET a", b"OK", "data"),
        ("INFO", b"# Server", "prose"),
        ("client list", b"id=1", "prose"),
        ("EVAL x 0", b"OK", "status"),
        ("EVAL x 0", b"other", "data"),
        ("TYPE k", b"string", "status"),
    ],
)
def test_statuses_stand_without_quotes(command: str, reply: bytes, texture: str) -> None:
    assert texture_of(command.encode().split(), reply) == texture


# -------------------------------------------------------------------------------------------- hints


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("set", ""),
        ("set ", "key value [NX|XX] [GET] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL]"),
        ("set k", " value [NX|XX] [GET] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL]"),
        ("get k", ""),
        ("rpush k a b ", "[element …]"),
        ("mget ", "key [key …]"),
        ("client setname ", "name"),
        ("client ", "subcommand [arg …]"),
        ("client l", ""),
        ("tinfo stream ", "key"),
        ("zinter ", "numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]"),
        ("nonsense ", ""),
        ("help ", ""),
    ],
)
def test_hints(text: str, hint: str) -> None:
    assert shell_hints.hint(text) == hint


def test_every_command_has_hints_and_help() -> None:
    for spec in every_command():
        if shell_hints.title(spec).lower() in shell_hints.OWN:
            continue
        words = shell_hints.title(spec).encode().split()
        assert spec.summary in shell_hints.help_on(words)
        least = abs(spec.arity) - len(words)
        assert len(shell_hints.arguments_of(spec).split()) >= min(least, 1)


def test_completions_keep_the_letters_that_are_typed() -> None:
    assert [each.word for each in shell_hints.completions("tre")] == ["tread", "trenew"]
    assert [each.word for each in shell_hints.completions("TRE")] == ["TREAD", "TRENEW"]
    assert [each.word for each in shell_hints.completions("client tr")] == ["tracking", "trackinginfo"]
    assert [each.word for each in shell_hints.completions("help hgeta")] == ["hgetall"]
    assert shell_hints.completions("get k") == []
    assert "exit" in [each.word for each in shell_hints.completions("")]


def test_help_on_the_shell_on_groups_and_on_nothing() -> None:
    assert "Ctrl-C" in shell_hints.help_on([])
    assert "TWRITE" in shell_hints.help_on([b"@stream"])
    assert shell_hints.help_on([b"@nothing"]).startswith("groups are: @string")
    assert "no command 'nonsense'" in shell_hints.help_on([b"nonsense"])
    assert "CLIENT LIST" in shell_hints.help_on([b"client"])
    assert "end the shell" in shell_hints.help_on([b"exit"])
