"""Parts of ``make_python_reference.py``: which names there are, what they have, how they are worded.

They read source by ``stubbing.sources``, which imports nothing.
"""
