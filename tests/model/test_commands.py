"""Random commands to our engine and to a real server: every reply and every key must agree.

``grammar`` has the commands, ``pools`` the words, ``comparing`` what "agree" means and the
list of known deviations. Within one family commands meet the same few keys again and
again; then everything is mixed; then commands run in scripts, then two clients watch one
another's transactions, then somebody listens to what is told about keys.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from tests.effort import scaled
from tests.model.drawing import Step, batches, how_long, sequences, tries
from tests.model.grammar import FAMILIES, everything, family, keys_of_commands, scripts, transactions
from tests.model.pair import EndOfComparison, Pair
from tests.model.templates import Source

PairOf = Callable[..., Pair]

_EXAMPLES = scaled(30)
_EXAMPLES_OF_EVERYTHING = scaled(60)


def compare(pair: Pair, sequence: list[Step | None]) -> None:
    pair.reset()
    try:
        for batch in batches(sequence):
            pair.run(batch)
        pair.compare_keyspaces()
    except EndOfComparison:
        pass


def try_out(pair: Pair, source: Source, examples: int, rounds: int) -> None:
    @tries(examples)
    @given(sequences(source, len(pair.connections)))
    def agree(sequence: list[Step | None]) -> None:
        compare(pair, sequence)

    for _ in range(rounds):
        agree()


both_protocols = pytest.mark.parametrize("resp", [2, 3])


@how_long
@both_protocols
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family(pair_of: PairOf, name: str, resp: int, rounds: int) -> None:
    try_out(pair_of(resp), family(name), _EXAMPLES, rounds)


@how_long
@both_protocols
def test_everything(pair_of: PairOf, resp: int, rounds: int) -> None:
    try_out(pair_of(resp), everything(), _EXAMPLES_OF_EVERYTHING, rounds)


@pytest.mark.usefixtures("only_redis")
@how_long
@both_protocols
def test_scripts(pair_of: PairOf, resp: int, rounds: int) -> None:
    try_out(pair_of(resp), scripts(), _EXAMPLES_OF_EVERYTHING, rounds)


@how_long
@both_protocols
def test_transactions_of_two_clients(pair_of: PairOf, resp: int, rounds: int) -> None:
    try_out(pair_of(resp, 2), transactions(), _EXAMPLES_OF_EVERYTHING, rounds)


@pytest.mark.usefixtures("only_redis")
@how_long
def test_keys_of_commands(pair_of: PairOf, rounds: int) -> None:
    try_out(pair_of(3), keys_of_commands(), _EXAMPLES, rounds)


@pytest.mark.usefixtures("only_redis")
@how_long
def test_what_is_told_about_keys(pair_of: PairOf, rounds: int) -> None:
    pair = pair_of(3)
    with pair.listening():
        try_out(pair, scripts(), _EXAMPLES_OF_EVERYTHING, rounds)
