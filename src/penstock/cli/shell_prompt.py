"""The prompt of ``penstock shell`` on a terminal: history, completion, hints.

Rules: prompt_toolkit is used here and nowhere else. History is a file of the user's state directory that
nobody else may read; lines with a password do not go there. What is completed comes from ``shell_hints``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.styles import Style

from penstock.cli import shell_hints

_SECRET: Final = re.compile(
    r"\s*(auth|hello|acl\s+setuser|config\s+set\s.*(pass|auth)|migrate\s.*auth)\b", re.IGNORECASE
)
_STYLE: Final = Style.from_dict({"hint": "#888888"})


def make_prompt() -> Callable[[str], Coroutine[Any, Any, str]]:
    """What asks for the next line; KeyboardInterrupt at Ctrl-C, EOFError when there is none."""
    colours = _STYLE if not os.environ.get("NO_COLOR") else None
    session: PromptSession[str] = PromptSession(
        history=_history(),
        completer=_CatalogueCompleter(),
        complete_while_typing=False,
        input_processors=[_Hints()],
        style=colours,
        enable_history_search=True,
    )
    # Ctrl-C is a key here; whoever runs commands listens to the signal.
    return lambda text: session.prompt_async(text, handle_sigint=False)


def history_file() -> Path:
    """Where lines are remembered."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "penstock" / "shell_history"


def _history() -> History:
    """In memory where no file can be had: a shell is of use without one."""
    path = history_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return _DiscreetHistory(str(path))


class _DiscreetHistory(FileHistory):
    def store_string(self, string: str) -> None:
        if not _SECRET.match(string):
            super().store_string(string)


class _CatalogueCompleter(Completer):
    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        typed = 0 if not text or text[-1].isspace() else len(text.split()[-1])
        for word, summary in shell_hints.completions(text):
            yield Completion(word, start_position=-typed, display_meta=summary)


class _Hints(Processor):
    """Shows which arguments are missing, behind the cursor."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        document = transformation_input.document
        fragments: StyleAndTextTuples = transformation_input.fragments
        is_typing = document.is_cursor_at_the_end and not get_app().is_done
        if is_typing and document.line_count == 1:
            missing = shell_hints.hint(document.text)
            if missing:
                fragments = [*fragments, ("class:hint", missing)]
        return Transformation(fragments)
