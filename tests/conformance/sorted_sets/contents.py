"""Sorted sets with known members, and what is in them. Scores are exact in binary, so that every backend
writes them alike.
"""

from __future__ import annotations

from typing import Any

NOT_A_RANGE = "ERR min or max is not a float"
NOT_A_LEX_RANGE = "ERR min or max not valid string range item"
INF = float("inf")


def fill(db: Any, key: str = "z", **scores: float) -> None:
    db.do("DEL", key)
    words = [word for member, score in scores.items() for word in (repr(score), member)]
    assert db.do("ZADD", key, *words) == len(scores)


def letters(db: Any, key: str = "z") -> None:
    """a to e, scoring 1 to 5."""
    fill(db, key, a=1, b=2, c=3, d=4, e=5)


def names(db: Any, key: str = "z") -> str:
    """The members in order, as one word."""
    return b"".join(db.do("ZRANGE", key, "0", "-1")).decode()


def with_scores(db: Any, **scores: float) -> Any:
    return db.pairs([(member.encode(), db.double(float(score))) for member, score in scores.items()])


def content(db: Any, key: str = "z") -> Any:
    return db.do("ZRANGE", key, "0", "-1", "WITHSCORES")
