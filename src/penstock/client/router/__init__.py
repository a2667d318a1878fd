"""Where a command goes: standalone, Sentinel or Cluster, and what to do when the answer is "elsewhere".

====================  ==================================================================
module                role
====================  ==================================================================
``topology``          who serves which slot; CLUSTER SLOTS and SHARDS, MOVED and ASK read
``splitting``         one multi-key command to one part a slot, and the replies back to one;
                      which slot a command belongs to
``sentinel_replies``  what a Sentinel answers and announces, as values
====================  ==================================================================

Rules: these three do no I/O, keep no time and hold no connection. They turn replies
into values and values into decisions; whoever owns the connections acts on them.
"""
