"""Our own API: resources under ``/v1``, JSON bodies, problem details (RFC 9457) for errors.

==============  =======================================================
``problems``    how this API words refusals
``reading``     values of requests: JSON bodies, queries, pages
``documents``   what documentation says about a route
``events``      server-sent events
``channels``    messages, subscriptions, acknowledgements
``sockets``     the same over WebSockets
``streams``     logs and groups
``pubsub``      publish and follow, nothing kept
``hooks``       endpoints, deliveries, replay
``tokens``      API tokens
``transactions``, ``transaction_control``, ``transaction_events``
                start, look, wait, follow, cancel, replay, switches
``pipelines``   drafts and versions; ``schedules`` starts by time
``transaction_operations``
                limits, node groups, workers, statistics
``overview``    everything at one look, and every second
``server``      the process and its store; ``data_pipeline`` jobs and the lake
``health``      what works and how much of it
``openapi``     the document and the page made of all of that
==============  =======================================================
"""
