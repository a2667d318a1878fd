"""Places on the globe as the 52-bit scores of a sorted set, as Redis's GEO commands keep them.

Longitude and latitude are each cut into 2**26 cells; the bits of the two cell numbers
alternate, the longitude's first. Near places mostly have near numbers, and the square
cells of ``n`` bits a side are ranges of scores:

=================  ===========================================================
bit 51, 49, … 1    cell of the longitude, from -180 to 180
bit 50, 48, … 0    cell of the latitude, from -85.05112878 to 85.05112878
=================  ===========================================================

Rules:

1. Angles are degrees, lengths metres. Callers convert units and check ``is_on_map``.
2. The formulas are Redis's, in its order of operations, so that even results on the
   edge of a search agree: a spherical earth, haversine distances.
3. A search looks at the cell of its centre and at up to eight around it, in Redis's
   order, because the order of an unsorted answer comes from it.

Knows nothing of sorted sets, commands or replies.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, TypeAlias

LONGITUDE_MAX: Final = 180.0
LATITUDE_MAX: Final = 85.05112878
#: The standard geohash covers the poles; ours ends where the Mercator projection does.
_STANDARD_LATITUDE_MAX: Final = 90.0

_EARTH_RADIUS_M: Final = 6372797.560856
#: Half the width of the Mercator map: a search wider than this takes the largest cells.
_MERCATOR_MAX_M: Final = 20037726.37
_RADIANS_PER_DEGREE: Final = math.pi / 180.0

_STEP_MAX: Final = 26
_ALPHABET: Final = b"0123456789bcdefghjkmnpqrstuvwxyz"

#: A radius, or the width and height of a box, in metres.
Extent: TypeAlias = float | tuple[float, float]


def is_on_map(longitude: float, latitude: float) -> bool:
    """Whether a place can be stored at all."""
    return abs(longitude) <= LONGITUDE_MAX and abs(latitude) <= LATITUDE_MAX


# --- Places and scores --------------------------------------------------------------------------


def encode(longitude: float, latitude: float) -> int:
    """The score of a place. On the east edge it exceeds 2**53; as a double it is rounded then."""
    return _interleave(*_cell(longitude, latitude, _STEP_MAX, LATITUDE_MAX))


def decode(bits: int) -> tuple[float, float]:
    """The middle of the cell a score stands for: longitude, latitude."""
    column, row = _deinterleave(bits)
    area = _area(column, row, _STEP_MAX)
    longitude = (area.west + area.east) / 2
    latitude = (area.south + area.north) / 2
    return (
        max(min(longitude, LONGITUDE_MAX), -LONGITUDE_MAX),
        max(min(latitude, LATITUDE_MAX), -LATITUDE_MAX),
    )


def geohash_string(bits: int) -> bytes:
    """The standard geohash of a score: eleven letters, the last always ``0`` for want of bits."""
    column, row = _cell(*decode(bits), _STEP_MAX, _STANDARD_LATITUDE_MAX)
    standard = _interleave(column, row)
    return bytes(_ALPHABET[standard >> shift & 31] for shift in range(47, 0, -5)) + _ALPHABET[:1]


def format_coordinate(degrees: float) -> bytes:
    """As GEOPOS writes it: up to 17 decimals, no zeros at the end."""
    text = (b"%.17f" % degrees).rstrip(b"0").rstrip(b".")
    return b"0" if text == b"-0" else text


def format_distance(distance: float) -> bytes:
    """As GEODIST and WITHDIST write it, whatever its unit."""
    return b"%.4f" % distance


def _cell(longitude: float, latitude: float, step: int, latitude_max: float) -> tuple[int, int]:
    """Column and row of a place on a map of 2**step cells a side.

    A place on the east or north edge gets the number after the last; Redis does so too.
    """
    across = (longitude + LONGITUDE_MAX) / (2 * LONGITUDE_MAX)
    up = (latitude + latitude_max) / (2 * latitude_max)
    return int(across * (1 << step)), int(up * (1 << step))


class _Area(NamedTuple):
    west: float
    east: float
    south: float
    north: float


def _area(column: int, row: int, step: int) -> _Area:
    cells = 1 << step
    width, height = 2 * LONGITUDE_MAX, 2 * LATITUDE_MAX
    return _Area(
        west=-LONGITUDE_MAX + (column / cells) * width,
        east=-LONGITUDE_MAX + ((column + 1) / cells) * width,
        south=-LATITUDE_MAX + (row / cells) * height,
        north=-LATITUDE_MAX + ((row + 1) / cells) * height,
    )


#: (shift, mask) that move the bits of a number apart, from the widest gap to single ones.
_SPREADS: Final = (
    (16, 0x0000FFFF0000FFFF),
    (8, 0x00FF00FF00FF00FF),
    (4, 0x0F0F0F0F0F0F0F0F),
    (2, 0x3333333333333333),
    (1, 0x5555555555555555),
)


def _interleave(column: int, row: int) -> int:
    for shift, mask in _SPREADS:
        column = (column | column << shift) & mask
        row = (row | row << shift) & mask
    return row | column << 1


def _deinterleave(bits: int) -> tuple[int, int]:
    column, row = bits >> 1 & 0x5555555555555555, bits & 0x5555555555555555
    for shift, mask in zip((1, 2, 4, 8, 16), _GATHER_MASKS, strict=True):
        column = (column | column >> shift) & mask
        row = (row | row >> shift) & mask
    return column, row


_GATHER_MASKS: Final = (*(mask for _, mask in _SPREADS[-2::-1]), 0xFFFFFFFF)


# --- Distances ----------------------------------------------------------------------------------


def distance_m(longitude1: float, latitude1: float, longitude2: float, latitude2: float) -> float:
    """The distance between two places on the sphere."""
    latitude1_rad, latitude2_rad = latitude1 * _RADIANS_PER_DEGREE, latitude2 * _RADIANS_PER_DEGREE
    u = math.sin((latitude2_rad - latitude1_rad) / 2)
    v = math.sin((longitude2 * _RADIANS_PER_DEGREE - longitude1 * _RADIANS_PER_DEGREE) / 2)
    chord = math.sqrt(u * u + math.cos(latitude1_rad) * math.cos(latitude2_rad) * v * v)
    return 2.0 * _EARTH_RADIUS_M * math.asin(chord)


def in_radius(longitude: float, latitude: float, radius_m: float, place: tuple[float, float]) -> float | None:
    """The distance of a place from the centre if it lies in the circle, else None."""
    distance = distance_m(longitude, latitude, *place)
    return distance if distance <= radius_m else None


def in_box(
    longitude: float, latitude: float, width_m: float, height_m: float, place: tuple[float, float]
) -> float | None:
    """The distance of a place from the centre if it lies in the box, else None.

    The width is measured along the place's own parallel.
    """
    place_longitude, place_latitude = place
    if distance_m(place_longitude, place_latitude, longitude, place_latitude) > width_m / 2:
        return None
    if distance_m(place_longitude, place_latitude, place_longitude, latitude) > height_m / 2:
        return None
    return distance_m(longitude, latitude, place_longitude, place_latitude)


# --- Searching ----------------------------------------------------------------------------------

#: Columns east and rows north of the centre's cell, in the order they are searched.
_NEIGHBOURS: Final = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1))


def search_ranges(longitude: float, latitude: float, extent_m: Extent) -> list[tuple[int, int]]:
    """Ranges of scores that hold every place of a search, each ``minimum <= score < maximum``.

    Each candidate still has to be checked by ``in_radius`` or ``in_box``. Searches of
    thousands of kilometres may name a range twice, as Redis's do.
    """
    bounds = _bounds(longitude, latitude, extent_m)
    reach_m = math.hypot(extent_m[0] / 2, extent_m[1] / 2) if isinstance(extent_m, tuple) else extent_m
    step = _step_for(reach_m, latitude)
    if step > 1 and not _is_covered(longitude, latitude, step, bounds):
        step -= 1
    column, row = _cell(longitude, latitude, step, LATITUDE_MAX)
    cells = [(column, row)]
    for east, north in _NEIGHBOURS:
        if not _is_useless(east, north, _area(column, row, step), bounds, step):
            cells.append(_moved(column, row, east, north, step))
    shift = 2 * (_STEP_MAX - step)
    ranges: list[tuple[int, int]] = []
    for index, cell in enumerate(cells):
        bits = _interleave(*cell)
        found = bits << shift, bits + 1 << shift
        # The centre's cell is not compared: Redis may search it twice, never the others in a row.
        if index < 2 or found != ranges[-1]:
            ranges.append(found)
    return ranges


def _step_for(reach_m: float, latitude: float) -> int:
    """How finely to cut the map so that three cells in a row are wide enough, mostly."""
    if reach_m == 0:
        return _STEP_MAX
    step = 1
    while reach_m < _MERCATOR_MAX_M:
        reach_m *= 2
        step += 1
    step -= 2
    # Meridians draw together towards the poles.
    if abs(latitude) > 66:
        step -= 1
        if abs(latitude) > 80:
            step -= 1
    return max(1, min(step, _STEP_MAX))


def _bounds(longitude: float, latitude: float, extent_m: Extent) -> _Area:
    """The angles the search reaches to. They may lie beyond the map."""
    if isinstance(extent_m, tuple):
        half_width_m, half_height_m = extent_m[0] / 2, extent_m[1] / 2
    else:
        half_width_m = half_height_m = extent_m
    up = _degrees(half_height_m / _EARTH_RADIUS_M)
    # The parallel nearer to the pole is the shorter one.
    widest_at = latitude - up if latitude < 0 else latitude + up
    across = _degrees(half_width_m / _EARTH_RADIUS_M / math.cos(widest_at * _RADIANS_PER_DEGREE))
    return _Area(longitude - across, longitude + across, latitude - up, latitude + up)


def _degrees(radians: float) -> float:
    return radians / _RADIANS_PER_DEGREE


def _is_covered(longitude: float, latitude: float, step: int, bounds: _Area) -> bool:
    """Whether the cells beside the centre's reach as far as the search does."""
    column, row = _cell(longitude, latitude, step, LATITUDE_MAX)
    return (
        _area(*_moved(column, row, 0, 1, step), step).north >= bounds.north
        and _area(*_moved(column, row, 0, -1, step), step).south <= bounds.south
        and _area(*_moved(column, row, 1, 0, step), step).east >= bounds.east
        and _area(*_moved(column, row, -1, 0, step), step).west <= bounds.west
    )


def _is_useless(east: int, north: int, centre: _Area, bounds: _Area, step: int) -> bool:
    """Whether the search ends within the centre's cell on the side of this neighbour."""
    if step < 2:
        return False
    return (
        (north < 0 and centre.south < bounds.south)
        or (north > 0 and centre.north > bounds.north)
        or (east < 0 and centre.west < bounds.west)
        or (east > 0 and centre.east > bounds.east)
    )


def _moved(column: int, row: int, east: int, north: int, step: int) -> tuple[int, int]:
    """The neighbouring cell; past the edge of the map it is the one on the other side."""
    last = (1 << step) - 1
    return (column + east & last if east else column), (row + north & last if north else row)
