"""Requests made up from the OpenAPI document, against a gateway that runs: answers are what it says.

Every operation gets a bounded number of requests, valid ones and broken ones, always the same. No answer is a
server error, every status is documented, and content types, headers and bodies are as described.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.failures import FailureGroup

from penstock.lake import Lake
from tests.effort import scaled
from tests.gateway.furnishing import furnish
from tests.gateway.whole import ADMIN, whole_worker
from tests.lake.rows import messages, put

EXAMPLES = scaled(10)
#: How long one answer may take; streams of events end before, since they are asked to.
LIMIT_S = 10.0
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
TAGS = (
    "channels",
    "subscriptions",
    "streams",
    "stream groups",
    "pubsub",
    "webhooks",
    "tokens",
    "transactions",
    "pipelines",
    "schedules",
    "transaction operations",
    "overview",
    "server",
    "data pipeline",
    "health",
    "about",
    "DSPS",
    "DATP",
)
SETTINGS = {"pubsub": {"enabled": True}, "http": {"longPollingMaxTimeout": "20ms", "listen": "127.0.0.1:0"}}


@dataclass
class Running:
    """A gateway on a thread of its own: requests are made by blocking code."""

    folder: Path
    url: str = ""
    document: dict[str, Any] = field(default_factory=dict)
    #: values of paths that are there, by the names of their parameters
    names: dict[str, str] = field(default_factory=dict)
    is_ready: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
            self.error = error
        finally:
            self.is_ready.set()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        storage = {"embedded": {"directory": str(self.folder / "store.pen"), "durability": "relaxed"}}
        lake = _furnished_lake(self.folder / "lake")
        async with whole_worker(self.folder, storage, lake=str(lake.root), **SETTINGS) as worker:
            self.url = f"http://127.0.0.1:{worker.port}"
            self.document = (await worker.http.get("/v1/openapi.json")).json()
            self.names = {**await furnish(worker.http, ADMIN), "table": "messages"}
            self.is_ready.set()
            await self._stopping.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)


def _furnished_lake(root: Path) -> Lake:
    lake = Lake.open(root)
    table = lake.table("messages")
    table.commit(put(table, messages(table, 1, 10)), progress={"export": 10})
    return lake


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("gateway"))
    thread = threading.Thread(target=running.run)
    thread.start()
    assert running.is_ready.wait(30)
    if running.error is not None:
        raise running.error
    yield running
    running.stop()
    thread.join(30)
    assert not thread.is_alive()
    if running.error is not None:
        raise running.error


def operations(running: Running) -> list[Any]:
    """Those that end; a follower of a topic stays until it goes."""
    api = schemathesis.openapi.from_dict(running.document)
    found = [result.ok() for result in api.get_all_operations()]
    return [each for each in found if each.path != "/v1/pubsub/{topic}/events"]


@pytest.mark.parametrize("tag", TAGS)
def test_answers_are_what_the_document_says(tag: str, running: Running) -> None:
    chosen = [each for each in operations(running) if each.tags == [tag]]
    assert chosen
    failures = [failure for each in chosen if (failure := _failure_of(each, running)) is not None]
    assert not failures, "\n\n".join(failures)


def test_every_operation_is_tried(running: Running) -> None:
    assert {tag for each in operations(running) for tag in each.tags} == set(TAGS)


def _failure_of(operation: Any, running: Running) -> str | None:
    """What was wrong with an answer of this operation; None: nothing."""

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=st.one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode]),
        is_known=st.booleans(),
    )
    def answers(case: schemathesis.Case, is_known: bool) -> None:
        _end_soon(case)
        if is_known and case.method != "DELETE":
            case.path_parameters = {
                name: running.names.get(name, value) for name, value in (case.path_parameters or {}).items()
            }
        response = case.call(base_url=running.url, headers=dict(ADMIN), timeout=LIMIT_S)
        case.validate_response(response, checks=CHECKS)

    try:
        answers()
    except Unsatisfiable:
        return None  # nothing can be broken about this request
    except (Exception, FailureGroup) as error:  # noqa: BLE001 - all of them are told together
        return f"{operation.label}: {error!r}"
    return None


def _end_soon(case: schemathesis.Case) -> None:
    """Whoever would follow does so for a moment."""
    names = {each["name"] for each in case.operation.definition.raw.get("parameters", ())}
    if "for" in names:
        case.query = {**(case.query or {}), "for": "20ms"}
