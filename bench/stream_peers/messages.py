"""The messages of the stream benchmarks: JSON of about 120 bytes, the same ones each time.

Only the standard library is imported here: contenders in other environments make the same messages.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Final

#: A call of a bulk append, and a call that reads for a group.
BATCH: Final = 1_000
GROUP_BATCH: Final = 100
STREAM: Final = "log"


def make_messages(count: int) -> Iterator[bytes]:
    chance = random.Random(1)
    for number in range(count):
        yield json.dumps(
            {
                "id": number,
                "user": f"user-{chance.randrange(10_000)}",
                "event": chance.choice(("click", "view", "buy", "return")),
                "amount": round(chance.random() * 100, 2),
                "time": 1_700_000_000 + number * 3,
                "page": f"/products/{chance.randrange(500)}",
            }
        ).encode()
