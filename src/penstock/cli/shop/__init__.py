"""The sample shop of ``penstock demo``: a small program on Penstock, to watch and to learn from.

==================  ===========================================================================
``steps``           what the shop does with an order: functions, and where they may fail
``pipelines``       in which order; who waits for whom, what is undone, what runs by the clock
``traffic``         customers, a clerk, news: whoever makes something happen
``readers``         consumer groups of the orders, subscribers of channels
``receiver``        the warehouse partner, who is told by webhook
``spark_job``       the data pipeline, as a process of its own
``running``         all of it, on one event loop
==================  ===========================================================================

An order goes this way: a customer writes it to the stream ``orders``; the group ``checkout`` reads it there
and starts a transaction under its offset, so that none is sold twice; the steps of that charge, wait, sleep,
ship, and tell others; what has ended goes to the lake.

Rules: only public names of Penstock are used, as a program of yours would. Nothing here knows the command
line, ports, or how people are told.
"""
