"""The stream: a log of messages with permanent, dense offsets.

===============  =============================================================
module           role
===============  =============================================================
``nodes``        many messages as one value: bytes and back
``columns``      columns of numbers, and blocks of them
``log``          the stream itself: append, read, evict, seal
``reading``      messages as rows of an answer
``scanning``     messages as columns of an answer
``groups``       the groups of a stream: records, options, counters
``pending``      what a group has delivered and not seen acknowledged
``consumers``    who reads for a group
``ordering``     one message of a tag at a time
``delivery``     who reads for a group gets what
``settling``     what becomes of pending messages
``dead_letters`` messages that were given up
``timers``       when somebody has to look at a group
``overdue``      what is done then
``compaction``   older messages of a tag become holes
``dropping``     so do single ones, on demand
``policies``     how long a stream keeps what
``producers``    writes that are repeated
``copying``      a stream as words, and back: for other places
``check``        does a stream hold together?
===============  =============================================================
"""

from penstock.engine.datatypes.stream.log import Stream
from penstock.engine.datatypes.stream.nodes import Message

__all__ = ["Message", "Stream"]
