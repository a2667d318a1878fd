"""Webhooks of channels: from the outbox that a publish fills to the queue that delivers.

================  ===========================================================================
``translation``   webhooks of the configuration as endpoints, messages as bodies
``routes``        which endpoints of users want which channels
``directory``     an endpoint by its id, wherever it was defined
``forwarding``    moves what outboxes hold into the queue
``service``       all of it, for one worker
================  ===========================================================================

A publish only appends to the outbox of its channel, in the same step as to the channel itself: a webhook can
be late, never lost. Delivering is the business of ``penstock.webhooks``.
"""
