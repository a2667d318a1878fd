"""HTTP in front of a store: our own API (``/v1``), those of DSPS and DATP, webhooks, the console.

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
``transacting``     transactions for one worker
``store_figures``   the store in numbers; ``stream_figures``, ``transaction_figures``, ``job_states``
                    and ``job_figures`` likewise; ``rates`` how fast they grow, ``overview`` all at
                    one look, ``sharing`` one reader for many followers, ``lake_reading`` the lake
``services``        everything that routes need; ``polls`` waiting for a client
``v1``, ``dsps``    the routes; ``datp`` likewise, ``console`` the pages
``app``             the ASGI application around them
``assembly``        puts all of it together
``serving``         processes, sockets, signals
``running``         a whole gateway: in a loop that runs, in this process, in several
==================  =====================================================================

Each knows those above it. Needs ``penstock[gateway]``.
"""
