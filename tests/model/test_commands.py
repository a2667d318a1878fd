"""Random commands to our engine and to a real server: every reply and every key must agree.

``grammar`` has the commands, ``pools`` the words, ``comparing`` what "agree" means and the
list of known deviations. Within one family commands meet the same few keys again and
again; then everything is mixed; then two clients watch one another's transactions.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from tests.model.drawing import SOAK_FACTOR, Step, batches, sequences, tries
from tests.model.grammar import FAMILIES, Mixture, everything, family, transactions
from tests.model.pair import EndOfComparison, Pair

PairOf = Callable[..., Pair]

_EXAMPLES = 40
_EXAMPLES_OF_EVERYTHING = 100


def compare(pair: Pair, sequence: list[Step | None]) -> None:
    pair.reset()
    try:
        for batch in batches(sequence):
            pair.run(batch)
        pair.compare_keyspaces()
    except EndOfComparison:
        pass


def try_out(pair: Pair, source: Mixture, examples: int) -> None:
    @tries(examples)
    @given(sequences(source, len(pair.connections)))
    def agree(sequence: list[Step | None]) -> None:
        compare(pair, sequence)

    agree()


@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family(pair_of: PairOf, name: str, resp: int) -> None:
    try_out(pair_of(resp), family(name), _EXAMPLES)


@pytest.mark.parametrize("resp", [2, 3])
def test_everything(pair_of: PairOf, resp: int) -> None:
    try_out(pair_of(resp), everything(), _EXAMPLES_OF_EVERYTHING)


@pytest.mark.parametrize("resp", [2, 3])
def test_transactions_of_two_clients(pair_of: PairOf, resp: int) -> None:
    try_out(pair_of(resp, 2), transactions(), _EXAMPLES_OF_EVERYTHING)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_for_long(pair_of: PairOf, name: str, resp: int) -> None:
    try_out(pair_of(resp), family(name), _EXAMPLES * SOAK_FACTOR)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("resp", [2, 3])
def test_everything_for_long(pair_of: PairOf, resp: int) -> None:
    try_out(pair_of(resp), everything(), _EXAMPLES_OF_EVERYTHING * SOAK_FACTOR)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("resp", [2, 3])
def test_transactions_of_two_clients_for_long(pair_of: PairOf, resp: int) -> None:
    try_out(pair_of(resp, 2), transactions(), _EXAMPLES_OF_EVERYTHING * SOAK_FACTOR)
