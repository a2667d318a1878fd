"""Scripts inside the engine: the cache that all processes share, atomic runs, time limits, killing.

An error takes back everything that a script did, which is more than Redis promises and why
a script can be killed even after it wrote. Two ways lead there:

=============  ======================================================================
hopeful        most scripts do not fail: they write like any other command. Should one
               fail after it wrote, the whole batch is done again, the careful way.
careful        inside a savepoint, which costs as much as the script itself. So run
               the scripts of a batch that is done again; those that failed of late
               (``_fallible``); and where no time limit is set, since such a script
               may run long, and may be killed, which must not make it start again.
=============  ======================================================================

The interpreter is the scripting room's; this module gives it commands to call.

The cache is the ``scripts`` table (sha1 → source): what one process loaded, all know, and
what one flushed is gone for all. Compiled scripts are kept a process, by the same sha1;
that they are at hand says nothing about whether they may be run.
"""

from __future__ import annotations

import logging
from hashlib import sha1
from typing import TYPE_CHECKING, Final

from penstock.engine.control import MustUndoScriptError, SlowScriptError
from penstock.engine.scripting.runtime import Script, ScriptRuntime, ScriptTimeoutError
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import OK, Reply

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.engine.table import Entry

log = logging.getLogger("penstock.script")

#: What one process's interpreter may use.
MEMORY_LIMIT_BYTES: Final = 256 * 1024 * 1024
#: Source text whose compiled form is kept. Beyond it all are dropped and compiled again at need,
#: so that programs which write every value into a new script do not fill the interpreter.
COMPILED_SOURCE_BYTES: Final = 4 * 1024 * 1024
#: What even the shortest script counts.
_LEAST_SOURCE_BYTES: Final = 1024
SHA1_HEX_BYTES: Final = 40
#: How many scripts are remembered to have failed after writing, and for how many of their runs.
_MAX_FALLIBLE: Final = 256
_CAREFUL_RUNS: Final = 1000
_LOG_LEVELS: Final = {0: logging.DEBUG, 1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING}


class Scripts:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._table = engine.unit.tables["scripts"]
        self._runtime: ScriptRuntime | None = None
        self._compiled: dict[bytes, Script] = {}
        self._compiled_bytes = 0
        #: what the table was asked for in this unit, by sha1 as it was written; ``Unit.serial`` of then
        self._found: dict[bytes, Script] = {}
        self._found_at = -1
        #: commands of scripts run in it: the caller's database, nothing else of the caller
        self._session = Session(engine, 0, _discard)
        self._session.in_script = True
        self._statistics = engine.statistics
        self._dispatch = engine.dispatcher.call
        entries = engine.dispatcher.table.simple
        #: what scripts may call, by name, as far as name and number of words settle it
        self._callable = {name: entry for name, entry in entries.items() if not entry.spec.noscript}
        self._callable_readonly = {
            name: entry for name, entry in self._callable.items() if _is_for_readers(entry)
        }
        #: one of the two, for the script that runs
        self._allowed = self._callable
        #: whether the script that runs may have left something to undo
        self._has_effects = False
        #: sha1 of scripts that failed after writing → careful runs left; the latest last
        self._fallible: dict[bytes, int] = {}
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
        unit = self._engine.unit
        if self._found_at != unit.serial:
            self._found.clear()
            self._found_at = unit.serial
        script = self._found.get(digest)
        if script is not None:
            return script
        lowered = digest.lower()
        source = self._source(lowered)
        if source is None:
            return None
        script = self._found[digest] = self._compiled.get(lowered) or self._compile(lowered, source)
        return script

    def exists(self, digest: bytes) -> bool:
        return self._source(digest.lower()) is not None

    def flush(self) -> None:
        self._engine.unit.empty(self._table)
        self._engine.unit.serial += 1
        self._forget_compiled()

    def _source(self, digest: bytes) -> bytes | None:
        """The table is asked in every unit, since another process may have flushed it."""
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
        self._allowed = self._callable_readonly if readonly or no_writes else self._callable
        self._session.ks = caller.ks
        self._session.caller = caller
        try:
            if self._needs_care(script.sha1):
                with self._engine.dispatcher.savepoint():
                    return self._get_runtime().run(script, keys, args, time_limit_s=self.inline_limit_s)
            return self._run_hopefully(script, keys, args)
        except ScriptTimeoutError as error:
            raise SlowScriptError from error
        finally:
            self._session.caller = None

    def _run_hopefully(self, script: Script, keys: list[bytes], args: list[bytes]) -> Reply:
        self._has_effects = False
        try:
            return self._get_runtime().run(script, keys, args, time_limit_s=self.inline_limit_s)
        except ScriptTimeoutError:
            raise  # its whole batch will be undone
        except CommandError as error:
            if not self._has_effects:
                raise
            self._remember_failure(script.sha1)
            raise MustUndoScriptError from error

    def _needs_care(self, digest: bytes) -> bool:
        if self._engine.dispatcher.is_careful or self.inline_limit_s is None:
            return True
        if digest not in self._fallible:
            return False
        self._fallible[digest] -= 1
        if not self._fallible[digest]:
            del self._fallible[digest]
        return True

    def _remember_failure(self, digest: bytes) -> None:
        self._fallible.pop(digest, None)
        if len(self._fallible) >= _MAX_FALLIBLE:
            del self._fallible[next(iter(self._fallible))]
        self._fallible[digest] = _CAREFUL_RUNS

    def _call(self, argv: list[bytes], resp3: bool) -> Reply:
        """What redis.call does."""
        entry = self._allowed.get(argv[0])
        if entry is None or not entry.least <= len(argv) <= entry.most:
            entry = self._resolve(argv)
        if not entry.only_reads:
            self._has_effects = True
        self._statistics.commands_processed += 1
        session = self._session
        session.protocol = 3 if resp3 else 2
        return self._dispatch(session, argv, entry)

    def _resolve(self, argv: list[bytes]) -> Entry:
        """What a script means by these words; says why if it may not."""
        dispatcher = self._engine.dispatcher
        entry = dispatcher.resolve(argv)
        if entry.name == b"":
            raise _refusal(dispatcher.table.is_known(argv))
        if entry.spec.noscript:
            raise CommandError("ERR This Redis command is not allowed from script")
        if self._allowed is self._callable_readonly and not _is_for_readers(entry):
            raise CommandError("ERR Write commands are not allowed from read-only scripts.")
        return entry

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


def _is_for_readers(entry: Entry) -> bool:
    return not (entry.spec.is_write or entry.spec.may_replicate)


def _refusal(is_known: bool) -> CommandError:
    if is_known:
        return CommandError("ERR Wrong number of args calling Redis command from script")
    return CommandError("ERR Unknown Redis command called from script")


def _log(level: int, message: bytes) -> None:
    log.log(_LOG_LEVELS.get(level, logging.INFO), "%s", message.decode(errors="replace"))


def _discard(_: object) -> None:
    """Nobody listens to a script's session."""
