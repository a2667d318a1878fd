"""Redis Streams as redis-py uses them, for ``python -m bench streams.messages``, in an environment of its
own.

    python -m bench.stream_peers.redis_py_streams PORT COUNT

prints one line of JSON. Rules: the script knows redis-py and ``messages``, nothing else of ``bench``.
"""
