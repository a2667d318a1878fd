"""Benchmarks: the peers and us in one run, ratios and aims told, machine and versions stated.

    python -m bench                          everything that fits into ten minutes (make bench)
    python -m bench streams spark.source     a part, a section
    python -m bench --large                  what needs an hour (make bench-large)
    python -m bench --help                   the choices

In reading order:

==================  =========================================================================
plan                what there is to measure, how much of it, and how long that takes
running             a run: its sections one after the other, whatever is missing
results             what was measured: lines, contenders, rounds, aims; kept as JSON
report, chart       the page docs/benchmarks.md and its picture
environments        an environment for every peer, and the scripts that run in them
server … spark      the parts, a module each; *_peers and *_parts are what they start
growing, tables     what the parts share
==================  =========================================================================

No figure is kept in the code; tests never assert on time.
"""
