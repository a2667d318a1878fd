"""Patterns: they match what Python's own regular expressions match, and never slowly."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.transactions.pipelines.patterns import (
    MAX_PATTERN_LENGTH,
    MAX_TEXT_LENGTH,
    PatternError,
    compile_pattern,
)

_atoms = st.sampled_from(["a", "b", ".", r"\d", r"\W", "[ab]", "[^b1]", r"\.", r"[\d.-]"])
_marks = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,}", "{0,3}"])
_patterns = st.recursive(
    st.builds(str.__add__, _atoms, _marks),
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{}){}".format, inner, inner, _marks),
        st.builds("({}){}".format, inner, _marks),
    ),
    max_leaves=6,
)


@given(_patterns, st.text("ab1.-\n", max_size=8))
def test_it_matches_what_regular_expressions_match(pattern: str, text: str) -> None:
    assert compile_pattern(pattern).matches(text) == (re.fullmatch(pattern, text, re.ASCII) is not None)


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        (r"^[A-Z]{2}\d{2}[A-Z0-9]{1,30}$", "DE89370400440532013000", "DE8937040044053201300!"),
        (r"[\w.+-]+@[\w-]+(\.[\w-]+)+", "a.b+c@example.co.uk", "a.b@example"),
        (r"\d{4}-\d{2}-\d{2}", "2026-07-01", "2026-7-01"),
        (r"costs \$", "costs $", "costs "),
        (r"back\\", "back\\", "back"),
        (r"back\\$", "back\\", "back\\$"),
        (r"[\]\[^]", "^", "a"),
        ("é|", "é", "e"),
        ("é|", "", " "),
    ],
)
def test_the_whole_text_must_match(pattern: str, right: str, wrong: str) -> None:
    assert compile_pattern(pattern).matches(right)
    assert not compile_pattern(pattern).matches(wrong)
    assert not compile_pattern(pattern).matches(right + right + "\n")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a", "not closed"),
        ("a)", "did not open"),
        ("[a", "class"),
        ("[[a]]", "class"),
        ("[a--b]", "class"),
        ("[z-a]", "wrong"),
        ("*a", "nothing before"),
        ("a|+", "nothing before"),
        ("a**", "follow another"),
        ("a+?", "follow another"),
        ("a++", "follow another"),
        ("a{", "count"),
        ("a{3,1}", "counts"),
        ("a{0}", "counts"),
        (r"(a)\1", "not supported"),
        (r"\bword", "not supported"),
        ("a\\", "not supported"),
        ("(?=a)", "not supported"),
        ("(?P<x>a)", "not supported"),
        ("a^b", "start"),
        ("a$b", "end"),
        ("a{300}", "repeats too much"),
        ("((a{90}){90}){90}", "repeats too much"),
        ("(" * 30 + "a" + ")" * 30, "deeper"),
        ("a" * (MAX_PATTERN_LENGTH + 1), "longer"),
    ],
)
def test_what_is_not_of_the_subset_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(PatternError, match=why):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "a*a*a*a*a*a*b", "(a|aa|aaa)+b"])
def test_no_text_takes_long(pattern: str) -> None:
    text = "a" * MAX_TEXT_LENGTH
    began_s = time.process_time()
    assert not compile_pattern(pattern).matches(text)
    assert compile_pattern(pattern).matches(text[1:] + "b")
    assert time.process_time() - began_s < 2  # by trying every way it would take longer than anybody lives
    assert not compile_pattern(pattern).matches(text + "b")  # longer than any text may be
