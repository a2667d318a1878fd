"""One module a part of ``python -m bench spark``, each run alone:

    python -m bench.spark_parts.source '{"directory": "/tmp/x", "messages": 5000, …}'

===========  ================================================================================
module       what it measures
===========  ================================================================================
source       a stream as a table of Spark, beside Parquet files of the same rows
lake         a stream into the lake, and a DataFrame into a stream
growth       the end of a log that becomes longer
archive      ended transactions into the lake, and where the time goes
lookup       one transaction by its id among many, beside DuckDB
latency      from a message that is written to the micro-batch that has it
steps        transactions through a step on Spark, beside an ordinary worker
session      from nothing to a session, and to its first answer
settings     what the parts are told
common       what they share: a session, a log of messages, rounds, figures
===========  ================================================================================

Rules: a part prints its tables to stdout, and ends its session. It checks that what it timed did the work.
Stores are embedded and ``relaxed``: what is measured is Spark and us, not the disk.
"""
