import pytest

from kourou.errors import ConfigError
from kourou.transport.addresses import format_address, parse_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        (" broker-a.example:10911 ", ("broker-a.example", 10911)),
        ("[::1]:9876", ("::1", 9876)),
        ("fe80::1:9876", ("fe80::1", 9876)),  # as Java writes an IPv6 address and its port
    ],
)
def test_address_is_split_at_its_last_colon(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed


@pytest.mark.parametrize("text", ["", "9876", ":9876", "host:", "host:port", "host:99999", "host:²"])
def test_what_is_no_address_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an address; write host:port"):
        parse_address(text)


def test_list_is_split_at_semicolons_and_commas() -> None:
    assert parse_addresses("a:1;b:2, c:3;") == ["a:1", "b:2", "c:3"]


def test_one_bad_address_in_a_list_is_refused() -> None:
    with pytest.raises(ConfigError, match="'b' is not an address"):
        parse_addresses("a:1;b")


def test_mapped_ipv4_is_written_as_ipv4() -> None:
    assert format_address(("::ffff:10.1.2.3", 7, 0, 0)) == "10.1.2.3:7"
    assert format_address(None) == "unknown"
