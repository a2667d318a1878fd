"""Replies as redis-cli shows them: for people, raw for programs, or as JSON.

=============  =========================================================================
reply          for people
=============  =========================================================================
status         ``OK``
bytes          ``"two\\nlines"``
int, float     ``(integer) 1``, ``(double) 1.5``
None           ``(nil)``
array          ``1) "a"`` and so on, nested ones further to the right
map            ``1# "field" => "value"``
error          ``(error) ERR …``
=============  =========================================================================

The client does not tell statuses from other texts; which commands answer with one is written down here.

Rules: every answer ends with a newline. Nothing here sends anything.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

Style = Literal["people", "raw", "json"]

#: What a text in a reply is: data, a status, or text that is meant to be read as it stands.
Texture = Literal["data", "status", "prose"]

_ESCAPES: Final = {0x5C: r"\\", 0x22: r"\"", 0x0A: r"\n", 0x0D: r"\r", 0x09: r"\t", 0x07: r"\a", 0x08: r"\b"}

#: Commands whose text is always a status …
_STATUS: Final = frozenset(
    """
    ASKING AUTH BGREWRITEAOF BGSAVE DISCARD FAILOVER FLUSHALL FLUSHDB HMSET LSET LTRIM MIGRATE MSET MULTI
    PFMERGE PSETEX QUIT READONLY READWRITE RENAME REPLICAOF RESET RESTORE SAVE SELECT SETEX SHUTDOWN SLAVEOF
    SWAPDB TYPE UNWATCH WATCH XSETID
    """.split()
)
#: … of containers, those subcommands …
_STATUS_OF: Final = {
    "ACL": "DELUSER LOAD LOG SAVE SETUSER",
    "CLIENT": "CACHING KILL NO-EVICT NO-TOUCH PAUSE REPLY SETINFO SETNAME TRACKING UNPAUSE",
    "CLUSTER": "ADDSLOTS DELSLOTS FAILOVER FLUSHSLOTS FORGET MEET REPLICATE RESET SAVECONFIG SETSLOT",
    "CONFIG": "RESETSTAT REWRITE SET",
    "DEBUG": "SLEEP SET-ACTIVE-EXPIRE JMAP RELOAD",
    "FUNCTION": "FLUSH KILL RESTORE",
    "MEMORY": "PURGE",
    "SCRIPT": "DEBUG FLUSH KILL",
    "SLOWLOG": "RESET",
    "XGROUP": "CREATE SETID",
}
#: … and scripts, which may answer anything: OK is nearly always what a command in them has answered.
_SCRIPTS: Final = frozenset("EVAL EVALSHA EVALSHA_RO EVAL_RO FCALL FCALL_RO".split())
_PROSE: Final = ("INFO", "LOLWUT")
_PROSE_OF: Final = {
    "CLIENT": "INFO LIST",
    "CLUSTER": "INFO NODES",
    "LATENCY": "DOCTOR GRAPH",
    "MEMORY": "DOCTOR MALLOC-STATS",
}


def texture_of(words: Sequence[bytes], reply: Any) -> Texture:
    """What the text is that a command has answered."""
    name = words[0].decode("utf-8", "replace").upper()
    inner = words[1].decode("utf-8", "replace").upper() if len(words) > 1 else ""
    if name in _STATUS or inner in _STATUS_OF.get(name, "").split():
        return "status"
    if name in _PROSE or inner in _PROSE_OF.get(name, "").split():
        return "prose"
    if name in _SCRIPTS:
        return "status" if reply == b"OK" else "data"
    if name == "PING":
        return "data" if inner else "status"
    if name == "SET":
        has_get = any(word.upper() == b"GET" for word in words[3:])
        return "data" if has_get else "status"
    return "data"


def shown(reply: Any, texture: Texture | Sequence[Texture], style: Style) -> str:
    """A reply; to EXEC it has a texture for each command that ran."""
    if style == "json":
        return msgspec.json.encode(plain(reply)).decode() + "\n"
    if style == "raw":
        return _raw(reply) + "\n"
    if isinstance(texture, str):
        return _for_people(_marked(reply, texture), "")
    return _for_people([_marked(item, each) for item, each in zip(reply, texture, strict=True)], "")


class _Status(bytes):
    __slots__ = ()


class _Prose(bytes):
    __slots__ = ()


def _marked(reply: Any, text: Texture) -> Any:
    if not isinstance(reply, bytes) or text == "data":
        return reply
    return _Status(reply) if text == "status" else _Prose(reply)


# -------------------------------------------------------------------------------------- for people


def _for_people(reply: Any, indent: str) -> str:
    if isinstance(reply, Exception):
        return f"(error) {reply}\n"
    if isinstance(reply, _Status | _Prose):
        return reply.decode("utf-8", "replace").removesuffix("\n") + "\n"
    if isinstance(reply, bytes):
        return quoted(reply) + "\n"
    if reply is None:
        return "(nil)\n"
    if isinstance(reply, bool):
        return "(true)\n" if reply else "(false)\n"
    if isinstance(reply, int):
        return f"(integer) {reply}\n"
    if isinstance(reply, float):
        return f"(double) {reply:.17g}\n"
    if isinstance(reply, dict):
        return _mapped(reply, indent) if reply else "(empty hash)\n"
    if isinstance(reply, set | frozenset):
        return _listed(sorted(reply, key=repr), indent, "~") if reply else "(empty set)\n"
    if isinstance(reply, list | tuple):
        return _listed(list(reply), indent, ")") if reply else "(empty array)\n"
    return f"{reply}\n"


def _listed(items: list[Any], indent: str, sign: str) -> str:
    """One line an item; the first stands behind the number of the list itself."""
    width = len(str(len(items)))
    further = indent + " " * (width + 2)
    lines = [
        f"{indent if at else ''}{at + 1:>{width}}{sign} {_for_people(item, further)}"
        for at, item in enumerate(items)
    ]
    return "".join(lines)


def _mapped(items: dict[Any, Any], indent: str) -> str:
    """One line a pair, unless the value takes several: they begin on the next one."""
    width = len(str(len(items)))
    further = indent + " " * (width + 2)
    lines = []
    for at, (key, value) in enumerate(items.items()):
        name = _for_people(key, further).removesuffix("\n")
        below = f"\n{further}" if value and isinstance(value, dict | list | set) else ""
        lines.append(
            f"{indent if at else ''}{at + 1:>{width}}# {name} => {below}{_for_people(value, further)}"
        )
    return "".join(lines)


def quoted(text: bytes) -> str:
    """Between quotes, with escapes for what has no place on a line."""
    return '"' + "".join(map(_visible, text)) + '"'


def _visible(byte: int) -> str:
    return _ESCAPES.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}")


# ------------------------------------------------------------------------------------ for programs


def _raw(reply: Any) -> str:
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "surrogateescape")
    if reply is None:
        return ""
    if isinstance(reply, bool):
        return "(true)" if reply else "(false)"
    if isinstance(reply, float):
        return f"{reply:.17g}"
    if isinstance(reply, dict):
        return "\n".join(f"{_raw(key)} {_raw(value)}" for key, value in reply.items())
    if isinstance(reply, set | frozenset):
        return "\n".join(sorted(map(_raw, reply)))
    if isinstance(reply, list | tuple):
        return "\n".join(map(_raw, reply))
    return str(reply)


def plain(reply: Any) -> Any:
    """What JSON has words for; bytes that are no text are ``{"base64": …}``."""
    if isinstance(reply, Exception):
        return {"error": str(reply)}
    if isinstance(reply, bytes):
        try:
            return reply.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(reply).decode()}
    if isinstance(reply, dict):
        return {_key(key): plain(value) for key, value in reply.items()}
    if isinstance(reply, list | tuple):
        return [plain(item) for item in reply]
    if isinstance(reply, set | frozenset):
        return sorted((plain(item) for item in reply), key=repr)
    return reply


def _key(key: Any) -> str:
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)
