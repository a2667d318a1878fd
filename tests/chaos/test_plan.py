"""The plan of the weather: the same from the same seed, and nothing that a scene does not offer."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chaos.plan import (
    ALL,
    CROWDED,
    KINDS,
    KINDS_OF_MEMBERS,
    LANE_OF,
    MOST_SHIFT_MS,
    MOST_STOPPED_S,
    Event,
    Offer,
    draw,
    seed_of_life,
)

seeds = st.integers(0, 2**32 - 1)
seconds = st.floats(0.5, 60)
offers = st.builds(
    Offer,
    st.frozensets(st.sampled_from(KINDS)),
    st.dictionaries(st.text("abc", min_size=1), st.floats(0.1, 2), min_size=1),
    st.lists(st.sampled_from(["node-0", "node-1", "node-2"]), min_size=1, unique=True),
)


@settings(max_examples=40)
@given(seeds, seconds, offers)
def test_a_plan_follows_from_its_arguments_and_hurts_only_what_is_there(
    seed: int, length_s: float, offer: Offer
) -> None:
    plan = draw(seed, length_s, offer)
    assert plan == draw(seed, length_s, offer)
    assert plan == sorted(plan, key=lambda event: event.at_s)
    targets = {*offer.members, *offer.nodes, ALL}
    for event in plan:
        assert event.kind in offer.kinds
        assert event.target in targets
        assert (event.target in offer.members) or event.kind not in ("kill", "stop")
        assert 0 <= event.at_s <= length_s
        assert event.at_s + event.lasts_s <= length_s + 1e-9


@settings(max_examples=40)
@given(seeds, seconds, offers)
def test_in_a_lane_one_thing_happens_after_the_other(seed: int, length_s: float, offer: Offer) -> None:
    free_s: defaultdict[str, float] = defaultdict(float)
    for event in draw(seed, length_s, offer):
        lane = LANE_OF[event.kind]
        if lane not in CROWDED:
            assert event.at_s >= free_s[lane] - 0.002
            free_s[lane] = event.at_s + event.lasts_s


@settings(max_examples=30)
@given(seeds, offers)
def test_amounts_stay_within_their_limits(seed: int, offer: Offer) -> None:
    for event in draw(seed, 60, offer):
        match event.kind:
            case "stop" | "store-stop":
                assert 0 <= event.lasts_s <= MOST_STOPPED_S
            case "clock":
                assert 0 < abs(event.amount) <= MOST_SHIFT_MS
            case "cut":
                assert 0 < event.amount <= 1
            case "delay":
                assert event.amount > 0


@settings(max_examples=10)
@given(seeds)
def test_every_kind_comes_in_time(seed: int) -> None:
    """The bag sees to it: in ten minutes nothing that is offered stays away."""
    plan = draw(seed, 600, Offer(frozenset(KINDS), {"a": 1.0}, ["node-0"]))
    assert {event.kind for event in plan} == set(KINDS)


@settings(max_examples=20)
@given(seeds)
def test_a_scene_that_lacks_a_lane_sees_the_others_as_before(seed: int) -> None:
    members = {"a": 1.0, "b": 0.3}
    every = draw(seed, 30, Offer(frozenset(KINDS), members, ["node-0"]))
    some = draw(seed, 30, Offer(KINDS_OF_MEMBERS, members))
    assert some == [event for event in every if event.kind in KINDS_OF_MEMBERS]


def test_a_member_of_small_weight_is_seldom_chosen() -> None:
    offer = Offer(frozenset({"kill"}), {"usual": 1.0, "costly": 0.1})
    chosen = [event.target for event in draw(1, 600, offer)]
    assert 0 < chosen.count("costly") < len(chosen) / 4


def test_each_life_has_a_seed_of_its_own_which_is_the_same_in_every_run() -> None:
    assert seed_of_life(7, "writer", 0) == seed_of_life(7, "writer", 0)
    assert len({seed_of_life(s, m, n) for s in (7, 8) for m in ("writer", "reader") for n in (0, 1)}) == 8


def test_an_event_tells_all_that_there_is_to_it() -> None:
    event = Event(1.5, "clock", ALL, -4_000.0, 0.25)
    assert str(event) == "    1.500  clock       all by -4000 for 0.250 s"


def test_a_storm_needs_time() -> None:
    with pytest.raises(ValueError, match="seconds must be more than 0, not 0"):
        draw(1, 0, Offer(frozenset(KINDS)))
