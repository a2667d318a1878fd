"""Several answers made into one: order, what is dropped, and how far each store may be moved."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from penstock.channels.merging import interleave, is_known, is_thin, merge, merge_infos, unseen
from penstock.channels.model import Batch, ChannelInfo, Message


def row(ids: str) -> tuple[Message, ...]:
    """A message for each letter; its clock is its place in this store."""
    return tuple(Message(each, b"0", clock) for clock, each in enumerate(ids, 1))


def batch(ids: str, more: bool = False) -> Batch:
    return Batch(row(ids), more, "receipt" if ids else None)


def order(*rows: str) -> str:
    return "".join(message.id for message in interleave([row(ids) for ids in rows]))


class TestOrder:
    def test_of_nobody_is_empty(self):
        assert order() == ""
        assert order("", "") == ""

    def test_of_equals_is_theirs(self):
        assert order("abc", "abc", "abc") == "abc"

    def test_what_only_one_has_stays_between_its_neighbours(self):
        assert order("acd", "abc") == "abcd"

    def test_a_store_that_missed_the_beginning_does_not_push_forward(self):
        assert order("e", "cde") == "cde"

    def test_a_store_that_has_nothing_changes_nothing(self):
        assert order("", "ab", "") == "ab"

    def test_opposite_orders_go_by_the_first_store(self):
        assert order("ab", "ba") == "ab"
        assert order("ba", "ab") == "ba"

    def test_a_ring_of_three(self):
        assert order("ab", "bc", "ca") == "abc"

    def test_a_swap_disturbs_only_its_neighbours(self):
        assert order("abcdef", "abdcef") == "abcdef"


class TestMerge:
    def test_at_most_the_limit_and_then_there_is_more(self):
        merged = merge({"one": batch("abc"), "two": batch("abd")}, set(), 3)
        assert [message.id for message in merged.messages] == ["a", "b", "c"]
        assert merged.more
        assert merged.reached == {"one": 3, "two": 2}

    def test_more_of_any_store_counts(self):
        assert merge({"one": batch("a"), "two": batch("a", more=True)}, set(), 9).more
        assert not merge({"one": batch("a"), "two": batch("a")}, set(), 9).more

    def test_the_clock_is_that_of_the_first_store_that_has_it(self):
        merged = merge({"one": batch("b"), "two": batch("ab")}, set(), 9)
        assert [(message.id, message.clock) for message in merged.messages] == [("a", 1), ("b", 1)]

    def test_old_messages_are_dropped_and_their_store_lags(self):
        merged = merge({"one": batch(""), "two": batch("ab")}, {"a", "b"}, 9)
        assert merged == ((), False, {}, {"two": 2})

    def test_old_messages_before_given_ones_go_with_their_receipt(self):
        merged = merge({"one": batch("c"), "two": batch("abc")}, {"a", "b"}, 9)
        assert merged.reached == {"one": 1, "two": 3}
        assert merged.lagging == {}

    def test_old_messages_before_what_did_not_fit_are_passed_at_once(self):
        merged = merge({"one": batch("cd"), "two": batch("abd")}, {"a", "b"}, 1)
        assert [message.id for message in merged.messages] == ["c"]
        assert merged.reached == {"one": 1}
        assert merged.lagging == {"two": 2}

    def test_a_store_is_not_moved_over_what_was_not_given(self):
        """The message ``b`` of the second store would be lost: passed there, it is old everywhere."""
        merged = merge({"one": batch("ab"), "two": batch("ba")}, set(), 1)
        assert [message.id for message in merged.messages] == ["a"]
        assert merged.reached == {"one": 1}

    def test_limit_0_gives_nothing_and_tells_that_there_is_more(self):
        merged = merge({"one": batch("", more=True)}, set(), 0)
        assert merged.more
        assert merged.messages == ()


rows_of_letters = st.lists(
    st.text("abcdefgh", max_size=8).map(lambda t: "".join(dict.fromkeys(t))), max_size=4
)


@given(rows_of_letters)
def test_every_message_comes_once_and_the_order_is_reproducible(rows: list[str]):
    found = order(*rows)
    assert sorted(found) == sorted(set("".join(rows)))
    assert found == order(*rows)


@given(st.permutations("abcdefgh"), st.lists(st.sets(st.sampled_from("abcdefgh")), min_size=1, max_size=4))
def test_stores_that_agree_are_followed(publishing: list[str], held: list[set[str]]):
    """Each store has some of the messages, all in the order of one publisher."""
    rows = ["".join(each for each in publishing if each in some) for some in held]
    found = order(*rows)
    for kept in rows:
        assert "".join(each for each in found if each in kept) == kept


@given(rows_of_letters, st.sets(st.sampled_from("abcdefgh")), st.integers(0, 9))
def test_what_is_given_is_covered_and_nothing_else_is_passed(rows: list[str], old: set[str], limit: int):
    batches = {str(at): batch(ids) for at, ids in enumerate(rows)}
    merged = merge(batches, old, limit)
    ids = {message.id for message in merged.messages}
    assert len(merged.messages) == len(ids) <= limit
    assert not ids & old
    passed = {
        message.id
        for name, count in itertools.chain(merged.reached.items(), merged.lagging.items())
        for message in batches[name].messages[:count]
    }
    assert ids <= passed <= ids | old
    assert not merged.reached.keys() & merged.lagging.keys()
    assert all(merged.lagging.values())
    assert all(merged.reached.values())
    left = set("".join(rows)) - old - ids
    assert bool(left) <= merged.more


def test_unseen_names_what_others_gave():
    batches = {"one": batch("ab"), "two": batch("bc"), "three": batch("abc"), "four": batch("")}
    assert unseen(batches) == {"one": ["c"], "two": ["a"], "four": ["a", "b", "c"]}
    assert unseen({"one": batch("ab"), "two": batch("ba")}) == {}


def test_what_too_few_gave_is_thin():
    batches = {"one": batch("ab"), "two": batch("bc"), "three": batch("ac")}
    assert not is_thin(batches, 1)
    assert not is_thin(batches, 2)
    assert is_thin(batches, 3)
    assert is_thin({**batches, "two": batch("b")}, 2)
    assert not is_thin({}, 2)


def test_who_is_right_about_a_subscriber():
    #                      having  lacking  quorum
    assert is_known(1, 1, 1)
    assert is_known(2, 1, 2)
    assert is_known(1, 1, 2)  # the third store is silent
    assert not is_known(1, 2, 2)
    assert not is_known(0, 1, 1)
    assert not is_known(0, 0, 1)
    assert is_known(1, 2, 1)


def test_infos():
    one = ChannelInfo("room", 5, 100, {"alice": 5, "bob": 0})
    two = ChannelInfo("room", 3, 900, {"alice": 1, "carol": 2})
    assert merge_infos([]) is None
    assert merge_infos([one, two]) == ChannelInfo("room", 5, 900, {"alice": 1, "bob": 0, "carol": 2})
