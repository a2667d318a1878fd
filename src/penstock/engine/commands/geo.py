"""Places: sorted sets whose scores are geohashes. Adding, looking up, searching.

All searches are one search. GEORADIUS and GEORADIUSBYMEMBER (and their ``_RO`` twins,
which cannot store) have centre and radius at fixed positions, GEOSEARCH and
GEOSEARCHSTORE as options:

=====================================  ========  =============================
option                                 GEORADIUS  GEOSEARCH
=====================================  ========  =============================
FROMMEMBER member, FROMLONLAT lon lat   no        exactly one
BYRADIUS r unit, BYBOX w h unit         no        exactly one
STORE key, STOREDIST key                yes       no
STOREDIST                               no        GEOSEARCHSTORE only
WITHDIST WITHHASH WITHCOORD             yes       yes, unless the result is stored
COUNT n [ANY], ASC, DESC                yes       yes
=====================================  ========  =============================

The geometry is in ``datatypes.geohash``; here are arguments, units and replies.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from penstock.engine.commands.arguments import floating, integer, syntax_error
from penstock.engine.commands.registry import Argv, command
from penstock.engine.commands.sorted_sets import add_members, store_result
from penstock.engine.datatypes import geohash
from penstock.engine.datatypes.sorted_set import ScoreRange, SortedSet
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import NULL_ARRAY, Reply

_METRES: Final = {b"M": 1.0, b"KM": 1000.0, b"FT": 0.3048, b"MI": 1609.34}
_GEOADD_OPTIONS: Final = frozenset({b"NX", b"XX", b"CH"})
#: Longer than any way on earth, and safe to calculate with; ``inf`` may be asked for.
_FARTHEST_M: Final = 1e9
_NO_MEMBER: Final = "ERR could not decode requested zset member"

_INT64_LIMIT: Final = 1 << 63
_UINT64_MASK: Final = (1 << 64) - 1


# ------------------------------------------------------------------- reading arguments


def _place(longitude: bytes, latitude: bytes) -> tuple[float, float]:
    place = floating(longitude), floating(latitude)
    if not geohash.is_on_map(*place):
        raise CommandError(f"ERR invalid longitude,latitude pair {place[0]:f},{place[1]:f}")
    return place


def _unit(text: bytes) -> float:
    """The length of a unit in metres."""
    metres = _METRES.get(text.upper())
    if metres is None:
        raise CommandError("ERR unsupported unit provided. please use M, KM, FT, MI")
    return metres


def _radius(radius: bytes, unit: bytes) -> tuple[float, float]:
    """The radius in metres, and the unit."""
    number = floating(radius, "ERR need numeric radius")
    if number < 0:
        raise CommandError("ERR radius cannot be negative")
    metres = _unit(unit)
    return min(number * metres, _FARTHEST_M), metres


def _box(width: bytes, height: bytes, unit: bytes) -> tuple[tuple[float, float], float]:
    """Width and height in metres, and the unit."""
    across = floating(width, "ERR need numeric width")
    up = floating(height, "ERR need numeric height")
    if across < 0 or up < 0:
        raise CommandError("ERR height or width cannot be negative")
    metres = _unit(unit)
    return (min(across * metres, _FARTHEST_M), min(up * metres, _FARTHEST_M)), metres


def _bits(score: float) -> int:
    """The geohash in a score. A set that GEOADD did not fill may hold any score: cast as the x86 does."""
    if score < _INT64_LIMIT:
        return int(max(score, -_INT64_LIMIT)) & _UINT64_MASK
    return int(score) if score < 2 * _INT64_LIMIT else 0


def _place_of(zset: SortedSet, member: bytes) -> tuple[float, float]:
    score = zset.score(member)
    if score is None:
        raise CommandError(_NO_MEMBER)
    return geohash.decode(_bits(score))


# ----------------------------------------------------------------------------- members


@command("GEOADD")
def geoadd(s: Session, argv: Argv) -> Reply:
    first = 2
    while first < len(argv) and argv[first].upper() in _GEOADD_OPTIONS:
        first += 1
    options = frozenset(option.upper() for option in argv[2:first])
    rest = argv[first:]
    if len(rest) % 3 or not rest or {b"NX", b"XX"} <= options:
        raise syntax_error()
    scores = [
        float(geohash.encode(*_place(longitude, latitude)))
        for longitude, latitude in zip(rest[::3], rest[1::3], strict=True)
    ]
    return add_members(s, argv[1], scores, rest[2::3], options)


@command("GEODIST")
def geodist(s: Session, argv: Argv) -> Reply:
    if len(argv) > 5:
        raise syntax_error()
    metres = _unit(argv[4]) if len(argv) == 5 else 1.0
    zset = s.ks.load(argv[1], SortedSet)
    if zset is None:
        return None
    one, other = zset.score(argv[2]), zset.score(argv[3])
    if one is None or other is None:
        return None
    distance = geohash.distance_m(*geohash.decode(_bits(one)), *geohash.decode(_bits(other)))
    return geohash.format_distance(distance / metres)


@command("GEOHASH")
def geohash_(s: Session, argv: Argv) -> Reply:
    zset = s.ks.load(argv[1], SortedSet)
    if zset is None:
        return [None] * (len(argv) - 2)
    scores = [zset.score(member) for member in argv[2:]]
    return [None if score is None else geohash.geohash_string(_bits(score)) for score in scores]


@command("GEOPOS")
def geopos(s: Session, argv: Argv) -> Reply:
    zset = s.ks.load(argv[1], SortedSet)
    scores = [None if zset is None else zset.score(member) for member in argv[2:]]
    return [
        NULL_ARRAY if score is None else _coordinates(s, geohash.decode(_bits(score))) for score in scores
    ]


def _coordinates(s: Session, place: tuple[float, float]) -> list[Reply]:
    """Doubles in RESP3, cut to the 17 decimals that RESP2 prints; that costs places near 0 a few digits."""
    texts = [geohash.format_coordinate(degrees) for degrees in place]
    return [float(text) for text in texts] if s.protocol == 3 else list(texts)


# ---------------------------------------------------------------------------- searches


class _Found(NamedTuple):
    member: bytes
    score: float
    place: tuple[float, float]
    distance_m: float


class _Search:
    """What a search was asked for, filled in by reading its arguments in order."""

    def __init__(self, zset: SortedSet | None) -> None:
        self.zset = zset
        #: where the search is; with the set missing, any place will do
        self.centre: tuple[float, float] | None = None
        self.extent_m: geohash.Extent | None = None
        self.unit_m = 1.0
        self.count = 0
        self.order: bytes | None = None
        self.flags: set[bytes] = set()
        self.store_key: bytes | None = None
        self.store_distance = False

    # -- arguments: each reader takes the arguments left, and answers how many were its own, 0 if none

    def read_common(self, rest: Argv) -> int:
        option = rest[0].upper()
        if option in (b"WITHDIST", b"WITHHASH", b"WITHCOORD", b"ANY"):
            self.flags.add(option)
            return 1
        if option in (b"ASC", b"DESC"):
            self.order = option
            return 1
        if option == b"COUNT" and len(rest) > 1:
            self.count = integer(rest[1])
            if self.count <= 0:
                raise CommandError("ERR COUNT must be > 0")
            return 2
        return 0

    def read_store(self, rest: Argv) -> int:
        """STORE and STOREDIST of GEORADIUS."""
        option = rest[0].upper()
        if option not in (b"STORE", b"STOREDIST") or len(rest) < 2:
            return 0
        self.store_key = rest[1]
        self.store_distance = option == b"STOREDIST"
        return 2

    def read_shape(self, rest: Argv) -> int:
        """Centre and extent as options of GEOSEARCH; one of each kind, though it may be given again."""
        option = rest[0].upper()
        if option == b"FROMMEMBER" and len(rest) > 1 and b"FROMLONLAT" not in self.flags:
            self.centre = (0.0, 0.0) if self.zset is None else _place_of(self.zset, rest[1])
            taken = 2
        elif option == b"FROMLONLAT" and len(rest) > 2 and b"FROMMEMBER" not in self.flags:
            self.centre = _place(rest[1], rest[2])
            taken = 3
        elif option == b"BYRADIUS" and len(rest) > 2 and b"BYBOX" not in self.flags:
            self.extent_m, self.unit_m = _radius(rest[1], rest[2])
            taken = 3
        elif option == b"BYBOX" and len(rest) > 3 and b"BYRADIUS" not in self.flags:
            self.extent_m, self.unit_m = _box(rest[1], rest[2], rest[3])
            taken = 4
        else:
            return 0
        self.flags.add(option)
        return taken

    def read_store_distance(self, rest: Argv) -> int:
        """The flag of GEOSEARCHSTORE."""
        if rest[0].upper() != b"STOREDIST":
            return 0
        self.store_distance = True
        return 1

    def check(self, name: bytes) -> None:
        """Refuse what does not go together; ``name`` is the command as the caller wrote it."""
        by_option = name.upper().startswith(b"GEOSEARCH")
        shown = name.decode(errors="surrogateescape")
        if self.store_key is not None and not self.flags.isdisjoint({b"WITHDIST", b"WITHHASH", b"WITHCOORD"}):
            what = "GEOSEARCHSTORE" if by_option else "STORE option in GEORADIUS"
            raise CommandError(f"ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options")
        if by_option and self.centre is None:
            raise CommandError(f"ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {shown}")
        if by_option and self.extent_m is None:
            raise CommandError(f"ERR exactly one of BYRADIUS and BYBOX can be specified for {shown}")
        if b"ANY" in self.flags and not self.count:
            raise CommandError("ERR the ANY argument requires COUNT argument")

    # -- the search itself

    def run(self) -> list[_Found]:
        if self.zset is None:
            return []
        found = self._candidates(self.zset)
        if b"ANY" in self.flags:
            results = list(islice(found, self.count))
        else:
            results = list(found)
        # The nearest ones, unless any will do.
        order = self.order or (b"ASC" if self.count and b"ANY" not in self.flags else None)
        if order is not None:
            results.sort(key=_distance, reverse=order == b"DESC")
        return results[: self.count] if self.count else results

    def _candidates(self, zset: SortedSet) -> Iterator[_Found]:
        assert self.centre is not None
        assert self.extent_m is not None
        longitude, latitude = self.centre
        extent_m = self.extent_m
        for low, high in geohash.search_ranges(longitude, latitude, extent_m):
            for member, score in zset.iterate_by_score(ScoreRange(low, False, high, True)):
                place = geohash.decode(_bits(score))
                if isinstance(extent_m, tuple):
                    distance = geohash.in_box(longitude, latitude, *extent_m, place)
                else:
                    distance = geohash.in_radius(longitude, latitude, extent_m, place)
                if distance is not None:
                    yield _Found(member, score, place, distance)


def _distance(found: _Found) -> float:
    return found.distance_m


def _read_options(search: _Search, rest: Argv, name: bytes) -> None:
    readers = [search.read_common]
    if name.upper().startswith(b"GEOSEARCH"):
        readers.append(search.read_shape)
        if search.store_key is not None:
            readers.append(search.read_store_distance)
    elif not name.upper().endswith(b"_RO"):
        readers.append(search.read_store)
    while rest:
        for read in readers:
            taken = read(rest)
            if taken:
                rest = rest[taken:]
                break
        else:
            raise syntax_error()
    search.check(name)


def _answer(s: Session, search: _Search, event: bytes) -> Reply:
    results = search.run()
    if search.store_key is not None:
        # Very wide searches may come upon a member twice.
        scores = {
            found.member: found.distance_m / search.unit_m if search.store_distance else found.score
            for found in results
        }
        return store_result(s.ks, search.store_key, scores.items(), event)
    if search.flags.isdisjoint({b"WITHDIST", b"WITHHASH", b"WITHCOORD"}):
        return [found.member for found in results]
    replies: list[Reply] = []
    for found in results:
        reply: list[Reply] = [found.member]
        if b"WITHDIST" in search.flags:
            reply.append(geohash.format_distance(found.distance_m / search.unit_m))
        if b"WITHHASH" in search.flags:
            reply.append(_bits(found.score))
        if b"WITHCOORD" in search.flags:
            reply.append(_coordinates(s, found.place))
        replies.append(reply)
    return replies


@command("GEORADIUS", "GEORADIUS_RO")
def georadius(s: Session, argv: Argv) -> Reply:
    search = _Search(s.ks.load(argv[1], SortedSet))
    search.centre = _place(argv[2], argv[3])
    search.extent_m, search.unit_m = _radius(argv[4], argv[5])
    _read_options(search, argv[6:], argv[0])
    return _answer(s, search, b"georadiusstore")


@command("GEORADIUSBYMEMBER", "GEORADIUSBYMEMBER_RO")
def georadiusbymember(s: Session, argv: Argv) -> Reply:
    search = _Search(s.ks.load(argv[1], SortedSet))
    if search.zset is not None:
        search.centre = _place_of(search.zset, argv[2])
        search.extent_m, search.unit_m = _radius(argv[3], argv[4])
    _read_options(search, argv[5:], argv[0])
    return _answer(s, search, b"georadiusstore")


@command("GEOSEARCH")
def geosearch(s: Session, argv: Argv) -> Reply:
    search = _Search(s.ks.load(argv[1], SortedSet))
    _read_options(search, argv[2:], argv[0])
    return _answer(s, search, b"")


@command("GEOSEARCHSTORE")
def geosearchstore(s: Session, argv: Argv) -> Reply:
    search = _Search(s.ks.load(argv[2], SortedSet))
    search.store_key = argv[1]
    _read_options(search, argv[3:], argv[0])
    return _answer(s, search, b"geosearchstore")
