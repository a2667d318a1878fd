"""Commands that run code on the server: scripts and functions.

What a script answers is its own business: replies are passed on as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from penstock.client.commands import conversions as to
from penstock.client.commands import server_conversions as server
from penstock.client.commands.arguments import counted, flag, option, optional, several
from penstock.client.commands.base import Coming, FlushMode, Key, Runner, Value


class Scripting(Runner):
    """Commands that run code on the server."""

    __slots__ = ()

    # ------------------------------------------------------------ scripts

    def eval(self, script: Value, keys: Sequence[Key] = (), args: Sequence[Value] = ()) -> Coming[Any]:
        """Run a Lua script."""
        return self._call(("EVAL", script, *counted("keys", keys), *several("args", args)))

    def eval_ro(self, script: Value, keys: Sequence[Key] = (), args: Sequence[Value] = ()) -> Coming[Any]:
        """eval for scripts that write nothing; a replica may answer."""
        return self._call(("EVAL_RO", script, *counted("keys", keys), *several("args", args)))

    def evalsha(self, sha1: Value, keys: Sequence[Key] = (), args: Sequence[Value] = ()) -> Coming[Any]:
        """Run a loaded script by its SHA-1."""
        return self._call(("EVALSHA", sha1, *counted("keys", keys), *several("args", args)))

    def evalsha_ro(self, sha1: Value, keys: Sequence[Key] = (), args: Sequence[Value] = ()) -> Coming[Any]:
        """evalsha for scripts that write nothing; a replica may answer."""
        return self._call(("EVALSHA_RO", sha1, *counted("keys", keys), *several("args", args)))

    def script_exists(self, sha1: Value, *sha1s: Value) -> Coming[list[bool]]:
        """Which scripts are loaded."""
        return self._call(("SCRIPT", "EXISTS", sha1, *sha1s), to.booleans)

    def script_flush(self, mode: FlushMode | None = None) -> Coming[bytes]:
        """Forget every loaded script."""
        return self._call(("SCRIPT", "FLUSH", *optional(mode)))

    def script_kill(self) -> Coming[bytes]:
        """Stop the running script if it has not written."""
        return self._call(("SCRIPT", "KILL"))

    def script_load(self, script: Value) -> Coming[str]:
        """Keep a script for evalsha; its SHA-1."""
        return self._call(("SCRIPT", "LOAD", script), to.text)

    # ------------------------------------------------------------ functions

    def fcall(self, function: Value, keys: Sequence[Key] = (), args: Sequence[Value] = ()) -> Coming[Any]:
        """Run a function of a loaded library."""
        return self._call(("FCALL", function, *counted("keys", keys), *several("args", args)))

    def fcall_ro(self, function: Value, keys: Sequence[Key] = (), args: Sequence[Value] = ()) -> Coming[Any]:
        """fcall for functions that write nothing; a replica may answer."""
        return self._call(("FCALL_RO", function, *counted("keys", keys), *several("args", args)))

    def function_load(self, code: Value, *, replace: bool = False) -> Coming[str]:
        """Create a library of functions; its name."""
        return self._call(("FUNCTION", "LOAD", *flag("REPLACE", replace), code), to.text)

    def function_delete(self, library: Value) -> Coming[bytes]:
        """Delete a library with its functions."""
        return self._call(("FUNCTION", "DELETE", library))

    def function_flush(self, mode: FlushMode | None = None) -> Coming[bytes]:
        """Delete every library."""
        return self._call(("FUNCTION", "FLUSH", *optional(mode)))

    def function_kill(self) -> Coming[bytes]:
        """Stop the running function if it has not written."""
        return self._call(("FUNCTION", "KILL"))

    def function_list(
        self, *, libraryname: Value | None = None, withcode: bool = False
    ) -> Coming[list[dict[str, Any]]]:
        """The libraries, each with its functions."""
        words = ("FUNCTION", "LIST", *option("LIBRARYNAME", libraryname), *flag("WITHCODE", withcode))
        return self._call(words, server.libraries)

    def function_stats(self) -> Coming[dict[str, Any]]:
        """The function that runs now, and how many there are by engine."""
        return self._call(("FUNCTION", "STATS"), server.function_stats)

    def function_dump(self) -> Coming[bytes]:
        """Serialise every library for function_restore."""
        return self._call(("FUNCTION", "DUMP"), to.binary)

    def function_restore(
        self, value: bytes | memoryview, policy: Literal["APPEND", "FLUSH", "REPLACE"] | None = None
    ) -> Coming[bytes]:
        """Create the libraries that function_dump serialised."""
        return self._call(("FUNCTION", "RESTORE", value, *optional(policy)))
