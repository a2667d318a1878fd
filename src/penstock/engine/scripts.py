"""Scripts inside the engine: the cache that all processes share, atomic runs, time limits, killing.

A script runs inside a savepoint of its batch: an error takes back everything it did,
which is more than Redis promises and why a script can be killed even after it wrote.
The interpreter is the scripting room's; this module gives it commands to call.

The cache is the ``scripts`` table (sha1 → source): what one process loaded, all know, and
what one flushed is gone for all. Compiled scripts are kept a process, by the same sha1;
that they are at hand says nothing about whether they may be run.
"""

from __future__ import annotations

import logging
from hashlib import sha1
from typing import TYPE_CHECKING, Final

from penstock.engine.control import SlowScriptError
from penstock.engine.scripting.runtime import Script, ScriptRuntime, ScriptTimeoutError
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import OK, Reply

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.script")

#: What one process's interpreter may use.
MEMORY_LIMIT_BYTES: Final = 256 * 1024 * 1024
#: Source text whose compiled form is kept. Beyond it all are dropped and compiled again at need,
#: so that programs which write every value into a new script do not fill the interpreter.
COMPILED_SOURCE_BYTES: Final = 4 * 1024 * 1024
#: What even the shortest script counts.
_LEAST_SOURCE_BYTES: Final = 1024
SHA1_HEX_BYTES: Final = 40
_LOG_LEVELS: Final = {0: logging.DEBUG, 1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING}


class Scripts:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._table = engine.unit.tables["scripts"]
        self._runtime: ScriptRuntime | None = None
        self._compiled: dict[bytes, Script] = {}
        self._compiled_bytes = 0
        #: commands of scripts run in it: the caller's database, nothing else of the caller
        self._session = Session(engine, 0, _discard)
        self._session.in_script = True
        self._readonly = False
        #: set for one batch: longer scripts raise :class:`SlowScriptError`
        self.inline_limit_s: float | None = None

    # ------------------------------------------------------------------- cache

    def load(self, source: bytes) -> Script:
        """Compile a script and make it known to every process."""
        digest = sha1(source).hexdigest().encode()
        script = self._compiled.get(digest) or self._compile(digest, source)
        unit = self._engine.unit
        if unit.get(digest, None, self._table) is None:
            self._engine.require_write()
            unit.put(digest, source, db=self._table)
        return script

    def find(self, digest: bytes) -> Script | None:
        """The script with this sha1, whoever loaded it."""
        digest = digest.lower()
        source = self._source(digest)
        if source is None:
            return None
        return self._compiled.get(digest) or self._compile(digest, source)

    def exists(self, digest: bytes) -> bool:
        return self._source(digest.lower()) is not None

    def flush(self) -> None:
        self._engine.unit.empty(self._table)
        self._forget_compiled()

    def _source(self, digest: bytes) -> bytes | None:
        """The table is asked each time, since another process may have flushed it."""
        return self._engine.unit.get(digest, None, self._table) if len(digest) == SHA1_HEX_BYTES else None

    def _compile(self, digest: bytes, source: bytes) -> Script:
        size = max(len(source), _LEAST_SOURCE_BYTES)
        if self._compiled_bytes + size > COMPILED_SOURCE_BYTES:
            self._forget_compiled()
        script = self._compiled[digest] = self._get_runtime().compile(source)
        self._compiled_bytes += size
        return script

    def _forget_compiled(self) -> None:
        self._compiled.clear()
        self._compiled_bytes = 0
        if self._runtime is not None:
            self._runtime.forget()

    def _get_runtime(self) -> ScriptRuntime:
        """The interpreter, made at the first script: most processes never need one."""
        if self._runtime is None:
            self._runtime = ScriptRuntime(
                self._call,
                memory_limit_bytes=MEMORY_LIMIT_BYTES,
                log=_log,
                monotonic_s=self._engine.clock.monotonic_s,
            )
        return self._runtime

    # --------------------------------------------------------------------- run

    def run(
        self, caller: Session, script: Script, keys: list[bytes], args: list[bytes], readonly: bool
    ) -> Reply:
        """Run a script for a session; a raised error has undone everything it did."""
        no_writes = "no-writes" in script.flags
        if readonly and script.has_shebang and not no_writes:
            raise CommandError("ERR Can not execute a script with write flag using *_ro command.")
        self._readonly = readonly or no_writes
        self._session.ks = caller.ks
        self._session.caller = caller
        try:
            with self._engine.dispatcher.savepoint():
                return self._get_runtime().run(script, keys, args, time_limit_s=self.inline_limit_s)
        except ScriptTimeoutError as error:
            raise SlowScriptError from error
        finally:
            self._session.caller = None

    def _call(self, argv: list[bytes], resp3: bool) -> Reply:
        """What redis.call does."""
        dispatcher = self._engine.dispatcher
        session = self._session
        entry = dispatcher.resolve(argv)
        if entry.name == b"":
            raise _refusal(dispatcher.table.is_known(argv))
        spec = entry.spec
        if spec.noscript:
            raise CommandError("ERR This Redis command is not allowed from script")
        if self._readonly and (spec.is_write or spec.may_replicate):
            raise CommandError("ERR Write commands are not allowed from read-only scripts.")
        self._engine.statistics.commands_processed += 1
        session.protocol = 3 if resp3 else 2
        return dispatcher.call(session, argv, entry)

    # -------------------------------------------------------------------- kill

    @property
    def is_running(self) -> bool:
        return self._runtime is not None and self._runtime.is_running

    def kill(self) -> None:
        """End a running script from another thread."""
        if self._runtime is not None:
            self._runtime.kill()

    def kill_running(self) -> Reply:
        """The answer to SCRIPT KILL."""
        if not self.is_running:
            return CommandError("NOTBUSY No scripts in execution right now.")
        self.kill()
        return OK


def _refusal(is_known: bool) -> CommandError:
    if is_known:
        return CommandError("ERR Wrong number of args calling Redis command from script")
    return CommandError("ERR Unknown Redis command called from script")


def _log(level: int, message: bytes) -> None:
    log.log(_LOG_LEVELS.get(level, logging.INFO), "%s", message.decode(errors="replace"))


def _discard(_: object) -> None:
    """Nobody listens to a script's session."""
