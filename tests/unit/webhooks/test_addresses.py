"""What may be called: a table of addresses, and one of URLs that somebody hopes will slip through."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from penstock.errors import ConfigError
from penstock.webhooks.addresses import AddressPolicy, check_url, embedded_v4, policy

PUBLIC = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1
    169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0 198.17.255.255
    198.20.0.0 223.255.255.255 93.184.216.34
    2606:4700::1111 2a00:1450:4001::1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8
""".split()

REFUSED = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.254
    169.254.0.1 169.254.169.254 169.254.170.2 168.63.129.16 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192
    192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1
    224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 100.100.100.200
    :: ::1 ::2 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0.0.0.0
    ::ffff:0:127.0.0.1 ::ffff:0:8.8.8.8
    64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b::10.0.0.1 64:ff9b:1::1 64:ff9b:1::8.8.8.8
    2002:7f00:1:: 2002:a00:1::1 2002:a9fe:a9fe:: 2002:808:808::
    2001::1 2001:0:7f00:1:: 2001:10::1 2001:20::1 2001:db8::1 3fff::1
    fc00::1 fd00:ec2::254 fd00::1 fe80::1 fec0::1 ff02::1 ff0e::1 100::1 5f00::1 4000::1 1::1
""".split()


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_called(address: str) -> None:
    assert AddressPolicy().choose("host", [address]) == [str(ip_address(address))]


@pytest.mark.parametrize("address", REFUSED)
def test_others_may_not(address: str) -> None:
    with pytest.raises(ConfigError, match="public"):
        AddressPolicy().choose("host", [address])


def test_a_zone_does_not_make_it_public() -> None:
    with pytest.raises(ConfigError, match="link-local"):
        AddressPolicy().choose("host", ["fe80::1%eth0"])


def test_only_public_ones_of_several_are_chosen() -> None:
    resolved = ["10.0.0.1", "8.8.8.8", "::1", "1.1.1.1"]
    assert AddressPolicy().choose("host", resolved) == ["8.8.8.8", "1.1.1.1"]
    with pytest.raises(ConfigError, match="no address"):
        AddressPolicy().choose("host", [])


@pytest.mark.parametrize(
    ("allowed", "address", "may"),
    [
        ("127.0.0.0/8", "127.0.0.1", True),
        ("127.0.0.0/8", "::ffff:127.0.0.1", True),
        ("127.0.0.0/8", "::1", False),
        ("10.1.0.0/16", "10.1.255.255", True),
        ("10.1.0.0/16", "10.2.0.0", False),
        ("169.254.169.254/32", "169.254.169.254", True),
        ("::1/128", "::1", True),
        ("::1/128", "127.0.0.1", False),
        ("fd00::/8", "fd00:ec2::254", True),
    ],
)
def test_allowed_networks_open_themselves_and_nothing_else(allowed: str, address: str, may: bool) -> None:
    assert (policy([allowed]).refusal(ip_address(address)) is None) is may
    assert policy([allowed]).refusal(ip_address("192.168.0.1"))


@pytest.mark.parametrize("text", ["10.0.0.1/8", "ten", "", "10.0.0.0/33"])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="allowed_networks"):
        policy([text])


def test_the_inner_address_of_every_form() -> None:
    forms = ("::ffff:1.2.3.4", "::1.2.3.4", "64:ff9b::1.2.3.4", "2002:102:304::9", "::ffff:0:1.2.3.4")
    assert {str(embedded_v4(ip_address(form))) for form in forms} == {"1.2.3.4"}
    assert [embedded_v4(ip_address(text)) for text in ("::1", "::", "2606::1", "1.2.3.4")] == [None] * 4


# ------------------------------------------------------------------------------------------------ URLs

GOOD_URLS = [
    "https://example.com",
    "https://example.com/",
    "https://example.com:8443/hook?token=a%20b&x=1",
    "http://example.com/hook",
    "https://EXAMPLE.com/",
    "https://xn--bcher-kva.example/",
    "https://a_b.example/",
    "https://example.com./",
    "https://8.8.8.8/",
    "https://[2606:4700::1111]/",
    "https://[2606:4700::1111]:8443/",
    "https://1password.com/",
    "https://3com.com/",
    "https://example.com/@user",
    "https://localhost.example.com/",
]

BAD_URLS = [
    # schemes
    "", "example.com", "//example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/",
    "javascript:alert(1)", "unix:///run/docker.sock", "http+unix://%2Frun%2Fdocker.sock/",
    "https:example.com",
    "https:///path", "https://", "http:/example.com", "ws://example.com/", "data:text/plain,x",
    # users, fragments, escapes
    "https://user@example.com/", "https://user:pass@example.com/", "https://@example.com/",
    "https://example.com@127.0.0.1/", "https://127.0.0.1#@example.com/", "https://example.com#x",
    "https://example.com/#", "https://%31%32%37.0.0.1/", "https://example%2ecom/", "https://[fe80::1%25eth0]/",
    # ports
    "https://example.com:/", "https://example.com:0/", "https://example.com:65536/", "https://example.com:x/",
    "https://example.com:-1/", "https://example.com:80:80/", "https://[2606:4700::1111]:/",
    # loopback and friends, plain
    "http://127.0.0.1/", "http://127.0.0.1:6379/", "http://localhost/", "http://LOCALHOST/",
    "http://localhost./", "http://a.localhost/", "http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/",
    "http://0.0.0.0/", "http://[::1]/", "http://[::]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]/", "http://[64:ff9b::127.0.0.1]/", "http://[2002:7f00:1::]/",
    "http://[fd00:ec2::254]/", "http://192.168.1.1/", "http://100.64.0.1/",
    # odd forms of IPv4
    "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://127.1/", "http://127.0.1/",
    "http://0177.0.0.1/", "http://0177.0.0.01/", "http://017700000001/", "http://127.0.0.1./",
    "http://127.0.0.0x1/", "http://0/", "http://0x/", "http://1.1/", "http://8.8.8.8.8/", "http://256.1.1.1/",
    "http://08.8.8.8/", "http://1.2.3.4.5/", "http://example.1/", "http://example.0x1/", "http://0X7F.1/",
    # letters that parsers read differently
    "http://example.com\\@127.0.0.1/", "http://127.0.0.1\\.example.com/", "http://exa mple.com/",
    "http://example.com\r\nHost: x/", "http://example.com/a b", "http://example.com/\x00", "\thttp://example.com/",
    "http://ex\u3002ample.com/", "http://①②⑦.⓪.⓪.①/", "http://127。0。0。1/", "http://éxample.com/",
    "http://example.com/ä", "http://exam\u00adple.com/", "http://-example.com/", "http://.example.com/",
    "http://example..com/", "http://[::1/", "http://::1/", "http://[127.0.0.1]/", "http://[v1.x]/",
    "http://[]/", "http://{host}/", "http://example.com/{id}", "https://" + "a" * 254 + "/",
    "https://example.com/" + "a" * 2048,
]  # fmt: skip


@pytest.mark.parametrize("url", GOOD_URLS)
def test_urls_that_may_be_called(url: str) -> None:
    assert check_url(url).hostname


@pytest.mark.parametrize("url", BAD_URLS)
def test_urls_that_may_not(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^url"):
        check_url(url)


@pytest.mark.parametrize(
    "url", ["http://user@10.0.0.1/", "http://0x0a.1/", "ftp://10.0.0.1/", "http://10.1/"]
)
def test_an_allowed_network_does_not_excuse_odd_urls(url: str) -> None:
    inner = policy(["10.0.0.0/8", "127.0.0.0/8"])
    assert check_url("http://10.0.0.1:8080/x", inner).port == 8080
    assert check_url("http://localhost:8080/x", inner).port == 8080
    with pytest.raises(ConfigError, match=r"^url"):
        check_url(url, inner)


def test_ports_and_tls_can_be_demanded() -> None:
    strict = policy(https_only=True, ports=[443, 8443])
    assert check_url("https://example.com:8443/", strict).port == 8443
    for url in ("http://example.com/", "https://example.com:22/", "http://8.8.8.8:443/"):
        with pytest.raises(ConfigError, match=r"^url"):
            check_url(url, strict)
    mixed = policy(["10.0.0.0/8"], https_only=True)
    assert mixed.choose("inner", ["10.0.0.1"], "http") == ["10.0.0.1"]
    with pytest.raises(ConfigError, match="TLS"):
        mixed.choose("outer", ["8.8.8.8"], "http")
