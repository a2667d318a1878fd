"""The facts about every command, as tables to be read and edited by hand.

Role: the single place where a command's arity, flags, keys, age and purpose are
written down. ``loader`` turns the rows into ``CommandSpec`` values.

Rules: data only, no logic; this module imports nothing of Penstock. Cells are
separated by two or more spaces, ``-`` is an empty cell. A row named ``CLIENT LIST``
is the subcommand LIST of the container CLIENT.

A row reads: name, arity, flags, keys, since, summary.

``arity``
    The number of arguments, the name counted; ``-n`` means n or more. Subcommands
    count their container's name too.
``flags``
    One letter each, see ``FLAGS``.
``keys``
    Where the keys stand, as ``access:place`` (see ``ACCESS`` for the first half):

    =============  ==========================================================
    ``1``          argument 1 (argument 0 is the name)
    ``1..-2``      arguments 1 to the last but one
    ``1..-1/2``    arguments 1, 3, 5, … to the end
    ``2#``         argument 2 says how many keys follow it
    ``STORE@6``    the argument after the first STORE from argument 6 on
    ``?``          cannot be told by a place (SORT; see ``keys``)
    =============  ==========================================================
``since``
    The Redis version that brought the command.

What can be derived is not written: ``movablekeys``, the first/last/step triple and
most ACL categories follow from flags, keys and group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Flag letters, in the order in which COMMAND sends the names.
FLAGS: Final[Mapping[str, str]] = {
    "w": "write",  # may change the keyspace
    "r": "readonly",  # reads keys and changes nothing
    "m": "denyoom",  # may need more room; refused when there is none
    "a": "admin",  # for operators
    "p": "pubsub",  # about channels
    "s": "noscript",  # not from a script
    "b": "blocking",  # may wait
    "l": "loading",  # served while the data is still being loaded
    "t": "stale",  # served by a replica that lost its master
    "o": "skip_monitor",  # MONITOR does not show it
    "q": "skip_slowlog",  # the slow log does not record it
    "f": "fast",  # constant or logarithmic time
    "u": "no_auth",  # served before AUTH
    "v": "may_replicate",  # may write although it is no write command; COMMAND does not send it
    "n": "no_mandatory_keys",  # makes sense without any key
    "d": "no_async_loading",  # not while a replica loads in the background
    "x": "no_multi",  # not between MULTI and EXEC
    "k": "movablekeys",  # derived: its keys' places depend on the arguments
    "y": "allow_busy",  # served while a script runs too long
}

#: What a command does with a key, and the flags by which Redis says so.
ACCESS: Final[Mapping[str, tuple[str, ...]]] = {
    "peek": ("RO",),  # looks at type, size or existence, not at the data
    "get": ("RO", "access"),  # reads the data
    "set": ("OW", "update"),  # overwrites whatever was there
    "new": ("OW", "insert"),  # creates, never overwrites
    "add": ("RW", "insert"),  # adds to the data
    "put": ("RW", "update"),  # changes the data without telling it
    "mod": ("RW", "access", "update"),  # changes the data and tells it
    "pop": ("RW", "access", "delete"),  # takes data out and tells it
    "rem": ("RW", "delete"),  # takes data out
    "del": ("RM", "delete"),  # removes the key
    "use": ("RW", "access"),  # reads, and may change how the data is kept
    "mix": ("RW", "access", "insert"),  # adds to the data after reading it
    "var": ("RW", "access", "update", "variable_flags"),  # depends on the options
    "chan": ("not_key",),  # a shard channel: has a slot, is no key
}

#: ACL categories, in the order in which they are listed everywhere.
CATEGORIES: Final = (
    *("keyspace", "read", "write"),
    *("set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo", "stream"),
    *("pubsub", "admin", "fast", "slow", "blocking", "dangerous"),
    *("connection", "transaction", "scripting"),
)

STRING: Final = """
APPEND        3  wmf  add:1        2.0.0  Add bytes to the end of a string
DECR          2  wmf  mod:1        1.0.0  Subtract one from a counter
DECRBY        3  wmf  mod:1        1.0.0  Subtract a number from a counter
GET           2  rf   get:1        1.0.0  Read a string
GETDEL        2  wf   pop:1        6.2.0  Read a string, then delete its key
GETEX        -2  wf   mod:1        6.2.0  Read a string and change or drop its deadline
GETRANGE      4  r    get:1        2.4.0  Read a slice of a string
GETSET        3  wmf  mod:1        1.0.0  Store a string and answer the one it replaced
INCR          2  wmf  mod:1        1.0.0  Add one to a counter
INCRBY        3  wmf  mod:1        1.0.0  Add a number to a counter
INCRBYFLOAT   3  wmf  mod:1        2.6.0  Add a decimal fraction to a counter
LCS          -3  r    get:1..2     7.0.0  Longest subsequence that two strings share
MGET         -2  rf   get:1..-1    1.0.0  Read several strings at once
MSET         -3  wm   set:1..-1/2  1.0.1  Store several strings at once
MSETNX       -3  wm   new:1..-1/2  1.0.1  Store several strings, unless one of the keys exists
PSETEX        4  wm   set:1        2.6.0  Store a string that lives for so many milliseconds
SET          -3  wm   var:1        1.0.0  Store a string, on conditions and with a deadline if wanted
SETEX         4  wm   set:1        2.0.0  Store a string that lives for so many seconds
SETNX         3  wmf  new:1        1.0.0  Store a string, unless the key exists
SETRANGE      4  wm   put:1        2.2.0  Overwrite a slice of a string, zero-filling any gap
STRLEN        2  rf   peek:1       2.2.0  Length of a string in bytes
SUBSTR        4  r    get:1        1.0.0  Read a slice of a string (old name)
"""

HASH: Final = """
HDEL          -3  wf   rem:1   2.0.0  Drop fields from a hash
HEXISTS        3  rf   peek:1  2.0.0  Whether a hash has a field
HGET           3  rf   get:1   2.0.0  Read one field of a hash
HGETALL        2  r    get:1   2.0.0  Read every field of a hash with its value
HINCRBY        4  wmf  mod:1   2.0.0  Add a number to the counter in a field
HINCRBYFLOAT   4  wmf  mod:1   2.6.0  Add a decimal fraction to the counter in a field
HKEYS          2  r    get:1   2.0.0  Names of the fields of a hash
HLEN           2  rf   peek:1  2.0.0  How many fields a hash has
HMGET         -3  rf   get:1   2.0.0  Read several fields of a hash
HMSET         -4  wmf  put:1   2.0.0  Write several fields of a hash, answering OK
HRANDFIELD    -2  r    get:1   6.2.0  Pick fields of a hash by chance
HSCAN         -3  r    get:1   2.8.0  Walk through a hash in steps
HSET          -4  wmf  put:1   2.0.0  Write fields of a hash
HSETNX         4  wmf  add:1   2.0.0  Write one field of a hash, unless it is there
HSTRLEN        3  rf   peek:1  3.2.0  Length of a field's value in bytes
HVALS          2  r    get:1   2.0.0  Values of the fields of a hash
"""

LIST: Final = """
BLMOVE       6  wmsb  pop:1 add:2  6.2.0  LMOVE that waits for an element
BLMPOP      -5  wb    pop:2#       7.0.0  LMPOP that waits for an element
BLPOP       -3  wsb   pop:1..-2    2.0.0  LPOP from the first list that has an element, or wait
BRPOP       -3  wsb   pop:1..-2    2.0.0  RPOP from the first list that has an element, or wait
BRPOPLPUSH   4  wmsb  pop:1 add:2  2.2.0  RPOPLPUSH that waits for an element
LINDEX       3  r     get:1        1.0.0  Read the element at a position
LINSERT      5  wm    add:1        2.2.0  Put an element next to another one
LLEN         2  rf    peek:1       1.0.0  How many elements a list has
LMOVE        5  wm    pop:1 add:2  6.2.0  Take an element off one list and push it on another
LMPOP       -4  w     pop:1#       7.0.0  Take elements off the first list that is not empty
LPOP        -2  wf    pop:1        1.0.0  Take elements off the head
LPOS        -3  r     get:1        6.0.6  Positions at which an element stands
LPUSH       -3  wmf   add:1        1.0.0  Put elements before the head
LPUSHX      -3  wmf   add:1        2.2.0  Put elements before the head of a list that exists
LRANGE       4  r     get:1        1.0.0  Read a run of elements
LREM         4  w     rem:1        1.0.0  Remove elements equal to a value
LSET         4  wm    put:1        1.0.0  Replace the element at a position
LTRIM        4  w     rem:1        1.0.0  Keep a run of elements and drop the others
RPOP        -2  wf    pop:1        1.0.0  Take elements off the tail
RPOPLPUSH    3  wm    pop:1 add:2  1.2.0  Move the tail of one list to the head of another
RPUSH       -3  wmf   add:1        1.0.0  Put elements after the tail
RPUSHX      -3  wmf   add:1        2.2.0  Put elements after the tail of a list that exists
"""

SET: Final = """
SADD         -3  wmf  add:1            1.0.0  Add members
SCARD         2  rf   peek:1           1.0.0  How many members a set has
SDIFF        -2  r    get:1..-1        1.0.0  Members of the first set that no other has
SDIFFSTORE   -3  wm   set:1 get:2..-1  1.0.0  Store what SDIFF would answer
SINTER       -2  r    get:1..-1        1.0.0  Members that all the sets share
SINTERCARD   -3  r    get:1#           7.0.0  How many members all the sets share
SINTERSTORE  -3  wm   put:1 get:2..-1  1.0.0  Store what SINTER would answer
SISMEMBER     3  rf   peek:1           1.0.0  Whether a value is a member
SMEMBERS      2  r    get:1            1.0.0  All members
SMISMEMBER   -3  rf   get:1            6.2.0  Which of several values are members
SMOVE         4  wf   pop:1 add:2      1.0.0  Move a member to another set
SPOP         -2  wf   pop:1            1.0.0  Take out members picked by chance
SRANDMEMBER  -2  r    get:1            1.0.0  Look at members picked by chance
SREM         -3  wf   rem:1            1.0.0  Remove members
SSCAN        -3  r    get:1            2.8.0  Walk through a set in steps
SUNION       -2  r    get:1..-1        1.0.0  Members that any of the sets has
SUNIONSTORE  -3  wm   set:1 get:2..-1  1.0.0  Store what SUNION would answer
"""

SORTED_SET: Final = """
BZMPOP            -5  wb    pop:2#        7.0.0  ZMPOP that waits for a member
BZPOPMAX          -3  wsbf  pop:1..-2     5.0.0  ZPOPMAX from the first set that has a member, or wait
BZPOPMIN          -3  wsbf  pop:1..-2     5.0.0  ZPOPMIN from the first set that has a member, or wait
ZADD              -4  wmf   put:1         1.2.0  Add members or change their scores
ZCARD              2  rf    peek:1        1.2.0  How many members a sorted set has
ZCOUNT             4  rf    get:1         2.0.0  How many members score within bounds
ZDIFF             -3  r     get:1#        6.2.0  Members of the first set that no other has
ZDIFFSTORE        -4  wm    set:1 get:2#  6.2.0  Store what ZDIFF would answer
ZINCRBY            4  wmf   mod:1         1.2.0  Add to a member's score
ZINTER            -3  r     get:1#        6.2.0  Members that all the sets share, scores combined
ZINTERCARD        -3  r     get:1#        7.0.0  How many members all the sets share
ZINTERSTORE       -4  wm    set:1 get:2#  2.0.0  Store what ZINTER would answer
ZLEXCOUNT          4  rf    get:1         2.8.9  How many members lie within byte-order bounds
ZMPOP             -4  w     pop:1#        7.0.0  Take members off the first set that is not empty
ZMSCORE           -3  rf    get:1         6.2.0  Scores of several members
ZPOPMAX           -2  wf    pop:1         5.0.0  Take out the highest-scoring members
ZPOPMIN           -2  wf    pop:1         5.0.0  Take out the lowest-scoring members
ZRANDMEMBER       -2  r     get:1         6.2.0  Pick members by chance
ZRANGE            -4  r     get:1         1.2.0  Read members by rank, score or byte order
ZRANGEBYLEX       -4  r     get:1         2.8.9  Read members within byte-order bounds
ZRANGEBYSCORE     -4  r     get:1         1.0.5  Read members within score bounds
ZRANGESTORE       -5  wm    set:1 get:2   6.2.0  Store what ZRANGE would answer
ZRANK              3  rf    get:1         2.0.0  Rank of a member, lowest score first
ZREM              -3  wf    rem:1         1.2.0  Remove members
ZREMRANGEBYLEX     4  w     rem:1         2.8.9  Remove members within byte-order bounds
ZREMRANGEBYRANK    4  w     rem:1         2.0.0  Remove members within rank bounds
ZREMRANGEBYSCORE   4  w     rem:1         1.2.0  Remove members within score bounds
ZREVRANGE         -4  r     get:1         1.2.0  Read members by rank, highest score first
ZREVRANGEBYLEX    -4  r     get:1         2.8.9  Read members within byte-order bounds, backwards
ZREVRANGEBYSCORE  -4  r     get:1         2.2.0  Read members within score bounds, backwards
ZREVRANK           3  rf    get:1         2.0.0  Rank of a member, highest score first
ZSCAN             -3  r     get:1         2.8.0  Walk through a sorted set in steps
ZSCORE             3  rf    get:1         1.2.0  Score of one member
ZUNION            -3  r     get:1#        6.2.0  Members that any of the sets has, scores combined
ZUNIONSTORE       -4  wm    set:1 get:2#  2.0.0  Store what ZUNION would answer
"""

GENERIC: Final = """
COPY             -3  wm  get:1 set:2        6.2.0  Duplicate a value under another key
DEL              -2  w   del:1..-1          1.0.0  Delete keys with what they hold
DUMP              2  r   get:1              2.6.0  Serialise a value for RESTORE
EXISTS           -2  rf  peek:1..-1         1.0.0  How many of the keys named exist
EXPIRE           -3  wf  put:1              1.0.0  Let a key live for so many seconds
EXPIREAT         -3  wf  put:1              1.2.0  Let a key live until a time in seconds
EXPIRETIME        2  rf  get:1              7.0.0  When a key will expire, in seconds since 1970
KEYS              2  r   -                  1.0.0  Every key name that fits a pattern
MOVE              3  wf  mod:1              1.0.0  Take a key to another database
OBJECT           -2  -   -                  2.2.3  How a value is kept inside
OBJECT ENCODING   3  r   peek:2             2.2.3  Name of the encoding a value has
OBJECT FREQ       3  r   peek:2             4.0.0  How often a key is used, on a logarithmic scale
OBJECT HELP       2  lt  -                  6.2.0  What OBJECT understands
OBJECT IDLETIME   3  r   peek:2             2.2.3  Seconds since a key was last used
OBJECT REFCOUNT   3  r   peek:2             2.2.3  How many references a value has
PERSIST           2  wf  put:1              2.2.0  Let a key live for ever
PEXPIRE          -3  wf  put:1              2.6.0  Let a key live for so many milliseconds
PEXPIREAT        -3  wf  put:1              2.6.0  Let a key live until a time in milliseconds
PEXPIRETIME       2  rf  get:1              7.0.0  When a key will expire, in milliseconds since 1970
PTTL              2  rf  get:1              2.6.0  Milliseconds that a key has left
RANDOMKEY         1  r   -                  1.0.0  Any key, picked by chance
RENAME            3  w   pop:1 set:2        1.0.0  Give a key another name, replacing what had it
RENAMENX          3  wf  pop:1 new:2        1.0.0  Give a key another name, unless that is taken
RESTORE          -4  wm  set:1              2.6.0  Create a key from what DUMP serialised
SCAN             -2  r   -                  2.8.0  Walk through the key names in steps
SORT             -2  wm  get:1 get:? set:?  1.0.0  Order the elements of a value; store them if asked
SORT_RO          -2  r   get:1 get:?        7.0.0  SORT that never stores
TOUCH            -2  rf  peek:1..-1         3.2.1  Mark keys as just used and count those that exist
TTL               2  rf  get:1              1.0.0  Seconds that a key has left
TYPE              2  rf  peek:1             1.0.0  Which data type a key holds
UNLINK           -2  wf  del:1..-1          4.0.0  Delete keys now, reclaim their space later
WAIT              3  s   -                  3.0.0  Wait until replicas have what was written
"""

BITMAP: Final = """
BITCOUNT     -2  r   get:1            2.6.0  How many bits are one
BITFIELD     -2  wm  var:1            3.2.0  Read and change packed integers at bit offsets
BITFIELD_RO  -2  rf  get:1            6.0.0  Read packed integers at bit offsets
BITOP        -4  wm  set:2 get:3..-1  2.6.0  Combine strings bit by bit into another key
BITPOS       -3  r   get:1            2.8.7  Where the first one or zero bit is
GETBIT        3  rf  get:1            2.2.0  Read one bit
SETBIT        4  wm  mod:1            2.2.0  Change one bit, answering what it was
"""

HYPERLOGLOG: Final = """
PFADD    -2  wmf  add:1            2.8.9  Count elements into a HyperLogLog
PFCOUNT  -2  rv   use:1..-1        2.8.9  Estimate of the distinct elements counted
PFMERGE  -2  wm   mix:1 get:2..-1  2.8.9  Unite HyperLogLogs into one
"""

GEO: Final = """
GEOADD                -5  wm  put:1                              3.2.0   Add places by longitude and latitude
GEODIST               -4  r   get:1                              3.2.0   How far apart two places are
GEOHASH               -2  r   get:1                              3.2.0   Geohash text of places
GEOPOS                -2  r   get:1                              3.2.0   Longitude and latitude of places
GEORADIUS             -6  wm  get:1 set:STORE@6 set:STOREDIST@6  3.2.0   Places near a point; STORE keeps them
GEORADIUS_RO          -6  r   get:1                              3.2.10  GEORADIUS that never stores
GEORADIUSBYMEMBER     -5  wm  get:1 set:STORE@5 set:STOREDIST@5  3.2.0   Places near a place; STORE keeps them
GEORADIUSBYMEMBER_RO  -5  r   get:1                              3.2.10  GEORADIUSBYMEMBER that never stores
GEOSEARCH             -7  r   get:1                              6.2.0   Places within a circle or a box
GEOSEARCHSTORE        -8  wm  set:1 get:2                        6.2.0   Store what GEOSEARCH would answer
"""

PUBSUB: Final = """
PSUBSCRIBE            -2  pslt   -           2.0.0  Listen to every channel that fits a pattern
PUBLISH                3  pfltv  -           2.0.0  Send a message to a channel's listeners
PUBSUB                -2  -      -           2.8.0  Who listens to what
PUBSUB CHANNELS       -2  plt    -           2.8.0  Channels that have listeners
PUBSUB HELP            2  lt     -           6.2.0  What PUBSUB understands
PUBSUB NUMPAT          2  plt    -           2.8.0  How many patterns have listeners
PUBSUB NUMSUB         -2  plt    -           2.8.0  How many listeners each channel has
PUBSUB SHARDCHANNELS  -2  plt    -           7.0.0  Shard channels that have listeners
PUBSUB SHARDNUMSUB    -2  plt    -           7.0.0  How many listeners each shard channel has
PUNSUBSCRIBE          -1  pslt   -           2.0.0  Stop listening by pattern
SPUBLISH               3  pfltv  chan:1      7.0.0  Send a message to a shard channel's listeners
SSUBSCRIBE            -2  pslt   chan:1..-1  7.0.0  Listen to shard channels
SUBSCRIBE             -2  pslt   -           2.0.0  Listen to channels
SUNSUBSCRIBE          -1  pslt   chan:1..-1  7.0.0  Stop listening to shard channels
UNSUBSCRIBE           -1  pslt   -           2.0.0  Stop listening to channels
"""

SCRIPTING: Final = """
EVAL           -3  stnov  mod:2#  2.6.0  Run a Lua script
EVAL_RO        -3  rstno  get:2#  7.0.0  EVAL for scripts that write nothing
EVALSHA        -3  stnov  mod:2#  2.6.0  Run a loaded script by its SHA-1
EVALSHA_RO     -3  rstno  get:2#  7.0.0  EVALSHA for scripts that write nothing
SCRIPT         -2  -      -       2.6.0  The scripts that are loaded
SCRIPT DEBUG    3  s      -       3.2.0  Choose how EVAL debugs
SCRIPT EXISTS  -3  s      -       2.6.0  Which scripts are loaded
SCRIPT FLUSH   -2  s      -       2.6.0  Forget every loaded script
SCRIPT HELP     2  lt     -       5.0.0  What SCRIPT understands
SCRIPT KILL     2  sy     -       2.6.0  Stop the running script if it has not written
SCRIPT LOAD     3  st     -       2.6.0  Keep a script for EVALSHA
"""

TRANSACTIONS: Final = """
DISCARD   1  sflty  -           2.0.0  Drop the queued commands
EXEC      1  sltq   -           1.2.0  Run the queued commands as one
MULTI     1  sflty  -           1.2.0  Queue the commands that follow
UNWATCH   1  sflty  -           2.2.0  Forget every watched key
WATCH    -2  sflty  peek:1..-1  2.2.0  Make the next EXEC fail if a key changes before it
"""

CONNECTION: Final = """
AUTH                 -2  sfltuy  -  1.0.0   Show who you are
CLIENT               -2  -       -  2.4.0   Connections and their settings
CLIENT CACHING        3  slt     -  6.0.0   Whether the next command's keys are tracked
CLIENT GETNAME        2  slt     -  2.6.9   Name this connection has
CLIENT GETREDIR       2  slt     -  6.0.0   Connection that gets our invalidations
CLIENT HELP           2  lt      -  5.0.0   What CLIENT understands
CLIENT ID             2  slt     -  5.0.0   Number of this connection
CLIENT INFO           2  slt     -  6.2.0   CLIENT LIST for this connection alone
CLIENT KILL          -3  aslt    -  2.4.0   Close connections
CLIENT LIST          -2  aslt    -  2.4.0   One line about each connection
CLIENT NO-EVICT       3  aslt    -  7.0.0   Spare this connection when memory is short
CLIENT PAUSE         -3  aslt    -  2.9.50  Hold back commands for a time
CLIENT REPLY          3  slt     -  3.2.0   Silence replies, or let them speak
CLIENT SETNAME        3  slt     -  2.6.9   Name this connection
CLIENT TRACKING      -3  slt     -  6.0.0   Announce when keys that were read change
CLIENT TRACKINGINFO   2  slt     -  6.2.0   How tracking is set on this connection
CLIENT UNBLOCK       -3  aslt    -  5.0.0   End another connection's wait
CLIENT UNPAUSE        2  aslt    -  6.2.0   Let commands run again after CLIENT PAUSE
ECHO                  2  flt     -  1.0.0   Answer the argument
HELLO                -1  sfltuy  -  6.0.0   Choose the protocol version and log in
PING                 -1  f       -  1.0.0   Answer PONG, or the argument
QUIT                 -1  sfltuy  -  1.0.0   Answer OK and hang up
RESET                 1  sfltuy  -  6.2.0   Make this connection as good as new
SELECT                2  flt     -  1.0.0   Switch to another database
"""

SERVER: Final = """
ACL                      -2  -       -       6.0.0   Users and what they may do
ACL CAT                  -2  slt     -       6.0.0   Command categories, or the commands in one
ACL GETUSER               3  aslt    -       6.0.0   Everything about one user
ACL HELP                  2  lt      -       6.0.0   What ACL understands
ACL LIST                  2  aslt    -       6.0.0   The users, each as a rule line
ACL USERS                 2  aslt    -       6.0.0   Names of the users
ACL WHOAMI                2  slt     -       6.0.0   Name this connection is logged in with
BGSAVE                   -1  asd     -       1.0.0   Make a snapshot while serving on
COMMAND                  -1  lt      -       2.8.13  Facts about every command
COMMAND COUNT             2  lt      -       2.8.13  How many commands there are
COMMAND DOCS             -2  lt      -       7.0.0   What commands are for
COMMAND GETKEYS          -4  lt      -       2.8.13  The keys among a command's arguments
COMMAND GETKEYSANDFLAGS  -4  lt      -       7.0.0   Those keys and what is done with them
COMMAND HELP              2  lt      -       5.0.0   What COMMAND understands
COMMAND INFO             -2  lt      -       2.8.13  Facts about some commands
COMMAND LIST             -2  lt      -       7.0.0   Command names, filtered if asked
CONFIG                   -2  -       -       2.0.0   Settings of the running server
CONFIG GET               -3  aslt    -       2.0.0   Read settings
CONFIG HELP               2  lt      -       5.0.0   What CONFIG understands
CONFIG RESETSTAT          2  aslt    -       2.0.0   Start the counters of INFO afresh
CONFIG REWRITE            2  aslt    -       2.8.0   Write the settings in force to their file
CONFIG SET               -4  aslt    -       2.0.0   Change settings
DBSIZE                    1  rf      -       1.0.0   How many keys the database has
DEBUG                    -2  aslt    -       1.0.0   Aids for testing the server itself
FLUSHALL                 -1  w       -       1.0.0   Delete every key of every database
FLUSHDB                  -1  w       -       1.0.0   Delete every key of this database
INFO                     -1  lt      -       1.0.0   State and statistics in sections
LASTSAVE                  1  flt     -       1.0.0   When the last snapshot succeeded
LATENCY                  -2  -       -       2.8.13  Delays that were noticed
LATENCY HELP              2  lt      -       2.8.13  What LATENCY understands
LATENCY LATEST            2  aslt    -       2.8.13  Most recent delay of each kind
LATENCY RESET            -2  aslt    -       2.8.13  Forget the recorded delays
LOLWUT                   -1  rf      -       5.0.0   Version, and a little art
MEMORY                   -2  -       -       4.0.0   Where memory goes
MEMORY DOCTOR             2  -       -       4.0.0   Advice on memory
MEMORY HELP               2  lt      -       4.0.0   What MEMORY understands
MEMORY STATS              2  -       -       4.0.0   Memory use in figures
MEMORY USAGE             -3  r       peek:2  4.0.0   Bytes that a key takes
MONITOR                   1  aslt    -       1.0.0   Follow every command as it runs
ROLE                      1  sflt    -       2.8.12  Place of this server in replication
SAVE                      1  asxd    -       1.0.0   Make a snapshot and wait for it
SHUTDOWN                 -1  asltxy  -       1.0.0   Stop the server
SLOWLOG                  -2  -       -       2.2.12  Commands that took long
SLOWLOG GET              -2  alt     -       2.2.12  Read entries of the slow log
SLOWLOG HELP              2  lt      -       6.2.0   What SLOWLOG understands
SLOWLOG LEN               2  alt     -       2.2.12  How many entries the slow log has
SLOWLOG RESET             2  alt     -       2.2.12  Empty the slow log
SWAPDB                    3  wf      -       4.0.0   Exchange the contents of two databases
TIME                      1  flt     -       2.6.0   Clock of the server
"""

CLUSTER: Final = """
ASKING                    1  f    -  3.0.0  Accept the next command for a slot on its way in
CLUSTER                  -2  -    -  3.0.0  Slots, and the nodes that serve them
CLUSTER COUNTKEYSINSLOT   3  t    -  3.0.0  How many keys a slot has
CLUSTER GETKEYSINSLOT     4  t    -  3.0.0  Some of the keys in a slot
CLUSTER HELP              2  lt   -  5.0.0  What CLUSTER understands
CLUSTER INFO              2  t    -  3.0.0  State of the cluster as this node sees it
CLUSTER KEYSLOT           3  t    -  3.0.0  Slot that a key hashes to
CLUSTER MYID              2  t    -  3.0.0  Identifier of this node
CLUSTER NODES             2  t    -  3.0.0  The nodes, one line each
CLUSTER SHARDS            2  t    -  7.0.0  Slot ranges with the nodes behind them
CLUSTER SLOTS             2  t    -  3.0.0  Slot ranges, each with its nodes
READONLY                  1  flt  -  3.0.0  Allow reads from a replica on this connection
READWRITE                 1  flt  -  3.0.0  Take READONLY back
"""

#: Our own; ``since`` is a version of Penstock.
STREAM: Final = """
TACK              -4  wf   rem:1   0.1.0  Acknowledge messages of a group
TCOMPACT           2  w    rem:1   0.1.0  Keep the newest message of each tag
TDEAD             -5  wm   rem:1   0.1.0  Give up messages of a group
TDROP             -3  w    rem:1   0.1.0  Remove messages by their offsets
TEVICT            -3  w    rem:1   0.1.0  Remove old messages
TEXPORT            2  r    get:1   0.1.0  All of a stream but its messages, to copy it
TGROUP            -2  -    -       0.1.0  The groups of a stream
TGROUP CREATE     -5  wm   put:2   0.1.0  Make a group that begins at an offset
TGROUP DESTROY     4  w    rem:2   0.1.0  Remove a group
TGROUP HELP        2  lt   -       0.1.0  What TGROUP understands
TGROUP LIST        3  r    peek:2  0.1.0  Names of the groups
TGROUP SET        -4  w    put:2   0.1.0  Change the offset or the options of a group
TIMPORT           -3  wm   put:1   0.1.0  Make a stream that is copied from elsewhere
TINFO             -2  -    -       0.1.0  What is known of a stream
TINFO CONSUMERS    4  r    peek:2  0.1.0  The consumers of a group
TINFO GROUPS       3  r    peek:2  0.1.0  The groups of a stream, their positions and counters
TINFO HELP         2  lt   -       0.1.0  What TINFO understands
TINFO PRODUCER     4  r    peek:2  0.1.0  Where a producer is
TINFO STREAM       3  r    peek:2  0.1.0  Offsets, sizes and times of a stream
TNACK             -5  wf   put:1   0.1.0  Have messages delivered again later
TPENDING          -3  r    get:1   0.1.0  Messages that a group has not acknowledged
TPOLICY           -2  wm   put:1   0.1.0  How long a stream keeps what
TREAD             -4  wb   mod:1   0.1.0  Read messages from an offset or for a group, or wait for them
TRENEW            -5  wf   put:1   0.1.0  Put off the next delivery of messages
TSCAN             -4  r    get:1   0.1.0  Read messages as columns
TWRITE            -4  wmf  add:1   0.1.0  Add messages to a stream
"""

#: Our own as well.
CHANNEL: Final = """
CHACK              8  wf   mod:1..3 get:4..5  0.1.0  Acknowledge messages of a durable channel
CHFETCH           11  rfv  use:1..3           0.1.0  Messages that a subscriber has not acknowledged
CHPUBLISH         -8  wmf  mod:1              0.1.0  Add messages to a durable channel
"""

#: Rows and ACL category by group, groups named as in COMMAND DOCS.
GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "string": ("string", STRING),
    "hash": ("hash", HASH),
    "list": ("list", LIST),
    "set": ("set", SET),
    "sorted-set": ("sortedset", SORTED_SET),
    "generic": ("keyspace", GENERIC),
    "bitmap": ("bitmap", BITMAP),
    "hyperloglog": ("hyperloglog", HYPERLOGLOG),
    "geo": ("geo", GEO),
    "pubsub": ("", PUBSUB),
    "scripting": ("scripting", SCRIPTING),
    "transactions": ("transaction", TRANSACTIONS),
    "connection": ("connection", CONNECTION),
    "server": ("", SERVER),
    "cluster": ("", CLUSTER),
    "stream": ("stream", STREAM),
    "channel": ("", CHANNEL),
}

#: Commands whose categories are not their group's. An entry holds for subcommands too.
CATEGORY_EXCEPTIONS: Final[Mapping[str, str]] = {
    "KEYS": "keyspace dangerous",
    "RESTORE": "keyspace dangerous",
    "SORT": "set sortedset list dangerous",
    "SORT_RO": "set sortedset list dangerous",
    "WAIT": "connection",
    "COMMAND": "connection",
    "DBSIZE": "keyspace",
    "FLUSHALL": "keyspace dangerous",
    "FLUSHDB": "keyspace dangerous",
    "INFO": "dangerous",
    "LASTSAVE": "admin dangerous",
    "ROLE": "admin dangerous",
    "SWAPDB": "keyspace dangerous",
    "ASKING": "connection",
    "READONLY": "connection",
    "READWRITE": "connection",
}

#: Hints for clients and cluster proxies, with the commands they hold for.
TIPS: Final = """
nondeterministic_output                                                    CLIENT INFO, CLIENT LIST
nondeterministic_output                                                    CLUSTER GETKEYSINSLOT
nondeterministic_output                                                    CLUSTER INFO, CLUSTER NODES
nondeterministic_output                                                    CLUSTER SHARDS, CLUSTER SLOTS
nondeterministic_output                                                    DUMP, HRANDFIELD, HSCAN, LASTSAVE
nondeterministic_output                                                    OBJECT ENCODING, OBJECT FREQ
nondeterministic_output                                                    OBJECT IDLETIME, OBJECT REFCOUNT
nondeterministic_output                                                    PTTL, SPOP, SRANDMEMBER, SSCAN
nondeterministic_output                                                    TIME, TTL, ZRANDMEMBER, ZSCAN
nondeterministic_output_order                                              COMMAND, COMMAND DOCS
nondeterministic_output_order                                              COMMAND INFO, COMMAND LIST
nondeterministic_output_order                                              HGETALL, HKEYS, HVALS, SDIFF
nondeterministic_output_order                                              SINTER, SMEMBERS, SUNION
request_policy:all_nodes response_policy:all_succeeded                     CONFIG SET, LATENCY RESET
request_policy:all_nodes response_policy:all_succeeded                     SCRIPT FLUSH, SCRIPT LOAD
request_policy:all_nodes response_policy:all_succeeded                     SLOWLOG RESET
request_policy:multi_shard response_policy:agg_sum                         DEL, EXISTS, TOUCH, UNLINK
request_policy:all_shards response_policy:all_succeeded                    FLUSHALL, FLUSHDB, PING
nondeterministic_output request_policy:all_shards response_policy:special  INFO, MEMORY DOCTOR, MEMORY STATS
request_policy:all_shards response_policy:agg_sum                          DBSIZE
request_policy:all_shards nondeterministic_output_order                    KEYS
nondeterministic_output request_policy:all_nodes response_policy:special   LATENCY LATEST
request_policy:multi_shard                                                 MGET
request_policy:multi_shard response_policy:all_succeeded                   MSET
request_policy:multi_shard response_policy:agg_min                         MSETNX
request_policy:all_shards nondeterministic_output                          RANDOMKEY
nondeterministic_output request_policy:special                             SCAN
request_policy:all_shards response_policy:agg_logical_and                  SCRIPT EXISTS
request_policy:all_shards response_policy:one_succeeded                    SCRIPT KILL
request_policy:all_nodes nondeterministic_output                           SLOWLOG GET
request_policy:all_nodes response_policy:agg_sum nondeterministic_output   SLOWLOG LEN
request_policy:all_shards response_policy:agg_min                          WAIT
"""

#: Commands kept for old programs: since when, and what to write instead.
DEPRECATED: Final = """
GETSET                6.2.0  SET with GET
SUBSTR                2.0.0  GETRANGE
HMSET                 4.0.0  HSET, which takes several fields
BRPOPLPUSH            6.2.0  BLMOVE with RIGHT LEFT
RPOPLPUSH             6.2.0  LMOVE with RIGHT LEFT
ZRANGEBYLEX           6.2.0  ZRANGE with BYLEX
ZRANGEBYSCORE         6.2.0  ZRANGE with BYSCORE
ZREVRANGE             6.2.0  ZRANGE with REV
ZREVRANGEBYLEX        6.2.0  ZRANGE with REV BYLEX
ZREVRANGEBYSCORE      6.2.0  ZRANGE with REV BYSCORE
GEORADIUS             6.2.0  GEOSEARCH or GEOSEARCHSTORE with BYRADIUS
GEORADIUS_RO          6.2.0  GEOSEARCH with BYRADIUS
GEORADIUSBYMEMBER     6.2.0  GEOSEARCH or GEOSEARCHSTORE with FROMMEMBER and BYRADIUS
GEORADIUSBYMEMBER_RO  6.2.0  GEOSEARCH with FROMMEMBER and BYRADIUS
CLUSTER SLOTS         7.0.0  CLUSTER SHARDS
"""

#: Commands that are no business of applications.
SYSTEM_COMMANDS: Final = frozenset({"DEBUG"})
