r"""Patterns for field checks, matched in time that grows with the text alone.

A subset of regular expressions, always matched against the whole text, in which nothing can be
slow: the pattern becomes an automaton, and all its states walk through the text together.

======================  =====================================================================
``a`` ``.``             a character; any but a line break
``\d \w \s \D \W \S``   classes, of ASCII
``\. \\ \t \n \r`` …    a character that would mean something else
``[a-z_]`` ``[^,]``     one of these, none of these
``(…)`` ``(?:…)``       a group; nothing is captured
``a|b``                 either
``* + ? {2} {2,} {2,5}``  repeated
``^`` first, ``$`` last   allowed, and without effect
======================  =====================================================================

References back, looking around, lazy and possessive repetition are refused. Knows nothing of pipelines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

MAX_PATTERN_LENGTH: Final = 256
MAX_TEXT_LENGTH: Final = 4_096
#: Of the automaton; repetitions that are counted take one for each time.
MAX_STATES: Final = 256
_MAX_DEPTH: Final = 20
#: Steps that are remembered, so that usual texts cost a lookup a character.
_MAX_REMEMBERED: Final = 2_048

_COUNT: Final = re.compile(r"\{(\d{1,4})(,(\d{1,4})?)?\}")
_CLASS: Final = re.compile(r"\[\^?(?:\\[dwsDWStnr\W]|[^\]\\\[^])(?:\\[dwsDWStnr\W]|[^\]\\\[])*\]")
#: What Python may once read as an operation on sets.
_SET_OPERATION: Final = re.compile(r"--|&&|\|\||~~")
_ESCAPES: Final = frozenset("dwsDWStnr")

Test = Callable[[str], object]


class PatternError(ValueError):
    """The pattern is not of the subset; the text says why."""


class _State(NamedTuple):
    #: what a character must pass to go on; None goes on without one
    test: Test | None
    following: list[int]


class Pattern:
    """A pattern, ready to match. Make one with :func:`compile_pattern`."""

    def __init__(self, text: str) -> None:
        self.text = text
        parser = _Parser(text)
        self._states = parser.states
        self._start = self._closed([parser.start])
        self._remembered: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """Whether the whole text matches; one longer than MAX_TEXT_LENGTH never does."""
        if len(text) > MAX_TEXT_LENGTH:
            return False
        current = self._start
        for character in text:
            current = self._remembered.get((current, character)) or self._after(current, character)
            if not current:
                return False
        return _ACCEPT in current

    def _after(self, current: frozenset[int], character: str) -> frozenset[int]:
        found = [
            target
            for state in current
            if (test := self._states[state].test) is not None and test(character)
            for target in self._states[state].following
        ]
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[current, character] = after = self._closed(found)
        return after

    def _closed(self, open_: list[int]) -> frozenset[int]:
        """With all that can be reached from these without a character."""
        seen: set[int] = set()
        while open_:
            state = open_.pop()
            if state not in seen:
                seen.add(state)
                if self._states[state].test is None:
                    open_.extend(self._states[state].following)
        return frozenset(seen)

    def __repr__(self) -> str:
        return f"<Pattern {self.text!r} {len(self._states)} states>"


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """The pattern, or PatternError."""
    if len(text) > MAX_PATTERN_LENGTH:
        raise PatternError(f"it is longer than {MAX_PATTERN_LENGTH} characters")
    return Pattern(text)


#: The state that ends the text.
_ACCEPT: Final = 0

#: A part of a pattern: given the state behind it, it builds itself and answers its first state.
_Part = Callable[[int], int]


class _Parser:
    """Reads a pattern into parts, which then build the automaton from its end."""

    def __init__(self, text: str) -> None:
        # Anchors change nothing where all of the text must match.
        text = text.removeprefix("^")
        slashes = len(text[:-1]) - len(text[:-1].rstrip("\\"))
        self._text = text[:-1] if text.endswith("$") and slashes % 2 == 0 else text
        self._at = 0
        self._depth = 0
        self.states: list[_State] = [_State(None, [])]
        whole = self._either()
        if self._at < len(self._text):
            raise PatternError("it closes a group that it did not open")
        self.start = whole(_ACCEPT)

    def _add(self, test: Test | None, *following: int) -> int:
        if len(self.states) >= MAX_STATES:
            raise PatternError("it repeats too much: count less, and bound the length with max_length")
        self.states.append(_State(test, list(following)))
        return len(self.states) - 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _either(self) -> _Part:
        ways = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            ways.append(self._sequence())
        if len(ways) == 1:
            return ways[0]
        return lambda behind: self._add(None, *[way(behind) for way in ways])

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))

        def build(behind: int) -> int:
            for part in reversed(parts):
                behind = part(behind)
            return behind

        return build

    def _atom(self) -> _Part:
        character = self._peek()
        if character == "(":
            return self._group()
        if character in "*+?{":
            raise PatternError(f"there is nothing before {character!r} that it could repeat")
        if character in "^$":
            raise PatternError(
                f"{character!r} may only stand at its {'start' if character == '^' else 'end'}"
            )
        if character == "[":
            found = _CLASS.match(self._text, self._at)
            if found is None or _SET_OPERATION.search(found[0]):
                raise PatternError(
                    "a class in it is wrong: close it, and write \\[ \\^ \\- for the characters"
                )
            return self._single(found[0])
        if character == "\\":
            escaped = self._text[self._at + 1 : self._at + 2]
            if not escaped or (escaped.isalnum() and escaped not in _ESCAPES):
                raise PatternError(f"'\\{escaped}' is not supported")
            return self._single("\\" + escaped)
        if character == ".":
            return self._single(".")
        self._at += 1
        return lambda behind: self._add(character.__eq__, behind)

    def _single(self, source: str) -> _Part:
        self._at += len(source)
        try:
            test = re.compile(source, re.ASCII).fullmatch
        except re.error as error:
            raise PatternError(f"{source!r} is wrong: {error}") from None
        return lambda behind: self._add(test, behind)

    def _group(self) -> _Part:
        self._at += 3 if self._text.startswith("(?:", self._at) else 1
        if self._peek() == "?":
            raise PatternError("groups that begin with '(?' are not supported, but for '(?:'")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PatternError(f"its groups are nested deeper than {_MAX_DEPTH}")
        inner = self._either()
        self._depth -= 1
        if self._peek() != ")":
            raise PatternError("a group in it is not closed")
        self._at += 1
        return inner

    def _repeated(self, part: _Part) -> _Part:
        mark = self._peek()
        if not mark or mark not in "*+?{":
            return part
        least, most = self._counts(mark)
        if (following := self._peek()) and following in "*+?{":
            raise PatternError("a repetition may not follow another: put the first into a group")

        def build(behind: int) -> int:
            first = behind
            if most is None:
                first = self._add(None, behind)
                self.states[first].following.append(part(first))
            for _ in range((most or least) - least):
                first = self._add(None, part(first), behind)
            for _ in range(least):
                first = part(first)
            return first

        return build

    def _counts(self, mark: str) -> tuple[int, int | None]:
        if mark != "{":
            self._at += 1
            return (1 if mark == "+" else 0), (1 if mark == "?" else None)
        found = _COUNT.match(self._text, self._at)
        if found is None:
            raise PatternError("'{' must begin a count such as {3} or {1,5}, or be written \\{")
        self._at = found.end()
        least = int(found[1])
        most = (None if found[3] is None else int(found[3])) if found[2] else least
        if most is not None and most < max(least, 1):
            raise PatternError(f"{found[0]!r} counts to less than it begins with, or to nothing")
        return least, most
