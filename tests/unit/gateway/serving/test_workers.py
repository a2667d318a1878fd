"""When a worker that died is replaced, and what a worker does with what it is told."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.gateway.serving.worker import find_target
from penstock.gateway.serving.workers import restart_delay_s


def test_the_first_death_is_mended_at_once_and_later_ones_later():
    delays_s = [restart_delay_s(failures) for failures in range(1, 12)]
    assert delays_s[:4] == [0.0, 0.25, 0.5, 1.0]
    assert delays_s == sorted(delays_s)
    assert restart_delay_s(10_000) == 15.0


def test_a_target_is_found_by_its_name():
    assert find_target("penstock.gateway.serving.workers:restart_delay_s") is restart_delay_s


@pytest.mark.parametrize("name", ["penstock.nowhere:run", "penstock.version:nobody"])
def test_a_target_that_is_not_there_is_named(name: str):
    with pytest.raises(ConfigError, match=name):
        find_target(name)
