"""The commands that are compared, family by family, as templates (see ``templates``).

A name that begins with ``@`` is no command but something done by the pair of servers
(see ``pair``): ``@TRANSFER`` restores on both sides what one of them dumped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.model.pools import JUNK, KEYS, POOLS
from tests.model.scripts import Scripted
from tests.model.templates import Argv, Chooser, Grammar, Pool, Source, pick, spoil

STRINGS: Final = """
8 SET key value [NX|XX] [GET] [EX seconds|PX milliseconds|EXAT at_s|PXAT at_ms|KEEPTTL]
4 GET key
GETSET key value
SETNX key value
SETEX key seconds value
PSETEX key milliseconds value
2 MSET (key value)+
2 MSETNX (key value)+
2 MGET key+
3 APPEND key value
STRLEN key
3 GETRANGE key index index
SUBSTR key index index
3 SETRANGE key offset value
3 INCR key
DECR key
2 INCRBY key int
2 DECRBY key int
4 INCRBYFLOAT key float
GETDEL key
3 GETEX key [EX seconds|PX milliseconds|EXAT at_s|PXAT at_ms|PERSIST]
2 LCS key key [LEN] [IDX] [MINMATCHLEN int] [WITHMATCHLEN]
"""

BITMAPS: Final = """
8 SETBIT key bit_offset bit
3 GETBIT key bit_offset
4 BITCOUNT key [index index [BYTE|BIT]]
4 BITPOS key bit [index [index [BYTE|BIT]]]
4 BITOP (AND|OR|XOR) key key+
BITOP NOT key key
8 BITFIELD key (GET bits bits_at|SET bits bits_at int|INCRBY bits bits_at int|OVERFLOW (WRAP|SAT|FAIL))+
2 BITFIELD_RO key (GET bits bits_at)+
4 SET key value
2 GET key
STRLEN key
APPEND key value
SETRANGE key offset value
"""

HYPERLOGLOGS: Final = """
6 PFADD key member*
3 PFADD key many_hll
6 PFCOUNT key+
4 PFMERGE key key*
3 GET key
STRLEN key
SET key value
SETRANGE key offset value
APPEND key value
"""

HASHES: Final = """
8 HSET key (field value)+
HSET key many_pairs
2 HMSET key (field value)+
2 HSETNX key field value
3 HGET key field
2 HMGET key field+
4 HDEL key field+
HDEL key many_members
HEXISTS key field
2 HLEN key
HSTRLEN key field
2 HKEYS key
2 HVALS key
3 HGETALL key
4 HINCRBY key field int
5 HINCRBYFLOAT key field float
3 HRANDFIELD key [count [WITHVALUES]]
3 HSCAN key cursor [MATCH pattern] [COUNT count]
"""

LISTS: Final = """
5 LPUSH key member+
5 RPUSH key member+
RPUSH key many_members
LPUSHX key member+
RPUSHX key member+
4 LPOP key [count]
4 RPOP key [count]
2 LLEN key
6 LRANGE key index index
2 LINDEX key index
3 LSET key index member
4 LINSERT key (BEFORE|AFTER) member member
4 LREM key index member
3 LTRIM key index index
4 LPOS key member [RANK int] [COUNT count] [MAXLEN count]
4 LMOVE key key (LEFT|RIGHT) (LEFT|RIGHT)
2 RPOPLPUSH key key
3 LMPOP #key (LEFT|RIGHT) [COUNT count]
"""

SETS: Final = """
8 SADD key member+
SADD key many_members
4 SREM key member+
SREM key many_members
2 SISMEMBER key member
2 SMISMEMBER key member+
2 SCARD key
3 SMEMBERS key
3 SMOVE key key member
3 SPOP key [count]
3 SRANDMEMBER key [count]
3 SSCAN key cursor [MATCH pattern] [COUNT count]
3 SINTER key+
3 SUNION key+
3 SDIFF key+
3 SINTERSTORE key key+
3 SUNIONSTORE key key+
3 SDIFFSTORE key key+
3 SINTERCARD #key [LIMIT limit]
"""

SORTED_SETS: Final = """
12 ZADD key [NX|XX] [GT|LT] [CH] (score member)+
2 ZADD key [XX|NX] INCR score member
ZADD key many_pairs
3 ZINCRBY key score member
4 ZREM key member+
ZCARD key
2 ZSCORE key member
2 ZMSCORE key member+
2 ZRANK key member
2 ZREVRANK key member
2 ZCOUNT key score_bound score_bound
6 ZRANGE key index index [REV] [WITHSCORES]
4 ZRANGE key score_bound score_bound BYSCORE [REV] [LIMIT limit limit] [WITHSCORES]
3 ZRANGESTORE key key index index [REV]
2 ZRANGESTORE key key score_bound score_bound BYSCORE [REV] [LIMIT limit limit]
ZREVRANGE key index index [WITHSCORES]
2 ZRANGEBYSCORE key score_bound score_bound [WITHSCORES] [LIMIT limit limit]
ZREVRANGEBYSCORE key score_bound score_bound [WITHSCORES] [LIMIT limit limit]
ZREMRANGEBYRANK key index index
ZREMRANGEBYSCORE key score_bound score_bound
2 ZPOPMIN key [count]
2 ZPOPMAX key [count]
2 ZMPOP #key (MIN|MAX) [COUNT count]
3 ZUNION #key [WEIGHTS weight+] [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]
3 ZINTER #key [WEIGHTS weight+] [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]
2 ZUNION 2 key key WEIGHTS weight weight [AGGREGATE (SUM|MIN|MAX)] WITHSCORES
2 ZDIFF #key [WITHSCORES]
3 ZUNIONSTORE key #key [AGGREGATE (SUM|MIN|MAX)]
2 ZUNIONSTORE key 2 key key WEIGHTS weight weight [AGGREGATE (SUM|MIN|MAX)]
3 ZINTERSTORE key #key [AGGREGATE (SUM|MIN|MAX)]
2 ZDIFFSTORE key #key
2 ZINTERCARD #key [LIMIT limit]
2 ZRANDMEMBER key [count [WITHSCORES]]
3 ZSCAN key cursor [MATCH pattern] [COUNT count]
2 SADD key member+
"""

#: All scores are 0: where they differ, Redis does not say what a range of names means.
SORTED_SETS_BY_NAME: Final = """
8 ZADD key [NX|XX] [CH] (0 member)+
ZADD key (0 many_member)+
2 ZREM key member+
4 ZLEXCOUNT key lex_bound lex_bound
8 ZRANGE key lex_bound lex_bound BYLEX [REV] [LIMIT limit limit]
4 ZRANGESTORE key key lex_bound lex_bound BYLEX [REV] [LIMIT limit limit]
4 ZRANGEBYLEX key lex_bound lex_bound [LIMIT limit limit]
4 ZREVRANGEBYLEX key lex_bound lex_bound [LIMIT limit limit]
2 ZREMRANGEBYLEX key lex_bound lex_bound
ZUNIONSTORE key #key
"""

GEO: Final = """
8 GEOADD key [NX|XX] [CH] geo_item+
2 GEODIST key place place [unit]
2 GEOHASH key place*
2 GEOPOS key place*
4 GEOSEARCH key FROMLONLAT geo_center (BYRADIUS radius unit|BYBOX radius radius unit) [ASC|DESC] [COUNT limit [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]
4 GEOSEARCH key FROMMEMBER place (BYRADIUS radius unit|BYBOX radius radius unit) [ASC|DESC] [COUNT limit] [WITHCOORD] [WITHDIST] [WITHHASH]
2 GEOSEARCHSTORE key key FROMLONLAT geo_center (BYRADIUS radius unit|BYBOX radius radius unit) [ASC|DESC] [COUNT limit] [STOREDIST]
2 GEORADIUS key geo_center radius unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT limit] [ASC|DESC] [STORE key|STOREDIST key]
2 GEORADIUSBYMEMBER key place radius unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT limit] [ASC|DESC] [STORE key|STOREDIST key]
GEORADIUS_RO key geo_center radius unit [WITHCOORD] [WITHDIST] [COUNT limit] [ASC|DESC]
GEORADIUSBYMEMBER_RO key place radius unit [WITHCOORD] [WITHDIST] [COUNT limit] [ASC|DESC]
ZADD key score place
ZREM key place
ZRANGE key 0 -1 WITHSCORES
"""  # noqa: E501

#: One line of each type, so that every key family meets every type.
MAKERS: Final = """
2 SET key value
2 HSET key (field value)+
2 RPUSH key member+
2 SADD key member+
2 ZADD key (score member)+
"""

EXPIRY: Final = """
3 EXPIRE key seconds [NX|XX]
PEXPIRE key milliseconds [NX|XX]
2 EXPIREAT key at_s [NX|XX|GT|LT]
2 PEXPIREAT key at_ms [NX|XX|GT|LT]
2 PERSIST key
2 TTL key
PTTL key
EXPIRETIME key
PEXPIRETIME key
"""

KEYSPACE: Final = """
4 DEL key+
UNLINK key+
2 EXISTS key+
TOUCH key+
3 TYPE key
4 RENAME key key
3 RENAMENX key key
4 COPY key key [DB db] [REPLACE]
2 MOVE key db
3 SELECT db
SWAPDB db db
FLUSHDB [ASYNC|SYNC]
FLUSHALL
2 DBSIZE
3 KEYS pattern
3 SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]
2 RANDOMKEY
DUMP key
4 @TRANSFER (OURS|REAL) key key ttl [REPLACE] [ABSTTL]
OBJECT ENCODING key
3 SORT key [BY sort_by] [LIMIT limit limit] (GET sort_get)* [ASC|DESC] [ALPHA]
2 SORT key [BY sort_by] [LIMIT limit limit] (GET sort_get)* [ASC|DESC] STORE key
SORT key [LIMIT limit limit] (GET sort_get)* [ASC|DESC] ALPHA STORE key
SORT_RO key [BY sort_by] [LIMIT limit limit] (GET sort_get)* [ASC|DESC] [ALPHA]
MEMORY USAGE key [SAMPLES count]
"""

TRANSACTIONS: Final = """
4 MULTI
4 EXEC
DISCARD
4 WATCH key+
UNWATCH
"""

#: Sent only where they do not block: inside MULTI.
BLOCKING: Final = """
BLPOP key+ 0
BRPOP key+ 0
BLMOVE key key (LEFT|RIGHT) (LEFT|RIGHT) 0
BRPOPLPUSH key key 0
BLMPOP 0 #key (LEFT|RIGHT) [COUNT count]
BZPOPMIN key+ 0
BZPOPMAX key+ 0
BZMPOP 0 #key (MIN|MAX) [COUNT count]
"""

#: A little of everything around a family of its own.
AROUND: Final = """
2 DEL key+
SET key value
RPUSH key member
EXPIRE key seconds
PEXPIREAT key at_ms
PERSIST key
TTL key
TYPE key
2 RENAME key key
2 COPY key key [REPLACE]
@TRANSFER (OURS|REAL) key key ttl REPLACE
"""

FAMILIES: Final[Mapping[str, str]] = {
    "strings": STRINGS + AROUND,
    "bitmaps": BITMAPS + AROUND,
    "hyperloglogs": HYPERLOGLOGS + AROUND,
    "hashes": HASHES + AROUND,
    "lists": LISTS + AROUND,
    "sets": SETS + AROUND,
    "sorted_sets": SORTED_SETS + AROUND,
    "sorted_sets_by_name": SORTED_SETS_BY_NAME + AROUND,
    "geo": GEO + AROUND,
    "keyspace": KEYSPACE + EXPIRY + MAKERS,
}

#: Which keys a family mostly uses where all families meet, so that most commands find their type.
_HOMES: Final[Mapping[str, tuple[bytes, ...]]] = {
    STRINGS: (b"w_1", b"k"),
    BITMAPS: (b"w_1", b"k"),
    HYPERLOGLOGS: (b"k",),
    HASHES: (b"w_2", KEYS[-1]),
    LISTS: (b"", b"{tag}x"),
    SETS: (b"\x00\xffbin\r\n", b"{tag}x"),
    SORTED_SETS: (KEYS[-2], b"\x00\xffbin\r\n"),
    GEO: (KEYS[-2],),
}

#: One command of so many has a mistake in it.
_MISTAKE_EVERY: Final = 10


class Mixture:
    """Commands of several grammars, some of them spoiled, except those ``never_spoiled``."""

    def __init__(self, grammars: Sequence[Grammar], never_spoiled: bytes = b"") -> None:
        self._grammars = grammars
        self._never_spoiled = never_spoiled

    def command(self, chooser: Chooser) -> Argv:
        argv = self._grammars[chooser.below(len(self._grammars))].command(chooser)
        if chooser.below(_MISTAKE_EVERY) == _MISTAKE_EVERY - 1 and argv[0].upper() != self._never_spoiled:
            argv = spoil(chooser, argv, JUNK)
        return argv


def family(name: str) -> Mixture:
    # A mistake in ZADD could give a member another score.
    return Mixture([Grammar(FAMILIES[name], POOLS)], b"ZADD" if name == "sorted_sets_by_name" else b"")


def everything(*more: str) -> Mixture:
    """All families, each mostly on keys of its own; commands on keys, and ``more``, go everywhere."""
    grammars = [Grammar(text, POOLS) for text in more]
    for text, home in _HOMES.items():
        pools: dict[str, Pool] = {**POOLS, "key": (*home * 6, *KEYS)}
        grammars.append(Grammar(text, pools))
    grammars.append(Grammar(KEYSPACE + EXPIRY, POOLS))
    return Mixture(grammars)


class KeysOf:
    """Questions which keys a command has."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def command(self, chooser: Chooser) -> Argv:
        question = pick(chooser, (b"GETKEYS", b"GETKEYSANDFLAGS"))
        return [b"COMMAND", question, *self._source.command(chooser)]


def keys_of_commands() -> KeysOf:
    return KeysOf(Scripted(everything(BLOCKING, TRANSACTIONS)))


def scripts() -> Scripted:
    return Scripted(everything(BLOCKING, TRANSACTIONS))


def transactions() -> Mixture:
    """A third of it begins, ends and watches; with the rest there is something to watch."""
    return everything(*[TRANSACTIONS] * 4, BLOCKING)
