"""Values over records: strings, hashes, lists, sets, sorted sets, streams, and pure algorithms.

Knows units of work and the byte layout; nothing of commands, replies or sessions.
"""
