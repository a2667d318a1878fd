"""The language of the wire: requests, replies, the command catalogue, key slots.

==============  =================================================================
module          role
==============  =================================================================
``replies``     the values a command can answer with
``encoder``     those values to RESP2 or RESP3 bytes
``requests``    bytes from a client to commands, refusing what is not RESP
``parsing``     one encoded reply back to its value
``catalogue``   what is known of every command
``slots``       a key to its cluster slot
==============  =================================================================

Rules: nothing here does I/O, keeps time or knows who calls. The only library seen
is hiredis, and its exceptions do not leave the room.
"""
