"""Places: adding, positions, distances, searches and what they store."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.events import announcer
from tests.conformance.refusals import NOT_FLOAT, NOT_INTEGER, SYNTAX, WRONGTYPE

NO_MEMBER = "ERR could not decode requested zset member"
BAD_UNIT = "ERR unsupported unit provided. please use M, KM, FT, MI"

PALERMO = (13.361389338970184, 38.1155563954963)
CATANIA = (15.087267458438873, 37.50266842333162)
PALERMO_HASH, CATANIA_HASH = 3479099956230698, 3479447370796909


def sicily(db: Any) -> None:
    words = ("13.361389", "38.115556", "Palermo", "15.087269", "37.502669", "Catania")
    assert db.do("GEOADD", "sicily", *words) == 2


def wider(db: Any) -> None:
    """Sicily and two places farther away."""
    sicily(db)
    assert db.do("GEOADD", "sicily", "12.758489", "38.788135", "edge", "-73.9", "40.7", "far") == 2


def floats(reply: Any) -> Any:
    """Coordinates as numbers: backends print them with different digits."""
    return pytest.approx([float(number) for number in reply], abs=1e-12)


# ----------------------------------------------------------------------------- members


def test_geoadd_makes_a_sorted_set(db):
    sicily(db)
    assert db.do("TYPE", "sicily") == b"zset"
    assert db.do("ZSCORE", "sicily", "Palermo") == db.double(float(PALERMO_HASH))
    assert db.do("GEOADD", "sicily", "13.361389", "38.115556", "Palermo") == 0


def test_geoadd_options(db):
    sicily(db)
    assert db.do("GEOADD", "sicily", "NX", "0", "0", "Palermo", "0", "0", "null") == 1
    assert db.do("GEOADD", "sicily", "xx", "ch", "1", "1", "Palermo", "0", "0", "other") == 1
    assert db.do("ZCARD", "sicily") == 3
    assert db.do("GEOADD", "none", "XX", "0", "0", "a") == 0
    assert db.do("EXISTS", "none") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("1", "2"), "ERR wrong number of arguments for 'geoadd' command"),
        (("1", "2", "a", "3"), SYNTAX),
        (("NX", "XX", "1", "2", "a"), SYNTAX),
        (("NX", "CH", "NX"), SYNTAX),
        (("x", "2", "a"), NOT_FLOAT),
        (("1", "2", "a", "nan", "2", "b"), NOT_FLOAT),
        (("181", "2", "a"), "ERR invalid longitude,latitude pair 181.000000,2.000000"),
        (("1", "2", "a", "0", "-85.5", "b"), "ERR invalid longitude,latitude pair 0.000000,-85.500000"),
    ],
)
def test_geoadd_refusals_add_nothing(db, words, message):
    assert db.error("GEOADD", "g", *words) == message
    assert db.do("EXISTS", "g") == 0


def test_geopos(db):
    sicily(db)
    palermo, missing, catania = db.do("GEOPOS", "sicily", "Palermo", "none", "Catania")
    assert floats(palermo) == list(PALERMO)
    assert missing is None
    assert floats(catania) == list(CATANIA)
    assert db.do("GEOPOS", "none", "a", "b") == [None, None]
    assert db.do("GEOPOS", "sicily") == []


def test_the_type_of_a_coordinate_is_that_of_the_protocol(db):
    sicily(db)
    [[longitude, _]] = db.do("GEOPOS", "sicily", "Palermo")
    assert type(longitude) is (float if db.resp == 3 else bytes)


def test_geohash(db):
    sicily(db)
    assert db.do("GEOHASH", "sicily", "Palermo", "none", "Catania") == [b"sqc8b49rny0", None, b"sqdtr74hyu0"]
    assert db.do("GEOHASH", "none", "a") == [None]


def test_geodist(db):
    sicily(db)
    assert db.do("GEODIST", "sicily", "Palermo", "Catania") == b"166274.1516"
    assert db.do("GEODIST", "sicily", "Palermo", "Catania", "km") == b"166.2742"
    assert db.do("GEODIST", "sicily", "Palermo", "Catania", "MI") == b"103.3182"
    assert db.do("GEODIST", "sicily", "Palermo", "Catania", "ft") == b"545518.8700"
    assert db.do("GEODIST", "sicily", "Palermo", "Palermo") == b"0.0000"
    assert db.do("GEODIST", "sicily", "Palermo", "none") is None
    assert db.do("GEODIST", "none", "Palermo", "Catania") is None
    assert db.error("GEODIST", "sicily", "Palermo", "Catania", "parsec") == BAD_UNIT
    assert db.error("GEODIST", "sicily", "Palermo", "Catania", "km", "x") == SYNTAX


def test_any_score_is_some_place(db):
    db.do("ZADD", "z", "inf", "up", "-inf", "down", "-5", "minus", "1e300", "big", "0.5", "half")
    positions = db.do("GEOPOS", "z", "up", "down", "minus", "big", "half")
    assert all(len(position) == 2 for position in positions)
    assert len(db.do("GEOHASH", "z", "up", "down", "minus", "big", "half")) == 5


# ----------------------------------------------------------------------------- searches


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("FROMLONLAT", "15", "37", "BYRADIUS", "200", "km", "ASC"), ["Catania", "Palermo"]),
        (("fromlonlat", "15", "37", "byradius", "200", "KM", "desc"), ["Palermo", "Catania"]),
        (("FROMLONLAT", "15", "37", "BYRADIUS", "100", "km"), ["Catania"]),
        (("FROMLONLAT", "15", "37", "BYBOX", "400", "400", "km", "ASC"), ["Catania", "Palermo", "edge"]),
        (("BYBOX", "200", "200", "km", "FROMLONLAT", "15", "37", "ASC"), ["Catania"]),
        (("FROMMEMBER", "Palermo", "BYRADIUS", "200", "km", "ASC"), ["Palermo", "edge", "Catania"]),
        (("FROMMEMBER", "Palermo", "BYRADIUS", "0", "m"), ["Palermo"]),
        (("FROMMEMBER", "Palermo", "BYRADIUS", "200", "km", "COUNT", "2"), ["Palermo", "edge"]),
        (("FROMMEMBER", "Palermo", "BYRADIUS", "200", "km", "COUNT", "2", "DESC"), ["Catania", "edge"]),
        (("FROMLONLAT", "-73", "40", "BYRADIUS", "200", "mi", "COUNT", "5", "ANY"), ["far"]),
        (("FROMLONLAT", "0", "0", "BYRADIUS", "1", "ft"), []),
        (
            ("FROMLONLAT", "15", "37", "BYRADIUS", "inf", "km", "ASC"),
            ["Catania", "Palermo", "edge", "far"],
        ),
    ],
)
def test_geosearch(db, words, expected):
    wider(db)
    assert db.do("GEOSEARCH", "sicily", *words) == [member.encode() for member in expected]
    assert db.do("GEOSEARCH", "none", *words) == []


def test_any_finds_as_many_as_asked(db):
    wider(db)
    found = db.do(
        "GEOSEARCH", "sicily", "FROMMEMBER", "Palermo", "BYRADIUS", "300", "km", "COUNT", "2", "ANY"
    )
    assert len(found) == 2
    assert set(found) <= {b"Palermo", b"Catania", b"edge"}


def test_what_a_search_can_tell(db):
    sicily(db)
    search = ("GEOSEARCH", "sicily", "FROMLONLAT", "15", "37", "BYRADIUS", "200", "km", "ASC")
    assert db.do(*search, "WITHDIST") == [[b"Catania", b"56.4413"], [b"Palermo", b"190.4424"]]
    assert db.do(*search, "WITHHASH") == [[b"Catania", CATANIA_HASH], [b"Palermo", PALERMO_HASH]]
    catania, palermo = db.do(*search, "WITHCOORD", "WITHHASH", "WITHDIST", "COUNT", "5")
    assert catania[:3] == [b"Catania", b"56.4413", CATANIA_HASH]
    assert floats(catania[3]) == list(CATANIA)
    assert floats(palermo[3]) == list(PALERMO)


@pytest.mark.parametrize("suffix", ["", "_RO"])
def test_georadius(db, suffix):
    sicily(db)
    around = (f"GEORADIUS{suffix}", "sicily", "15", "37", "200", "km")
    assert db.do(*around, "ASC") == [b"Catania", b"Palermo"]
    assert db.do(*around, "WITHDIST", "DESC") == [[b"Palermo", b"190.4424"], [b"Catania", b"56.4413"]]
    assert db.do(*around, "COUNT", "1") == [b"Catania"]
    member = (f"GEORADIUSBYMEMBER{suffix}", "sicily", "Palermo")
    assert db.do(*member, "100", "km") == [b"Palermo"]
    assert db.do(*member, "105", "mi", "ASC") == [b"Palermo", b"Catania"]
    assert db.do(f"GEORADIUS{suffix}", "none", "15", "37", "200", "km") == []
    assert db.do(f"GEORADIUSBYMEMBER{suffix}", "none", "x", "200", "km") == []


# ------------------------------------------------------------------------------ storing


def test_geosearchstore(db):
    sicily(db)
    db.do("SET", "to", "x")
    search = ("sicily", "FROMLONLAT", "15", "37", "BYRADIUS", "200", "km")
    assert db.do("GEOSEARCHSTORE", "to", *search) == 2
    assert db.do("ZRANGE", "to", "0", "-1") == [b"Palermo", b"Catania"]
    assert db.do("ZSCORE", "to", "Catania") == db.double(float(CATANIA_HASH))
    assert db.do("GEOSEARCHSTORE", "to", *search, "STOREDIST", "COUNT", "1") == 1
    assert float(db.do("ZSCORE", "to", "Catania")) == pytest.approx(56.4412578701582)
    assert db.do("GEOSEARCHSTORE", "to", "none", *search[1:]) == 0
    assert db.do("EXISTS", "to") == 0


def test_georadius_store(db):
    sicily(db)
    assert db.do("GEORADIUS", "sicily", "15", "37", "200", "km", "STORE", "to") == 2
    assert db.do("ZSCORE", "to", "Palermo") == db.double(float(PALERMO_HASH))
    assert db.do("GEORADIUSBYMEMBER", "sicily", "Palermo", "100", "km", "STOREDIST", "to") == 1
    assert db.do("ZSCORE", "to", "Palermo") == db.double(0.0)
    assert db.do("GEORADIUS", "sicily", "0", "0", "1", "m", "STORE", "to") == 0
    assert db.do("EXISTS", "to") == 0


def test_events(db):
    announced = announcer(db)
    assert announced("GEOADD", "g", "1", "1", "a") == [("zadd", "g")]
    search = ("g", "FROMMEMBER", "a", "BYRADIUS", "1", "m")
    assert announced("GEOSEARCHSTORE", "to", *search) == [("geosearchstore", "to")]
    assert announced("GEORADIUS", "g", "1", "1", "1", "km", "STORE", "to") == [("georadiusstore", "to")]
    assert announced("GEORADIUS", "g", "9", "9", "1", "km", "STORE", "to") == [("del", "to")]


# ----------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("GEORADIUS", "g", "x", "1", "1", "m"), NOT_FLOAT),
        (("GEORADIUS", "g", "181", "1", "1", "m"), "ERR invalid longitude,latitude pair 181.000000,1.000000"),
        (("GEORADIUS", "g", "1", "1", "x", "m"), "ERR need numeric radius"),
        (("GEORADIUS", "g", "1", "1", "-1", "m"), "ERR radius cannot be negative"),
        (("GEORADIUS", "g", "1", "1", "1", "parsec"), BAD_UNIT),
        (("GEORADIUS", "g", "1", "1", "1", "m", "COUNT", "0"), "ERR COUNT must be > 0"),
        (("GEORADIUS", "g", "1", "1", "1", "m", "COUNT", "x"), NOT_INTEGER),
        (("GEORADIUS", "g", "1", "1", "1", "m", "ANY"), "ERR the ANY argument requires COUNT argument"),
        (("GEORADIUS", "g", "1", "1", "1", "m", "foo"), SYNTAX),
        (("GEORADIUS", "g", "1", "1", "1", "m", "STORE"), SYNTAX),
        (
            ("GEORADIUS", "g", "1", "1", "1", "m", "STORE", "to", "WITHDIST"),
            "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
        (("GEORADIUS_RO", "g", "1", "1", "1", "m", "STORE", "to"), SYNTAX),
        (("GEORADIUSBYMEMBER_RO", "g", "a", "1", "m", "STOREDIST", "to"), SYNTAX),
        (("GEOSEARCH", "g", "FROMMEMBER", "a", "BYBOX", "1", "x", "m"), "ERR need numeric height"),
        (("GEOSEARCH", "g", "FROMMEMBER", "a", "BYBOX", "x", "1", "m"), "ERR need numeric width"),
        (
            ("GEOSEARCH", "g", "FROMMEMBER", "a", "BYBOX", "1", "-1", "m"),
            "ERR height or width cannot be negative",
        ),
        (("GEOSEARCH", "g", "FROMMEMBER", "a", "FROMLONLAT", "1", "1", "BYRADIUS", "1", "m"), SYNTAX),
        (("GEOSEARCH", "g", "FROMMEMBER", "a", "BYRADIUS", "1", "m", "BYBOX", "1", "1", "m"), SYNTAX),
        (("GEOSEARCH", "g", "FROMMEMBER", "a", "BYRADIUS", "1", "m", "STOREDIST"), SYNTAX),
        (
            ("GEOSEARCH", "g", "BYRADIUS", "1", "m", "ASC", "DESC"),
            "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH",
        ),
        (
            ("GEOSEARCHSTORE", "to", "g", "FROMMEMBER", "a", "BYRADIUS", "1", "m", "WITHDIST"),
            "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
        (("GEOADD", "s", "1", "1", "a"), WRONGTYPE),
        (("GEOPOS", "s", "a"), WRONGTYPE),
        (("GEODIST", "s", "a", "b"), WRONGTYPE),
        (("GEOHASH", "s", "a"), WRONGTYPE),
        (("GEORADIUS", "s", "1", "1", "1", "m"), WRONGTYPE),
        (("GEORADIUSBYMEMBER_RO", "s", "a", "1", "m"), WRONGTYPE),
        (("GEOSEARCH", "s", "FROMMEMBER", "a", "BYRADIUS", "1", "m"), WRONGTYPE),
        (("GEOSEARCHSTORE", "to", "s", "FROMMEMBER", "a", "BYRADIUS", "1", "m"), WRONGTYPE),
    ],
)
def test_refusals(db, words, message):
    db.do("SET", "s", "v")
    db.do("GEOADD", "g", "1", "1", "a")
    assert db.error(*words) == message
    assert db.do("EXISTS", "to") == 0
    assert db.do("ZCARD", "g") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("GEORADIUSBYMEMBER", "g", "none", "1", "m"), NO_MEMBER),
        (("GEOSEARCH", "g", "FROMMEMBER", "none", "BYRADIUS", "1", "m"), NO_MEMBER),
        (
            ("GEOSEARCH", "g", "FROMMEMBER", "a", "ASC", "WITHDIST", "WITHHASH"),
            "ERR exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH",
        ),
    ],
)
def test_refusals_that_valkey_words_differently(db, words, message):
    if db.kind == "valkey":
        pytest.skip("Valkey has other texts since it knows polygons")
    db.do("GEOADD", "g", "1", "1", "a")
    assert db.error(*words) == message
