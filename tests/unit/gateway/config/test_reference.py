"""docs/gateway-configuration.md names exactly the keys of the model, with their types and defaults."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.gateway.config import ChannelRules, load
from penstock.gateway.config.describing import Row, rows
from penstock.gateway.config.kinds import PRIVATE_NETWORKS
from penstock.gateway.config.surroundings import DEFAULT_HEADERS

PAGE = Path(__file__).parents[4] / "docs" / "gateway-configuration.md"
_ROW = re.compile(r"^\| `([^`]+)` \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)


def _written() -> list[tuple[Row, str]]:
    """Rows of tables with four columns: key, type, default, one line about it."""
    return [(Row(*found[:3]), found[3]) for found in _ROW.findall(PAGE.read_text())]


def test_the_same_keys() -> None:
    names = [row.path for row, _ in _written()]
    assert len(names) == len(set(names))
    assert set(names) == {row.path for row in rows()}


def test_the_same_types_and_defaults() -> None:
    model = {row.path: row for row in rows()}
    for row, line in _written():
        expected = model[row.path]
        assert row.type == expected.type, row.path
        assert row.default == (expected.default or row.default), row.path
        assert line.endswith((".", "…")), row.path


def test_defaults_that_are_told_in_words() -> None:
    page = PAGE.read_text()
    for name, value in DEFAULT_HEADERS.items():
        assert f"`{name}: {value}`" in page
    for network in PRIVATE_NETWORKS:
        assert f"`{network}`" in page


def test_every_alias_is_mentioned() -> None:
    page = PAGE.read_text()
    for alias in ("storage", "categories", "enabled", "__disablePubSub", "__disableJwt"):
        assert f"`{alias}`" in page


def test_the_example_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.+?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "gateway.yml").write_text(example)
    config = load(tmp_path / "gateway.yml", environment={})
    assert config.quorum_size == 2
    policy = ChannelRules(config).match("room-7")
    assert policy is not None
    assert [each.url for each in policy.webhooks] == [
        "https://hooks.example.com/room/7",
        "https://audit.example.com/messages",
    ]
