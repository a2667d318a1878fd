"""One runtime a test module: making one costs some milliseconds, and being reused is its trade."""

from __future__ import annotations

import pytest

from tests.unit.scripting.harness import Scripts


@pytest.fixture(scope="module")
def shared_scripts() -> Scripts:
    return Scripts()


@pytest.fixture
def scripts(shared_scripts: Scripts) -> Scripts:
    """A runtime that earlier tests have used, with nothing stored or logged."""
    for memory in (shared_scripts.values, shared_scripts.replies, shared_scripts.exceptions):
        memory.clear()
    shared_scripts.calls.clear()
    shared_scripts.logged.clear()
    return shared_scripts
