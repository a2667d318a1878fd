"""Commands on places: members of sorted sets whose scores are positions.

GEORADIUS and its kin have no helpers: GEOSEARCH replaced them in Redis 6.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, overload

from penstock.client.commands import conversions as to
from penstock.client.commands.arguments import at_most_one, exactly_one, flag, joined, only_with, option
from penstock.client.commands.base import Coming, Key, Runner, Value, ValueT
from penstock.client.transports.base import Arguments

GeoUnit: TypeAlias = Literal["m", "km", "ft", "mi"]
#: Nearest first, or farthest first.
GeoSort: TypeAlias = Literal["ASC", "DESC"]
#: Longitude and latitude in degrees, in this order.
Position: TypeAlias = tuple[float, float]


class Geo(Runner):
    """Commands on places."""

    __slots__ = ()

    def geoadd(
        self,
        key: Key,
        mapping: Mapping[ValueT, Position],
        *,
        nx: bool = False,
        xx: bool = False,
        ch: bool = False,
    ) -> Coming[int]:
        """Add places by longitude and latitude; how many are new (``ch``: or changed)."""
        at_most_one(nx=nx, xx=xx)
        if not mapping:
            raise ValueError("mapping must not be empty")
        places = joined((*position, member) for member, position in mapping.items())
        return self._call(("GEOADD", key, *flag("NX", nx), *flag("XX", xx), *flag("CH", ch), *places))

    def geodist(
        self, key: Key, member1: Value, member2: Value, *, unit: GeoUnit = "m"
    ) -> Coming[float | None]:
        """How far apart two places are; None if one is unknown."""
        return self._call(("GEODIST", key, member1, member2, unit), to.optional_float)

    def geohash(self, key: Key, *members: Value) -> Coming[list[bytes | None]]:
        """Geohash text of places."""
        return self._call(("GEOHASH", key, *members))

    def geopos(self, key: Key, *members: Value) -> Coming[list[Position | None]]:
        """Longitude and latitude of places."""
        return self._call(("GEOPOS", key, *members), to.positions)

    @overload
    def geosearch(
        self,
        key: Key,
        *,
        frommember: Value | None = None,
        fromlonlat: Position | None = None,
        byradius: float | None = None,
        bybox: tuple[float, float] | None = None,
        unit: GeoUnit = "m",
        sort: GeoSort | None = None,
        count: int | None = None,
        any: bool = False,
        withdist: Literal[False] = False,
        withhash: Literal[False] = False,
        withcoord: Literal[False] = False,
    ) -> Coming[list[bytes]]: ...

    @overload
    def geosearch(
        self,
        key: Key,
        *,
        frommember: Value | None = None,
        fromlonlat: Position | None = None,
        byradius: float | None = None,
        bybox: tuple[float, float] | None = None,
        unit: GeoUnit = "m",
        sort: GeoSort | None = None,
        count: int | None = None,
        any: bool = False,
        withdist: bool = False,
        withhash: bool = False,
        withcoord: bool = False,
    ) -> Coming[list[to.GeoMatch]]: ...

    def geosearch(
        self,
        key: Key,
        *,
        frommember: Value | None = None,
        fromlonlat: Position | None = None,
        byradius: float | None = None,
        bybox: tuple[float, float] | None = None,
        unit: GeoUnit = "m",
        sort: GeoSort | None = None,
        count: int | None = None,
        any: bool = False,
        withdist: bool = False,
        withhash: bool = False,
        withcoord: bool = False,
    ) -> Coming[Any]:
        """Places within a circle or a box (width, height) around a place or a point."""
        area = _area(frommember, fromlonlat, byradius, bybox, unit, sort, count, any)
        if not (withdist or withhash or withcoord):
            return self._call(("GEOSEARCH", key, *area))
        details = (*flag("WITHCOORD", withcoord), *flag("WITHDIST", withdist), *flag("WITHHASH", withhash))
        convert = to.geo_matches(withdist=withdist, withhash=withhash, withcoord=withcoord)
        return self._call(("GEOSEARCH", key, *area, *details), convert)

    def geosearchstore(
        self,
        destination: Key,
        source: Key,
        *,
        frommember: Value | None = None,
        fromlonlat: Position | None = None,
        byradius: float | None = None,
        bybox: tuple[float, float] | None = None,
        unit: GeoUnit = "m",
        sort: GeoSort | None = None,
        count: int | None = None,
        any: bool = False,
        storedist: bool = False,
    ) -> Coming[int]:
        """Store what geosearch would answer, with ``storedist`` by distance; how many places that is."""
        area = _area(frommember, fromlonlat, byradius, bybox, unit, sort, count, any)
        return self._call(("GEOSEARCHSTORE", destination, source, *area, *flag("STOREDIST", storedist)))


def _area(
    frommember: Value | None,
    fromlonlat: Position | None,
    byradius: float | None,
    bybox: tuple[float, float] | None,
    unit: GeoUnit,
    sort: GeoSort | None,
    count: int | None,
    any_: bool,
) -> Arguments:
    exactly_one(frommember=frommember, fromlonlat=fromlonlat)
    exactly_one(byradius=byradius, bybox=bybox)
    only_with("count", count, any=any_)
    center = ("FROMLONLAT", *fromlonlat) if fromlonlat is not None else option("FROMMEMBER", frommember)
    shape = ("BYBOX", *bybox) if bybox is not None else option("BYRADIUS", byradius)
    order = () if sort is None else (sort,)
    return (*center, *shape, unit, *order, *option("COUNT", count), *flag("ANY", any_))
