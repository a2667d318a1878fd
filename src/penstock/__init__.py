"""Penstock: durable streams, channels and transaction pipelines for Python.

Embedded like SQLite, speaking Redis. The embedded keyspace is :mod:`penstock.engine`,
its RESP listener :mod:`penstock.server`.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
