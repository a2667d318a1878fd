"""A runtime over a handful of commands, for tests of scripts that need no store.

=====================  =======================================================
``get set lpush``      on strings and lists in a dictionary
``echo value``         the value back
``reply name``         one of ``replies``, which tests fill with any reply
``fail text``          raises ``CommandError(text)``
``crash name``         raises one of ``exceptions``
=====================  =======================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.engine.scripting.runtime import Script, ScriptRuntime
from penstock.errors import CommandError, WrongTypeError
from penstock.protocol.replies import OK, Reply

CORPUS = Path(__file__).parent / "corpus"
NOT_ALLOWED = {b"eval", b"subscribe", b"blpop"}


class Scripts:
    """A runtime, what its scripts may call, and what they have logged."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic, **settings: Any) -> None:
        self.values: dict[bytes, bytes | list[bytes]] = {}
        self.replies: dict[bytes, Reply] = {}
        self.exceptions: dict[bytes, BaseException] = {}
        self.calls: list[tuple[list[bytes], bool]] = []
        self.logged: list[tuple[int, bytes]] = []
        self._may_write = True
        self.runtime = ScriptRuntime(
            self._call,
            log=lambda level, text: self.logged.append((level, text)),
            monotonic_s=monotonic_s,
            **settings,
        )

    def compile(self, source: str | bytes) -> Script:
        return self.runtime.compile(source if isinstance(source, bytes) else source.encode())

    def run(self, source: str | bytes, *args: bytes, keys: tuple[bytes, ...] = (), **limits: Any) -> Reply:
        """The reply of a script; what it raises is raised."""
        script = self.compile(source)
        self._may_write = "no-writes" not in script.flags
        return self.runtime.run(script, list(keys), list(args), **limits)

    def outcome(self, source: str | bytes, *args: bytes, **limits: Any) -> Reply:
        """The reply of a script, errors included."""
        try:
            return self.run(source, *args, **limits)
        except CommandError as error:
            return error

    def error(self, source: str | bytes, **limits: Any) -> str:
        """The text of the error that a script raises, without its sha1 and place."""
        outcome = self.outcome(source, **limits)
        assert isinstance(outcome, CommandError), outcome
        return str(outcome).partition(" script: ")[0]

    def _call(self, argv: list[bytes], resp3: bool) -> Reply:
        self.calls.append((argv, resp3))
        name, words = argv[0].lower(), argv[1:]
        if name in NOT_ALLOWED:
            raise CommandError("ERR This Redis command is not allowed from script")
        if name == b"set" and not self._may_write:
            raise CommandError("ERR Write commands are not allowed from read-only scripts.")
        match name, len(words):
            case b"get", 1:
                return self.values.get(words[0])
            case b"set", 2:
                self.values[words[0]] = words[1]
                return OK
            case b"lpush", _:
                items = self.values.setdefault(words[0], [])
                if not isinstance(items, list):
                    raise WrongTypeError
                items[:0] = reversed(words[1:])
                return len(items)
            case b"echo", 1:
                return words[0]
            case b"reply", 1:
                return self.replies[words[0]]
            case b"fail", 1:
                raise CommandError(words[0].decode())
            case b"crash", 1:
                raise self.exceptions[words[0]]
            case b"get" | b"set", _:
                raise CommandError("ERR Wrong number of args calling Redis command from script")
        raise CommandError("ERR Unknown Redis command called from script")


def corpus(topic: str) -> list[str]:
    """The scripts of a file of ``corpus/``: one a line, its own line breaks written as ``⏎``."""
    lines = (CORPUS / f"{topic}.txt").read_text("utf-8").split("\n")
    return [line.replace("⏎", "\n") for line in lines if line]
