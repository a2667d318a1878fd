"""Commands from templates: one line a command, from which any number of variants is drawn.

    4 SET key value [NX|XX] [GET] [EX seconds|KEEPTTL]

=============  ==============================================================
in a template  becomes
=============  ==============================================================
``4`` first    how often the line is chosen, beside lines without a number: 1
``SET``        itself, in upper or lower case
``key``        a word of the pool of that name
``[a|b]``      one of the alternatives, or nothing
``(a|b)``      one of the alternatives
``key+``       one to three of them (``*``: none to three; ``(…)+`` works too)
``#key``       a number and that many of them
=============  ==============================================================

Choices are made by a :class:`Chooser`, so that the same grammar serves Hypothesis, which
can shrink what it drew, and plain random numbers. Nothing here knows what commands mean.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

Argv: TypeAlias = list[bytes]


class Chooser(Protocol):
    def below(self, limit: int) -> int:
        """A number from 0 to ``limit`` - 1; small ones are simpler."""


class Source(Protocol):
    """Where random commands come from."""

    def command(self, chooser: Chooser) -> Argv: ...


class Drawn:
    """Choices of Hypothesis."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
        self._draw = draw

    def below(self, limit: int) -> int:
        return self._draw(_numbers_below(limit)) if limit > 1 else 0


class Rolled:
    """Choices of a random number generator."""

    def __init__(self, seed: int) -> None:
        self.below = random.Random(seed).randrange


_strategies: dict[int, st.SearchStrategy[int]] = {}


def _numbers_below(limit: int) -> st.SearchStrategy[int]:
    if limit not in _strategies:
        _strategies[limit] = st.integers(0, limit - 1)
    return _strategies[limit]


def pick(chooser: Chooser, items: Sequence[T]) -> T:
    return items[chooser.below(len(items))]


#: Appends the words of one part of a command.
Part: TypeAlias = Callable[[Chooser, Argv], None]
#: What a lower-case name stands for: words to pick from, or a part of its own.
Pool: TypeAlias = Sequence[bytes] | Part

_TOKENS = re.compile(r"[A-Za-z_0-9.\-:@]+|[][()|+*#]")


class Template:
    """One compiled line."""

    def __init__(self, line: str, pools: Mapping[str, Pool]) -> None:
        self._tokens: list[str] = _TOKENS.findall(line)
        self._at = 0
        self._pools = pools
        self.weight = int(self._next()) if self._tokens[0].isdigit() else 1
        self.name = self._tokens[self._at]
        self.part = self._alternatives("")
        assert self._at == len(self._tokens), f"template not understood behind {self._tokens[: self._at]}"

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _alternatives(self, end: str) -> Part:
        choices = [self._sequence(end)]
        while self._peek() == "|":
            self._next()
            choices.append(self._sequence(end))
        if end:
            closing = self._next()
            assert closing == end, f"{closing} instead of {end}"
        return choices[0] if len(choices) == 1 else _one_of(choices)

    def _sequence(self, end: str) -> Part:
        parts = []
        while self._peek() not in ("|", end):
            parts.append(self._element())
        return parts[0] if len(parts) == 1 else _all_of(parts)

    def _element(self) -> Part:
        token = self._next()
        if token == "#":
            return _counted(self._element())
        if token == "[":
            part = _maybe(self._alternatives("]"))
        elif token == "(":
            part = self._alternatives(")")
        elif token.upper() == token:
            part = _literal(token.encode())
        else:
            pool = self._pools[token]
            part = pool if callable(pool) else _from_pool(pool)
        if self._peek() in ("+", "*"):
            part = _repeated(part, 1 if self._next() == "+" else 0)
        return part


def _literal(word: bytes) -> Part:
    def part(chooser: Chooser, words: Argv) -> None:
        words.append(word.lower() if chooser.below(8) == 7 else word)

    return part


def _from_pool(pool: Sequence[bytes]) -> Part:
    def part(chooser: Chooser, words: Argv) -> None:
        words.append(pool[chooser.below(len(pool))])

    return part


def _one_of(choices: list[Part]) -> Part:
    def part(chooser: Chooser, words: Argv) -> None:
        choices[chooser.below(len(choices))](chooser, words)

    return part


def _all_of(parts: list[Part]) -> Part:
    def part(chooser: Chooser, words: Argv) -> None:
        for each in parts:
            each(chooser, words)

    return part


def _maybe(inner: Part) -> Part:
    def part(chooser: Chooser, words: Argv) -> None:
        if chooser.below(3) == 2:
            inner(chooser, words)

    return part


def _repeated(inner: Part, least: int) -> Part:
    def part(chooser: Chooser, words: Argv) -> None:
        for _ in range(least + chooser.below(4 - least)):
            inner(chooser, words)

    return part


def _counted(inner: Part) -> Part:
    def part(chooser: Chooser, words: Argv) -> None:
        count = 1 + chooser.below(3)
        words.append(b"%d" % count)
        for _ in range(count):
            inner(chooser, words)

    return part


class Grammar:
    """Several lines; :meth:`command` draws one command."""

    def __init__(self, text: str, pools: Mapping[str, Pool]) -> None:
        self.templates = [Template(line, pools) for line in text.strip().splitlines() if line.strip()]
        self._bag = [template.part for template in self.templates for _ in range(template.weight)]

    def command(self, chooser: Chooser) -> Argv:
        words: Argv = []
        self._bag[chooser.below(len(self._bag))](chooser, words)
        return words


def spoil(chooser: Chooser, argv: Argv, junk: Sequence[bytes]) -> Argv:
    """The command with one mistake in it: a word missing, too many, doubled, exchanged or senseless."""
    spoiled = list(argv)
    match chooser.below(5):
        case 0:
            spoiled.append(pick(chooser, junk))
        case 1 if len(spoiled) > 1:
            del spoiled[1 + chooser.below(len(spoiled) - 1)]
        case 2 if len(spoiled) > 1:
            spoiled[1 + chooser.below(len(spoiled) - 1)] = pick(chooser, junk)
        case 3 if len(spoiled) > 1:
            at = 1 + chooser.below(len(spoiled) - 1)
            spoiled.insert(at, spoiled[at])
        case 4 if len(spoiled) > 2:
            one, other = 1 + chooser.below(len(spoiled) - 1), 1 + chooser.below(len(spoiled) - 1)
            spoiled[one], spoiled[other] = spoiled[other], spoiled[one]
    return spoiled
