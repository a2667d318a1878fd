"""One sentence out of what Spark raises.

Errors of ours that were raised inside Spark, by its planner or by an executor, come back inside a text with
two stack traces. What a person needs is the sentence that we said.

Rules: text only; nothing here needs PySpark.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import PenstockError

_OURS: Final = re.compile(r"penstock\.errors\.\w+: ([^\n]+)")
#: The last line of a Python traceback, and the innermost cause of a Java one that says anything.
_CAUSES: Final = (
    re.compile(r"^Traceback \(most recent call last\):\n(?:\s.*\n)*(\S.*)$", re.MULTILINE),
    re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE),
)
_MAX_LEN: Final = 500


def reason(error: BaseException) -> str:
    """Our own sentence, if there is one; else the innermost cause; else the first line, with the kind of
    error before it."""
    if isinstance(error, PenstockError):
        return str(error)
    text = str(error).strip()
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    for pattern in _CAUSES:
        if causes := pattern.findall(text):
            return str(causes[-1]).strip()[:_MAX_LEN]
    first = text.partition("\n")[0][:_MAX_LEN]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
