"""Typed helpers for commands: one method each, named as the command in lower case.

Subcommands are joined by an underscore (``client_list``), DEL is ``delete``; options are keyword
arguments under Redis's names, in its units unless the name says another. Replies annotated as
``bytes`` are text on connections that decode. One way to say a thing: a command that only
repeats another (HMSET, SUBSTR, GEORADIUS) has no helper, nor has one that changes a connection
that others share, or is answered by more than one reply. ``execute`` takes them all.

=====================  ==========================================================
``base``               the hook that all helpers call; who may inherit them
``arguments``          from Python values to the words of a command
``conversions``        from replies to Python values (``server_…``, ``stream_…``)
``scanning``           iterators over SCAN and its kin
the rest               the helpers, one family a module
=====================  ==========================================================
"""

from __future__ import annotations

from penstock.client.commands.base import Runner
from penstock.client.commands.bits_and_logs import BitsAndLogs
from penstock.client.commands.clusters import Clusters
from penstock.client.commands.connections import Connections
from penstock.client.commands.geo import Geo
from penstock.client.commands.hash_fields import HashFields
from penstock.client.commands.hashes import Hashes
from penstock.client.commands.keys import Keys
from penstock.client.commands.lists import Lists
from penstock.client.commands.pubsub_queries import PubSubQueries
from penstock.client.commands.redis_streams import RedisStreams
from penstock.client.commands.scripting import Scripting
from penstock.client.commands.server import Server
from penstock.client.commands.sets import Sets
from penstock.client.commands.sorted_set_ranges import SortedSetRanges
from penstock.client.commands.sorted_sets import SortedSets
from penstock.client.commands.strings import Strings

__all__ = ["Commands", "Runner"]


class Commands(
    Keys,
    Strings,
    Hashes,
    HashFields,
    Lists,
    Sets,
    SortedSets,
    SortedSetRanges,
    BitsAndLogs,
    Geo,
    RedisStreams,
    Scripting,
    PubSubQueries,
    Connections,
    Server,
    Clusters,
):
    """Every helper; whoever inherits it implements ``_call``."""

    __slots__ = ()
