"""When to connect again, what may be sent again, what an error asks for."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.policies import (
    Constant,
    Decision,
    ErrorClass,
    Exponential,
    Linear,
    NoReconnect,
    Redirect,
    Remedy,
    classify_error,
    decide,
    parse_policy,
)
from penstock.errors import ConfigError


def lowest() -> float:
    return 0.0


def highest() -> float:
    return math.nextafter(1.0, 0.0)


# ------------------------------------------------------------------- connecting again


@pytest.mark.parametrize(
    ("policy", "delays_ms"),
    [
        (Constant(base_ms=300), [300, 300, 300, 300]),
        (Linear(base_ms=100, step_ms=50, cap_ms=220), [100, 150, 200, 220, 220]),
        (Linear(base_ms=100, step_ms=0), [100, 100, 100]),
        (Exponential(base_ms=50, factor=2, cap_ms=500), [50, 100, 200, 400, 500, 500]),
        (Exponential(base_ms=50, factor=1.5), [50, 75, 112, 169]),
        (Exponential(base_ms=50, factor=1), [50, 50, 50]),
        (Constant(base_ms=7, max_attempts=2), [7, 7, None, None]),
        (Linear(base_ms=7, step_ms=1, max_attempts=1), [7, None]),
        (Exponential(base_ms=7, max_attempts=3), [7, 14, 28, None]),
        (NoReconnect(), [None, None]),
    ],
)
def test_delays(policy, delays_ms):
    assert [policy.delay_ms(attempt, lowest) for attempt in range(1, len(delays_ms) + 1)] == delays_ms


@pytest.mark.parametrize("policy", [Constant(base_ms=1000), Linear(base_ms=1000), Exponential(base_ms=1000)])
def test_jitter_is_half_by_default_and_only_shortens(policy):
    assert policy.delay_ms(1, lowest) == 1000
    assert policy.delay_ms(1, lambda: 0.5) == 750
    assert policy.delay_ms(1, highest) == 500


@given(
    attempt=st.integers(1, 10**9),
    chance=st.floats(0, 1, exclude_max=True),
    jitter=st.floats(0, 1),
    factor=st.floats(1, 1e6),
    base_ms=st.integers(1, 10_000),
)
def test_no_delay_leaves_its_bounds(attempt, chance, jitter, factor, base_ms):
    cap_ms = 10_000
    for policy in (
        Constant(base_ms, jitter),
        Linear(base_ms, 13, cap_ms, jitter),
        Exponential(base_ms, factor, cap_ms, jitter),
    ):
        longest = policy.delay_ms(attempt, lowest)
        drawn = policy.delay_ms(attempt, lambda: chance)
        assert longest is not None
        assert drawn is not None
        assert base_ms <= longest <= cap_ms
        assert math.floor(longest * (1 - jitter)) <= drawn <= longest


def test_a_very_long_outage_does_not_overflow():
    assert Exponential(base_ms=50, cap_ms=900, jitter=0).delay_ms(100_000, highest) == 900


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: Constant(base_ms=0), "base_ms"),
        (lambda: Constant(jitter=1.1), "jitter"),
        (lambda: Constant(jitter=math.nan), "jitter"),
        (lambda: Linear(max_attempts=-1), "max_attempts"),
        (lambda: Linear(step_ms=-1), "step_ms"),
        (lambda: Linear(base_ms=10, cap_ms=9), "cap_ms"),
        (lambda: Exponential(factor=0.5), "factor"),
        (lambda: Exponential(factor=math.inf), "factor"),
        (lambda: Exponential(base_ms=10, cap_ms=9), "cap_ms"),
    ],
)
def test_a_policy_that_makes_no_sense_names_the_part(make, part):
    with pytest.raises(ConfigError, match=rf"^{part} of a reconnect policy"):
        make()


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("none", NoReconnect()),
        ("constant", Constant()),
        ("constant:base_ms=200,max_attempts=3", Constant(base_ms=200, max_attempts=3)),
        ("linear:step_ms=5", Linear(step_ms=5)),
        ("exponential:factor=1.5,jitter=0,cap_ms=700", Exponential(factor=1.5, jitter=0, cap_ms=700)),
    ],
)
def test_policies_as_text(text, policy):
    assert parse_policy(text) == policy


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sometimes", "unknown reconnect policy 'sometimes': use one of none, constant, linear, exponential"),
        ("", "unknown reconnect policy ''"),
        ("constant:cap_ms=5", "unknown argument 'cap_ms' of the reconnect policy 'constant'"),
        ("none:base_ms=5", "unknown argument 'base_ms' of the reconnect policy 'none': it has no arguments"),
        ("linear:base_ms=soon", "base_ms of the reconnect policy 'linear' is not a number: 'soon'"),
        ("linear:base_ms", "base_ms of the reconnect policy 'linear' is not a number: ''"),
        ("constant:base_ms=0", "base_ms of a reconnect policy must be 1 or more"),
    ],
)
def test_bad_policies_as_text(text, complaint):
    with pytest.raises(ConfigError) as caught:
        parse_policy(text)
    assert str(caught.value).startswith(complaint)


# ------------------------------------------------------------------- sending again


@pytest.mark.parametrize(
    ("was_sent", "attempt", "in_transaction", "is_readonly", "is_idempotent", "decision"),
    [
        # was sent, attempt, in transaction, readonly, idempotent
        (False, 1, False, False, False, Decision.RESEND),
        (False, 2, True, False, False, Decision.RESEND),
        (False, 3, False, True, True, Decision.NOT_SENT),
        (False, 4, True, False, False, Decision.NOT_SENT),
        (True, 1, False, False, False, Decision.OUTCOME_UNKNOWN),
        (True, 1, False, True, False, Decision.RESEND),
        (True, 2, False, False, True, Decision.RESEND),
        (True, 3, False, True, False, Decision.OUTCOME_UNKNOWN),
        (True, 3, False, False, True, Decision.OUTCOME_UNKNOWN),
        (True, 1, True, True, True, Decision.OUTCOME_UNKNOWN),
    ],
)
def test_what_may_be_sent_again(was_sent, attempt, in_transaction, is_readonly, is_idempotent, decision):
    assert decision is decide(
        was_sent=was_sent,
        is_readonly=is_readonly,
        is_idempotent=is_idempotent,
        attempt=attempt,
        max_attempts=3,
        in_transaction=in_transaction,
    )


def test_nothing_is_sent_again_that_could_run_twice():
    for was_sent, is_readonly, is_idempotent, in_transaction in itertools.product((False, True), repeat=4):
        for attempt, max_attempts in ((1, 3), (3, 3), (1, 1), (99, 0)):
            decision = decide(
                was_sent=was_sent,
                is_readonly=is_readonly,
                is_idempotent=is_idempotent,
                attempt=attempt,
                max_attempts=max_attempts,
                in_transaction=in_transaction,
            )
            if was_sent:
                assert decision is not Decision.NOT_SENT
                if in_transaction or not (is_readonly or is_idempotent):
                    assert decision is Decision.OUTCOME_UNKNOWN
            else:
                assert decision is not Decision.OUTCOME_UNKNOWN
            if 0 < max_attempts <= attempt:
                assert decision is not Decision.RESEND


def test_without_a_limit_only_the_deadline_ends_retries():
    assert Decision.RESEND is decide(
        was_sent=True, is_readonly=True, is_idempotent=False, attempt=10**6, max_attempts=0
    )


# ------------------------------------------------------------------- errors of a server


@pytest.mark.parametrize(
    ("text", "kind", "redirect"),
    [
        ("MOVED 3999 127.0.0.1:6381", ErrorClass.MOVED, Redirect(3999, "127.0.0.1", 6381)),
        ("ASK 0 node-2.example:7000", ErrorClass.ASK, Redirect(0, "node-2.example", 7000)),
        ("MOVED 16383 :6380", ErrorClass.MOVED, Redirect(16383, "", 6380)),
        ("MOVED 866 ::1:6380", ErrorClass.MOVED, Redirect(866, "::1", 6380)),
        ("MOVED 866 2001:db8::7:6380", ErrorClass.MOVED, Redirect(866, "2001:db8::7", 6380)),
        ("ASK 866 [::1]:6380", ErrorClass.ASK, Redirect(866, "::1", 6380)),
        ("ASK 866 h:65535", ErrorClass.ASK, Redirect(866, "h", 65535)),
    ],
)
def test_redirections(text, kind, redirect):
    classified = classify_error(text)
    assert (classified.kind, classified.remedy, classified.redirect) == (kind, Remedy.REDIRECT, redirect)


@pytest.mark.parametrize(
    "text",
    [
        "MOVED",
        "MOVED to a better place",
        "MOVED 1 ?:6379",
        "MOVED 16384 h:1",
        "MOVED -1 h:1",
        "MOVED 1 h",
        "MOVED 1 h:",
        "MOVED 1 h:0",
        "MOVED 1 h:65536",
        "MOVED 1 h:x",
        "MOVED ١ h:1",
        "MOVED 1",
        "MOVED x h:1",
        "ASK 1 a b:1",
        "ASK 99999999999 h:1",
        "moved 1 h:1",
    ],
)
def test_a_redirection_to_nowhere_is_an_error_as_any(text):
    classified = classify_error(text)
    assert classified.kind is ErrorClass.OTHER
    assert classified.redirect is None


@pytest.mark.parametrize(
    ("text", "kind", "remedy"),
    [
        ("CLUSTERDOWN The cluster is down", ErrorClass.CLUSTERDOWN, Remedy.REDISCOVER),
        ("CLUSTERDOWN Hash slot not served", ErrorClass.CLUSTERDOWN, Remedy.REDISCOVER),
        ("LOADING Redis is loading the dataset in memory", ErrorClass.LOADING, Remedy.REDISCOVER),
        ("READONLY You can't write against a read only replica.", ErrorClass.READONLY, Remedy.REDISCOVER),
        (
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            ErrorClass.MASTERDOWN,
            Remedy.REDISCOVER,
        ),
        ("TRYAGAIN Multiple keys request during rehashing of slot", ErrorClass.TRYAGAIN, Remedy.WAIT),
        ("NOREPLICAS Not enough good replicas to write.", ErrorClass.NOREPLICAS, Remedy.RAISE),
        ("MISCONF Redis is configured to save RDB snapshots, but", ErrorClass.MISCONF, Remedy.RAISE),
        ("BUSY Redis is busy running a script.", ErrorClass.BUSY, Remedy.RAISE),
        ("NOSCRIPT No matching script. Please use EVAL.", ErrorClass.NOSCRIPT, Remedy.LOAD_SCRIPT),
        ("NOAUTH Authentication required.", ErrorClass.NOAUTH, Remedy.RAISE),
        ("WRONGPASS invalid username-password pair", ErrorClass.WRONGPASS, Remedy.RAISE),
        ("NOPERM this user has no permissions to run", ErrorClass.NOPERM, Remedy.RAISE),
        ("LOADING", ErrorClass.LOADING, Remedy.REDISCOVER),
        ("ERR unknown command", ErrorClass.OTHER, Remedy.RAISE),
        ("BUSYGROUP Consumer Group name already exists", ErrorClass.OTHER, Remedy.RAISE),
        ("BUSYKEY Target key name already exists.", ErrorClass.OTHER, Remedy.RAISE),
        ("OTHER", ErrorClass.OTHER, Remedy.RAISE),
        ("", ErrorClass.OTHER, Remedy.RAISE),
    ],
)
def test_error_classes(text, kind, remedy):
    classified = classify_error(text)
    assert (classified.kind, classified.remedy, classified.redirect) == (kind, remedy, None)


def test_every_class_is_recognised_by_its_code():
    for kind in ErrorClass:
        text = f"{kind.value} 1 h:1" if kind in (ErrorClass.MOVED, ErrorClass.ASK) else kind.value
        assert classify_error(text).kind is kind


@given(st.text())
def test_any_text_has_a_class(text):
    assert classify_error(text).remedy in Remedy
    assert classify_error(f"MOVED {text}").kind in (ErrorClass.MOVED, ErrorClass.OTHER)
