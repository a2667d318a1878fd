"""What the catalogue of commands knows, for whoever types: names, arguments, help.

    completions("client l")      LIST, with what it does
    hint("set k ")               "value [NX | XX] [GET] …"
    help_on([b"set"])            a few lines

Rules: names, facts and arguments come from the catalogue. Nothing here knows a terminal, nor a store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.protocol.catalogue import CATALOGUE, CommandSpec, lookup
from penstock.protocol.catalogue.table import GROUPS
from penstock.protocol.catalogue.usage import USAGE

#: Words that the shell itself understands.
OWN: Final = {
    "help": "how to use a command: help SET, help CLIENT LIST, help @stream",
    "clear": "an empty screen",
    "exit": "end the shell",
    "quit": "end the shell",
    ".json": "answers in JSON, and back again",
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
    return "subcommand [arg …]" if spec.subcommands else USAGE.get(title(spec), "")


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
