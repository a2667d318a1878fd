"""One script a client of ``python -m bench client.calls``, each run alone in an environment of its own.

    python -m bench.client_peers.coredis_client PORT SECONDS

prints one line of JSON (see ``measuring.py``). Rules: a script knows its own library and ``measuring``,
nothing else of ``bench``, so that an environment needs the library alone; defaults are kept where they
work at all.
"""
