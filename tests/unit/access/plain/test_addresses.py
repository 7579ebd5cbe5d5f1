"""Patterns of addresses: which addresses each matches, and which are refused. Those marked with `Apache's`
are from RocketMQ's own tests."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.access.plain.addresses import parse_address, parse_pattern
from kourou.errors import ConfigError


def matches(pattern: str, address: str) -> bool:
    return parse_pattern(pattern).matches(parse_address(address))


@pytest.mark.parametrize("pattern", ["", " ", "10.0.0.{}", "::{}"])
def test_blank_matches_no_address(pattern: str) -> None:
    assert not matches(pattern, "10.0.0.1")
    assert not matches(pattern, "::")


@pytest.mark.parametrize("pattern", ["*", "*.*.*.*", "*:*:*:*:*:*:*:*"])
@pytest.mark.parametrize("address", ["10.0.0.1", "::1", "fe80::1%eth0", "not an address"])
def test_all_stars_match_every_address(pattern: str, address: str) -> None:
    assert matches(pattern, address)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        # One address, several, the last part.
        ("127.0.0.1", ["127.0.0.1", "::ffff:127.0.0.1"], ["127.0.0.2", "", "::1"]),
        ("::1", ["::1", "0:0:0:0:0:0:0:1", "[::1]"], ["::2", "0.0.0.1"]),
        ("1050::0005:0600:300C:326b", ["1050:0:0:0:5:600:300c:326B"], ["1050::5:600:300c:326c"]),
        ("127.0.0.1,127.0.0.3", ["127.0.0.1", "127.0.0.3"], ["127.0.0.2"]),
        ("127.0.0.1,::1,", ["127.0.0.1", "::1"], ["127.0.0.2", "::"]),
        ("127.0.0.{1,3}", ["127.0.0.1", "127.0.0.3"], ["127.0.0.2", "127.0.0.13"]),
        ("1050::5:600:300c:{1,2,3}", ["1050::5:600:300c:1", "1050::5:600:300c:3"], ["1050::5:600:300c:4"]),
        # IPv4 ranges: Apache's, and what stands behind the first wildcard.
        ("127.0.0.1-200", ["127.0.0.1", "127.0.0.200"], ["127.0.0.0", "127.0.0.201", "127.0.1.7"]),
        ("127.0.0.*", ["127.0.0.0", "127.0.0.255"], ["127.0.1.0", "127.1.0.0"]),
        ("127.0.1-200.*", ["127.0.1.0", "127.0.200.255"], ["127.0.0.9", "127.0.201.1"]),
        ("192.100-150.*.*", ["192.130.0.2"], ["192.99.0.2", "192.151.0.2", "::"]),
        ("127.*.*.*", ["127.3.2.1"], ["128.3.2.1"]),
        ("10.1.*.9", ["10.1.7.7"], ["10.2.7.9"]),
        ("10.1.2-3.anything", ["10.1.2.7"], ["10.1.4.7"]),
        ("10. 1. 2 .*", ["10.1.2.7"], ["10.1.3.7"]),
        ("10.1.2.0-0", ["10.1.2.0"], ["10.1.2.1"]),
        # IPv6 ranges: Apache's, and its readings of `::`.
        ("1050::5:600:300c:1-200", ["1050::5:600:300c:1", "1050::5:600:300c:200"], ["1050::5:600:300c:201"]),
        ("1050::5:600:300c:*", ["1050::5:600:300c:0", "1050::5:600:300c:FFFF"], ["1050::5:600:3001:1"]),
        (
            "1050::5:600:300c:1-200:*",
            ["1050::5:600:300c:1:0", "1050::5:600:300c:200:ffff"],
            ["1050::5:600:300c:0:1", "1050::5:600:300c:201:1"],
        ),
        ("1:2:3:*", ["1:2:3::", "1:2:3:4:5:6:7:8"], ["1:2:4::", "1.2.3.4"]),
        ("2::*", ["2::", "2:0:9::9"], ["2:1::", "::2"]),
        ("2::a-f", ["2:0:a::1"], ["2:0:9::", "2::a"]),
        ("AB:0::*", ["ab::1"], ["ab:1::1"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    assert {address: matches(pattern, address) for address in yes} == dict.fromkeys(yes, True)
    assert {address: matches(pattern, address) for address in no} == dict.fromkeys(no, False)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("256.0.0.1", "'256.0.0.1' is not an IP address"),
        ("127.0.0.01", "not an IP address"),
        ("10.0.0.0/8", "not an IP address"),
        ("2001:db8::/32", "not an IP address"),
        ("localhost", "not an IP address"),
        ("::1ggg", "not an IP address"),
        ("127.0.0.1, 127.0.0.2", "' 127.0.0.2' is not an IP address"),
        ("127.0.0.1,127.0.0.*", "'127.0.0.*' is not an IP address"),
        ("127.0.0.{1,*}", "'127.0.0.*' is not an IP address"),
        ("127.0.0.1,2,3}", "only the last part can be a list"),
        ("::1,2,3}", "only the last part can be a list"),
        ("192.168.{1}", "only the last part can be a list"),
        ("{192.168.1.1}", "only the last part can be a list"),
        ("10.{1,2}.0.{1}", "is not an IP address"),
        ("192.168.*", "has four parts"),
        ("10.0.0.0.*", "has four parts"),
        ("*.0.0.1", "second, third and fourth part only"),
        ("1-9.0.0.1", "second, third and fourth part only"),
        ("*.*.0.1", "'*' is not a number"),
        ("10.300.0.*", "'300' is not a number"),
        ("10.07.0.*", "'07' is not a number"),
        ("10.٣.0.*", "is not a number"),
        ("127.0.0.2-1", "ends before it begins"),
        ("127.0.0.-1-200", "'' is not a number"),
        ("127.0.0.1-", "'' is not a number"),
        ("127.0.0.0-256", "'256' is not a number"),
        ("*:2::1", "'*' is possible only as the last part"),
        ("1:*:*", "'*' is possible only as the last part"),
        (":*", "not possible in the first part"),
        ("::1-2:1", "a range is possible only in the last part"),
        ("1-2:1:1:*", "a range is possible only in the last part"),
        ("1:2:3:4:5:6:7:8:*", "has 8 groups"),
        ("1:2:f-1", "ends before it begins"),
        ("1:2:f-10000", "'10000' is not a group"),
        ("1:xyz:*", "'xyz' is not a group"),
    ],
)
def test_refused_patterns_are_named(pattern: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pattern(pattern)
    assert repr(pattern) in str(caught.value)
    assert why in str(caught.value)


@given(st.text(alphabet="0123456789abcf.:*-{}, /%[]", max_size=24), st.ip_addresses())
def test_any_text_is_a_pattern_or_refused(pattern: str, address: IPv4Address | IPv6Address) -> None:
    try:
        parsed = parse_pattern(pattern)
    except ConfigError:
        return
    assert parsed.matches(parse_address(str(address))) in (True, False)


@given(st.ip_addresses(), st.ip_addresses())
def test_one_address_matches_only_itself(
    one: IPv4Address | IPv6Address, other: IPv4Address | IPv6Address
) -> None:
    exploded = one.exploded.upper()
    assert matches(exploded, str(one))
    assert matches(exploded, str(other)) == (parse_address(str(one)) == parse_address(str(other)))


@given(st.ip_addresses(v=4), st.integers(1, 3))
def test_a_range_keeps_the_parts_before_it(address: IPv4Address, index: int) -> None:
    octets = str(address).split(".")
    pattern = ".".join(octets[:index] + ["*"] * (4 - index))
    assert matches(pattern, str(address))
    octets[index - 1] = str((int(octets[index - 1]) + 1) % 256)
    assert not matches(pattern, ".".join(octets))
