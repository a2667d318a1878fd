"""Scripts inside the engine: the cache that all processes share, atomic runs, time limits, killing.

A script runs inside a savepoint of its batch: an error takes back everything it did,
which is more than Redis promises and why a script can be killed even after it wrote.
The interpreter is the scripting room's; this module gives it commands to call.

The cache is the ``scripts`` table (sha1 → source): what one process loaded, all know.
Compiled functions are kept a process, by the same sha1.
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
_LOG_LEVELS: Final = {0: logging.DEBUG, 1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING}


class Scripts:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._runtime: ScriptRuntime | None = None
        self._compiled: dict[bytes, Script] = {}
        self._session: Session | None = None
        self._readonly = False
        #: set for one batch: longer scripts raise :class:`SlowScriptError`
        self.inline_limit_s: float | None = None

    # ------------------------------------------------------------------- cache

    def load(self, source: bytes) -> Script:
        """Compile a script and make it known to every process."""
        digest = sha1(source).hexdigest().encode()
        script = self._compile(digest, source)
        table = self._engine.unit.tables["scripts"]
        if self._engine.unit.get(digest, None, table) is None:
            self._engine.require_write()
            self._engine.unit.put(digest, source, db=table)
        return script

    def find(self, digest: bytes) -> Script | None:
        """The script with this sha1, whoever loaded it."""
        digest = digest.lower()
        source = self._engine.unit.get(digest, None, self._engine.unit.tables["scripts"]) if digest else None
        return None if source is None else self._compile(digest, source)

    def exists(self, digest: bytes) -> bool:
        return self.find(digest) is not None

    def flush(self) -> None:
        self._engine.unit.empty(self._engine.unit.tables["scripts"])
        self._compiled.clear()

    def _compile(self, digest: bytes, source: bytes) -> Script:
        script = self._compiled.get(digest)
        if script is None:
            script = self._compiled[digest] = self._get_runtime().compile(source)
        return script

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
        session = self._script_session(caller)
        self._readonly = readonly or "no-writes" in script.flags
        try:
            with self._engine.dispatcher.savepoint():
                return self._get_runtime().run(
                    script, keys, args, readonly=self._readonly, time_limit_s=self.inline_limit_s
                )
        except ScriptTimeoutError as error:
            raise SlowScriptError from error
        finally:
            session.watches = {}

    def _script_session(self, caller: Session) -> Session:
        """The session that commands of a script run in: the caller's database, nothing else of it."""
        if self._session is None:
            self._session = Session(self._engine, 0, _discard)
            self._session.in_script = True
        self._session.ks = caller.ks
        return self._session

    def _call(self, argv: list[bytes], resp3: bool) -> Reply:
        """What redis.call does."""
        dispatcher = self._engine.dispatcher
        session = self._session
        assert session is not None
        entry = dispatcher.resolve(argv)
        if entry.name == b"":
            raise _refusal(dispatcher.is_known(argv))
        if entry.spec.noscript:
            raise CommandError("ERR This Redis command is not allowed from script")
        if self._readonly and entry.spec.is_write:
            raise CommandError("ERR Write commands are not allowed from read-only scripts.")
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
