"""What the catalogue of commands knows, for whoever types: names, arguments, help.

    completions("client l")      LIST, with what it does
    hint("set k ")               "value [NX | XX] [GET] …"
    help_on([b"set"])            a few lines

Rules: names and facts come from the catalogue. It does not spell arguments out: those of the most used
commands are written down here, those of the others follow from their arity and the places of their keys.
Nothing here knows a terminal, nor a store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.protocol.catalogue import CATALOGUE, CommandSpec, lookup
from penstock.protocol.catalogue.table import GROUPS

#: Words that the shell itself understands.
OWN: Final = {
    "help": "how to use a command: help SET, help CLIENT LIST, help @stream",
    "clear": "an empty screen",
    "exit": "end the shell",
    "quit": "end the shell",
    ".json": "answers in JSON, and back again",
}

#: Arguments of commands, as people write them.
ARGUMENTS: Final[dict[str, str]] = {
    name: arguments
    for name, _, arguments in (
        line.strip().partition("  ")
        for line in """
        APPEND  key value
        BLMOVE  source destination LEFT|RIGHT LEFT|RIGHT timeout
        BLPOP  key [key …] timeout
        BRPOP  key [key …] timeout
        CLIENT KILL  ip:port|filter [value] [filter value …]
        CLIENT LIST  [TYPE normal|master|replica|pubsub] [ID id …]
        CLIENT SETNAME  name
        CONFIG GET  pattern [pattern …]
        CONFIG SET  parameter value [parameter value …]
        COPY  source destination [DB db] [REPLACE]
        DECRBY  key decrement
        ECHO  message
        EVAL  script numkeys [key …] [arg …]
        EVALSHA  sha1 numkeys [key …] [arg …]
        EXPIRE  key seconds [NX|XX|GT|LT]
        EXPIREAT  key unix-time [NX|XX|GT|LT]
        FLUSHALL  [ASYNC|SYNC]
        FLUSHDB  [ASYNC|SYNC]
        GETEX  key [EX s|PX ms|EXAT s|PXAT ms|PERSIST]
        GETRANGE  key start end
        GETSET  key value
        HDEL  key field [field …]
        HEXISTS  key field
        HGET  key field
        HINCRBY  key field increment
        HMGET  key field [field …]
        HSCAN  key cursor [MATCH pattern] [COUNT n]
        HSET  key field value [field value …]
        INCRBY  key increment
        INFO  [section …]
        KEYS  pattern
        LINDEX  key index
        LPOP  key [count]
        LPUSH  key element [element …]
        LRANGE  key start stop
        LREM  key count element
        LTRIM  key start stop
        MEMORY USAGE  key [SAMPLES n]
        MSET  key value [key value …]
        OBJECT ENCODING  key
        PEXPIRE  key milliseconds [NX|XX|GT|LT]
        PING  [message]
        PSUBSCRIBE  pattern [pattern …]
        PUBLISH  channel message
        RENAME  key newkey
        RPOP  key [count]
        RPUSH  key element [element …]
        SADD  key member [member …]
        SCAN  cursor [MATCH pattern] [COUNT n] [TYPE type]
        SELECT  index
        SET  key value [NX|XX] [GET] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL]
        SETEX  key seconds value
        SETNX  key value
        SISMEMBER  key member
        SLOWLOG GET  [count]
        SREM  key member [member …]
        SUBSCRIBE  channel [channel …]
        TACK  key group item [item …]
        TDEAD  key group reason item [item …]
        TDROP  key item [item …]
        TEVICT  key offset|-count|AGE ms [ACKED]
        TGROUP CREATE  key group offset [option value …]
        TGROUP DESTROY  key group
        TGROUP SET  key group [OFFSET offset] [option value …]
        TINFO CONSUMERS  key group
        TINFO PRODUCER  key id
        TNACK  key group delay-ms item [item …]
        TPENDING  key group [start end count [CONSUMER name]]
        TPOLICY  key [option value …]
        TREAD  key offset count [BLOCK ms] [GROUP name [CONSUMER name] [RETRY retry-ms expire-ms]] [WITHTIME]
        TRENEW  key group retry-ms item [item …]
        TSCAN  key first last [BYTES n]
        TWRITE  key tag entry
        WAIT  numreplicas timeout
        ZADD  key [NX|XX] [GT|LT] [CH] [INCR] score member [score member …]
        ZINCRBY  key increment member
        ZRANGE  key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]
        ZREM  key member [member …]
        ZSCORE  key member
        """.strip().splitlines()
    )
}

#: A word, or all between brackets.
_TOKEN: Final = re.compile(r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|\S+")


class Completion(NamedTuple):
    word: str
    summary: str


# ---------------------------------------------------------------------------------------- commands


def completions(text: str) -> list[Completion]:
    """What the last word of a line may become: names and subcommands, in the letters that are typed."""
    words = text.split()
    is_new_word = not text or text[-1].isspace()
    last = "" if is_new_word else words.pop()
    if words and words[0].lower() == "help":
        words = words[1:]
    found = [
        each
        for each in _continuations(words)
        if each.word.upper().startswith(last.upper()) and each.word.upper() != last.upper()
    ]
    if last and last.islower():
        return [Completion(each.word.lower(), each.summary) for each in found]
    return found


def _continuations(words: Sequence[str]) -> Iterator[Completion]:
    if not words:
        yield from (Completion(word, summary) for word, summary in OWN.items())
        for spec in sorted(CATALOGUE.values(), key=lambda spec: spec.name):
            yield Completion(spec.name.decode(), spec.summary)
    elif len(words) == 1 and (found := lookup(words[0].encode())) is not None:
        for spec in found.subcommands.values():
            yield Completion(spec.name.decode(), spec.summary)


def find(words: Sequence[bytes]) -> CommandSpec | None:
    """The command, or the subcommand, that words begin with."""
    spec = lookup(words[0]) if words else None
    if spec is None or len(words) == 1:
        return spec
    return spec.subcommands.get(words[1].upper(), spec)


# --------------------------------------------------------------------------------------- arguments


def arguments_of(spec: CommandSpec) -> str:
    """How a command goes on behind its name."""
    known = ARGUMENTS.get(title(spec))
    return _derived(spec) if known is None else known


def _derived(spec: CommandSpec) -> str:
    """From what the catalogue has: how many there are, and which are keys."""
    if spec.subcommands:
        return "subcommand [arg …]"
    first = 2 if b"|" in spec.full_name else 1
    words = [_place(spec, at) for at in range(first, abs(spec.arity))]
    if spec.arity > 0:
        return " ".join(words)
    keys = [key for key in spec.key_specs if key.is_fixed and key.last < 0]
    repeated = " ".join(["key", *["arg"] * (keys[0].step - 1)]) if keys else "arg"
    return " ".join([*words, f"[{repeated} …]"])


def _place(spec: CommandSpec, at: int) -> str:
    for keys in spec.key_specs:
        if keys.counted and at == keys.start:
            return "numkeys"
        if keys.counted and at > keys.start:
            return "key"
        last = keys.last if keys.last >= 0 else abs(spec.arity) + keys.last
        if keys.is_fixed and keys.start <= at <= max(last, keys.start) and not (at - keys.start) % keys.step:
            return "key"
    return "arg"


def hint(text: str) -> str:
    """What is still missing of a line; empty if nobody knows."""
    words = text.split()
    if not words or words[0] in OWN:
        return ""
    spec = find([word.encode() for word in words])
    if spec is None or (spec.subcommands and len(words) > 1):
        return ""
    if text[-1] != " " and len(words) <= 1 + (b"|" in spec.full_name):
        return ""  # the name may go on
    typed = len(words) - 1 - (b"|" in spec.full_name)
    tokens = _TOKEN.findall(arguments_of(spec))
    rest = tokens[typed:] or [token for token in tokens[-1:] if "…" in token]
    return ("" if text[-1] == " " else " ") + " ".join(rest) if rest else ""


# -------------------------------------------------------------------------------------------- help


def title(spec: CommandSpec) -> str:
    """As people write it: ``CLIENT LIST``."""
    return spec.full_name.decode().replace("|", " ").upper()


def help_on(words: Sequence[bytes]) -> str:
    """A few lines on a command, on a group (``@stream``), or on the shell itself."""
    if not words:
        return _help_on_shell()
    first = words[0].decode("utf-8", "replace")
    if first.startswith("@"):
        return _help_on_group(first[1:].lower())
    if first.lower() in OWN:
        return f"\n  {first.lower()}\n  summary: {OWN[first.lower()]}\n"
    spec = find(words)
    if spec is None:
        return f"there is no command {first!r} in the catalogue: help @GROUP lists those of a group\n"
    lines = [f"  {title(spec)} {arguments_of(spec)}".rstrip(), f"  summary: {spec.summary}"]
    lines += [f"  since: {spec.since}", f"  group: {spec.group}"]
    if spec.deprecated_since:
        lines.append(f"  deprecated since {spec.deprecated_since}: use {spec.replaced_by}")
    if spec.subcommands:
        lines += [f"    {title(each)}  {each.summary}" for each in spec.subcommands.values()]
    return "\n" + "\n".join(lines) + "\n\n"


def _help_on_group(group: str) -> str:
    if group not in GROUPS:
        return f"groups are: {' '.join(f'@{name}' for name in GROUPS)}\n"
    specs = [spec for spec in CATALOGUE.values() if spec.group == group]
    width = max(len(title(spec)) for spec in specs)
    return "".join(f"  {title(spec).ljust(width)}  {spec.summary}\n" for spec in specs)


def _help_on_shell() -> str:
    own = "".join(f"  {word.ljust(6)}  {summary}\n" for word, summary in OWN.items())
    return (
        f"{own}  Tab     completes commands; arguments are shown as you type\n"
        "  Ctrl-C  ends what waits (SUBSCRIBE, MONITOR, TREAD BLOCK); Ctrl-D ends the shell\n"
        f"  groups  {' '.join(f'@{name}' for name in GROUPS)}\n"
    )
