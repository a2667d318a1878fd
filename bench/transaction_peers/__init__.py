"""One script a contender of ``python -m bench transactions``, each run alone in an environment of its own.

    python -m bench.transaction_peers.saq_worker PORT COUNT

prints one line of JSON (see ``measuring.py``). Rules: a script knows its own library and ``measuring``,
nothing else of ``bench``, so that an environment needs the library alone; defaults are kept except for what
``measuring.Arguments`` sets.
"""
