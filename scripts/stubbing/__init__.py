"""What ``make_blocking_stub.py`` is made of: it reads source, never imports it, and writes stubs.

=============  =============================================================
``sources``    modules and classes as their text has them; where names come from
``writing``    a stub as it grows: signatures, imports, the formatter's layout
``commands``   the command helpers, with another answer than ``Coming``
``twins``      the synchronous sides of asyncio classes
=============  =============================================================
"""
