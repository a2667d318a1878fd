"""The keys that a stream has on a server which keeps it by scripts. All share the slot of the stream.

==================  ==================================  ========================================
key of the stream   its side key ``meta``               why
==================  ==================================  ========================================
``orders``          ``{orders}:meta``                   the key becomes the hash tag
``{shop}orders``    ``{shop}orders::meta``              the key has a hash tag already
``a}b``             ``{3077}a}b!:meta``                 the key cannot be a hash tag, so that another
                                                        text of the same slot stands in
==================  ==================================  ========================================

The three forms differ in what stands before the last colon, so two streams never share a side
key. What the keys hold is told by ``lua/common.lua``. Nothing here sends anything.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from typing import Final

from penstock.protocol.slots import hash_tag, key_slot

#: In the order of KEYS; the stream itself comes first.
SIDE_KEYS: Final = (b"meta", b"groups", b"pending", b"index", b"consumers", b"producers", b"seen")


def stream_keys(key: bytes) -> list[bytes]:
    """KEYS of a stream: itself and its side keys."""
    prefix = _prefix(key)
    return [key, *(prefix + name for name in SIDE_KEYS)]


@lru_cache(maxsize=4096)
def _prefix(key: bytes) -> bytes:
    if hash_tag(key) != key:
        return key + b"::"
    if key and hash_tag(b"{" + key + b"}") == key:
        return b"{" + key + b"}:"
    slot = key_slot(key)
    stand_in = next(text for text in (b"%d" % number for number in count()) if key_slot(text) == slot)
    return b"{" + stand_in + b"}" + key + b"!:"
