"""What the gateway tells about itself: metrics, the access log, other logs, traces.

================  ==============================================================================
``cells``         numbers in shared memory: one file for each worker, readable by all of them
``families``      everything that is counted, as a table
``metrics``       the counters of one worker
``scraping``      the text that a scrape gets, of all workers together
``outlet``        lines to a file descriptor, written by a thread, bounded
``timestamps``    moments as text
``access_log``    one line for each request
``logs``          the set-up of Python's logging: formats, categories, levels
``tracing``       OpenTelemetry, if it is switched on
================  ==============================================================================

Nothing here decides anything about a request, and nothing here may hold one up.
"""
