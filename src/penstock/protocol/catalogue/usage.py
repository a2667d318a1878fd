"""How each command is typed: its arguments, as people write them.

    USAGE["SET"]        "key value [NX|XX] [GET] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL]"

Role: for people alone, in the reference and at prompts; nothing is parsed by it. Rules: data only. Every
command and subcommand of the catalogue that takes arguments has a row, with at least as many words outside
brackets as its arity wants. ``[…]`` may be left out, ``a|b`` is one of these, ``…`` is more of the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_TABLE: Final = """
APPEND  key value
DECR  key
DECRBY  key decrement
GET  key
GETDEL  key
GETEX  key [EX s|PX ms|EXAT s|PXAT ms|PERSIST]
GETRANGE  key start end
GETSET  key value
INCR  key
INCRBY  key increment
INCRBYFLOAT  key increment
LCS  key key [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]
MGET  key [key …]
MSET  key value [key value …]
MSETNX  key value [key value …]
PSETEX  key milliseconds value
SET  key value [NX|XX] [GET] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL]
SETEX  key seconds value
SETNX  key value
SETRANGE  key offset value
STRLEN  key
SUBSTR  key start end
HDEL  key field [field …]
HEXISTS  key field
HGET  key field
HGETALL  key
HINCRBY  key field increment
HINCRBYFLOAT  key field increment
HKEYS  key
HLEN  key
HMGET  key field [field …]
HMSET  key field value [field value …]
HRANDFIELD  key [count [WITHVALUES]]
HSCAN  key cursor [MATCH pattern] [COUNT n]
HSET  key field value [field value …]
HSETNX  key field value
HSTRLEN  key field
HVALS  key
BLMOVE  source destination LEFT|RIGHT LEFT|RIGHT timeout
BLMPOP  timeout numkeys key [key …] LEFT|RIGHT [COUNT n]
BLPOP  key [key …] timeout
BRPOP  key [key …] timeout
BRPOPLPUSH  source destination timeout
LINDEX  key index
LINSERT  key BEFORE|AFTER pivot element
LLEN  key
LMOVE  source destination LEFT|RIGHT LEFT|RIGHT
LMPOP  numkeys key [key …] LEFT|RIGHT [COUNT n]
LPOP  key [count]
LPOS  key element [RANK rank] [COUNT n] [MAXLEN length]
LPUSH  key element [element …]
LPUSHX  key element [element …]
LRANGE  key start stop
LREM  key count element
LSET  key index element
LTRIM  key start stop
RPOP  key [count]
RPOPLPUSH  source destination
RPUSH  key element [element …]
RPUSHX  key element [element …]
SADD  key member [member …]
SCARD  key
SDIFF  key [key …]
SDIFFSTORE  destination key [key …]
SINTER  key [key …]
SINTERCARD  numkeys key [key …] [LIMIT n]
SINTERSTORE  destination key [key …]
SISMEMBER  key member
SMEMBERS  key
SMISMEMBER  key member [member …]
SMOVE  source destination member
SPOP  key [count]
SRANDMEMBER  key [count]
SREM  key member [member …]
SSCAN  key cursor [MATCH pattern] [COUNT n]
SUNION  key [key …]
SUNIONSTORE  destination key [key …]
BZMPOP  timeout numkeys key [key …] MIN|MAX [COUNT n]
BZPOPMAX  key [key …] timeout
BZPOPMIN  key [key …] timeout
ZADD  key [NX|XX] [GT|LT] [CH] [INCR] score member [score member …]
ZCARD  key
ZCOUNT  key min max
ZDIFF  numkeys key [key …] [WITHSCORES]
ZDIFFSTORE  destination numkeys key [key …]
ZINCRBY  key increment member
ZINTER  numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]
ZINTERCARD  numkeys key [key …] [LIMIT n]
ZINTERSTORE  destination numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM|MIN|MAX]
ZLEXCOUNT  key min max
ZMPOP  numkeys key [key …] MIN|MAX [COUNT n]
ZMSCORE  key member [member …]
ZPOPMAX  key [count]
ZPOPMIN  key [count]
ZRANDMEMBER  key [count [WITHSCORES]]
ZRANGE  key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]
ZRANGEBYLEX  key min max [LIMIT offset count]
ZRANGEBYSCORE  key min max [WITHSCORES] [LIMIT offset count]
ZRANGESTORE  destination source start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count]
ZRANK  key member
ZREM  key member [member …]
ZREMRANGEBYLEX  key min max
ZREMRANGEBYRANK  key start stop
ZREMRANGEBYSCORE  key min max
ZREVRANGE  key start stop [WITHSCORES]
ZREVRANGEBYLEX  key max min [LIMIT offset count]
ZREVRANGEBYSCORE  key max min [WITHSCORES] [LIMIT offset count]
ZREVRANK  key member
ZSCAN  key cursor [MATCH pattern] [COUNT n]
ZSCORE  key member
ZUNION  numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]
ZUNIONSTORE  destination numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM|MIN|MAX]
COPY  source destination [DB db] [REPLACE]
DEL  key [key …]
DUMP  key
EXISTS  key [key …]
EXPIRE  key seconds [NX|XX|GT|LT]
EXPIREAT  key unix-time [NX|XX|GT|LT]
EXPIRETIME  key
KEYS  pattern
MOVE  key db
OBJECT ENCODING  key
OBJECT FREQ  key
OBJECT IDLETIME  key
OBJECT REFCOUNT  key
PERSIST  key
PEXPIRE  key milliseconds [NX|XX|GT|LT]
PEXPIREAT  key unix-time-ms [NX|XX|GT|LT]
PEXPIRETIME  key
PTTL  key
RENAME  key newkey
RENAMENX  key newkey
RESTORE  key ttl-ms serialised [REPLACE] [ABSTTL] [IDLETIME s] [FREQ n]
SCAN  cursor [MATCH pattern] [COUNT n] [TYPE type]
SORT  key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC|DESC] [ALPHA] [STORE destination]
SORT_RO  key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC|DESC] [ALPHA]
TOUCH  key [key …]
TTL  key
TYPE  key
UNLINK  key [key …]
WAIT  numreplicas timeout
BITCOUNT  key [start end [BYTE|BIT]]
BITFIELD  key [GET type offset] [SET type offset value] [INCRBY type offset n] [OVERFLOW WRAP|SAT|FAIL] [… …]
BITFIELD_RO  key [GET type offset …]
BITOP  AND|OR|XOR|NOT destination key [key …]
BITPOS  key bit [start [end [BYTE|BIT]]]
GETBIT  key offset
SETBIT  key offset value
PFADD  key [element …]
PFCOUNT  key [key …]
PFMERGE  destination [key …]
GEOADD  key [NX|XX] [CH] longitude latitude member [longitude latitude member …]
GEODIST  key member member [M|KM|FT|MI]
GEOHASH  key [member …]
GEOPOS  key [member …]
GEORADIUS  key longitude latitude radius M|KM|FT|MI [option …] [STORE key] [STOREDIST key]
GEORADIUS_RO  key longitude latitude radius M|KM|FT|MI [option …]
GEORADIUSBYMEMBER  key member radius M|KM|FT|MI [option …] [STORE key] [STOREDIST key]
GEOSEARCH  key FROMMEMBER member|FROMLONLAT lon lat BYRADIUS radius unit|BYBOX w h unit [option …]
GEOSEARCHSTORE  destination source FROMMEMBER m|FROMLONLAT lon lat BYRADIUS r unit|BYBOX w h unit [option …]
GEORADIUSBYMEMBER_RO  key member radius M|KM|FT|MI [option …]
PSUBSCRIBE  pattern [pattern …]
PUBLISH  channel message
PUNSUBSCRIBE  [pattern …]
PUBSUB CHANNELS  [pattern]
PUBSUB NUMSUB  [channel …]
PUBSUB SHARDCHANNELS  [pattern]
PUBSUB SHARDNUMSUB  [channel …]
SPUBLISH  channel message
SSUBSCRIBE  channel [channel …]
SUBSCRIBE  channel [channel …]
SUNSUBSCRIBE  [channel …]
UNSUBSCRIBE  [channel …]
EVAL  script numkeys [key …] [arg …]
EVALSHA  sha1 numkeys [key …] [arg …]
EVAL_RO  script numkeys [key …] [arg …]
EVALSHA_RO  sha1 numkeys [key …] [arg …]
SCRIPT DEBUG  YES|SYNC|NO
SCRIPT EXISTS  sha1 [sha1 …]
SCRIPT FLUSH  [ASYNC|SYNC]
SCRIPT LOAD  script
WATCH  key [key …]
AUTH  [username] password
CLIENT CACHING  YES|NO
CLIENT KILL  ip:port|filter [value] [filter value …]
CLIENT LIST  [TYPE normal|master|replica|pubsub] [ID id …]
CLIENT NO-EVICT  ON|OFF
CLIENT PAUSE  timeout-ms [WRITE|ALL]
CLIENT REPLY  ON|OFF|SKIP
CLIENT SETNAME  name
CLIENT TRACKING  ON|OFF [REDIRECT id] [PREFIX prefix …] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]
CLIENT UNBLOCK  id [TIMEOUT|ERROR]
ECHO  message
HELLO  [version [AUTH username password] [SETNAME name]]
PING  [message]
QUIT  [word …]
SELECT  index
ACL CAT  [category]
ACL GETUSER  username
BGSAVE  [SCHEDULE]
COMMAND DOCS  [command …]
COMMAND GETKEYS  command arg [arg …]
COMMAND GETKEYSANDFLAGS  command arg [arg …]
COMMAND INFO  [command …]
COMMAND LIST  [FILTERBY MODULE|ACLCAT|PATTERN value]
CONFIG GET  pattern [pattern …]
CONFIG SET  parameter value [parameter value …]
DEBUG  SLEEP|SET-ACTIVE-EXPIRE|HELP [value]
FLUSHALL  [ASYNC|SYNC]
FLUSHDB  [ASYNC|SYNC]
INFO  [section …]
LATENCY RESET  [event …]
LOLWUT  [VERSION version]
MEMORY USAGE  key [SAMPLES n]
SHUTDOWN  [NOSAVE|SAVE] [NOW] [FORCE] [ABORT]
SLOWLOG GET  [count]
SWAPDB  index index
CLUSTER COUNTKEYSINSLOT  slot
CLUSTER GETKEYSINSLOT  slot count
CLUSTER KEYSLOT  key
TACK  key group item [item …]
TCOMPACT  key
TDEAD  key group reason item [item …]
TDROP  key item [item …]
TEVICT  key offset|-count|AGE [ms] [ACKED]
TEXPORT  key
TGROUP CREATE  key group offset [option value …]
TGROUP DESTROY  key group
TGROUP LIST  key
TGROUP SET  key group [OFFSET offset] [option value …]
TIMPORT  key BEGIN|ADD|END [word …]
TINFO CONSUMERS  key group
TINFO GROUPS  key
TINFO PRODUCER  key id
TINFO STREAM  key
TNACK  key group delay-ms item [item …]
TPENDING  key group [start end count [CONSUMER name]]
TPOLICY  key [option value …]
TREAD  key offset count [GROUP name [CONSUMER name] [RETRY retry-ms expire-ms]] [BLOCK ms] [option …]
TRENEW  key group retry-ms item [item …]
TSCAN  key first last [BYTES n]
TWRITE  key tag entry | key [option …] ENTRIES tag entry [tag entry …]
CHACK  clock-key cursor-key nack-key id-key body-key ttl-s clock
CHFETCH  clock-key cursor-key nack-key prefix ttl-s limit bytes steps unreadable start
CHPUBLISH  clock-key prefix ttl-s topic outbox id content [id content …]
"""


def _usage() -> dict[str, str]:
    rows = (line.partition("  ") for line in _TABLE.strip().splitlines())
    return {name.strip(): arguments for name, _, arguments in rows}


#: By name in capitals, ``CLIENT LIST`` for a subcommand. Whoever is not here takes no arguments.
USAGE: Final[Mapping[str, str]] = MappingProxyType(_usage())
