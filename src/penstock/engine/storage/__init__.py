"""LMDB: environment, byte layout, units of work, expiry, upgrade.

The only room that imports ``lmdb``. It knows tables, records and transactions, and
nothing of commands, replies, sessions or data types.
"""
