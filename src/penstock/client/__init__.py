"""The asyncio client: commands of all tasks pipelined on one connection a node.

Speaks to Redis, Valkey, Sentinel and Cluster over sockets, and to the embedded engine
in this process; the same calls everywhere.
"""
