"""Which addresses are inside, and whose address a request has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.gateway.auth.networks import PRIVATE_NETWORKS, UNKNOWN_ADDRESS, Networks, client_address

PROXY = "10.0.0.1"


@pytest.mark.parametrize(
    ("address", "is_inside"),
    [
        ("10.255.255.255", True),
        ("11.0.0.0", False),
        ("172.16.0.1", True),
        ("172.32.0.1", False),
        ("192.168.1.1", True),
        ("192.169.0.1", False),
        ("127.9.9.9", True),
        ("169.254.1.1", True),
        ("::1", True),
        ("::2", False),
        ("fd00::1", True),
        ("fe80::1", True),
        ("fe80::1%eth0", True),
        ("2001:db8::1", False),
        ("::ffff:10.1.2.3", True),
        ("::ffff:8.8.8.8", False),
        ("[::1]:8080", True),
        ("10.0.0.1:80", True),
        ("8.8.8.8", False),
        ("", False),
        ("unknown", False),
        ("10.0.0", False),
        ("10.0.0.0/8", False),
        ("010.0.0.1", False),
        ("10.0.0.1" + " " * 100, True),
        ("1" * 1000, False),
    ],
)
def test_private_networks(address: str, is_inside: bool) -> None:
    assert PRIVATE_NETWORKS.is_inside(address) is is_inside


def test_lists_of_networks() -> None:
    assert Networks(["1.2.3.4"]).is_inside("1.2.3.4")
    assert not Networks(["1.2.3.4"]).is_inside("1.2.3.5")
    assert Networks(["1.2.3.4/24"]).is_inside("1.2.3.5")
    assert Networks(["::/0"]).is_inside("2001:db8::1")
    assert not Networks(["::/0"]).is_inside("1.2.3.4")
    assert not Networks([]).is_inside("1.2.3.4")
    assert repr(Networks(["::/0", "1.2.3.4"])) == "<Networks ::/0, 1.2.3.4>"
    for wrong in (["10.0.0.0/33"], ["x"], [""], "10.0.0.0/8"):
        with pytest.raises(ConfigError, match="networks"):
            Networks(wrong)


def behind_proxy(value: str, name: str = "X-Forwarded-For", peer: str = PROXY) -> str:
    return client_address(peer, [(name, value)], PRIVATE_NETWORKS, name)


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("8.8.8.8", "8.8.8.8"),
        ("1.1.1.1, 8.8.8.8", "8.8.8.8"),  # what stands left may be forged
        ("10.9.9.9, 8.8.8.8", "8.8.8.8"),
        ("nonsense, 8.8.8.8", "8.8.8.8"),
        ("8.8.8.8, 10.0.0.2, 192.168.0.1", "8.8.8.8"),
        ("8.8.8.8:4711,10.0.0.2:80", "8.8.8.8"),
        ("[2001:db8::5]:443", "2001:db8::5"),
        ("2001:DB8::5", "2001:db8::5"),
        ("::ffff:8.8.8.8", "8.8.8.8"),
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),  # all ours: the machine that began
        (" , 8.8.8.8 , ,", "8.8.8.8"),
        ("8.8.8.8, nonsense", UNKNOWN_ADDRESS),
        ("8.8.8.8, unknown, 10.0.0.2", UNKNOWN_ADDRESS),
        ("", UNKNOWN_ADDRESS),
        (",,,", UNKNOWN_ADDRESS),
        ("10.0.0.2," * 65, UNKNOWN_ADDRESS),
        ("8.8.8.8," + " " * 10_000, UNKNOWN_ADDRESS),
    ],
)
def test_x_forwarded_for(value: str, address: str) -> None:
    assert behind_proxy(value) == address


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("for=8.8.8.8", "8.8.8.8"),
        ("For=8.8.8.8;proto=http;by=10.0.0.1", "8.8.8.8"),
        ('proto=http; for="8.8.8.8:4711"', "8.8.8.8"),
        ('for="[2001:db8:cafe::17]:4711"', "2001:db8:cafe::17"),
        ("for=1.1.1.1, for=8.8.8.8, for=10.0.0.2", "8.8.8.8"),
        ("for=10.0.0.3, for=10.0.0.2", "10.0.0.3"),
        ("for=8.8.8.8, for=unknown", UNKNOWN_ADDRESS),
        ("for=8.8.8.8, for=_hidden, for=10.0.0.2", UNKNOWN_ADDRESS),
        ("for=8.8.8.8, proto=http", UNKNOWN_ADDRESS),
        ("for=8.8.8.8;for=10.0.0.2", UNKNOWN_ADDRESS),
        ("8.8.8.8", UNKNOWN_ADDRESS),
        ("for", UNKNOWN_ADDRESS),
        ("", UNKNOWN_ADDRESS),
        # A client leaves a quote open, hoping to swallow what the proxy appends.
        ('for="10.0.0.9, for=8.8.8.8', "8.8.8.8"),
        ('for=10.0.0.9;x="\\, for="[2001:db8::1]"', "2001:db8::1"),
        # A client's Host, repeated by the proxy in quotes.
        ('for=8.8.8.8;host="x;for=10.0.0.9"', "8.8.8.8"),
        ('for=8.8.8.8;host="x, for=10.0.0.9"', "8.8.8.8"),
        ('for=8.8.8.8;host="x\\", for=10.0.0.9"', "8.8.8.8"),
        ('host="x;for=10.0.0.9"', UNKNOWN_ADDRESS),
    ],
)
def test_forwarded(value: str, address: str) -> None:
    assert behind_proxy(value, "Forwarded") == address


def test_other_headers_hold_one_address() -> None:
    assert behind_proxy(" 8.8.8.8 ", "X-Real-IP") == "8.8.8.8"
    assert behind_proxy("10.0.0.7", "X-Real-IP") == "10.0.0.7"
    assert behind_proxy("1.1.1.1, 8.8.8.8", "X-Real-IP") == UNKNOWN_ADDRESS
    assert behind_proxy("localhost", "X-Real-IP") == UNKNOWN_ADDRESS
    twice = [("X-Real-IP", "10.0.0.2"), ("x-real-ip", "8.8.8.8")]
    assert client_address(PROXY, twice, PRIVATE_NETWORKS, "X-Real-IP") == UNKNOWN_ADDRESS


def test_only_trusted_peers_are_believed() -> None:
    assert behind_proxy("10.0.0.2", peer="8.8.8.8") == "8.8.8.8"
    assert behind_proxy("1.1.1.1", peer="::ffff:10.0.0.1") == "1.1.1.1"
    lines = [("X-Forwarded-For", "1.1.1.1")]
    assert client_address(PROXY, lines, PRIVATE_NETWORKS, "") == PROXY
    assert client_address(PROXY, lines, PRIVATE_NETWORKS, "X-Real-IP") == PROXY
    assert client_address(PROXY, lines, Networks([]), "X-Forwarded-For") == PROXY
    assert client_address(None, lines, PRIVATE_NETWORKS, "X-Forwarded-For") == UNKNOWN_ADDRESS
    assert client_address("/run/socket", lines, PRIVATE_NETWORKS, "X-Forwarded-For") == UNKNOWN_ADDRESS


def test_lines_are_joined_in_order_and_may_be_bytes() -> None:
    lines = [(b"x-forwarded-for", b"8.8.8.8"), (b"host", b"h"), (b"X-FORWARDED-FOR", b"10.0.0.2")]
    assert client_address(PROXY, lines, PRIVATE_NETWORKS, "X-Forwarded-For") == "8.8.8.8"
    assert client_address(PROXY, [(b"x-forwarded-for", b"\xff")], PRIVATE_NETWORKS, "X-Forwarded-For") == (
        UNKNOWN_ADDRESS
    )


pieces = st.sampled_from([*'",;=\\[]:% \t', "for=", "8.8.8.8", "10.0.0.2", "::1", "host="]) | st.text(
    max_size=3
)


@given(
    st.lists(pieces, max_size=30).map("".join), st.sampled_from(["X-Forwarded-For", "Forwarded", "X-Real-IP"])
)
def test_what_a_client_sends_never_hides_it(sent: str, name: str) -> None:
    """Nothing raises; and whatever a client began the list with, the proxy's own word counts."""
    answer = behind_proxy(sent, name)
    assert answer == UNKNOWN_ADDRESS or Networks(["0.0.0.0/0", "::/0"]).is_inside(answer)
    if name == "X-Forwarded-For":
        assert behind_proxy(f"{sent}, 9.9.9.9", name) == "9.9.9.9"
    if name == "Forwarded":
        assert behind_proxy(f'{sent}, for="9.9.9.9:1"', name) == "9.9.9.9"
