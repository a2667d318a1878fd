"""Geohashes: fixed places, and GEOADD, GEOPOS, GEODIST, GEOHASH, GEOSEARCH of a real server."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator

import pytest

from penstock.engine.datatypes.geohash import (
    Extent,
    decode,
    distance_m,
    encode,
    format_coordinate,
    format_distance,
    geohash_string,
    in_box,
    in_radius,
    is_on_map,
    search_ranges,
)
from tests.unit.datatypes.realserver import Peer, Word, peer

PALERMO, CATANIA = (13.361389, 38.115556), (15.087269, 37.502669)

Place = tuple[float, float]


@pytest.fixture(scope="module")
def server() -> Iterator[Peer]:
    yield from peer()


# --- Fixed vectors ------------------------------------------------------------------------------


def test_the_places_of_the_redis_manual() -> None:
    palermo, catania = encode(*PALERMO), encode(*CATANIA)
    assert (palermo, catania) == (3479099956230698, 3479447370796909)
    assert [format_coordinate(degrees) for degrees in decode(palermo)] == [
        b"13.36138933897018433",
        b"38.11555639549629859",
    ]
    assert geohash_string(palermo) == b"sqc8b49rny0"
    assert geohash_string(catania) == b"sqdtr74hyu0"
    assert format_distance(distance_m(*decode(palermo), *decode(catania))) == b"166274.1516"


def test_the_edges_of_the_map() -> None:
    assert is_on_map(-180, 85.05112878)
    assert not is_on_map(180.1, 0)
    assert not is_on_map(0, 86)
    assert not is_on_map(float("nan"), 0)
    assert encode(-180, -85.05112878) == 0
    assert decode(encode(180, 85.05112878)) == (180.0, 85.05112878)


def test_numbers_are_written_without_needless_digits() -> None:
    assert format_coordinate(0.0) == b"0"
    assert format_coordinate(-0.0) == b"0"
    assert format_coordinate(-100.5) == b"-100.5"
    assert format_distance(0) == b"0.0000"


def test_circle_and_box() -> None:
    assert in_radius(15, 37, 200_000, PALERMO) == pytest.approx(190_442, abs=1)
    assert in_radius(15, 37, 100_000, PALERMO) is None
    assert in_box(15, 37, 400_000, 400_000, PALERMO) == pytest.approx(190_442, abs=1)
    assert in_box(15, 37, 200_000, 400_000, PALERMO) is None
    assert in_box(15, 37, 400_000, 200_000, PALERMO) is None


def test_ranges_cover_the_search() -> None:
    chance = random.Random(9)
    for _ in range(500):
        longitude, latitude = chance.uniform(-170, 170), chance.uniform(-60, 60)
        radius_m = 10 ** chance.uniform(1, 5.5)
        ranges = search_ranges(longitude, latitude, radius_m)
        assert len(ranges) <= 9
        for _ in range(10):
            place = longitude + chance.gauss(0, radius_m / 1e5), latitude + chance.gauss(0, radius_m / 1e5)
            score = encode(*place)
            if in_radius(longitude, latitude, radius_m, decode(score)) is not None:
                assert any(low <= score < high for low, high in ranges)


def test_a_radius_of_nothing_looks_at_the_smallest_cells() -> None:
    score = encode(*PALERMO)
    assert search_ranges(*PALERMO, 0.0)[0] == (score, score + 1)


# --- Against a real server ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def places(server: Peer) -> dict[bytes, Place]:
    """Members of the key ``places``: all over the globe, a crowd, and the edges of the map."""
    chance = random.Random(10)
    chosen = [(chance.uniform(-180, 180), chance.uniform(-85.05, 85.05)) for _ in range(1000)]
    chosen += [(10 + chance.gauss(0, 1), 50 + chance.gauss(0, 1)) for _ in range(700)]
    edges = (85.05112878, -85.05112878, 0.0, 85.0, -85.0, 66.0, 80.0)
    chosen += [(lon, lat) for lon in (-180.0, 180.0, 0.0, 179.9999, -179.9999) for lat in edges]
    named = {b"p%d" % index: place for index, place in enumerate(chosen)}
    server.batch([("GEOADD", "places", *map(repr, place), name) for name, place in named.items()])
    return named


def test_codec_same_as_a_real_server(server: Peer, places: dict[bytes, Place]) -> None:
    scores = server.batch([("ZSCORE", "places", name) for name in places])
    positions = server("GEOPOS", "places", *places)
    hashes = server("GEOHASH", "places", *places)
    for place, score, position, letters in zip(places.values(), scores, positions, hashes, strict=True):
        # Scores are doubles, which round those of the east edge.
        bits = int(float(encode(*place)))
        assert bits == int(float(score)), place
        assert [format_coordinate(degrees) for degrees in decode(bits)] == position, place
        assert geohash_string(bits) == letters, place


def test_distances_same_as_a_real_server(server: Peer, places: dict[bytes, Place]) -> None:
    chance = random.Random(11)
    pairs = [chance.choices(list(places), k=2) for _ in range(2000)]
    replies = server.batch([("GEODIST", "places", one, other) for one, other in pairs])
    stored = {name: decode(int(float(encode(*place)))) for name, place in places.items()}
    for (one, other), reply in zip(pairs, replies, strict=True):
        assert format_distance(distance_m(*stored[one], *stored[other])) == reply, (one, other)


def _random_search(chance: random.Random) -> tuple[Place, Extent, tuple[Word, ...]]:
    longitude, latitude = chance.choice(
        [
            (chance.uniform(-180, 180), chance.uniform(-85.05, 85.05)),
            (chance.choice([-180.0, 180.0, 179.99]), chance.uniform(-85.05, 85.05)),
            (chance.uniform(-180, 180), chance.choice([85.05112878, -85.05112878, 84.9, -84.0])),
            (10 + chance.gauss(0, 1), 50 + chance.gauss(0, 1)),
        ]
    )
    size, height = 10 ** chance.uniform(2, 7.5), 10 ** chance.uniform(2, 7.5)
    words: tuple[Word, ...] = "GEOSEARCH", "places", "FROMLONLAT", repr(longitude), repr(latitude)
    if chance.random() < 0.5:
        return (longitude, latitude), size, (*words, "BYRADIUS", repr(size), "m")
    return (longitude, latitude), (size, height), (*words, "BYBOX", repr(size), repr(height), "m")


def test_searches_find_the_same_in_the_same_order(server: Peer, places: dict[bytes, Place]) -> None:
    chance = random.Random(12)
    stored = sorted((int(float(encode(*place))), name) for name, place in places.items())
    scores = [score for score, _ in stored]
    searches = [_random_search(chance) for _ in range(400)]
    replies = server.batch([words for _, _, words in searches])
    assert sum(map(len, replies)) > 5_000
    for (centre, extent, words), reply in zip(searches, replies, strict=True):
        found = []
        is_inside = _inside(centre, extent)
        for low, high in search_ranges(*centre, extent):
            candidates = stored[bisect_left(scores, low) : bisect_left(scores, high)]
            found += [name for score, name in candidates if is_inside(decode(score))]
        assert found == reply, words


def _inside(centre: Place, extent: Extent) -> Callable[[Place], bool]:
    if isinstance(extent, tuple):
        return lambda place: in_box(*centre, *extent, place) is not None
    return lambda place: in_radius(*centre, extent, place) is not None
