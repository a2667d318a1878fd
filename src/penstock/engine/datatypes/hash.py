"""The hash: fields and values, by field. All of it is :class:`Members` under the hash's own names.

=========================================  =============================================
row                                        value
=========================================  =============================================
``version(8) m hash(8) field``             the value
``version(8) m hash(8) fit(field)``        the whole field and the value, if it is long
=========================================  =============================================
"""

from __future__ import annotations

from penstock.engine.datatypes.collection import Members
from penstock.engine.storage.layout import HASH


class Hash(Members):
    TYPE = HASH

    __slots__ = ()

    # Names for what is there: a method that only calls another costs as much as LMDB does.
    get = Members._get
    #: put(field, value): set a field; True if it is new
    put = Members._put
    #: put_new(field, value): set a field unless it exists; True if it was set
    put_new = Members._add
    remove = Members._remove
