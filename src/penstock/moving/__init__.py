"""Everything of one place in another one: a directory, a Redis or a Valkey, a cluster, in any direction.

    async with penstock.open("./shop.pen") as source, penstock.open("redis-cluster://…") as target:
        migration = Migration(source, target, source_url="./shop.pen")
        await migration.prepare()
        report = await migration.run()

===============  ===================================================================================
module           role
===============  ===================================================================================
``migration``    the whole: looks, copies page by page, goes on where another run stopped
``keys``         which keys there are, of which type, until when; side keys of streams belong to streams
``values``       a value as elements, and the commands that make it again
``streams``      a stream with all it has: the two layouts are each other's words (TEXPORT, TIMPORT)
``comparing``    are both places equal?
``journal``      how far a run is, kept in the destination
``report``       what was done, and what could not be
===============  ===================================================================================

Rules: only commands of clients are used, so that every place can be a source and a destination. Nothing
here knows terminals. A source is only read; it should be quiet, and whoever runs this is told if it was
not.
"""

from penstock.moving.comparing import compare
from penstock.moving.migration import Migration
from penstock.moving.report import Problem, Report

__all__ = ["Migration", "Problem", "Report", "compare"]
