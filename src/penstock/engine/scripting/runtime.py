"""Scripts: compiled once, run one at a time, ended when they take too long or too much.

One runtime belongs to one engine and one thread; ``kill`` alone may come from another.
The runtime knows no command: the engine hands it a callable that executes them.

How a run ends:

=============================  ====================================================
the script returns             its value as a reply; ``{err=…}`` is a reply as well
the script raises              ``CommandError`` with the script's sha1 and line
``kill()``                     ``CommandError``
its time is up                 ``ScriptTimeoutError``
its instructions are used up   ``ScriptTimeoutError``
memory is used up              ``CommandError``, which the script itself may catch
``call`` raises anything but   that exception; the script cannot catch it
``CommandError``
=============================  ====================================================

What a script did before it ended is the engine's to keep or undo.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, Final

from penstock.engine.scripting.bytecode import keep_frames
from penstock.engine.scripting.convert import (
    error_bytes,
    error_text,
    integer_of,
    plain_array,
    reply_of,
    scalar_reply,
    status_reply,
    tokens_of,
)
from penstock.engine.scripting.sandbox import (
    MAX_RETURNED,
    SMALL_BYTES,
    VALUE_BYTES,
    LuaFailedError,
    OutOfMemoryError,
    Sandbox,
    size_of,
)
from penstock.engine.scripting.shebang import parse_shebang
from penstock.errors import CommandError
from penstock.protocol.replies import Reply, Status

#: The version whose behaviour scripts can rely on.
REDIS_VERSION: Final = (7, 0, 15)

DEFAULT_MEMORY_LIMIT_BYTES: Final = 256 * 1024 * 1024
#: A script is looked at after this many instructions, which is about a millisecond.
PERIOD_INSTRUCTIONS: Final = 100_000
#: And at a call after this many calls, which may take long without any instructions.
_UNSEEN_CALLS: Final = 3
#: So many KEYS and ARGV are handed over one by one, more of them as a table.
_MAX_SEPARATE_WORDS: Final = 200

# What redis.lua takes for the kinds of answers to a call.
_STATUS, _ERROR, _PLAIN_ARRAY, _TOKENS, _TOKEN_TABLE, _ARRAY_TABLE, _ABORT, _NO_MEMORY = range(1, 9)
_ABORT_ANSWER: Final = (False, _ABORT)
_NO_MEMORY_ANSWER: Final = (False, _NO_MEMORY)
_OUT_OF_MEMORY: Final = "ERR not enough memory"


class ScriptTimeoutError(CommandError):
    """A script used up the time or the instructions it was given."""


@dataclass(frozen=True, slots=True)
class _Stop:
    """Why a script was ended, and the kind of error that this is to its caller."""

    text: bytes
    kind: type[CommandError]


_KILLED: Final = _Stop(b"ERR Script killed by user with SCRIPT KILL...", CommandError)
_OUT_OF_TIME: Final = _Stop(b"ERR Script used up its time", ScriptTimeoutError)
_OUT_OF_INSTRUCTIONS: Final = _Stop(b"ERR Script used up its instructions", ScriptTimeoutError)


@dataclass(frozen=True, slots=True)
class Script:
    """A script that compiles."""

    #: Hexadecimal.
    sha1: bytes
    source: bytes
    #: What its first line promises (see ``shebang.FLAGS``).
    flags: frozenset[str]
    #: Whether it has such a line at all.
    has_shebang: bool


class ScriptRuntime:
    """Compiles and runs scripts.

    ``call(argv, resp3)`` executes a command for the running script; it answers a reply
    or raises ``CommandError``. ``log(level, text)`` takes what ``redis.log`` is given.
    """

    def __init__(
        self,
        call: Callable[[list[bytes], bool], Reply],
        *,
        memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
        log: Callable[[int, bytes], None],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._call = call
        self._log = log
        self._monotonic_s = monotonic_s
        self._scripts: dict[bytes, Script] = {}
        #: When the running script began, in the time of ``monotonic_s``.
        self.running_since: float | None = None
        self._resp3 = False
        self._is_killed = False
        #: How many calls may go on without looking whether the script must end.
        self._unseen_calls = _UNSEEN_CALLS
        self._deadline_s: float | None = None
        self._instructions_left: int | None = None
        #: Why the running script must end: it was stopped, or something of the host failed.
        self._verdict: _Stop | BaseException | None = None
        self._sandbox = self._build_sandbox(memory_limit_bytes)
        self._has_room = self._sandbox.has_room
        # What has_room looks at first, for those who have no time to ask.
        self._memory_used = self._sandbox.used
        self._soft_limit = self._sandbox.soft_limit

    def __repr__(self) -> str:
        state = "idle" if self.running_since is None else f"running since {self.running_since:g}"
        return f"<ScriptRuntime {state}, {len(self._scripts)} scripts, {self.memory_used_bytes} bytes>"

    @property
    def is_running(self) -> bool:
        return self.running_since is not None

    @property
    def memory_used_bytes(self) -> int:
        return self._memory_used()

    # ---------------------------------------------------------------- scripts

    def compile(self, source: bytes) -> Script:
        """The script of this source; ``CommandError`` if it does not compile."""
        digest = sha1(source).hexdigest().encode()
        script = self._scripts.get(digest)
        if script is None:
            body, flags = parse_shebang(source)
            script = Script(digest, source, flags or frozenset(), flags is not None)
            self._compile(script, body)
        return script

    def _compile(self, script: Script, body: bytes) -> None:
        # Tokens, constants and code of a chunk take a small multiple of its text.
        if not self._has_room(16 * len(body)):
            raise CommandError(_OUT_OF_MEMORY)
        try:
            answer = self._sandbox.compile(script.sha1, body)
        except OutOfMemoryError:
            self._sandbox.tidy()
            raise CommandError(_OUT_OF_MEMORY) from None
        if answer is not True:
            raise CommandError("ERR Error compiling script (new function): " + error_text(answer[1]))
        self._scripts[script.sha1] = script

    def forget(self) -> None:
        """Drop all compiled scripts. A ``Script`` at hand can still be run."""
        self._scripts.clear()
        self._sandbox.forget(None)

    # ---------------------------------------------------------------- running

    def run(
        self,
        script: Script,
        keys: list[bytes],
        args: list[bytes],
        *,
        time_limit_s: float | None = None,
        instruction_limit: int | None = None,
    ) -> Reply:
        """Run a script to its end; the table above says how that may look."""
        if self.running_since is not None:
            raise RuntimeError("a script is running, and scripts do not nest")
        if script.sha1 not in self._scripts:
            self._compile(script, parse_shebang(script.source)[0])
        words: list[Any] = keys + args
        if not self._has_room(VALUE_BYTES * len(words) + sum(map(len, words))):
            raise self._error(script, _OUT_OF_MEMORY.encode())
        if len(words) > _MAX_SEPARATE_WORDS:
            words = [self._sandbox.table_from(words)]
        period = PERIOD_INSTRUCTIONS
        if instruction_limit is not None:
            period = max(1, min(period, instruction_limit))
        self.running_since = now = self._monotonic_s()
        self._resp3 = self._is_killed = False
        self._unseen_calls = _UNSEEN_CALLS
        self._verdict = None
        self._deadline_s = None if time_limit_s is None else now + time_limit_s
        self._instructions_left = instruction_limit
        try:
            answer = self._sandbox.run(script.sha1, period, len(keys), *words)
            if self._verdict is None:
                return self._reply(script, answer)
        except OutOfMemoryError:
            answer = (-1, _OUT_OF_MEMORY.encode())
        except LuaFailedError as error:
            answer = (-1, f"ERR {error}".encode("latin-1", "replace"))
        finally:
            self.running_since = None
            self._sandbox.tidy()
        raise self._ending(script, answer)

    def kill(self) -> None:
        """End the running script soon. May be called from any thread."""
        self._is_killed = True

    def _reply(self, script: Script, answer: Any) -> Reply:
        """The reply to what ``runner.lua`` answered, or the error that it tells."""
        kind = answer[0]
        if kind == 0:
            return scalar_reply(answer[1])
        if kind == 1:
            if float not in set(map(type, answer)):
                return list(answer[1:])
            return [value if type(value) is bytes else integer_of(value) for value in answer[1:]]
        if kind == 2:
            return reply_of(iter(answer[1:]))
        if kind == 3:
            return reply_of(iter(self._all_tokens(answer)))
        if kind == 4:
            return status_reply(answer[1])
        if kind == 5:
            return CommandError(error_text(answer[1]))
        raise self._ending(script, answer)

    def _all_tokens(self, answer: tuple[Any, ...]) -> list[Any]:
        tokens = list(answer[1:])
        while (more := self._sandbox.more()) is not None:
            tokens.extend(more if isinstance(more, tuple) else (more,))
        return tokens

    # ---------------------------------------------------------------- endings

    def _ending(self, script: Script, answer: tuple[Any, ...]) -> BaseException:
        """The exception that a run ends with."""
        verdict = self._verdict
        if isinstance(verdict, _Stop):
            return self._error(script, verdict.text, *answer[2:], kind=verdict.kind)
        if verdict is not None:
            return verdict
        if answer[0] == -2:
            exception: BaseException = answer[1]
            return exception
        return self._error(script, *answer[1:])

    @staticmethod
    def _error(
        script: Script,
        text: bytes,
        source: bytes | None = None,
        line: int | None = None,
        *,
        kind: type[CommandError] = CommandError,
    ) -> CommandError:
        place = "." if source is None else f", on {error_text(source)}:{line}."
        return kind(f"{error_text(text)} script: {script.sha1.decode()}{place}")

    # ---------------------------------------------------------------- what scripts call

    def _build_sandbox(self, memory_limit_bytes: int) -> Sandbox:
        major, minor, patch = REDIS_VERSION
        return Sandbox(
            memory_limit_bytes,
            entrances={
                "call": self._host_call,
                "call_packed": self._host_call_packed,
                "tick": self._host_tick,
            },
            functions={
                "set_protocol": self._host_set_protocol,
                "sha1hex": lambda text: sha1(text).hexdigest().encode(),
                "log": self._host_log,
                "keep_frames": lambda dump: keep_frames(dump) or False,
            },
            constants={
                "redis_version": f"{major}.{minor}.{patch}".encode(),
                "redis_version_number": major << 16 | minor << 8 | patch,
            },
            on_failure=self._fail,
        )

    def _host_call(self, *words: bytes) -> Any:
        """Execute a command; ``redis.lua`` tabulates the answers. Must not raise."""
        try:
            if self._unseen_calls:
                self._unseen_calls -= 1
            elif self._must_end():
                return _ABORT_ANSWER
            else:
                self._unseen_calls = _UNSEEN_CALLS
            if self._memory_used() > self._soft_limit and not self._has_room():
                return _NO_MEMORY_ANSWER
            try:
                reply = self._call(list(words), self._resp3)
            except CommandError as error:
                reply = error
            kind = type(reply)
            if kind is int or (kind is bytes and len(reply) <= SMALL_BYTES):
                return reply
            if kind is Status:
                return reply, _STATUS
            return self._answer(reply)
        except BaseException as error:  # noqa: BLE001 - kept, and raised again by run()
            self._fail(error)
            return _ABORT_ANSWER

    def _host_call_packed(self, words: bytes, sizes: bytes) -> Any:
        """The same for many words: lupa's price for single ones grows with their square."""
        split = []
        at = 0
        for size in sizes.split():
            end = at + int(size)
            split.append(words[at:end])
            at = end
        return self._host_call(*split)

    def _answer(self, reply: Reply) -> Any:
        kind = type(reply)
        if reply is None:
            return None if self._resp3 else False
        if isinstance(reply, CommandError):
            text = error_bytes(reply)
            return (text, _ERROR) if self._has_room(len(text)) else _NO_MEMORY_ANSWER
        if kind is bytes:
            return reply if self._has_room(len(reply)) else _NO_MEMORY_ANSWER
        values = plain_array(reply, self._resp3)
        if values is not None:
            return self._hand_over(values, _PLAIN_ARRAY, _ARRAY_TABLE)
        return self._hand_over(tokens_of(reply, self._resp3), _TOKENS, _TOKEN_TABLE)

    def _hand_over(self, values: list[Any], separate: int, as_table: int) -> Any:
        if not self._has_room(size_of(values)):
            return _NO_MEMORY_ANSWER
        if len(values) <= MAX_RETURNED:
            return (False, separate, *values)
        return self._sandbox.table_from(values), as_table

    def _host_tick(self, instructions: int) -> bool:
        """Whether the script must end, asked after so many instructions. Must not raise."""
        try:
            if self.running_since is None:
                return False
            if self._instructions_left is not None:
                self._instructions_left -= instructions
            return self._must_end()
        except BaseException as error:  # noqa: BLE001 - kept, and raised again by run()
            self._fail(error)
            return True

    def _host_set_protocol(self, version: int) -> bool:
        self._resp3 = version == 3
        return True

    def _host_log(self, level: int, text: bytes) -> bool:
        self._log(level, text)
        return True

    def _fail(self, error: BaseException) -> None:
        """Something of the host failed: the script must end, and the first failure is what is told."""
        self._unseen_calls = 0
        if self._verdict is None:
            self._verdict = error

    def _must_end(self) -> bool:
        if self._verdict is not None:
            return True
        if self._is_killed:
            self._verdict = _KILLED
        elif self._instructions_left is not None and self._instructions_left <= 0:
            self._verdict = _OUT_OF_INSTRUCTIONS
        elif self._deadline_s is not None and self._monotonic_s() >= self._deadline_s:
            self._verdict = _OUT_OF_TIME
        return self._verdict is not None
