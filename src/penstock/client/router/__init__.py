"""Where a command goes: standalone, Sentinel or Cluster, and what to do when the answer is "elsewhere".

====================  ==================================================================
module                role
====================  ==================================================================
``base``              the port that all routers have
``topology``          who serves which slot; CLUSTER SLOTS, MOVED and ASK read
``splitting``         one multi-key command to one part a slot, and the replies back to one;
                      which slot a command belongs to
``sentinel_replies``  what a Sentinel answers and announces, as values
``racing``            several servers asked one after the other, the first answer counts
``reporting``         what a link's state means to an observer
``standalone``        one server
``cluster``           many: the router itself
``territory``         of it: the slot map as links, patched by redirections
``nodes``             of it: the links by address; replicas in turn
``refreshing``        of it: when to ask for the map again
``backchannel``       of it: asks the nodes, beside the shared connections
``detours``           of it: refused commands, how often and when they are tried again
``scattering``        of it: the parts of a split command on their way
``broadcasting``      of it: commands about the whole, their replies as one
``sentinel``          the primary that sentinels name
``sentinel_asking``   of it: asks the sentinels, one after the other
``sentinel_watching`` of it: hears of failovers
``sentinel_replicas`` of it: reads from replicas
====================  ==================================================================

Rules: ``topology``, ``splitting`` and ``sentinel_replies`` do no I/O, keep no time and hold
no connection. They turn replies into values and values into decisions; whoever owns the
connections acts on them.
"""
