"""HTTP in front of channels, streams and pub/sub: the DSPS API, our own ``/v1``, webhooks.

==================  =====================================================================
``config``          the YAML file, checked, as values
``auth``            who may do what
``http``            requests, answers, routes
``observing``       metrics, logs, traces
``limiting``        how often; ``shaping`` compression and CORS
``policies``        what holds for a channel; ``access`` the door; ``failures`` what errors mean
``control``         what workers tell each other
``hooks``           webhooks of channels
``measuring``       channels that are counted
``store_figures``   the store in numbers; ``stream_figures``, ``transaction_figures``, ``job_states``
                    likewise; ``rates`` how fast they grow, ``overview`` all at one look,
                    ``sharing`` one reader for many followers, ``lake_reading`` tables of the lake
``services``        everything that routes need; ``polls`` waiting for a client
``dsps``, ``v1``    the routes
``app``             the ASGI application around them
``assembly``        puts all of it together
``serving``         processes, sockets, signals
==================  =====================================================================

Each knows those above it. Needs ``penstock[gateway]``.
"""
