"""The Lua interpreter and the walls around it.

Rules:

1. Nothing of Python is reachable from a script. Callables of the host are held by
   closures of our own Lua chunks; they take and return strings, numbers, booleans
   and tables made here, and no exception leaves one (``_seal``).
2. Nothing is handed to Lua unless there surely is memory for it (``has_room``). The
   interpreter reports missing memory by a long jump, which is fine inside Lua and
   fatal across Python: the jump leaves this thread's hold on Python behind.
3. The chunks of ``lua/`` run once, in the order of ``_CHUNKS``; the last empties the
   interpreter's global table. What scripts see instead is built by ``environment.lua``.

This module knows neither commands nor replies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, Final

from lupa import lua51

from penstock.engine.scripting.bytecode import keep_all_frames
from penstock.engine.scripting.libraries import bits, structs
from penstock.errors import ConfigError

#: In order of their needs; the last one answers the functions that run scripts.
_CHUNKS: Final = (
    *("kit", "guard", "redis", "cjson_encode", "cjson_decode", "cjson", "cmsgpack", "struct", "bit"),
    *("random", "environment", "runner"),
)
#: What all of them are called in error positions; the chunks know it too.
_CHUNK_NAME: Final = b"=(lib)"

#: Memory that stays free for what is handed over without being counted: so much at least,
_RESERVE_BYTES: Final = 1024 * 1024
#: and this part of the limit. Handing something over may set off the collector, which makes a new, smaller
#: table of strings when it finds few: eight bytes for each of up to half as many strings as ever fitted in.
_RESERVED_PART: Final = 6
#: As the interpreter spells it.
_NO_LIMIT: Final = 0
#: The least that makes sense: our own chunks and the reserve, twice.
_MIN_LIMIT_BYTES: Final = 4 * 1024 * 1024
#: How many values a call returns one by one. Lua sees to room for twenty on its stack; for
#: more it would enlarge the stack, by an amount that nobody here can foresee.
MAX_RETURNED: Final = 12
#: A string of this size fits into the reserve and need not be counted.
SMALL_BYTES: Final = 64 * 1024
#: An array slot and a string's header, with what growing in steps wastes.
VALUE_BYTES: Final = 64

OutOfMemoryError: Final[type[Exception]] = lua51.LuaMemoryError
LuaFailedError: Final[type[Exception]] = lua51.LuaError


def _refuse(*_: object) -> None:
    raise AttributeError("scripts have no access to Python objects")


class Sandbox:
    """One interpreter with all libraries, ready to compile and run scripts.

    What ``lua/`` wants of the host comes by name: ``entrances`` keep rules 1 and 2
    themselves, ``functions`` are made to, ``constants`` are strings and numbers.
    ``on_failure`` is told the exception of a function, which its caller in Lua never sees.
    """

    def __init__(
        self,
        memory_limit_bytes: int,
        *,
        entrances: Mapping[str, Callable[..., Any]],
        functions: Mapping[str, Callable[..., Any]],
        constants: Mapping[str, bytes | int],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        if memory_limit_bytes < _MIN_LIMIT_BYTES:
            raise ConfigError(f"memory_limit_bytes must be at least {_MIN_LIMIT_BYTES}")
        self._lua = lua51.LuaRuntime(
            encoding=None,
            register_eval=False,
            register_builtins=False,
            unpack_returned_tuples=True,
            attribute_handlers=(_refuse, _refuse),
            overflow_handler=float,
            max_memory=memory_limit_bytes,
        )
        self._on_failure = on_failure
        #: What ``has_room`` keeps to, in bytes.
        self.soft_limit = memory_limit_bytes - max(_RESERVE_BYTES, memory_limit_bytes // _RESERVED_PART)
        self._limit_bytes = memory_limit_bytes
        self._tidy_above = memory_limit_bytes // 4
        #: The bytes that are in use.
        self.used: Callable[[], int] = self._lua.get_memory_used
        self.table_from: Callable[[list[Any]], Any] = self._lua.table_from
        all_functions = {**bits.FUNCTIONS, **structs.FUNCTIONS, **functions}
        sealed = {name: self._seal(function) for name, function in all_functions.items()}
        runner = self._boot({**entrances, **sealed, **constants, "memory_limit": memory_limit_bytes})
        #: The four functions of ``runner.lua``.
        self.compile: Callable[[bytes, bytes], Any] = runner[b"compile"]
        self.forget: Callable[[bytes | None], None] = runner[b"forget"]
        self.run: Callable[..., Any] = runner[b"run"]
        self.more: Callable[[], Any] = runner[b"more"]

    def _boot(self, host: Mapping[str, Any]) -> Any:
        kit = self._lua.table_from(
            {
                b"host": self._lua.table_from({name.encode(): value for name, value in host.items()}),
                b"libraries": self._lua.table(),
            }
        )
        load, dump = self._lua.eval(b"loadstring"), self._lua.eval(b"string.dump")
        folder = files("penstock.engine.scripting") / "lua"
        result = None
        for name in _CHUNKS:
            chunk = load((folder / f"{name}.lua").read_bytes(), _CHUNK_NAME)
            if isinstance(chunk, tuple):
                raise RuntimeError(f"{name}.lua does not compile: {chunk[1].decode()}")
            result = load(keep_all_frames(dump(chunk)), _CHUNK_NAME)(kit)
        return result

    def has_room(self, size: int = 0) -> bool:
        """Whether ``size`` bytes can be handed to Lua; garbage is collected if that is needed."""
        if self.used() + size <= self.soft_limit:
            return True
        self._collect()
        return self.used() + size <= self.soft_limit

    def tidy(self) -> None:
        """Collect what a script has left, if it is much.

        Between scripts there is little but garbage, and the interpreter does not collect
        any when it is short of memory: it fails.
        """
        if self.used() > self._tidy_above:
            self._collect()

    def _collect(self) -> None:
        """Collect all garbage, outside of the limit.

        The collector may need memory before it has freed any (see ``_RESERVED_PART``). Nobody protects it
        here: if there were none, the interpreter would end the process.
        """
        self._lua.set_max_memory(_NO_LIMIT)
        self._lua.gccollect()
        self._lua.set_max_memory(self._limit_bytes)

    def _seal(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as rules 1 and 2 want it; it answers None if it failed or memory is short."""

        def sealed(*arguments: Any) -> Any:
            try:
                result = function(*arguments)
                if not self.has_room(size_of(result if type(result) is tuple else (result,))):
                    return None
                if type(result) is tuple and len(result) > MAX_RETURNED:
                    return 2, self.table_from(list(result[1:]))
                return result
            except BaseException as error:  # noqa: BLE001 - the one who is told decides
                self._on_failure(error)
                return None

        return sealed


def size_of(values: list[Any] | tuple[Any, ...]) -> int:
    """The memory that values take in Lua, rather too high."""
    if not values:
        return 0
    return VALUE_BYTES * len(values) + sum([len(value) for value in values if isinstance(value, bytes)])
